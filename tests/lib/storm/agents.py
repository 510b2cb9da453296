"""The agents of the storm: one after another in one place."""

import json
import os
import signal
import socket
import struct
import subprocess
import time

from processes import identified


class Agents:
    def __init__(self, holdall, directory):
        self.holdall, self.directory = holdall, directory
        self.socket = os.path.join(directory, "agent.sock")
        self.started = []  # Children of ours, to be reaped.
        self.seen = {}  # By number: all that ever were.

    def command(self, *words, **options):
        """Runs a `holdall` command; a minute is as good as for ever."""
        return subprocess.run([self.holdall, *words], capture_output=True, text=True, timeout=60, **options)

    def begin(self, *words):
        """Begins a command, without waiting for its end."""
        child = subprocess.Popen([self.holdall, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
        self.started.append(child)
        return child

    def start(self):
        """Starts one, in the foreground, as a supervisor would. If there is one already, it ends by itself."""
        with open(os.path.join(self.directory, "agents.log"), "a") as log:
            agent = subprocess.Popen(
                [self.holdall, "agent", "--socket", self.socket, "--data", os.path.join(self.directory, "data")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.started = [child for child in self.started if child.poll() is None] + [agent]

    def present(self):
        """The one that listens, or nothing. The kernel says who that is, also if it does not answer."""
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
        agent = identified(pid, self.holdall, "agent", self.socket)
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
        for child in self.started:
            child.kill()
            child.wait()
