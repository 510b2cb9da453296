"""Whether what is asked of the solver is decidable.

The formulas are in the fragment EPR with sorts in layers: functions, and "exists" under "forall", lead from
sort to sort without a circle. Then only finitely many things can be spoken of, and the solver always
comes to an end.
"""

from kit.language import And, Apply, Equal, Implies, Not, Or, Quantified, Symbol, Variable


class Circle(Exception):
    """Sorts that lead back to themselves."""


def edges_of(term, positive=True, universal=()):
    """Pairs of sorts: from what is quantified over, or given to a function, to what then exists."""
    match term:
        case Variable():
            return set()
        case Apply():
            found = set()
            for argument in term.arguments:
                found |= edges_of(argument, positive, universal)
            if term.symbol.result:
                found |= {(sort, term.symbol.result) for sort in term.symbol.sorts}
            return found
        case Equal():
            return edges_of(term.left, positive, universal) | edges_of(term.right, positive, universal)
        case Not():
            return edges_of(term.body, not positive, universal)
        case And() | Or():
            return set().union(*(edges_of(part, positive, universal) for part in term.parts), set())
        case Implies():
            left = edges_of(term.premise, not positive, universal)
            return left | edges_of(term.conclusion, positive, universal)
        case Quantified():
            if term.universal == positive:
                own = (*universal, *(v.sort for v in term.variables))
                return edges_of(term.body, positive, own)
            found = {(sort, v.sort) for sort in universal for v in term.variables}
            return found | edges_of(term.body, positive, universal)
    raise TypeError(term)


def has_quantifiers(term):
    match term:
        case Quantified():
            return True
        case And() | Or():
            return any(map(has_quantifiers, term.parts))
        case Not():
            return has_quantifiers(term.body)
        case Implies():
            return has_quantifiers(term.premise) or has_quantifiers(term.conclusion)
    return False


def layers(model):
    """The sorts, each after all that lead to it.

    Raises [`Circle`] if there is no such order, and then the solver may never answer.
    """
    edges = set()
    for symbol in model.symbols:
        if symbol.result:
            edges |= {(sort, symbol.result) for sort in symbol.sorts}
    for term in model.axioms:
        edges |= edges_of(term)
    for term in model.invariant.values():
        # So the negation of a conjunct speaks of constants only, and symbols after a step are read for them.
        assert term.universal and not has_quantifiers(term.body), "conjuncts are forall and nothing else"
    for step in model.steps.values():
        for term in step.guards:
            edges |= edges_of(term)
        for change in step.changes:
            arguments = tuple(Variable(f"a{i}", sort) for i, sort in enumerate(change.symbol.sorts))
            where = change.where(*arguments)
            edges |= edges_of(where, True) | edges_of(where, False)
            if change.such_that:
                new = Symbol("new", change.symbol.sorts, change.symbol.result)
                for term in change.such_that(new):
                    edges |= edges_of(term)
    order, left = [], set(model.sorts)
    while left:
        free = sorted((s for s in left if not any(b == s and a in left for a, b in edges)), key=str)
        if not free:
            raise Circle(f"{model.name}: {sorted(map(str, left))} lead back to themselves")
        order.append(free)
        left -= set(free)
    return order
