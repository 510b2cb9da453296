"""Models read as tables: states of a finite system, and steps that are taken in them.

Formulas become Python functions over the tables of a state, so that many states can be looked at.
"""

from dataclasses import dataclass

from kit.language import (
    And, Apply, Equal, Implies, Not, Or, Quantified, Symbol, Variable,
)


class State:
    """What each symbol says. Relations are sets of tuples, functions are dictionaries."""

    def __init__(self, model, domains):
        self.model = model
        self.domains = domains
        self.relations = {s: set() for s in model.symbols if s.result is None}
        self.functions = {s: {} for s in model.symbols if s.result is not None}

    def copy(self):
        """A copy that shares what never changes, and the domains."""
        twin = State.__new__(State)
        twin.model, twin.domains = self.model, self.domains
        twin.relations = {s: set(t) if s.changes else t for s, t in self.relations.items()}
        twin.functions = {s: dict(t) if s.changes else t for s, t in self.functions.items()}
        return twin

    def says(self, symbol, *arguments):
        if symbol.result is None:
            return arguments in self.relations[symbol]
        return self.functions[symbol].get(arguments, self.default(symbol))

    def default(self, symbol):
        return (self.domains[symbol.result] or [None])[0]

    def broken(self):
        """The conjuncts of the invariant that do not hold."""
        tables = Tables.of(self.model)
        return [name for name, holds in tables.invariant.items() if not holds(self)]

    def axioms_hold(self):
        return all(holds(self) for holds in Tables.of(self.model).axioms)

    def differences(self, other, symbols):
        """Where two states say different things; functions only where that matters."""
        found = []
        for symbol in symbols:
            if symbol.result is None:
                mine, theirs = self.relations[symbol], other.relations[symbol]
                found += [Difference(symbol, key, "is true only of the first") for key in sorted(mine - theirs)]
                found += [Difference(symbol, key, "is true only of the second") for key in sorted(theirs - mine)]
                continue
            matters = Tables.of(self.model).matters[symbol]
            for key in self.functions[symbol].keys() | other.functions[symbol].keys():
                if matters(self, *key) and self.says(symbol, *key) != other.says(symbol, *key):
                    said = f"is {self.says(symbol, *key)} and {other.says(symbol, *key)}"
                    found.append(Difference(symbol, key, said))
        return found


@dataclass(frozen=True)
class Difference:
    symbol: Symbol
    key: tuple
    what: str

    def __str__(self):
        return f"{self.symbol}{self.key} {self.what}"


class Impossible(Exception):
    """A guard of a step does not hold."""


class Tables:
    """Everything of a model, compiled."""

    known = {}

    @classmethod
    def of(cls, model):
        if model.name not in cls.known or cls.known[model.name].model is not model:
            cls.known[model.name] = cls(model)
        return cls.known[model.name]

    def __init__(self, model):
        self.model = model
        self.invariant = {name: compiled(term, ()) for name, term in model.invariant.items()}
        self.axioms = [compiled(term, ()) for term in model.axioms]
        self.steps = {name: CompiledStep(step) for name, step in model.steps.items()}
        self.matters = {}
        for symbol in model.symbols:
            if symbol.result and symbol.changes:
                variables = _arguments(symbol)
                self.matters[symbol] = compiled(symbol.matters(*variables), variables)


class CompiledStep:
    def __init__(self, step):
        self.step = step
        self.guards = [compiled(guard, step.parameters) for guard in step.guards]
        self.changes = []
        for change in step.changes:
            variables = _arguments(change.symbol)
            given = (*step.parameters, *variables)
            where = compiled(change.where(*variables), given)
            value, conditions = None, ()
            if change.value:
                value = compiled(change.value(*variables), given)
            elif change.such_that:
                new = Symbol(f"{change.symbol.name}'", change.symbol.sorts, change.symbol.result)
                conditions = [compiled(c, step.parameters) for c in change.such_that(new)]
                conditions = (new, conditions)
            exactly = [compiled(term, step.parameters) for term in change.exactly or ()]
            self.changes.append((change, exactly, where, value, conditions))


def take(state, name, choices=None, **parameters):
    """The state after a step. `choices` are the values of functions that the step may choose."""
    compiled_step = Tables.of(state.model).steps[name]
    given = [parameters[variable.name] for variable in compiled_step.step.parameters]
    for number, guard in enumerate(compiled_step.guards):
        if not guard(state, *given):
            raise Impossible(f"{name}({parameters}): guard {number}")
    after = state.copy()
    for change, exactly, where, value, conditions in compiled_step.changes:
        symbol = change.symbol
        if conditions:
            _check_choice(state, name, conditions, (choices or {}).get(symbol, {}), given)
        if exactly:
            keys = [tuple(term(state, *given) for term in exactly)]
        else:
            everywhere = state.relations[symbol] if change.becomes is False else _keys(state, symbol)
            keys = [key for key in everywhere if where(state, *given, *key)]
        if change.becomes is False:
            after.relations[symbol].difference_update(keys)
        elif change.becomes is True:
            after.relations[symbol].update(keys)
        else:
            for key in keys:
                said = value(state, *given, *key) if value else choices[symbol][key]
                after.functions[symbol][key] = said
    return after


