"""What the model sees of the roles of `house`, and which of its steps their steps are."""

from kit.conformance import Drift, Ghosts, units_for
from kit.recording import needs, picked, read_common, request, user

SMALL = "house:reserve=1,passes=2,bumps=1,parks=1"

# Of the roles, and of the world.
COMPARED = ["quest", "granted", "stance", "counted", "told", "entry", "at", "held", "unit", "choosing", "over",
            "begun", "retired", "stopped", "asked"]
MESSAGES = ["tried", "queued", "released", "yes", "asked_back"]
LOST = [*MESSAGES, "yes_unit"]

QUICK = [
    (f"{SMALL} --pools 1 --users '0/0/0'", None),
    (f"{SMALL} --pools 2 --users '0:2/0/0' --departures", None),
    (f"{SMALL} --pools 0-1,1 --users '0.0+1/1+0' --timers quiet", None),
    (f"{SMALL} --pools 1,1 --users '0+1/1' --duplicates --timers quiet", None),
    (f"{SMALL} --pools 0-1 --users '0.0:1,0/0' --suspect 0 --overlap --timers quiet", None),
    (f"{SMALL} --pools 1 --users '0,0/0' --crash 0 --amid --timers quiet", None),
    (f"{SMALL} --pools 1 --users '0/0' --homes 0,1 --reboot 0 --timers quiet", None),
    (f"{SMALL},resend=1 --pools 1 --users '0/0' --loss 1 --timers quiet", None),
    (f"{SMALL} --pools 0-2,1,1 --users '0.0:1+1/1+2+0/2+0.0/0+2+1' --timers quiet", 10),
    (f"{SMALL} --pools 0-1,2 --users '0.0:1+1^/0+1:2^/1+0.1^' --duplicates --suspect 0 --overlap", 5),
    (f"{SMALL},resend=1 --pools 1,1 --users '0+1,1/1+0/0+1' --homes 0,1,1 --crash 0 --detector reclaim"
     " --reboot 1 --loss 3 --departures", 20),
    ("resized", 30),
]

LONG = [
    (f"{SMALL} --pools 1,1 --users '0+1/1+0' --timers quiet", None),
    (f"{SMALL} --pools 0-1,1 --users '0.0+1/0.1+1/0' --timers quiet", None),
    (f"{SMALL} --pools 0-1,1 --users '0.0+1,0.1/1+0.0' --timers quiet", None),
    (f"{SMALL} --pools 0-1,1 --users '0.0+1/1+0/0.0' --crash 0 --timers quiet", None),
    (f"{SMALL} --pools 2,1 --users '0:2+1/0^/0^' --timers quiet", None),
    (f"{SMALL},resend=1 --pools 1,1 --users '0!/0+1/1' --loss 1 --timers quiet", None),
    *[(line, 20 * walks) for line, walks in QUICK if walks],
]

CHANGED = [
    (f"{SMALL} --without stance --pools 1,1 --users '0+1/1+0' --timers quiet", None),
    (f"{SMALL} --without latest --pools 1,1 --users '0+1/1+0' --timers quiet", None),
    (f"{SMALL} --without firm --pools 1,1 --users '0+1/1+0' --timers quiet", None),
    (f"{SMALL} --without ended --pools 1,1 --users '0+1/1+0' --departures --timers quiet", None),
    (f"{SMALL} --without implied --pools 1,1 --users '0,1/0' --nodes 0,0 --timers quiet", None),
    (f"{SMALL} --without purge --pools 1,1 --users '0+1/1+0' --crash 0 --timers quiet", None),
]


def scopes(quick):
    return QUICK if quick else [*QUICK, *LONG]


def managers(pools):
    """`House::manager_of`: one for each node that has pools."""
    nodes = sorted({pool["node"] for pool in pools})
    return [nodes.index(pool["node"]) for pool in pools]


def read(kind, value):
    if kind == "user":
        if value is None:
            return {"request": None}  # It is there, and asks for nothing.
        parts = {part["manager"]: part | {"units": picked(part["units"])} for part in value["parts"]}
        return value | {"request": request(value["request"]), "needs": needs(value["needs"]), "parts": parts}
    if kind == "manager":
        entries = {}
        for entry in value["entries"]:
            read_entry = entry | {"needs": needs(entry["needs"]), "units": picked(entry["units"])}
            entries[request(entry["request"])] = read_entry
        choosing = [request(r) for r in value["choosing"]]
        return {"entries": entries, "choosing": choosing, "lanes": [latest(lane) for lane in value["lanes"]]}
    return read_common(kind, value, message)


