"""What is lost without a rule: the obligations that fail then, and no others.

The rules of the code that can be taken away (`holdall check house --without RULE`), rules that it cannot be asked to do
without, and the duties of the world, under the names they have in `holdall_core::contract`.
"""


def h2(step):
    """What a manager has said is no longer true."""
    return {f"{step}/H2", f"{step}/H2 of units", f"{step}/H2 at the user"}


RULES = {
    "stance": h2("on_queue"),
    "latest": {"on_yes/H2 at the user", "on_yes/H2 of units at the user"},
    "firm": {"on_yield/granted hold everywhere"},
    "let-go": {"restance/H2 at the user", "on_yield/H2 at the user"},  # A new stance ends the hold
    "whole": {"grant/granted hold everywhere"},  # All nodes must hold
    "released-only": {"release_again/a release ends a quest"},
    "free": {"hold/H1"},  # What is held is not given to others
    "apart": {"hold/H1"},  # ... nor twice to one request
    "there": {"hold/units of the pool"},
    "named": {"hold/units that were named"},
    "heard-before": h2("refuse"),  # What was heard before may be in use
    "spare-holders": h2("suspected"),  # Whoever is only suspected keeps what it may be using
    "ended": set(),  # These are for what is left behind: residue.py
    "implied": set(),
    "purge": set(),
}

DUTIES = {
    "Asking": {"ask/the last of a lane is under way"},
    "Asking: once": {f"ask/{what}" for what in (
        "granted once", "a release ends a quest", "stances follow the user", "entries follow the user",
        "answers follow the user", "units follow the user", "H2", "H2 of units")},
    "Asking: numbers grow": {"ask/the last of a lane is under way"},
    "Leaving": {"ask/the retired ask nothing", "ask/the last of a lane is under way"},
    "Succession": {"begin/successors follow"},
    "Leaving: uses nothing": {"retire/the retired ask nothing"},
    "Lapse": h2("reclaimed"),
    "Departure": h2("departed"),
    "Departure: of a home": h2("home_departed"),
    "Suspicion": h2("suspected") | h2("reclaimed") | h2("departed"),
}
