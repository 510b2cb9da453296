"""Finite systems: who there is, what they want, and what there is to be had."""

from kit.tables import State


class System:
    """Makes states of a model. `pools` tells the manager of each pool and its units; `needs`, of each request
    (a pair of its user and its number), how many units of which pools it wants, and which of them by name. A
    user is a triple: its home, its lane there, its generation."""

    def __init__(self, model, pools, needs, users=(), stances=4):
        self.model, self.pools, self.needs = model, pools, needs
        requests = sorted(needs)
        users = sorted({user for user, _ in requests} | set(users))
        lanes = sorted({user[:2] for user in users})
        self.claims = {request: self._claims(request) for request in requests}
        domains = {
            "Home": sorted({lane[0] for lane in lanes}),
            "Lane": lanes,
            "User": users,
            "Request": requests,
            "Claim": [claim for request in requests for claim in self.claims[request]],
            "Unit": [(pool, unit) for pool, (_, units) in sorted(pools.items()) for unit in units],
            "Pool": sorted(pools),
            "Manager": sorted({manager for manager, _ in pools.values()}),
            "Stance": list(range(stances)),
        }
        self.start = State(model, {sort: domains[sort.name] for sort in model.sorts})
        self._fill()

    def _claims(self, request):
        """A claim is known by its request, its pool, its number, and the unit it names, if it does."""
        claims = []
        for pool, (units, names) in sorted(self.needs[request].items()):
            named = [*sorted(names), *[None] * (units - len(names))]
            claims += [(request, pool, number, name) for number, name in enumerate(named)]
        return claims

    def _fill(self):
        orders = {"before": "User", "earlier": "Request", "less": "Stance", "below": "Pool"}
        functions = {
            "home": lambda lane: lane[0],
            "lane": lambda user: user[:2],
            "user": lambda request: request[0],
            "of": lambda claim: claim[0],
            "wants": lambda claim: claim[1],
            "pool": lambda unit: unit[0],
            "guard": lambda pool: self.pools[pool][0],
        }
        for symbol in (s for s in self.model.symbols if not s.changes):
            domains = [self.start.domains[sort] for sort in symbol.sorts]
            if symbol.name in orders:
                rows = {(a, b) for a in domains[0] for b in domains[0] if a < b}
                self.start.relations[symbol] = rows
            elif symbol.name in functions:
                of = functions[symbol.name]
                self.start.functions[symbol] = {(a,): of(a) for a in domains[0]}
            elif symbol.name == "names":
                named = {(c, (c[1], c[3])) for c in domains[0] if c[3] is not None}
                self.start.relations[symbol] = named
            elif symbol.name == "has_part":
                parts = {(c[0], self.pools[c[1]][0]) for claims in self.claims.values() for c in claims}
                self.start.relations[symbol] = parts
            elif symbol.name == "first":
                self.start.relations[symbol] = {(0,)}
            else:
                raise KeyError(symbol.name)

    def claims_at(self, request, manager):
        return [c for c in self.claims[request] if self.pools[c[1]][0] == manager]
