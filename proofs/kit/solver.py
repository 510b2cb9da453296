"""Models read as formulas, for an SMT solver.

An obligation is unsatisfiable: the axioms, the invariant before a step, its guards, and the negation of one
conjunct after it. After a step, symbols are read through its changes, so that no formula speaks of two states.
"""

import time
from dataclasses import dataclass

import z3

from kit.language import And, Apply, Equal, Implies, Not, Or, Quantified, Symbol, Variable
from kit.tables import State


class Reading:
    """The symbols of a model as those of the solver."""

    def __init__(self, model):
        self.model = model
        self.sorts = {sort: z3.DeclareSort(sort.name) for sort in model.sorts}
        self.before = {symbol: self._declare(symbol) for symbol in model.symbols}

    def _declare(self, symbol, name=None):
        result = self.sorts[symbol.result] if symbol.result else z3.BoolSort()
        sorts = [self.sorts[sort] for sort in symbol.sorts]
        if not sorts:
            constant = z3.Const(name or symbol.name, result)
            return lambda: constant
        return z3.Function(name or symbol.name, *sorts, result)

    def constant(self, variable):
        return z3.Const(variable.name, self.sorts[variable.sort])

    def formula(self, term, bound, symbols=None):
        """A term in the solver's words; `bound` tells what its variables stand for."""
        symbols = symbols or self.before
        read = lambda part: self.formula(part, bound, symbols)
        match term:
            case Variable():
                return bound[term]
            case Apply():
                return symbols[term.symbol](*map(read, term.arguments))
            case Equal():
                return read(term.left) == read(term.right)
            case Not():
                return z3.Not(read(term.body))
            case And():
                return z3.And(*map(read, term.parts))
            case Or():
                return z3.Or(*map(read, term.parts))
            case Implies():
                return z3.Implies(read(term.premise), read(term.conclusion))
            case Quantified():
                fresh = {v: z3.FreshConst(self.sorts[v.sort], v.name) for v in term.variables}
                body = self.formula(term.body, bound | fresh, symbols)
                quantify = z3.ForAll if term.universal else z3.Exists
                return quantify(list(fresh.values()), body)
        raise TypeError(term)

    def applied(self, function, arguments, sorts, bound):
        """What a function of terms says of arguments that are the solver's."""
        variables = [Variable(f"_{i}", sort) for i, sort in enumerate(sorts)]
        return self.formula(function(*variables), bound | dict(zip(variables, arguments)))

    def step(self, step):
        """The guards of a step for constants as its parameters; the symbols after it; the constants."""
        bound = {parameter: self.constant(parameter) for parameter in step.parameters}
        guards = [self.formula(guard, bound) for guard in step.guards]
        after = dict(self.before)
        for change in step.changes:
            symbol, old = change.symbol, after[change.symbol]
            where = lambda *a, c=change: self.applied(c.where, a, c.symbol.sorts, bound)
            if change.becomes is True:
                after[symbol] = lambda *a, o=old, w=where: z3.Or(o(*a), w(*a))
            elif change.becomes is False:
                after[symbol] = lambda *a, o=old, w=where: z3.And(o(*a), z3.Not(w(*a)))
            elif change.value:
                value = lambda *a, c=change: self.applied(c.value, a, c.symbol.sorts, bound)
                after[symbol] = lambda *a, o=old, w=where, v=value: z3.If(w(*a), v(*a), o(*a))
            else:
                new = self._declare(symbol, f"{symbol.name}'")
                guards += self._chosen(change, new, bound)
                after[symbol] = lambda *a, o=old, w=where, n=new: z3.If(w(*a), n(*a), o(*a))
        return guards, after, bound

    def _chosen(self, change, new, bound):
        """The conditions on new values. They may speak of the old ones, and of the new ones as `new`."""
        stand_in = Symbol(f"{change.symbol.name}'", change.symbol.sorts, change.symbol.result)
        symbols = self.before | {stand_in: new}
        return [self.formula(condition, bound, symbols) for condition in change.such_that(stand_in)]

    def assumptions(self):
        return [self.formula(term, {}) for term in self.model.axioms]

    def invariant(self):
        return [self.formula(term, {}) for term in self.model.invariant.values()]


