"""What the model sees of the roles of `ordered`, and which of its steps their steps are."""

from kit.conformance import Ghosts, units_for
from kit.recording import needs, picked, read_common, request

COMPARED = ["quest", "granted", "wanted", "counted", "told", "waiting", "held", "unit", "early",
            "begun", "retired", "stopped", "asked"]
MESSAGES = ["acquire", "released", "yes"]
LOST = [*MESSAGES, "yes_unit"]

QUICK = [
    ("ordered --pools 1,1 --users '0+1,1/1+0,0/0'", None),
    ("ordered --pools 0-2,1 --users '0.0:1+1/1+0.1/0:2'", None),
    ("ordered --pools 1,1 --users '0+1/1+0' --departures", None),
    ("ordered --pools 2,1 --users '0:2+1,0/0/1' --crash 0 --amid", None),
    ("ordered --pools 0-1,2 --users '0.0+1:2/1+0/0:2' --homes 0,1,1 --reboot 0 --departures", 20),
    ("ordered --pools 0-1,1 --users '0.0+1^/0+1^' --overlap", 5),
]

LONG = [
    ("ordered --pools 0-2,1 --users '0.0:1+1/1+0.1/0:2' --departures", None),
    ("ordered --pools 1,1,1 --users '0+1/1+2/2+0' --departures", None),
    ("ordered --pools 0-2,1 --users '0.0:1+1^/0+1^/0.2^' --overlap", 100),
]

CHANGED = [
    ("ordered --without sorted --pools 1,1 --users '0+1/1+0'", None),
    ("ordered --without whole --pools 2 --users '0:2/0'", None),
    ("ordered --without named --pools 0-1 --users '0.0/0.0'", None),
    ("ordered --without early --pools 1 --users '0/0' --departures", None),
    ("ordered --without purge --pools 1 --users '0/0' --crash 0", None),
]


def scopes(quick):
    return QUICK if quick else [*QUICK, *LONG]


def managers(pools):
    return list(range(len(pools)))


def read(kind, value):
    if kind == "user":
        if value is None:
            return {"request": None}  # It is there, and asks for nothing.
        asked = value["request"]
        ladder = [need["pool"] for need in value["ladder"]]
        return {"request": request(asked["id"]), "needs": needs(asked["needs"]), "ladder": ladder,
                "held": value["held"], "units": picked(value["units"])}
    if kind == "manager":
        return {
            "holders": {request(share["request"]): share["need"]["named"] for share in value["holders"]},
            "queue": [request(share["request"]) for share in value["queue"]],
            "early": [request(r) for r in value["early"]],
        }
    return read_common(kind, value, message)


def message(value):
    ((kind, content),) = value.items()
    if kind == "Release":
        return {"kind": kind, "request": request(content)}
    return {"kind": kind, "request": request(content["request"]), "units": content.get("units")}


def see(state, seen):
    for role in state.users:
        if role and role["request"]:
            seen.request(role["request"], role["needs"])
    for manager in state.managers:
        for r in (*manager["holders"], *manager["queue"], *manager["early"]):
            seen.request(r)
    for item in state.items:
        if item and "message" in item:
            seen.request(item["message"]["request"])


def rung(system, r, pool):
    return [claim for claim in system.claims[r] if claim[1] == pool]


def abstract(system, code, tables, checker):
    listed = checker.is_listed
    for pool, role in enumerate(code.managers):
        free = Ghosts(system)
        for r, units in sorted(role["holders"].items()):
            tables["held"].add((pool, r))
            held = units_for(rung(system, r, pool), {pool: units}, listed, free)
            tables["unit"].update({(claim,): unit for claim, unit in held.items()})
        tables["waiting"].update((pool, r) for r in role["queue"])
        tables["early"].update((pool, r) for r in role["early"])

    def as_held(claims):
        return {c: tables["unit"].get((c,), (c[1], 0)) for c in claims}

    for role in code.users:
        if not role or role["request"] is None:
            continue
        r, ladder, held = role["request"], role["ladder"], role["held"]
        tables["quest"].add((r,))
        tables["wanted"].update((r, pool) for pool in ladder[:held + 1])
        tables["counted"].update((r, pool) for pool in ladder[:held])
        if held == len(ladder):
            tables["granted"].add((r,))
            tables["ever"].add((r,))
        for pool in ladder[:held]:
            told = units_for(rung(system, r, pool), role["units"], listed, as_held)
            tables["told"].update({(claim,): unit for claim, unit in told.items()})
    for item in code.items:
        if not item or "message" not in item:
            continue
        said = item["message"]
        r = said["request"]
        if said["kind"] == "Held":
            pool = item["from"]
            tables["yes"].add((pool, r))
            units = units_for(rung(system, r, pool), {pool: said["units"]}, listed, as_held)
            tables["yes_unit"].update(units.items())
        else:
            tables["acquire" if said["kind"] == "Acquire" else "released"].add((item["to"], r))


# ------------------------------------------------------------------ the steps


def ask(walk, r):
    walk("ask", r=r)
    climb(walk, r)


def climb(walk, r):
    for s, pool in walk.missing("wanted"):
        if s == r:
            walk("climb", r=r, p=pool)


def end(walk, r):
    if (r,) in walk.now("quest"):
        walk("end", r=r)


def on_user(walk, to, pool, said):
    r = said["request"]
    if (r, pool) not in walk.then("counted") - walk.now("counted"):
        return
    said_units = dict(walk.now("yes_unit"))
    walk("on_held", {"told": {(c,): said_units[c] for c in rung(walk.system, r, pool)}}, r=r, p=pool)
    climb(walk, r)
    if (r,) in walk.then("granted"):
        walk("grant", r=r)


def on_user_timer(walk, who):
    pass


def on_manager(walk, pool, _, said):
    r = said["request"]
    if said["kind"] == "Acquire":
        walk("on_late_acquire" if (pool, r) in walk.now("early") else "on_acquire", p=pool, r=r)
    elif (pool, r) in walk.now("held") | walk.now("waiting"):
        walk("on_release", p=pool, r=r)
    else:
        walk("on_early_release", p=pool, r=r)
    serve(walk, pool)


def serve(walk, pool):
    for at, r in walk.missing("held"):
        if at != pool:
            continue
        used = [walk.says("unit", c) for p, s in walk.now("held") for c in rung(walk.system, s, p)]
        units = walk.free_units(rung(walk.system, r, pool), used, lambda claim: walk.will_say("unit", claim))
        walk("hold", {"unit": units}, p=pool, r=r)
        walk("say_yes", p=pool, r=r)


def on_gone(walk, pool, gone, who, home):
    if home is not None:
        walk("home_departed", p=pool, h=home)
    else:
        walk("departed", p=pool, u=who)
    serve(walk, pool)