def latest(value):
    ((how, what),) = value.items()
    return (how, user(what) if how == "Gone" else request(what))


def message(value):
    ((kind, content),) = value.items()
    if kind in ("Release", "Over"):
        return {"kind": kind, "request": request(content)}
    read_content = content | {"kind": kind, "request": request(content["request"])}
    if "units" in content:
        read_content["units"] = picked(content["units"])
    return read_content


def see(state, seen):
    for role in state.users:
        if role and role["request"]:
            seen.request(role["request"], role["needs"])
            seen.stance = max(seen.stance, *(part["n"] for part in role["parts"].values()))
    for manager in state.managers:
        for entry_request, entry in manager["entries"].items():
            seen.request(entry_request)
            seen.kept.setdefault(entry_request, {}).update(entry["needs"])
            seen.stance = max(seen.stance, entry["n"])
        for r in manager["choosing"]:
            seen.request(r)
        for how, what in manager["lanes"]:
            if how == "Gone":
                seen.users.add(what)
            else:
                seen.request(what)
    for item in state.items:
        if item and "message" in item:
            seen.request(item["message"]["request"])
            seen.stance = max(seen.stance, item["message"].get("n", 0))


def abstract(system, code, tables, checker):
    listed = checker.is_listed
    requests = list(system.needs)
    guards = managers(checker.recording.scope["pools"])
    wanted = {role["request"]: role["needs"] for role in code.users if role and role["request"]}
    for manager, role in enumerate(code.managers):
        free = Ghosts(system)
        for held_request, entry in sorted(role["entries"].items()):
            tables["entry"].add((manager, held_request))
            tables["at"][(manager, held_request)] = entry["n"]
            whole = wanted.get(held_request, entry["needs"])
            here = {pool: need for pool, need in whole.items() if guards[pool] == manager}
            if entry["needs"] != here:
                raise Drift(f"manager {manager} has {entry['needs']} of {held_request}, which needs {here}")
            if entry["held"]:
                tables["held"].add((manager, held_request))
                units = units_for(system.claims_at(held_request, manager), entry["units"], listed, free)
                tables["unit"].update({(claim,): unit for claim, unit in units.items()})
        tables["choosing"].update((manager, r) for r in role["choosing"])
        for how, what in role["lanes"]:
            of_lane = [r for r in requests if r[0][:2] == (what if how == "Gone" else what[0])[:2]]
            for r in of_lane:
                over = r[0] <= what if how == "Gone" else r < what or (how == "Over" and r == what)
                if over:
                    tables["over"].add((manager, r))

    def as_held(manager, r, n):
        """Of counted pools: the units that the manager holds for that stance, if it does."""
        true = (manager, r) in tables["held"] and tables["at"][(manager, r)] == n
        return lambda claims: {c: tables["unit"][(c,)] if true else (c[1], 0) for c in claims}

    for role in code.users:
        if not role or role["request"] is None:
            continue
        r = role["request"]
        tables["quest"].add((r,))
        if role["granted"]:
            tables["granted"].add((r,))
            tables["ever"].add((r,))
        for manager, part in role["parts"].items():
            tables["stance"][(r, manager)] = part["n"]
            if part["held"]:
                tables["counted"].add((r, manager))
                claims = system.claims_at(r, manager)
                units = units_for(claims, part["units"], listed, as_held(manager, r, part["n"]))
                tables["told"].update({(claim,): unit for claim, unit in units.items()})
    for item in code.items:
        if not item or "message" not in item:
            continue
        said = item["message"]
        r = said["request"]
        if said["kind"] == "Try":
            tables["tried"].add((item["to"], r))
        elif said["kind"] == "Queue":
            tables["queued"].add((item["to"], r, said["n"]))
        elif said["kind"] == "Release":
            tables["released"].add((item["to"], r))
        elif said["kind"] == "Yield":
            tables["asked_back"].add((item["from"], r, said["n"]))
        elif said["kind"] == "Yes":
            manager, n = item["from"], said["n"]
            tables["yes"].add((manager, r, n))
            units = units_for(system.claims_at(r, manager), said["units"], listed, as_held(manager, r, n))
            tables["yes_unit"].update((claim, n, unit) for claim, unit in units.items())