def _check_choice(state, name, conditions, new, given):
    stand_in, compiled_conditions = conditions
    state.functions[stand_in] = new
    try:
        for number, condition in enumerate(compiled_conditions):
            if not condition(state, *given):
                raise Impossible(f"{name}: condition {number} of what was chosen")
    finally:
        del state.functions[stand_in]


def _keys(state, symbol):
    keys = [()]
    for sort in symbol.sorts:
        keys = [(*key, element) for key in keys for element in state.domains[sort]]
    return keys


def _arguments(symbol):
    return tuple(Variable(f"a{i}", sort) for i, sort in enumerate(symbol.sorts))


def compiled(term, parameters):
    """A Python function of a state and the parameters that tells whether the formula holds."""
    writer = _Writer()
    names = {variable: writer.fresh(variable) for variable in parameters}
    body = writer.write(term, names)
    lines = [f"def holds(state{''.join(', ' + n for n in names.values())}):"]
    lines += [f" {line}" for line in writer.prelude]
    lines.append(f" return {body}")
    scope = dict(writer.constants)
    exec("\n".join(lines), scope)
    return scope["holds"]


class _Writer:
    """Writes a formula as Python."""

    def __init__(self):
        self.count, self.prelude, self.constants, self.tables, self.loops = 0, [], {}, {}, {}

    def fresh(self, variable):
        self.count += 1
        return f"{variable.name.strip('_')}_{self.count}"

    def table(self, symbol):
        if symbol not in self.tables:
            name = f"t{len(self.tables)}"
            self.constants[f"s_{name}"] = symbol
            if symbol.result is None:
                self.prelude.append(f"{name} = state.relations[s_{name}]")
            else:
                self.prelude.append(f"{name} = state.functions[s_{name}]")
                self.constants[f"r_{name}"] = symbol.result
                self.prelude.append(f"d_{name} = (state.domains[r_{name}] or [None])[0]")
            self.tables[symbol] = name
        return self.tables[symbol]

    def domain(self, sort):
        if sort not in self.loops:
            name = f"all_{sort.name}"
            self.constants[f"of_{name}"] = sort
            self.prelude.append(f"{name} = state.domains[of_{name}]")
            self.loops[sort] = name
        return self.loops[sort]

    def write(self, term, names):
        part = lambda other: self.write(other, names)
        match term:
            case Variable():
                return names[term]
            case Apply():
                key = "(" + "".join(part(a) + "," for a in term.arguments) + ")"
                table = self.table(term.symbol)
                if term.symbol.result is None:
                    return f"({key} in {table})"
                return f"{table}.get({key}, d_{table})"
            case Equal():
                return f"({part(term.left)} == {part(term.right)})"
            case Not():
                return f"(not {part(term.body)})"
            case And():
                return "(" + (" and ".join(map(part, term.parts)) or "True") + ")"
            case Or():
                return "(" + (" or ".join(map(part, term.parts)) or "False") + ")"
            case Implies():
                return f"(not {part(term.premise)} or {part(term.conclusion)})"
            case Quantified():
                return self.quantified(term, names)
        raise TypeError(term)

    def quantified(self, term, names):
        inner = names | {v: self.fresh(v) for v in term.variables}
        loops, bound = self.rows_of_premise(term, inner)
        rest = [v for v in term.variables if v not in bound]
        loops += [f"for {inner[v]} in {self.domain(v.sort)}" for v in rest]
        kind = "all" if term.universal else "any"
        return f"{kind}({self.write(term.body, inner)} {' '.join(loops)})"

    def rows_of_premise(self, term, names):
        """If the variables are those of a relation that must hold: only its rows need be looked at."""
        body = term.body.premise if isinstance(term.body, Implies) else None
        while isinstance(body, And) and body.parts:
            body = body.parts[0]
        if not (term.universal and isinstance(body, Apply) and body.symbol.result is None):
            return [], set()
        # Terms are compared by `is`: their `==` is a formula.
        own = [a for a in body.arguments if any(a is v for v in term.variables)]
        if len(own) != len(body.arguments) or len(set(own)) != len(own):
            return [], set()
        row = "(" + "".join(names[a] + "," for a in own) + ")"
        return [f"for {row} in {self.table(body.symbol)}"], set(own)
