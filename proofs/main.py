"""What `proofs/run` runs: the proofs, what is lost without a rule, that nothing is proven of nothing, and
that the code does what was proven."""

import argparse
import sys
import time
from importlib import import_module

from kit.fragment import layers
from kit.tables import take

PROTOCOLS = ["house", "coordinator", "ordered"]
PARTS = ["obligations", "mutants", "possible", "runs", "conformance"]


class Failed(Exception):
    """Something is not as it should be."""


def demand(holds, what):
    if not holds:
        raise Failed(what)


def prove(protocol, options):
    """Every obligation, with its time."""
    for proof in protocol.proofs:
        prove_one(proof.model(), options)


def prove_one(model, options):
    from kit.solver import obligations

    sorts = "; ".join(", ".join(map(str, layer)) for layer in layers(model))
    print(f"{model.name}: decidable, in layers: {sorts}")
    failed, count, seconds = [], 0, 0.0
    for result in obligations(model):
        count, seconds = count + 1, seconds + result.seconds
        if not options.quick or not result.holds:
            print(f"  {'holds' if result.holds else 'FAILS'}  {result.seconds:6.3f} s  {result.name}")
        if not result.holds:
            failed.append(result.name)
    print(f"{model.name}: {count} obligations in {seconds:.1f} s, {len(failed)} of them fail")
    demand(not failed, f"{model.name}: {', '.join(failed)}")


def try_mutants(protocol, options):
    """Without a rule, exactly the obligations fail that are named for it; and what the solver finds is
    a state of the tables in which the step does break the conjunct."""
    for proof in protocol.proofs:
        try_mutants_of(proof)
    named = set().union(*(proof.rules.keys() | proof.duties.keys() for proof in protocol.proofs))
    rules = set().union(*(proof.model().rules() for proof in protocol.proofs))
    demand(named == rules, f"{protocol.name}: rules without a mutant: {named ^ rules}")


def try_mutants_of(proof):
    from kit.solver import obligations

    whole = proof.model()
    for rule, named in (proof.rules | proof.duties).items():
        model = proof.model([rule])
        touched = [name for name, step in whole.steps.items() if rule in step.rules]
        # The obligations of the other steps are what they were.
        model.steps = {name: step for name, step in model.steps.items() if name in touched}
        model.theorems = {n: (at, t) for n, (at, t) in model.theorems.items() if at in touched}
        failed = [result for result in obligations(model) if not result.holds]
        kind = "rule" if rule in proof.rules else "duty of the world"
        lost = ", ".join(result.name for result in failed) or "nothing is lost"
        print(f"{model.name} without {rule} ({kind}): {lost}")
        demand({result.name for result in failed} == named,
               f"{model.name} without {rule}: {sorted(named)} should fail")
        for result in failed:
            if result.conjunct in model.invariant:
                confirm(model, result)


def confirm(model, result):
    state, parameters, chosen = result.counterexample
    demand(state.axioms_hold() and not state.broken(), f"{result.name}: no such state in tables")
    after = take(state, result.step, chosen, **parameters)
    demand(result.conjunct in after.broken(), f"{result.name}: it is not broken in tables")


def show_possible(protocol, options):
    """Every step is possible where the invariant holds, in formulas and in tables."""
    for proof in protocol.proofs:
        show_possible_of(proof.model(), options)


def show_possible_of(model, options):
    from kit.solver import possible

    for name, step in model.steps.items():
        found, seconds = possible(model, step)
        demand(found is not None, f"{model.name}: {name} is never possible")
        state, parameters, chosen = found
        demand(state.axioms_hold() and not state.broken(), f"{name}: no such state in tables")
        after = take(state, name, chosen, **parameters)
        demand(not after.broken(), f"{name}: breaks {after.broken()} in tables")
        if not options.quick:
            print(f"  possible  {seconds:6.3f} s  {name}: {step.code}")
    print(f"{model.name}: every one of {len(model.steps)} steps is possible, and keeps the invariant in tables")


def make_runs(protocol, options):
    model = protocol.model.model()
    for run in protocol.runs.RUNS:
        made = run(model)
        print(f"{model.name}: {' '.join(run.__doc__.split())} ({len(made.taken)} steps)")


def conform(protocol, options):
    """The code takes only steps of the model, all of them, and drifts if it is changed."""
    from kit import conformance

    conformance.conform(protocol.name, protocol.conformance, protocol.model.model(), options, demand)


class Proof:
    """A model, the rules and the duties of the world that it rests on, with what fails without each."""

    def __init__(self, model, mutants):
        self.model, self.rules, self.duties = model.model, mutants.RULES, mutants.DUTIES


class Protocol:
    def __init__(self, name):
        self.name = name
        self.model = import_module(f"{name}.model")
        self.proofs = [Proof(self.model, import_module(f"{name}.mutants"))]
        if name == "house":
            residue = import_module("house.residue")
            self.proofs.append(Proof(residue, residue))
        self.runs = import_module(f"{name}.runs")
        self.conformance = import_module(f"{name}.conformance")


def main():
    description = "Proves what docs/proof.md says, for all sizes, and holds the code to it."
    parser = argparse.ArgumentParser(prog="proofs/run", description=description)
    parser.add_argument("protocol", nargs="*", help=f"of {', '.join(PROTOCOLS)}; all if none is named")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this; may be repeated")
    parser.add_argument("--quick", action="store_true", help="small scopes, and less to read")
    options = parser.parse_args()
    unknown = [name for name in options.protocol if name not in PROTOCOLS]
    if unknown:
        parser.error(f"no proof of {', '.join(unknown)}; there are: {', '.join(PROTOCOLS)}")
    parts = {"obligations": prove, "mutants": try_mutants, "possible": show_possible,
             "runs": make_runs, "conformance": conform}
    started = time.monotonic()
    try:
        for name in options.protocol or PROTOCOLS:
            for part in options.part or PARTS:
                parts[part](Protocol(name), options)
    except BrokenPipeError:
        return 1
    except Failed as failed:
        print(f"FAILED: {failed}", file=sys.stderr)
        return 1
    print(f"all of it holds, after {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
