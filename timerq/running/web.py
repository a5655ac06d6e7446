"""A run as the lifespan of a web server's application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from timerq.async_client import AsyncTimerQueue
from timerq.client import TimerQueue
from timerq.consumer import Consumer
from timerq.errors import InvalidSchedule
from timerq.running.block import Running, run
from timerq.running.schedules import Schedules, each

Lifespan = Callable[..., AbstractAsyncContextManager[dict[str, Running]]]
"""Called with the web application; a context manager for as long as it is served, which gives it its state."""


def lifespan(
    queue: TimerQueue | AsyncTimerQueue | str | None,
    app: Consumer,
    schedules: Schedules | None = None,
    **words: Any,
) -> Lifespan:
    """`run` as ASGI frameworks take it: ``Starlette(lifespan=timerq.lifespan(queue, app, [morning]))``.

    It starts when the server does and has stopped before the server has. Its state is the mapping
    ``{"timerq": running}``; ``words`` are those of `run`. A server that is started twice starts it twice. Signals are
    the server's own business.

    Raises what `run` raises for bad arguments, and for ``keep_alive``, here and now; what it raises on entering, the
    server reports as a failed start.
    """
    if words.get("keep_alive"):
        raise InvalidSchedule("keep_alive", True, "want it left out: a server says itself when it ends")
    # an iterator would be used up by the first run
    schedules = None if schedules is None else each(schedules)
    run(queue, app, schedules, **words)  # refuses what cannot be, before any server is started

    @asynccontextmanager
    async def served(*application: Any) -> AsyncIterator[dict[str, Running]]:
        async with run(queue, app, schedules, **words) as running:
            yield {"timerq": running}

    return served
