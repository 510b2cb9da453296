"""A client of the storm: `storm_client.py MODE FOLDER SEED`. Takes what others want, too, and writes down when it believes to hold what,
until there is a file `stop`.

A line says: at this time this unit was held under this fence. The time is taken before that is looked at, so it is true
then, or the client is wrong.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
import time
from pathlib import Path

import holdall
from holdall._clock import clock

TTL = 1.0
NEEDS = [["gpu"], ["gpu:2"], ["db"], ["db", "gpu"]]


class Client:
    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.claims = os.open(folder / f"claims-{os.getpid()}-{seed}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def goes_on(self) -> bool:
        return not (self.folder / "stop").exists()

    def wish(self) -> list[str]:
        return self.random.choice(NEEDS)

    def write(self, *words: object) -> None:
        # In one piece, so that nothing is half there when we are killed.
        os.write(self.claims, (" ".join(map(str, words)) + "\n").encode())

    def got(self, grant: holdall.Grant, asked_at: float) -> None:
        self.write("waited", clock() - asked_at)
        if not grant.is_held:
            self.write("empty")
        self.claim(grant)

    def claim(self, grant: holdall.Grant) -> None:
        now = clock()
        if grant.is_held:
            for name, units in grant.units.items():
                for unit, fence in zip(units, grant.fences[name]):
                    self.write("held", now, unit, fence)

    def steps(self) -> int:
        return self.random.randint(1, 12)

    def use(self, grant: holdall.Grant) -> None:
        for _ in range(self.steps()):
            self.claim(grant)
            time.sleep(0.02)

    def hold_once(self) -> None:
        asked_at = clock()
        with holdall.hold(*self.wish(), ttl=TTL, wait=60) as grant:
            self.got(grant, asked_at)
            self.use(grant)

    async def hold_once_async(self) -> None:
        asked_at = clock()
        async with holdall.hold(*self.wish(), ttl=TTL, wait=60) as grant:
            self.got(grant, asked_at)
            for _ in range(self.steps()):
                self.claim(grant)
                # A loop that is blocked now and then.
                time.sleep(0.02) if self.random.random() < 0.3 else await asyncio.sleep(0.02)

    def hold_for_a_child(self) -> None:
        """The child uses it, and its parent holds it."""
        asked_at = clock()
        with holdall.hold(*self.wish(), ttl=TTL, wait=60) as grant:
            self.got(grant, asked_at)
            child = os.fork()
            if child == 0:
                self.use(grant)
                os._exit(0)
            os.waitpid(child, 0)

    def loop(self, once: str) -> None:
        while self.goes_on():
            try:
                getattr(self, once)()
            except (holdall.Lost, holdall.Unreachable, holdall.NotGranted) as error:
                self.write("error", type(error).__name__)
                time.sleep(0.05)

    async def loop_async(self) -> None:
        while self.goes_on():
            try:
                await self.hold_once_async()
            except (holdall.Lost, holdall.Unreachable, holdall.NotGranted) as error:
                self.write("error", type(error).__name__)
                await asyncio.sleep(0.05)


def main(mode: str, folder: Path, seed: int) -> None:
    clients = [Client(folder, seed * 10 + n) for n in range(3 if mode in ("threads", "asyncio") else 1)]
    if mode == "asyncio":

        async def all_of_them() -> None:
            await asyncio.gather(*(client.loop_async() for client in clients))

        asyncio.run(all_of_them())
    else:
        once = "hold_for_a_child" if mode == "fork" else "hold_once"
        threads = [threading.Thread(target=client.loop, args=[once]) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
