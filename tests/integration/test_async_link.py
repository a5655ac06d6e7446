"""Cancelling a call of the asynchronous client: it ends, whatever the driver below makes of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from timerq import AsyncTimerQueue, Event, TimerQueue
from timerq.commands.command import Command

pytestmark = pytest.mark.one_server


def test_a_cancel_that_gets_lost_below_is_heard(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with AsyncTimerQueue.connect(redis_url) as queue:
            await queue.upsert("k", Event("t"), delay="1h")
            link, begun = queue._link, asyncio.Event()
            real = link._one

            async def forgets(command: Command[Any]) -> Any:
                begun.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    return await real(command)

            monkeypatch.setattr(link, "_one", forgets)
            looking = asyncio.create_task(queue.get("k"))
            await asyncio.wait_for(begun.wait(), 10)
            looking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await looking
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await queue.get("k")

            async def cleans_up() -> bool:
                try:
                    await asyncio.Event().wait()
                finally:  # cancelled before, it may still make calls
                    assert await queue.get("k") is not None
                return True

            monkeypatch.setattr(link, "_one", real)
            cleaning = asyncio.create_task(cleans_up())
            await asyncio.sleep(0)
            cleaning.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cleaning
            assert await queue.count() == 1

    with TimerQueue.connect(redis_url) as queue:
        queue.init()
    asyncio.run(main())


def test_a_verb_of_many_steps_ends_when_it_is_cancelled(redis_url: str) -> None:
    async def main() -> None:
        async with AsyncTimerQueue.connect(redis_url) as queue:
            await queue.init()
            done = rounds = 0

            async def looks() -> None:
                nonlocal done
                while True:
                    await queue.get("k")
                    done += 1

            while rounds < 20 or not done:  # the driver forgets most cancels of so short calls
                rounds += 1
                looking = asyncio.create_task(looks())
                await asyncio.sleep(0.002 * (rounds // 20 + 1))  # longer where that was too short for any
                looking.cancel()
                await asyncio.wait({looking}, timeout=30)
                assert looking.cancelled()

    asyncio.run(main())
