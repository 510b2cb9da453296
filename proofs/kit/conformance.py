"""Whether the code does what was proven: every step that it takes is a sequence of steps of the model,
between the states that the model sees in its roles, and the invariant holds in all of them.

What a protocol adds is in its own `conformance.py`: what the model sees of its roles, and which steps of the model
a step of the code should be.
"""

import time
from collections import Counter

from kit.recording import Recording
from kit.system import System
from kit.tables import Impossible, take


class Drift(Exception):
    """The code did something that the model does not do, or broke the invariant. `why` without where."""

    def __init__(self, text, why=None):
        super().__init__(text)
        self.why = why or text


class Seen:
    """What a state of the code mentions: requests with their needs, and what managers know of these; users, and the
    latest stance."""

    def __init__(self):
        self.needs, self.kept, self.users, self.stance = {}, {}, set(), 0

    def request(self, request, needs=None):
        self.users.add(request[0])
        if needs is not None or request not in self.needs:
            self.needs[request] = needs


class Walk:
    """From the state before a step of the code towards that after it, by steps of the model."""

    def __init__(self, checker, system, before, after):
        self.checker, self.system, self.after = checker, system, after
        self.state = before

    def __call__(self, step, choices=None, **parameters):
        symbols = self.checker.symbols
        named = {symbols[name]: values for name, values in (choices or {}).items()}
        self.state = take(self.state, step, named, **parameters)
        self.checker.taken[step] += 1

    def now(self, name):
        """The rows of a relation as the model has it by now."""
        return self.state.relations[self.checker.symbols[name]]

    def then(self, name):
        """The rows of a relation as the code has it after the step."""
        return self.after.relations[self.checker.symbols[name]]

    def missing(self, name):
        return sorted(self.then(name) - self.now(name))

    def says(self, name, *arguments):
        return self.state.says(self.checker.symbols[name], *arguments)

    def will_say(self, name, *arguments):
        return self.after.says(self.checker.symbols[name], *arguments)

    def free_units(self, claims, held, chosen):
        """Units for claims: those that the code chose; of counted pools any that are free."""
        used = set(held)
        units = {}
        for claim in claims:
            if self.checker.is_listed(claim[1]):
                units[(claim,)] = chosen(claim)
                continue
            pool = self.system.start.domains[self.checker.sorts["Unit"]]
            free = [u for u in pool if u[0] == claim[1] and u not in used]
            if not free:
                raise Drift(f"there is no unit left for {claim}")
            units[(claim,)] = free[0]
            used.add(free[0])
        return units


