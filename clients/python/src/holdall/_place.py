"""Which agent is meant, and how one comes to life.

Decided as the command ``holdall`` decides it, from what is said, the environment and what is installed here; never
from who answers. Otherwise an agent that is just restarting would be passed over for another one, and two
would grant the same names.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from ._errors import Unreachable

MACHINE_SOCKET = Path("/run/holdall/agent.sock")
_INSTALLED = (MACHINE_SOCKET.parent, Path("/etc/holdall.toml"), Path("/etc/systemd/system/holdall.socket"))
#: How long an agent may take to start.
_START_SECONDS = 30.0


@dataclass(frozen=True)
class Place:
    """An agent on this machine."""

    #: Where commands reach it.
    socket: Path
    #: Whether it is the user's own, at a place that nobody has named: commands know where it has its files.
    is_own: bool = False

    @property
    def http(self) -> Path:
        """Where it speaks HTTP: beside the socket for commands, ``agent.sock`` and ``agent.http.sock``."""
        return self.socket.with_name(f"{self.socket.stem}.http{self.socket.suffix}")

    @property
    def is_machines(self) -> bool:
        """Whether it is the machine's, which is its supervisor's to start."""
        return self.socket == MACHINE_SOCKET

    def listens(self) -> bool:
        """Whether commands reach it, or a supervisor that starts it for them."""
        return _listens(self.socket)

    def was_stopped(self) -> bool:
        """Whether somebody has stopped it on purpose: then what already runs does not start another."""
        return os.path.exists(f"{self.socket}.stopped")

    def start(self, within: float | None = None) -> None:
        """Starts an agent, unless one runs, by running ``holdall``; its supervisor starts the machine's. Waits for it so many
        seconds at most."""
        if self.is_machines:
            if self._wake():
                return
            raise Unreachable(
                f"the agent of this machine does not listen at {self.http}; "
                "`systemctl start holdall.socket` starts it, agent= names another"
            )
        program = os.environ.get("HOLDALL_PROGRAM") or shutil.which("holdall")
        if program is None:
            raise Unreachable(
                f"no agent listens at {self.http}, and there is no program `holdall` on the path to start one"
            )
        named = [] if self.is_own else ["--agent", str(self.socket)]
        try:
            done = subprocess.run(
                [program, "agent", "start", *named],
                check=False,
                env={name: value for name, value in os.environ.items() if name != "HOLDALL_AGENT"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=_START_SECONDS if within is None else min(within, _START_SECONDS),
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise Unreachable(f"no agent listens at {self.http}, and none can be started: {error}") from error
        if done.returncode != 0:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            why = lines[-1] if lines else f"status {done.returncode}"
            raise Unreachable(f"no agent listens at {self.http}, and none can be started: {why}")

    def _wake(self) -> bool:
        """Knocks where commands do: a supervisor listens there, and starts the agent, which then speaks HTTP, too."""
        end = time.monotonic() + _START_SECONDS
        if not _listens(self.socket):
            return False
        while not _listens(self.http):
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as knock:
        knock.settimeout(1)
        try:
            knock.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:
            pass  # Somebody is there, and busy, or not for us.
        return True


def meant(agent: str | os.PathLike[str] | None = None) -> Place:
    """The agent that is named; else the machine's, if one is installed here, running or not; else one's own."""
    named = os.fspath(agent) if agent is not None else os.environ.get("HOLDALL_AGENT")
    if named:
        return Place(Path(os.path.abspath(named)))
    if any(_may_be_there(path) for path in _INSTALLED):
        return Place(MACHINE_SOCKET)
    return Place(_own_home() / ".local/state/holdall" / _machine_name() / "agent.sock", is_own=True)


def _may_be_there(path: Path) -> bool:
    """What cannot be looked at may well be there."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _own_home() -> Path:
    """The home directory that the system knows: cron and a login session must find the same agent."""
    uid = os.geteuid()
    try:
        home = Path(pwd.getpwuid(uid).pw_dir)
    except KeyError:
        home = None
    if home is None or not home.is_dir():
        raise Unreachable(
            f"uid {uid} has no home directory on this machine, where its agent would be; "
            "name a socket with agent= or HOLDALL_AGENT"
        )
    return home


def _machine_name() -> str:
    """What tells machines apart that share a home directory."""
    try:
        name = Path("/etc/machine-id").read_text().strip()
    except (OSError, UnicodeDecodeError):
        name = ""
    return name if re.fullmatch("[0-9a-fA-F]{32}", name) else os.uname().nodename
