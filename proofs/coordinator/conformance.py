"""What the model sees of the roles of `coordinator`, and which of its steps their steps are."""

from kit.conformance import Ghosts, units_for
from kit.recording import needs, picked, read_common, request

COMPARED = ["quest", "granted", "told", "waiting", "held", "unit", "early", "begun", "retired", "stopped", "asked"]
MESSAGES = ["wanted", "released", "yes"]
LOST = [*MESSAGES, "yes_unit"]

QUICK = [
    ("coordinator:reserve=1 --pools 1,1 --users '0+1,1/1+0,0/0'", None),
    ("coordinator:fifo --pools 0-2 --users '0.0:1/0.1/0:2' --departures", None),
    ("coordinator:skip --pools 2 --users '0:2,0/0/0' --crash 0 --amid", None),
    ("coordinator:reserve=1 --pools 0-1,2 --users '0.0+1:2/1+0/0:2' --homes 0,1,1 --reboot 0 --departures", 20),
    ("coordinator:skip --pools 0-1,1 --users '0.0+1^/0+1^' --overlap", 5),
]

LONG = [
    ("coordinator:fifo --pools 1,1 --users '0+1,1/1+0,0/0+1' --departures", None),
    ("coordinator:reserve=1 --pools 0-2,1 --users '0.0:1+1^/0+1^/0.2^' --overlap", 100),
]

CHANGED = [
    ("coordinator:skip --without room --pools 1 --users '0/0'", None),
    ("coordinator:skip --without session --pools 1 --users '0,0/0'", None),
    ("coordinator:skip --without early --pools 1 --users '0/0' --departures", None),
    ("coordinator:skip --without purge --pools 1 --users '0/0' --crash 0", None),
]


def scopes(quick):
    return QUICK if quick else [*QUICK, *LONG]


def managers(pools):
    return [0 for _ in pools]


def read(kind, value):
    if kind == "user":
        if value is None:
            return {"request": None}  # It is there, and asks for nothing.
        asked = value["request"]
        return {"request": request(asked["id"]), "needs": needs(asked["needs"]), "granted": value["granted"]}
    if kind == "manager":
        return {
            "holders": {request(r): needs(n) for r, n in value["holders"]},
            "waiting": {request(asked["id"]): needs(asked["needs"]) for asked in value["waiting"]},
            "early": [request(r) for r in value["early"]],
        }
    return read_common(kind, value, message)


def message(value):
    ((kind, content),) = value.items()
    if kind == "Release":
        return {"kind": kind, "request": request(content)}
    if kind == "Ask":
        return {"kind": kind, "request": request(content["id"]), "needs": needs(content["needs"])}
    return {"kind": kind, "request": request(content["request"]), "units": picked(content["units"])}


def see(state, seen):
    for role in state.users:
        if role and role["request"]:
            seen.request(role["request"], role["needs"])
    for manager in state.managers:
        for r in (*manager["holders"], *manager["early"]):
            seen.request(r)
        for r, wanted in manager["waiting"].items():
            seen.request(r, wanted)
    for item in state.items:
        if item and "message" in item:
            seen.request(item["message"]["request"], item["message"].get("needs"))


def abstract(system, code, tables, checker):
    listed = checker.is_listed
    for role in code.managers:
        free = Ghosts(system)
        for r, granted in sorted(role["holders"].items()):
            tables["held"].add((r,))
            units = {pool: names for pool, (_, names) in granted.items()}
            units = units_for(system.claims[r], units, listed, free)
            tables["unit"].update({(claim,): unit for claim, unit in units.items()})
        tables["waiting"].update((r,) for r in role["waiting"])
        tables["early"].update((r,) for r in role["early"])

    def as_held(claims):
        return {c: tables["unit"].get((c,), (c[1], 0)) for c in claims}

    clients = {client["request"]: client for client in code.clients}
    for role in code.users:
        if not role or role["request"] is None:
            continue
        r = role["request"]
        tables["quest"].add((r,))
        if role["granted"]:
            tables["granted"].add((r,))
            tables["ever"].add((r,))
            units = {}
            for pool, unit in clients[r]["units"]:
                units.setdefault(pool, []).append(unit)
            told = units_for(system.claims[r], units, listed, as_held)
            tables["told"].update({(claim,): unit for claim, unit in told.items()})
    for item in code.items:
        if not item or "message" not in item:
            continue
        said = item["message"]
        r = said["request"]
        tables[{"Ask": "wanted", "Release": "released", "Grant": "yes"}[said["kind"]]].add((r,))
        if said["kind"] == "Grant":
            units = units_for(system.claims[r], said["units"], listed, as_held)
            tables["yes_unit"].update(units.items())


# ------------------------------------------------------------------ the steps


def ask(walk, r):
    walk("ask", r=r)


def end(walk, r):
    if (r,) in walk.now("quest"):
        walk("end", r=r)


def on_user(walk, to, manager, said):
    r = said["request"]
    if (r,) in walk.then("granted") - walk.now("granted"):
        said_units = dict(walk.now("yes_unit"))
        walk("on_grant", {"told": {(c,): said_units[c] for c in walk.system.claims[r]}}, r=r)


def on_user_timer(walk, who):
    pass


def on_manager(walk, manager, _, said):
    r = said["request"]
    if said["kind"] == "Ask":
        walk("on_late_ask" if (r,) in walk.now("early") else "on_ask", r=r)
    elif (r,) in walk.now("held") | walk.now("waiting"):
        walk("on_release", r=r)
    else:
        walk("on_early_release", r=r)
    serve(walk)


def serve(walk):
    for (r,) in walk.missing("held"):
        used = [walk.says("unit", c) for (s,) in walk.now("held") for c in walk.system.claims[s]]
        units = walk.free_units(walk.system.claims[r], used, lambda claim: walk.will_say("unit", claim))
        walk("hold", {"unit": units}, r=r)
        walk("say_yes", r=r)


def on_gone(walk, manager, gone, who, home):
    if home is not None:
        walk("home_departed", h=home)
    else:
        walk("departed", u=who)
    serve(walk)