# ------------------------------------------------------------------ the steps


def ask(walk, r):
    stances = {(r, manager): 0 for manager, _ in walk.system.pools.values()}
    walk("ask", {"stance": stances}, r=r, zero=0)


def end(walk, r):
    if (r,) in walk.now("quest"):
        walk("give_back", r=r)


def on_user(walk, to, manager, said):
    r = said["request"]
    if (r,) not in walk.now("quest"):
        return
    if said["kind"] == "Over":
        return end(walk, r)
    if said["kind"] == "Yes" and (r, manager) in walk.then("counted") - walk.now("counted"):
        count(walk, r, manager, said["n"])
    if said["kind"] == "Yield" and said["n"] == walk.says("stance", r, manager) \
            and walk.will_say("stance", r, manager) > said["n"]:
        walk("on_yield", r=r, k=manager, n=said["n"] + 1, back=said["n"])
    go_on(walk, r)


def count(walk, r, manager, n):
    said = {claim: unit for claim, stance, unit in walk.now("yes_unit") if stance == n}
    units = {(claim,): said[claim] for claim in walk.system.claims_at(r, manager)}
    walk("on_yes", {"told": units}, r=r, k=manager, n=n)


def go_on(walk, r):
    """New stances, and a grant if all is held."""
    for manager in sorted({walk.system.pools[claim[1]][0] for claim in walk.system.claims[r]}):
        while walk.says("stance", r, manager) < walk.will_say("stance", r, manager):
            walk("restance", r=r, k=manager, n=walk.says("stance", r, manager) + 1)
    if (r,) in walk.then("granted") - walk.now("granted"):
        walk("grant", r=r)


def on_user_timer(walk, who):
    for name in ("tried", "queued"):
        for manager, r, *_ in walk.missing(name):
            walk("resend", r=r, k=manager)
    for manager, r in walk.missing("released"):
        walk("release_again", r=r, k=manager)


def on_manager(walk, manager, _, said):
    if said is not None:
        hear(walk, manager, said["request"], said)
    serve(walk, manager)


def hear(walk, manager, r, said):
    if (manager, r) in walk.now("over"):
        return
    lane = [s for s in walk.system.needs if s[0][:2] == r[0][:2] and s < r]
    if any((manager, s) not in walk.now("over") for s in lane):
        walk("end_earlier", k=manager, r=r)
    entered = (manager, r) in walk.now("entry")
    if said["kind"] == "Release":
        walk("on_release", k=manager, r=r)
    elif (manager, r) in walk.then("over"):
        walk("refuse", k=manager, r=r, n=said.get("n", 0))
    elif said["kind"] == "Try":
        if not entered and (manager, r) in walk.then("entry"):
            walk("on_try", k=manager, r=r, zero=0)
        elif (manager, r) in walk.then("choosing") - walk.now("choosing"):
            walk("say_no", k=manager, r=r)
    elif not entered or walk.says("at", manager, r) < said["n"]:
        walk("on_queue", k=manager, r=r, n=said["n"])


def serve(walk, manager):
    """Those who are held now, and what was said to whom."""
    for at, r in walk.missing("held"):
        if at != manager:
            continue
        claims = walk.system.claims_at(r, manager)
        held = walk.now("held")
        used = [walk.says("unit", c) for k, s in held for c in walk.system.claims_at(s, k)]
        units = walk.free_units(claims, used, lambda claim: walk.will_say("unit", claim))
        walk("hold", {"unit": units}, k=manager, r=r)
        walk("say_yes", k=manager, r=r)
    for at, r, n in walk.missing("yes"):
        if at == manager:
            walk("say_yes", k=manager, r=r)
    for at, r, n in walk.missing("asked_back"):
        if at == manager:
            walk("ask_back", k=manager, r=r)


def on_gone(walk, manager, gone, who, home):
    if home is not None:
        walk("home_departed", k=manager, h=home)
    elif gone == "Departed":
        walk("departed", k=manager, u=who)
    elif gone == "Reclaimed":
        walk("reclaimed", k=manager, u=who)
    elif not any(at == manager and r[0] == who for at, r in walk.now("held")):
        walk("suspected", k=manager, u=who)
    serve(walk, manager)
