"""A real agent that serves the page, with a lab full of work."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

CONFIG = """
[pools.board]
units = ["front", "back", "left", "right"]
[pools.gpu]
units = 8
[pools.scope]
units = 3
[pools."license/maya"]
units = 6
"""


class Agent:
    def __init__(self, program: str, directory: Path) -> None:
        self.program, self.directory = program, directory
        self.environment = {**os.environ, "HOLDALL_AGENT": f"{directory}/agent.sock", "HOLDALL_DATA": f"{directory}/data"}
        self.environment.pop("HOLDALL_GRANT", None)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        self.jobs: list[subprocess.Popen[bytes]] = []
        (directory / "config.toml").write_text(CONFIG)
        self.start()
        self.token = self.call("token", "add", "page", "--may", "view,ask,reserve,pools,force,admin").strip()

    def start(self) -> None:
        command = [self.program, "agent", "--config", f"{self.directory}/config.toml", "--http", f"127.0.0.1:{self.port}"]
        with open(self.directory / "agent.log", "ab") as log:
            self.process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        end = time.monotonic() + 60
        while not self._is_ready():
            assert self.process.poll() is None and time.monotonic() < end, "the agent does not start"
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}readyz", timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def call(self, *args: str) -> str:
        done = subprocess.run([self.program, *args], env=self.environment, capture_output=True, text=True, check=True, timeout=60)
        return done.stdout

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.call("status", "--json"))
        return found

    def run(self, *args: str, seconds: float = 600) -> None:
        """A command that holds something, in the background."""
        command = [self.program, "run", *args, "--", "sleep", str(seconds)]
        self.jobs.append(subprocess.Popen(command, env=self.environment, stderr=subprocess.DEVNULL))

    def fill(self) -> None:
        """A lab at work: some hold, some wait, one unit is out of order."""
        self.call("pool", "drain", "gpu/7", "--reason", "fan broken")
        self.call("hold", "gpu:2", "license/maya", "--for", "2h", "--reason", "night run")
        self.call("hold", "board/front", "--for", "1h", "--reason", "demo on Friday")
        for needs, reason in [
            (["gpu:3", "license/maya:2"], "train the large model"),
            (["board", "scope"], "boot test"),
            (["scope:2"], "calibration"),
            (["db"], "migration"),
        ]:
            self.run(*needs, "--reason", reason)
        self.until(lambda: len(self.status()["grants"]) == 6)
        waiting = [
            (["gpu:4"], "regression 4711"),
            (["scope", "board:2"], "bisect"),
            (["gpu:all"], "burn-in"),
            (["gpu:1", "scope"], "nightly"),
            (["db"], "report"),
        ]
        for count, (needs, reason) in enumerate(waiting, 1):
            self.run(*needs, "--reason", reason)
            self.until(lambda count=count: len(self.status()["waiting"]) >= count or len(self.status()["grants"]) > 6)

    def until(self, done: Any) -> None:
        end = time.monotonic() + 60
        while not done():
            assert time.monotonic() < end, "not in a minute"
            time.sleep(0.05)

    def close(self) -> None:
        if self.process.poll() is not None:
            self.start()
        subprocess.run([self.program, "agent", "stop"], env=self.environment, check=False, timeout=60, stderr=subprocess.DEVNULL)
        self.process.wait(60)
        for job in self.jobs:
            job.kill()
            job.wait(60)
