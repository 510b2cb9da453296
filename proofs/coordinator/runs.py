"""Runs of `coordinator`, step by step."""

from kit.runs import Run
from kit.system import System

A, B = ((0, 0), 0, 0), ((0, 0), 1, 0)
A1, B1 = (A, 1), (B, 1)


def hold(run, request, *units):
    claims = run.system.claims[request]
    run("hold", {"unit": {(c,): u for c, u in zip(claims, units, strict=True)}}, r=request)
    run("say_yes", r=request)
    run("on_grant", {"told": {(c,): u for c, u in zip(claims, units)}}, r=request)


def two_in_turn(model):
    """Two requests that want the same two pools: one after the other."""
    needs = {0: (1, []), 1: (1, [0])}
    run = Run(System(model, {0: (0, [0]), 1: (0, [0])}, {A1: needs, B1: needs}))
    for user, request in ((A, A1), (B, B1)):
        run("begin", u=user)
        run("ask", r=request)
        run("on_ask", r=request)
    hold(run, A1, (0, 0), (1, 0))
    run("end", r=A1)
    run("on_release", r=A1)
    hold(run, B1, (0, 0), (1, 0))
    run("crash", u=B)
    run("departed", u=B)
    assert run.says("ever", A1) and run.says("ever", B1)
    return run


def released_early(model):
    """A release that overtakes its request."""
    run = Run(System(model, {0: (0, [0])}, {A1: {0: (1, [])}}))
    run("begin", u=A)
    run("ask", r=A1)
    run("end", r=A1)
    run("on_early_release", r=A1)
    run("on_late_ask", r=A1)
    return run


RUNS = [two_in_turn, released_early]
