"""The states and steps that the checker makes, as it writes them down (`crates/lab/examples/steps.rs`)."""

import json
import shlex
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LANE_BITS = 40


def user(value):
    """A `UserId`: its home, its lane there, its generation."""
    home, local = value["home"], value["local"]
    return ((home["cell"], home["life"]), local >> LANE_BITS, local & ((1 << LANE_BITS) - 1))


def request(value):
    """A `RequestId`."""
    return (user(value["user"]), value["seq"])


def needs(value):
    """`Needs`: by pool, how many units, and which of them by name."""
    return {need["pool"]: (need["units"], tuple(need["named"])) for need in value}


def picked(value):
    """`Picked`: the units of listed pools."""
    return {int(pool): tuple(units) for pool, units in value.items()}


def read_common(kind, value, read_message):
    """The parts that are alike in all protocols, in the model's words."""
    if kind == "client":
        predecessor = value["predecessor"]
        return {
            "request": request(value["request"]),
            "stage": value["stage"],
            "needs": needs(value["needs"]) if value["needs"] is not None else None,
            "units": value["units"],
            "predecessor": user(predecessor) if predecessor is not None else None,
        }
    if value is None:
        return None
    item = dict(value)
    address = lambda at: at["Manager"] if "Manager" in at else user(at["User"])
    if item["kind"] == "to-manager":
        item |= {"from": address(item["from"])}
    elif item["kind"] == "to-user":
        item |= {"from": address(item["from"]), "to": user(item["to"])}
    elif item["kind"] == "user-timer":
        item |= {"at": user(item["at"])}
    elif item["kind"] == "lapse":
        item |= {"user": user(item["who"])}
    elif item["kind"] == "gone":
        ((gone, who),) = item["gone"].items()
        who = who if gone == "Departed" else {"User": who}
        home = who.get("Home")
        item |= {"gone": gone, "user": user(who["User"]) if "User" in who else None,
                 "home": (home["cell"], home["life"]) if home else None}
    if "message" in item:
        item["message"] = read_message(item["message"])
    return item


class CodeState:
    """A state of the checker, with what its parts look like."""

    def __init__(self, number, clients, users, managers, items):
        self.number, self.clients, self.users = number, clients, users
        self.managers, self.items = managers, items


class Recording:
    """Reads what the checker tells. `read` turns the parts of a protocol into what its conformance wants."""

    def __init__(self, line, walks=None, seed=1):
        self.line = line
        self.loses = "--loss" in line or line == "resized"
        command = ["cargo", "run", "--quiet", "--locked", "-p", "holdall-lab", "--example", "steps", "--"]
        if walks:
            command += ["--walks", str(walks), "--seed", str(seed)]
        self.command = [*command, line]
        self.tables = {"client": {}, "user": {}, "manager": {}, "item": {}}
        self.states, self.scope, self.scopes, self.complete = {}, None, 0, None

    def steps(self, read):
        """Yields every step: the state before it, the action, the state after it."""
        with subprocess.Popen(self.command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as told:
            for line in told.stdout:
                ((kind, value),) = json.loads(line).items()
                if kind == "step":
                    before, action, after, cut = value
                    yield self.states[before], self.action(action), self.states[after], cut
                elif kind == "state":
                    self.states[value[0]] = self.state(*value)
                elif kind == "scope":
                    self.scope, self.scopes, self.states = value, self.scopes + 1, {}
                elif kind == "complete":
                    self.complete = value
                else:
                    self.tables[kind][value[0]] = read(kind, value[1])
        if told.returncode != 0:
            raise RuntimeError(f"{shlex.join(self.command)}: status {told.returncode}")

    def state(self, number, parts):
        users, managers = self.scope["users"], self.scope["managers"]
        roles = users + self.scope["predecessors"]
        ends = [users, users + roles, users + roles + managers, len(parts)]
        starts, kinds = [0, *ends[:-1]], ["client", "user", "manager", "item"]
        of = lambda kind, ids: [self.tables[kind][i] if i is not None else None for i in ids]
        read = [of(kind, parts[start:end]) for kind, start, end in zip(kinds, starts, ends)]
        return CodeState((self.scopes, number), *read)

    def action(self, action):
        kind, value = action
        return (kind, self.tables["item"][value] if kind in ("deliver", "duplicate", "lose") else value)