class Checker:
    """Checks one recording."""

    def __init__(self, model, rules, recording, taken):
        self.model, self.rules, self.recording, self.taken = model, rules, recording, taken
        self.symbols = {symbol.name: symbol for symbol in model.symbols}
        self.sorts = {sort.name: sort for sort in model.sorts}
        self.known_needs, self.systems, self.abstract, self.looked_at = {}, {}, {}, set()
        self.steps = 0

    def is_listed(self, pool):
        return self.recording.scope["pools"][pool]["listed"]

    def check(self):
        for before, action, after, cut in self.recording.steps(self.rules.read):
            self.steps += 1
            try:
                self.step(before, action, after, cut)
            except (Drift, Impossible) as why:
                text = f"{self.recording.line}: step {self.steps}, {action}: {why}"
                raise Drift(text, str(why)) from None

    def step(self, before, action, after, cut):
        system = self.system(before, after)
        start, end = self.state(system, before), self.state(system, after)
        walk = Walk(self, system, start, end)
        self.explain(walk, before, action, after, cut)
        compared = [self.symbols[name] for name in self.rules.COMPARED]
        different = walk.state.differences(end, compared)
        # Of counted pools nobody tells which units are meant.
        different = [text for text in different if not self.is_about_counted(text)]
        different += [f"{name}{row} out of nowhere" for name in self.rules.MESSAGES
                      for row in walk.missing(name)]
        if different:
            raise Drift("; ".join(map(str, different)))
        self.lose(walk, cut)

    def lose(self, walk, cut):
        """Messages that are no longer under way. Without losses, a release goes only when its request is over."""
        for name in self.rules.LOST:
            gone = walk.now(name) - walk.then(name)
            if gone:
                self.taken[f"lose_{name}"] += 1
            if name == "released" and not cut and not self.recording.loses:
                heard = walk.then("over") if "over" in self.symbols else None
                unheard = gone - heard if heard is not None else set()
                if unheard:
                    raise Drift(f"released{sorted(unheard)[0]} is gone, and was not heard")

    def is_about_counted(self, difference):
        symbol, key = difference.symbol, difference.key
        return symbol.name in ("unit", "told") and not self.is_listed(key[0][1])

    def system(self, *states):
        """The finite system of what some states mention."""
        seen = Seen()
        for state in states:
            self.see(state, seen)
        # A release, for instance, does not tell what was needed; but it was told before.
        known = self.known_needs.setdefault(self.recording.scopes, {})
        known.update({r: n for r, n in seen.needs.items() if n is not None})
        needs = {r: n if n is not None else recalled(known.get(r, {}), seen.kept.get(r, {}))
                 for r, n in seen.needs.items()}
        key = (tuple(sorted((r, tuple(sorted(n.items()))) for r, n in needs.items())),
               tuple(sorted(seen.users)), seen.stance)
        if key not in self.systems:
            scope = self.recording.scope["pools"]
            managers = self.rules.managers(scope)
            pools = {p: (managers[p], range(pool["capacity"])) for p, pool in enumerate(scope)}
            made = System(self.model, pools, needs, seen.users, seen.stance + 2)
            self.systems[key] = made
        return self.systems[key]

    def see(self, state, seen):
        for client in state.clients:
            seen.users.add(client["request"][0])
            if client["request"][1] > 0:
                seen.request(client["request"], client["needs"])
        for item in state.items:
            if item and item["kind"] in ("gone", "lapse") and item["user"]:
                seen.users.add(item["user"])
        self.rules.see(state, seen)

    def state(self, system, code):
        """What the model sees of a state; the invariant is looked at the first time."""
        key = (id(system), code.number)
        if key not in self.abstract:
            state = system.start.copy()
            tables = {name: state.relations[s] if s.result is None else state.functions[s]
                      for name, s in self.symbols.items()}
            self.lives(system, code, tables)
            self.rules.abstract(system, code, tables, self)
            self.uses(code, tables)
            self.abstract[key] = state
            if code.number not in self.looked_at:
                self.looked_at.add(code.number)
                if broken := state.broken():
                    raise Drift(f"the invariant is broken: {', '.join(broken)}")
        return self.abstract[key]

    def lives(self, system, code, tables):
        """Who has begun, who asks, who will not ask again, who has stopped."""
        current = {client["request"][0][1]: client for client in code.clients}
        users = system.start.domains[self.sorts["User"]]
        acting = {client["request"][0] for client, role in zip(code.clients, code.users) if role is not None}
        before = code.users[len(code.clients):]
        acting |= {client["predecessor"] for client, role in zip(code.clients, before) if role is not None}
        for user in users:
            client = current[user[1]]
            present = client["request"][0]
            if (user[0][1], user[2]) > (present[0][1], present[2]):
                continue  # A later life of its cell, or a later generation.
            tables["begun"].add((user,))
            gone = user != present or client["stage"] in ("Left", "Lost", "Crashed")
            if gone:
                tables["retired"].add((user,))
            if gone and user not in acting:
                tables["stopped"].add((user,))
        for asked in system.needs:
            client = current[asked[0][1]]
            if (asked[0],) in tables["begun"] and (asked[0] != client["request"][0] or asked <= client["request"]):
                tables["asked"].add((asked,))

    def uses(self, code, tables):
        """Whoever uses something was granted it, and uses the units that its role was told."""
        for client in (client for client in code.clients if client["stage"] == "Using"):
            request = client["request"]
            if (request,) not in tables["granted"]:
                raise Drift(f"{request} uses what was not granted")
            told = {unit for (claim,), unit in tables["told"].items() if claim[0] == request}
            listed = lambda units: {tuple(unit) for unit in units if self.is_listed(unit[0])}
            if listed(client["units"]) != listed(told):
                raise Drift(f"{request} uses {client['units']}, and was told {sorted(told)}")

    def explain(self, walk, before, action, after, cut):
        """Takes the steps of the model that the action should be."""
        kind, what = action
        lane = lambda state: state.clients[what]["request"]
        if kind == "ask":
            self.rules.ask(walk, lane(after))
        elif kind in ("done", "leave"):
            self.rules.end(walk, lane(before))
        elif kind == "crash":
            walk("crash", u=lane(before)[0])
        elif kind == "reboot":
            for user in (client["request"][0] for client in before.clients):
                if user[0] == (what, 0) and (user,) not in walk.now("stopped"):
                    walk("crash", u=user)
        elif kind == "resize":
            self.rules.on_manager(walk, what, None, None)
        elif kind in ("deliver", "duplicate"):
            self.deliver(walk, what)
        if cut:
            actor = self.actor(before, action)
            walk("crash", u=actor)
        self.settle(walk)

    def actor(self, before, action):
        kind, what = action
        return what["to"] if isinstance(what, dict) else before.clients[what]["request"][0]

    def deliver(self, walk, item):
        rules = self.rules
        if item["kind"] == "to-manager":
            rules.on_manager(walk, item["to"], item["from"], item["message"])
        elif item["kind"] == "to-user":
            rules.on_user(walk, item["to"], item["from"], item["message"])
        elif item["kind"] == "gone":
            rules.on_gone(walk, item["to"], item["gone"], item["user"], item["home"])
        elif item["kind"] == "lapse":
            for (quest,) in sorted(walk.now("quest") - walk.then("quest")):
                rules.end(walk, quest)
        elif item["kind"] == "manager-timer":
            rules.on_manager(walk, item["at"], None, None)
        elif item["kind"] == "user-timer":
            rules.on_user_timer(walk, item["at"])

    def settle(self, walk):
        """What the world knows of users."""
        for name, step in (("retired", "retire"), ("stopped", "stop"), ("begun", "begin")):
            for (user,) in walk.missing(name):
                walk(step, u=user)


