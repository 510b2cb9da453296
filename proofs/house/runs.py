"""Runs of `house`, step by step."""

from kit.runs import Run
from kit.system import System

CELL = (0, 0)
A, B = (CELL, 0, 0), (CELL, 1, 0)
A1, B1 = (A, 1), (B, 1)


def hold(run, manager, request, *units):
    """A manager holds, and says so; the user hears it."""
    claims = run.system.claims_at(request, manager)
    run("hold", {"unit": {(c,): u for c, u in zip(claims, units, strict=True)}}, k=manager, r=request)
    run("say_yes", k=manager, r=request)


def count(run, manager, request):
    claims = run.system.claims_at(request, manager)
    units = {(c,): run.says("unit", c) for c in claims}
    run("on_yes", {"told": units}, r=request, k=manager, n=run.says("stance", request, manager))


def ask(run, user, request):
    run("begin", u=user)
    managers = {manager for manager, _ in run.system.pools.values()}
    run("ask", {"stance": {(request, k): 0 for k in managers}}, r=request, zero=0)


def release(run, manager, request):
    run("on_release", k=manager, r=request)


def two_in_turn(model):
    """Two requests for one unit: one is granted, the other waits, and is granted after it."""
    system = System(model, {0: (0, [0])}, {A1: {0: (1, [])}, B1: {0: (1, [0])}})
    run = Run(system)
    for user, request in ((A, A1), (B, B1)):
        ask(run, user, request)
        run("on_try", k=0, r=request, zero=0)
    hold(run, 0, A1, (0, 0))
    count(run, 0, A1)
    run("grant", r=A1)
    run("give_back", r=A1)
    release(run, 0, A1)
    hold(run, 0, B1, (0, 0))
    count(run, 0, B1)
    run("grant", r=B1)
    assert run.says("ever", A1) and run.says("granted", B1)
    return run


def yields(model):
    """Two requests over two nodes: each holds one, takes a round, one is asked back and yields; both
    are granted in turn."""
    needs = {0: (1, []), 1: (1, [])}
    system = System(model, {0: (0, [0]), 1: (1, [0])}, {A1: needs, B1: needs})
    run = Run(system)
    ask(run, A, A1)
    ask(run, B, B1)
    for manager, request in ((0, A1), (1, B1)):
        run("on_try", k=manager, r=request, zero=0)
        hold(run, manager, request, (manager, 0))
    for request in (A1, B1):
        for manager in (0, 1):
            run("restance", r=request, k=manager, n=1)
    for manager, request in ((0, A1), (1, B1)):
        run("on_queue", k=manager, r=request, n=1)
        hold(run, manager, request, (manager, 0))
    run("on_queue", k=1, r=A1, n=1)
    run("on_queue", k=0, r=B1, n=1)
    count(run, 1, B1)
    run("ask_back", k=1, r=B1)
    run("on_yield", r=B1, k=1, n=2, back=1)
    run("on_queue", k=1, r=B1, n=2)
    hold(run, 1, A1, (1, 0))
    count(run, 0, A1)
    count(run, 1, A1)
    run("grant", r=A1)
    run("give_back", r=A1)
    for manager in (0, 1):
        release(run, manager, A1)
        hold(run, manager, B1, (manager, 0))
        count(run, manager, B1)
    run("grant", r=B1)
    return run


def lives(model):
    """A user loses its lease while it uses something; what it held is reclaimed, its successor is granted, and
    goes down with its cell."""
    next_user = (CELL, 0, 1)
    next_request = (next_user, 1)
    system = System(model, {0: (0, [0, 1])}, {A1: {0: (2, [1])}, next_request: {0: (1, [])}})
    run = Run(system)
    ask(run, A, A1)
    run("on_try", k=0, r=A1, zero=0)
    hold(run, 0, A1, (0, 1), (0, 0))
    count(run, 0, A1)
    run("grant", r=A1)
    run("give_back", r=A1)
    run("retire", u=A)
    run("reclaimed", k=0, u=A)
    ask(run, next_user, next_request)
    run("on_try", k=0, r=next_request, zero=0)
    hold(run, 0, next_request, (0, 1))
    count(run, 0, next_request)
    run("grant", r=next_request)
    run("stop", u=A)
    run("crash", u=next_user)
    run("home_departed", k=0, h=CELL)
    assert not run.says("held", 0, next_request)
    return run


RUNS = [two_in_turn, yields, lives]
