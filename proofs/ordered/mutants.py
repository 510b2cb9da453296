"""What is lost without a rule: the obligations that fail then, and no others."""


def o3(step):
    """What a manager has said is no longer true."""
    return {f"{step}/O3", f"{step}/O3 of units", f"{step}/O3 at the user"}


RULES = {
    "sorted": {"climb/O2"},
    "whole": {"hold/O1"},
    "named": {"hold/units that were named"},
    "top": {"grant/granted hold everywhere"},
    "apart": {"hold/O1"},
    "there": {"hold/units of the pool"},
}

DUTIES = {
    "Asking: once": {f"ask/{what}" for what in (
        "granted once", "a release ends a quest", "O3", "O3 of units", "granted hold everywhere")},
    "Leaving": {"ask/the retired ask nothing"},
    "Leaving: uses nothing": {"retire/the retired ask nothing"},
    "Departure": o3("departed"),
    "Departure: of a home": o3("home_departed"),
}
