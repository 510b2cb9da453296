"""The language that models are written in: one text, two readings.

A model has *sorts* (of any size), *symbols* over them, *steps* and an *invariant*. Symbols are relations
and functions; some never change (who asked, what a request wants), the others are the state. A step has
parameters, guards and changes. `solver.py` reads all of it as formulas, `tables.py` as tables of a finite
system; neither knows anything of a protocol.

Formulas are ordinary Python: `quest(r) & ~granted(r)`, `implies(a, b)`, `a == b`, and quantifiers that
take their variables from a lambda: `forall(lambda r=Request, m=Manager: ...)`.
"""

import inspect
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Sort:
    name: str

    def __repr__(self):
        return self.name


class Term:
    """A formula (sort `None`) or something of a sort."""

    sort = None

    def __eq__(self, other):
        return Equal(self, other)

    def __ne__(self, other):
        return Not(Equal(self, other))

    def __and__(self, other):
        return And((self, other))

    def __or__(self, other):
        return Or((self, other))

    def __invert__(self):
        return Not(self)

    __hash__ = object.__hash__


@dataclass(frozen=True, eq=False)
class Variable(Term):
    name: str
    sort: Sort


@dataclass(frozen=True, eq=False)
class Apply(Term):
    symbol: "Symbol"
    arguments: tuple

    @property
    def sort(self):
        return self.symbol.result


@dataclass(frozen=True, eq=False)
class Equal(Term):
    left: Term
    right: Term


@dataclass(frozen=True, eq=False)
class Not(Term):
    body: Term


@dataclass(frozen=True, eq=False)
class And(Term):
    parts: tuple


@dataclass(frozen=True, eq=False)
class Or(Term):
    parts: tuple


@dataclass(frozen=True, eq=False)
class Implies(Term):
    premise: Term
    conclusion: Term


@dataclass(frozen=True, eq=False)
class Quantified(Term):
    universal: bool
    variables: tuple
    body: Term


TRUE = And(())


def both(*parts):
    return And(parts)


def either(*parts):
    return Or(parts)


def implies(premise, conclusion):
    return Implies(premise, conclusion)


def variables_of(function):
    """The variables that a lambda quantifies over: its parameters, whose defaults are their sorts."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(Variable(p.name, p.default) for p in parameters)


def forall(function):
    variables = variables_of(function)
    return Quantified(True, variables, function(*variables))


def exists(function):
    variables = variables_of(function)
    return Quantified(False, variables, function(*variables))


@dataclass(frozen=True, eq=False)
class Symbol:
    """A relation (`result` is `None`) or a function.

    What a function says is of interest only where `matters` holds; elsewhere it may say anything.
    """

    name: str
    sorts: tuple
    result: Sort = None
    changes: bool = True
    matters: object = None

    def __call__(self, *arguments):
        assert len(arguments) == len(self.sorts), f"{self.name} takes {self.sorts}"
        for argument, sort in zip(arguments, self.sorts):
            assert argument.sort == sort, f"{self.name}: a {argument.sort} where a {sort} belongs"
        return Apply(self, arguments)

    def __repr__(self):
        return self.name


@dataclass
class Change:
    """What a step does to a symbol, wherever `where` holds: a relation becomes true or false there, a
    function takes the value `value`, or any value for which `such_that` holds. `exactly`: the arguments, if `where`
    holds for these only."""

    symbol: Symbol
    where: object
    exactly: tuple = None
    becomes: bool = None
    value: object = None
    such_that: object = None


@dataclass
class Step:
    """Something that may happen. `code` names the function that does it."""

    name: str
    code: str
    parameters: tuple
    guards: list = field(default_factory=list)
    changes: list = field(default_factory=list)
    without: frozenset = frozenset()
    rules: set = field(default_factory=set)

    def keeps(self, rule):
        """Whether a rule is in force."""
        if rule:
            self.rules.add(rule)
        return rule not in self.without

    def when(self, *guards, rule=None):
        """Only if these hold. What belongs to a rule can be taken away."""
        if self.keeps(rule):
            self.guards.extend(guards)

    def insert(self, symbol, *arguments, rule=None):
        if self.keeps(rule):
            self.changes.append(Change(symbol, _equals(arguments), arguments, becomes=True))

    def remove(self, symbol, *arguments, rule=None):
        if self.keeps(rule):
            self.changes.append(Change(symbol, _equals(arguments), arguments, becomes=False))

    def insert_where(self, symbol, where, rule=None):
        if self.keeps(rule):
            self.changes.append(Change(symbol, where, becomes=True))

    def remove_where(self, symbol, where, rule=None):
        if self.keeps(rule):
            self.changes.append(Change(symbol, where, becomes=False))

    def set(self, symbol, arguments, value, rule=None):
        if self.keeps(rule):
            self.changes.append(Change(symbol, _equals(arguments), arguments, value=lambda *_: value))

    def choose(self, symbol, where, such_that):
        """The function takes new values where `where` holds: any for which all of `such_that` hold."""
        self.changes.append(Change(symbol, where, such_that=such_that))


def _equals(arguments):
    return lambda *given: And(tuple(Equal(a, b) for a, b in zip(given, arguments)))


class Model:
    """Sorts, symbols, axioms, steps and the invariant of a protocol."""

    def __init__(self, name, without=()):
        self.name = name
        self.without = frozenset(without)
        self.sorts, self.symbols, self.axioms = [], [], []
        self.steps, self.invariant, self.theorems = {}, {}, {}

    def sort(self, name):
        sort = Sort(name)
        self.sorts.append(sort)
        return sort

    def _symbol(self, *args, **kwargs):
        symbol = Symbol(*args, **kwargs)
        self.symbols.append(symbol)
        return symbol

    def relation(self, name, *sorts):
        return self._symbol(name, sorts)

    def function(self, name, *sorts, to, matters):
        return self._symbol(name, sorts, to, matters=matters)

    def fixed_relation(self, name, *sorts):
        return self._symbol(name, sorts, changes=False)

    def fixed_function(self, name, *sorts, to):
        return self._symbol(name, sorts, to, changes=False)

    def order(self, name, sort):
        """A relation that orders a sort, strictly and totally."""
        less = self.fixed_relation(name, sort, sort)
        self.axiom(lambda x=sort: ~less(x, x))
        self.axiom(lambda x=sort, y=sort, z=sort: implies(less(x, y) & less(y, z), less(x, z)))
        self.axiom(lambda x=sort, y=sort: either(less(x, y), x == y, less(y, x)))
        return less

    def axiom(self, function):
        self.axioms.append(forall(function))

    def step(self, code):
        """Declares a step: a function of the step itself and its parameters, each annotated with its sort."""

        def declare(function):
            parameters = list(inspect.signature(function).parameters.values())[1:]
            variables = tuple(Variable(p.name, p.annotation) for p in parameters)
            step = Step(function.__name__, code, variables, without=self.without)
            function(step, *variables)
            self.steps[step.name] = step
            return step

        return declare

    def always(self, name, function):
        """A conjunct of the invariant."""
        self.invariant[name] = forall(function)

    def theorem(self, name, function, step=None):
        """What follows from the invariant; or, of a step, from the invariant and the guards of the step."""
        self.theorems[name] = (step, function if step else forall(function))

    def rules(self):
        return set().union(*(step.rules for step in self.steps.values()))
