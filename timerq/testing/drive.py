"""Drives what a kit plays: handlers are called where it stands, and awaited where they must be."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any

from timerq.errors import TimerqError
from timerq.tail import Published

Play = Generator[Any, Any, list[Published]]
"""Yields what may have to be awaited, is sent (or thrown) what came of it, and returns the events."""


class Loop:
    """An event loop for asynchronous handlers in a test that is not asynchronous; made where one comes."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    def drive(self, play: Play) -> list[Published]:
        """Plays to the end; raises what the play raises."""
        return _steps(play, self._settled)

    def close(self, last: Callable[[], Awaitable[None]]) -> None:
        """Closes the loop, where there is one, after it has run ``last``."""
        if self._runner is not None:
            try:
                self._runner.run(_awaiting(last()))
            finally:
                self._runner.close()
                self._runner = None

    def _settled(self, thing: Any) -> Any:
        if not inspect.isawaitable(thing):
            return thing
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            if inspect.iscoroutine(thing):
                thing.close()
            raise TimerqError("an asynchronous handler in an asynchronous test: want await kit.aadvance(…)")
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(_awaiting(thing))


def _steps(play: Play, settled: Callable[[Any], Any]) -> list[Published]:
    step: Callable[[], Any] = partial(next, play)
    try:
        while True:
            thing = step()
            try:
                step = partial(play.send, settled(thing))
            except Exception as error:
                step = partial(play.throw, error)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        play.close()


async def adrive(play: Play) -> list[Published]:
    """Plays to the end in the running event loop; raises what the play raises."""
    step: Callable[[], Any] = partial(next, play)
    try:
        while True:
            thing = step()
            try:
                step = partial(play.send, await thing if inspect.isawaitable(thing) else thing)
            except Exception as error:
                step = partial(play.throw, error)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        play.close()


async def _awaiting(thing: Awaitable[Any]) -> Any:
    return await thing