def recalled(known, kept):
    """What a request needed whose user has gone on: as it was told before, if that is how managers know it. (On another
    way through the scope the same request may have needed something else.)"""
    return known if all(known.get(pool) == need for pool, need in kept.items()) else kept


def assigned(claims, units):
    """Which unit is for which claim, of a listed pool: those named, and the others in their order."""
    if len(set(units)) != len(claims):
        raise Drift(f"units {sorted(units)} for {len(claims)} claims: {claims}")
    others = iter(sorted(set(units) - {claim[3] for claim in claims}))
    unit = lambda claim: claim[3] if claim[3] in units else next(others, None)
    return {claim: (claim[1], unit(claim)) for claim in claims}


def units_for(claims, units, listed, counted):
    """The units of some claims, by pool; `counted` tells those of counted pools."""
    result = {}
    for pool in {claim[1] for claim in claims}:
        of_pool = [claim for claim in claims if claim[1] == pool]
        result |= assigned(of_pool, units.get(pool, ())) if listed(pool) else counted(of_pool)
    return result


class Ghosts:
    """Units of counted pools, which the code does not tell apart: for each claim another one, while there are any."""

    def __init__(self, system):
        self.system, self.used = system, set()

    def __call__(self, claims):
        taken = {}
        for claim in claims:
            units = [(claim[1], unit) for unit in self.system.pools[claim[1]][1]]
            taken[claim] = next((unit for unit in units if unit not in self.used), units[0])
            self.used.add(taken[claim])
        return taken


def conform(name, rules, model, options, demand):
    """Checks the scopes of a protocol, that every step of the model was taken, and that changed code drifts."""
    taken, started = Counter(), time.monotonic()
    steps = states = 0
    for line, walks in rules.scopes(options.quick):
        checker = Checker(model, rules, Recording(line, walks), taken)
        try:
            checker.check()
        except Drift as drift:
            demand(False, f"the code has drifted from the model: {drift}")
        print(f"  conforms  {checker.steps:7} steps, {len(checker.looked_at):6} states  {line}"
              + (f" ({walks} random walks)" if walks else ""))
        steps, states = steps + checker.steps, states + len(checker.looked_at)
    seconds = time.monotonic() - started
    print(f"{name}: {steps} steps of the code between {states} states are steps of the model, in {seconds:.0f} s")
    never = model.steps.keys() - taken.keys()
    demand(not never, f"{name}: the code never took {', '.join(sorted(never))}")
    for line, walks in rules.CHANGED:
        try:
            Checker(model, rules, Recording(line, walks), Counter()).check()
        except Drift as drift:
            print(f"  drifts  {line}: {drift.why}")
        else:
            demand(False, f"{line}: the change was not noticed")
