"""The same in an event loop."""

from __future__ import annotations

import asyncio
import time

import pytest

import holdall

from .conftest import Agent, is_free, until


def test_a_block_holds(agent: Agent) -> None:
    async def main() -> None:
        async with holdall.hold("gpu:2", "b") as grant:
            assert len(grant.units["gpu"]) == 2 and not await asyncio.to_thread(is_free, "b")

    asyncio.run(main())
    assert is_free("b")


def test_tasks_take_turns(agent: Agent) -> None:
    inside = most = 0

    async def work() -> None:
        nonlocal inside, most
        async with holdall.hold("turn"):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.001)
            inside -= 1

    async def main() -> None:
        await asyncio.gather(*(work() for _ in range(20)))

    asyncio.run(main())
    assert most == 1


def test_a_blocked_loop_does_not_lose_it(agent: Agent) -> None:
    async def main() -> None:
        async with holdall.hold("a", ttl=3) as grant:
            time.sleep(5)
            assert grant.is_held

    asyncio.run(main())


@pytest.mark.parametrize("on_loss", ["raise", "interrupt"])
def test_a_loss_ends_the_block_at_once(agent: Agent, on_loss: str) -> None:
    async def main() -> None:
        with pytest.raises(holdall.Lost):
            async with holdall.hold("a", ttl=1, on_loss=on_loss) as grant:
                await asyncio.to_thread(agent.force, grant.number)
                await asyncio.sleep(60)
                pytest.fail("nobody has cancelled the block")
        await asyncio.sleep(0)  # Nothing of the cancellation is left.

    asyncio.run(main())


def test_who_is_cancelled_while_waiting_leaves_the_queue(agent: Agent) -> None:
    async def main() -> None:
        async def wait() -> None:
            async with holdall.hold("a"):
                pytest.fail("somebody else has it")

        async with holdall.hold("a"):
            waiting = asyncio.create_task(wait())
            await asyncio.sleep(0.5)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    asyncio.run(main())
    until(lambda: is_free("a"), "it is free")


def test_who_is_cancelled_while_holding_gives_it_back(agent: Agent) -> None:
    async def main() -> None:
        held = asyncio.Event()

        async def work() -> None:
            async with holdall.hold("a"):
                held.set()
                await asyncio.sleep(60)

        working = asyncio.create_task(work())
        await held.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working

    asyncio.run(main())
    until(lambda: is_free("a"), "it is free")


def test_a_timeout_around_the_wait(agent: Agent) -> None:
    async def ask() -> None:
        async with holdall.hold("a"):
            pytest.fail("somebody else has it")

    async def main() -> None:
        async with holdall.hold("a"):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.create_task(ask()), 0.3)

    asyncio.run(main())
    until(lambda: is_free("a"), "it is free")
