"""What is lost without a rule: the obligations that fail then, and no others."""


def c3(step):
    """What the manager has said is no longer true."""
    return {f"{step}/C3", f"{step}/C3 of units", f"{step}/C3 at the user"}


RULES = {
    "room": {"hold/C1"},
    "session": c3("on_release"),
    "once": {"on_grant/nothing is granted twice"},
    "apart": {"hold/C1"},
    "there": {"hold/units of the pool"},
    "named": {"hold/units that were named"},
}

DUTIES = {
    "Asking: once": {f"ask/{what}" for what in ("granted once", "a release ends a quest", "C3", "C3 of units")},
    "Leaving": {"ask/the retired ask nothing"},
    "Leaving: uses nothing": {"retire/the retired ask nothing"},
    "Departure": c3("departed"),
    "Departure: of a home": c3("home_departed"),
}