@dataclass
class Result:
    step: str
    conjunct: str
    holds: bool
    seconds: float
    counterexample: object = None

    @property
    def name(self):
        return f"{self.step}/{self.conjunct}"


def _check(formulas):
    solver = z3.Solver()
    solver.set("timeout", 60_000)
    solver.add(*formulas)
    started = time.monotonic()
    answer = solver.check()
    seconds = time.monotonic() - started
    if answer == z3.unknown:
        raise RuntimeError(f"the solver gives up: {solver.reason_unknown()}")
    return (solver.model() if answer == z3.sat else None), seconds


def obligations(model):
    """Yields the result of each: the beginning, every step, and what follows from the invariant."""
    reading = Reading(model)
    axioms, invariant = reading.assumptions(), reading.invariant()
    # In the beginning no relation holds; functions may say anything.
    relation = lambda symbol: symbol.changes and symbol.result is None
    start = {s: (lambda *_: z3.BoolVal(False)) if relation(s) else f for s, f in reading.before.items()}
    for name, term in model.invariant.items():
        yield _result("start", name, [*axioms, z3.Not(reading.formula(term, {}, start))])
    for step in model.steps.values():
        guards, after, bound = reading.step(step)
        for name, term in model.invariant.items():
            broken = z3.Not(reading.formula(term, {}, after))
            result = _result(step.name, name, [*axioms, *invariant, *guards, broken])
            if result.counterexample is not None:
                result.counterexample = extract(reading, result.counterexample, bound)
            yield result
    for name, (at, term) in model.theorems.items():
        if at:
            guards, _, bound = reading.step(model.steps[at])
            claim = reading.formula(term(*model.steps[at].parameters), bound)
            yield _result(at, name, [*axioms, *invariant, *guards, z3.Not(claim)])
        else:
            claim = reading.formula(term, {})
            yield _result("always", name, [*axioms, *invariant, z3.Not(claim)])


def _result(step, conjunct, formulas):
    found, seconds = _check(formulas)
    return Result(step, conjunct, found is None, seconds, found)


def possible(model, step):
    """A state in which the invariant holds and the step is possible, as tables, with the step's parameters;
    nothing if there is none."""
    reading = Reading(model)
    guards, _, bound = reading.step(step)
    found, seconds = _check([*reading.assumptions(), *reading.invariant(), *guards])
    return (extract(reading, found, bound) if found is not None else None), seconds


def extract(reading, found, bound):
    """A model that the solver found, as a state in tables, and the values of a step's parameters and choices."""
    model = reading.model
    universe = {}
    for sort, of in reading.sorts.items():
        constants = [found.eval(c, model_completion=True) for v, c in bound.items() if v.sort == sort]
        elements = list(found.get_universe(of) or []) + constants
        some = [found.eval(z3.Const(f"some {sort}", of), model_completion=True)]
        universe[sort] = {str(e): e for e in elements or some}
    tuples = lambda sorts: _product([list(universe[sort].values()) for sort in sorts])
    value = lambda expression: found.eval(expression, model_completion=True)
    state = State(model, {sort: sorted(elements) for sort, elements in universe.items()})
    for symbol in model.symbols:
        for arguments in tuples(symbol.sorts):
            key = tuple(map(str, arguments))
            said = value(reading.before[symbol](*arguments))
            if symbol.result:
                state.functions[symbol][key] = str(said)
            elif z3.is_true(said):
                state.relations[symbol].add(key)
    chosen = {}
    for symbol in (s for s in model.symbols if s.result and s.changes):
        new = reading._declare(symbol, f"{symbol.name}'")
        chosen[symbol] = {tuple(map(str, a)): str(value(new(*a))) for a in tuples(symbol.sorts)}
    return state, {v.name: str(value(c)) for v, c in bound.items()}, chosen


def _product(lists):
    if not lists:
        return [()]
    return [(first, *rest) for first in lists[0] for rest in _product(lists[1:])]
