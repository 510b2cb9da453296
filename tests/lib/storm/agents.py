"""The agents of the storm: one after another in one place."""

import json
import os
import signal
import socket
import struct
import subprocess
import time

from processes import Process, identified


# Snapshots while the storm goes on, which would come too late for it otherwise.
CONFIG = """
snapshot_records = 40
durability = "sync"
"""


class Agents:
    def __init__(self, holdall, directory, supervised):
        self.holdall, self.directory = holdall, directory
        self.socket = os.path.join(directory, "agent.sock")
        self.listener = self.listen() if supervised else None
        self.started = []  # Children of ours, to be reaped.
        self.seen = {}  # By number: all that ever were.
        self.asked = []  # Commands that somebody has begun, and which have not ended.

    def command(self, *words, **options):
        """Runs a `holdall` command; a minute is as good as for ever."""
        return subprocess.run([self.holdall, *words], capture_output=True, text=True, timeout=60, **options)

    def begin(self, *words):
        """Begins a command, without waiting for its end: the agent may be stopped."""
        child = subprocess.Popen([self.holdall, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True)
        self.asked.append((" ".join(words), child))

    def answered(self):
        """The commands that have come to their end: what they were, their status, and what they said."""
        over = [(words, child) for words, child in self.asked if child.poll() is not None]
        self.asked = [one for one in self.asked if one not in over]
        return [(words, child.returncode, child.communicate()[1].strip()) for words, child in over]

    def listen(self):
        """A socket that outlives agents, and their configuration: as under systemd."""
        with open(os.path.join(self.directory, "config.toml"), "w") as file:
            file.write(CONFIG)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.socket)
        os.chmod(self.socket, 0o600)
        listener.listen(256)
        return listener

    def start(self):
        """Starts one in the foreground. If there is one already, it ends by itself."""
        words = [self.holdall, "agent", "--socket", self.socket, "--data", os.path.join(self.directory, "data")]
        options = {}
        if self.listener:
            words = ["sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh", *words, "--config", self.directory + "/config.toml"]
            listener = self.listener.fileno()
            options = {"env": dict(os.environ, LISTEN_FDS="1"), "close_fds": False,
                       "preexec_fn": lambda: os.dup2(listener, 3)}
        with open(os.path.join(self.directory, "agents.log"), "a") as log:
            agent = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **options)
        self.started = [child for child in self.started if child.poll() is None] + [agent]
        if self.listener:
            self.seen[agent.pid] = Process(agent.pid)

    def present(self):
        """The one that listens, or nothing."""
        if self.listener:
            alive = [self.seen[child.pid] for child in self.started if child.pid in self.seen and child.poll() is None]
            return alive[0] if alive else None
        return self.found()

    def found(self):
        """The one that listens, of which nothing else may be known. The kernel says who it is, also if it does not answer."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5)
            try:
                connection.connect(self.socket)
            except OSError:
                return None
            pid, _, _ = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        known = self.seen.get(pid)
        if known and known.alive():
            return known
        agent = identified(pid, "agent", self.socket)
        if agent:
            if known:
                known.close()
            self.seen[pid] = agent
        return agent

    def wait_for(self, seconds=30):
        """Until one answers; starts it where it must be."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.present():
                told = self.command("agent", "status", "--json")
                if told.returncode == 0:
                    return json.loads(told.stdout)
            else:
                self.start()
            time.sleep(0.1)
        raise TimeoutError(f"no agent answers after {seconds} seconds")

    def status(self):
        told = self.command("status", "--json")
        return json.loads(told.stdout) if told.returncode == 0 else None

    def end(self):
        """Ends whatever there is."""
        for agent in self.seen.values():
            agent.signal(signal.SIGCONT)
            agent.signal(signal.SIGKILL)
        for child in self.started + [child for _, child in self.asked]:
            child.kill()
            child.wait()
