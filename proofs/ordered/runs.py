"""Runs of `ordered`, step by step."""

from kit.runs import Run
from kit.system import System

A, B = ((0, 0), 0, 0), ((0, 0), 1, 0)
A1, B1 = (A, 1), (B, 1)


def climb(run, request, pool):
    run("climb", r=request, p=pool)
    run("on_acquire", p=pool, r=request)


def hold(run, request, pool, unit):
    units = {(c,): unit for c in run.system.claims[request] if c[1] == pool}
    run("hold", {"unit": units}, p=pool, r=request)
    run("say_yes", p=pool, r=request)
    run("on_held", {"told": units}, r=request, p=pool)


def two_in_turn(model):
    """Two requests climb; the second waits at the first rung."""
    needs = {0: (1, []), 1: (1, [0])}
    run = Run(System(model, {0: (0, [0]), 1: (1, [0])}, {A1: needs, B1: needs}))
    for user, request in ((A, A1), (B, B1)):
        run("begin", u=user)
        run("ask", r=request)
        climb(run, request, 0)
    hold(run, A1, 0, (0, 0))
    climb(run, A1, 1)
    hold(run, A1, 1, (1, 0))
    run("grant", r=A1)
    run("end", r=A1)
    run("on_release", p=0, r=A1)
    run("on_release", p=1, r=A1)
    hold(run, B1, 0, (0, 0))
    climb(run, B1, 1)
    hold(run, B1, 1, (1, 0))
    run("grant", r=B1)
    assert run.says("ever", A1) and run.says("granted", B1)
    return run


RUNS = [two_in_turn]
