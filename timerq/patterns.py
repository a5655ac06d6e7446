"""What handlers do with timers over and over, each a few lines over the verbs of their context; docs/patterns.md.

    @app.on("agent.message")
    async def said(event: Delivery, ctx: AsyncContext) -> None:
        await follow_up(ctx, "follow-up", Event("assistant.follow_up_due"), "10m")

A sync handler says ``ctx.run(follow_up, "follow-up", …)``. All timers are of the lane of the event that is handled, and
their delays count from it. A handler that runs again after a crash changes nothing that it has changed already. What
events of one lane do to one timer comes right only where they are handled in their order: ``Consumer(ordered=True)``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from timerq.commands.arming import Upserted
from timerq.consumer import AsyncContext
from timerq.consumer.arming import CAUSATION, scoped
from timerq.errors import InvalidSchedule
from timerq.model import Codec, Event, Outcome
from timerq.timing import Duration, resolve_duration

FOLLOW_UP, RETRY, REMINDER = "follow_up", "retry", "reminder"
"""Words of correlations: of a follow-up and all that comes of it; which retry, and which reminder, an event is."""

WINDOWS = "windows"
"""The stream for the ends of windows in which nothing more came: `leading_and_trailing` has nothing to say there."""


async def follow_up(ctx: AsyncContext, key: str, event: Event, delay: Duration) -> Upserted | None:
    """Arms ``event``, for ``delay`` after the message that is handled; a later message pushes it back.

    Whoever answers cancels it: ``ctx.cancel(key)``. What the handler of ``event`` publishes or arms with its ``ctx`` is
    known, by its correlation, as the follow-up's own: it arms no other, and None is returned.
    """
    if ctx.event.correlation.get(FOLLOW_UP) == key:
        return None
    return await _arm(ctx, key, _marked(event, FOLLOW_UP, key), delay)


async def debounce(
    ctx: AsyncContext, key: str, event: Event, quiet: Duration, *, max_wait: Duration | None = None
) -> Upserted:
    """Arms ``event`` for when nothing has come for ``quiet``, and no later than ``max_wait`` after the first."""
    return await _arm(ctx, key, event, quiet, max_wait=max_wait)


async def leading_and_trailing(
    ctx: AsyncContext, key: str, event: Event, quiet: Duration, *, max_wait: Duration | None = None
) -> bool:
    """True for the first of a burst: act at once. For those after it `debounce`, so that the last one comes too.

    Where nothing follows the first, nothing comes. After ``max_wait`` what goes on is a new burst.
    """
    # armed before the act: a handler that crashes between the two finds the window open, and is a trailing one then
    end = replace(event, payload=None, stream=WINDOWS)
    opened = await ctx.schedule_upsert(key, end, delay=quiet, mode="keep")
    if opened.outcome is Outcome.CREATED:
        return True
    await debounce(ctx, key, event, quiet, max_wait=max_wait)
    return False


async def idle_timeout(ctx: AsyncContext, key: str, event: Event, after: Duration) -> Upserted:
    """Arms ``event`` for when nothing has called this for ``after``: call it at every sign of life."""
    return await _arm(ctx, key, event, after, mode="latest")


async def watchdog(ctx: AsyncContext, key: str, event: Event, patience: Duration) -> Upserted:
    """Arms ``event`` for when no beat has come for ``patience``, and again after each further one, until one comes.

    Call it at every beat. The alarm's ``n`` says how often it has been raised since the last one. Where the answer's
    outcome is CREATED there was no watchdog: it is the first beat.
    """
    first_ms = ctx.event.fired_ms + resolve_duration(patience, field="patience")
    return await ctx.schedule_upsert(
        key, event, every=patience, start=first_ms, restart=True, idempotency_key=_of_this(ctx, key)
    )


async def retry_later(
    ctx: AsyncContext, delays: Sequence[Duration], payload: Any = ..., *, codec: Codec = "msgpack"
) -> Upserted | None:
    """Arms the handled event again, after the first of ``delays``; handled again, after the second; at last None.

    For what is worth trying tomorrow: the event is done with and its lane goes on, which the back-off of `Consumer.on`
    holds. ``payload`` is another one for the next try, and needed where the handler's model is none of pydantic's.
    """
    turn = _turn(ctx)
    if turn >= len(delays):
        return None
    if payload is ...:
        payload = ctx.event.payload
        if hasattr(payload, "model_dump"):
            payload = payload.model_dump(mode="json")
    return await ctx.schedule(
        ctx.event.type,
        payload,
        delay=delays[turn],
        name=RETRY,
        correlation={RETRY: str(turn + 1)},
        codec=codec,
    )


async def remind(ctx: AsyncContext, key: str, event: Event, delays: Sequence[Duration]) -> list[Upserted]:
    """Arms ``event`` several times, after each of ``delays``; ``correlation["reminder"]`` tells which it is, from 1."""
    arming = [
        _arm(ctx, f"{key}:{n}", _marked(event, REMINDER, str(n)), delay) for n, delay in enumerate(delays, 1)
    ]
    return list(await asyncio.gather(*arming))


async def stop_reminding(ctx: AsyncContext, key: str, count: int) -> int:
    """Cancels what `remind` has armed under ``key``, ``count`` of them; returns how many had not come yet.

    One that has come and is not handled yet is not handled any more.
    """
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise InvalidSchedule("count", count, "want how many reminders there are")
    changes = await asyncio.gather(*(ctx.cancel(f"{key}:{n}") for n in range(1, count + 1)))
    return sum(map(bool, changes))


async def _arm(ctx: AsyncContext, key: str, event: Event, delay: Duration, **words: Any) -> Upserted:
    """Arms a one-shot that a second run of the same handling does not arm again, also when it has fired."""
    return await ctx.schedule_upsert(key, event, delay=delay, idempotency_key=_of_this(ctx, key), **words)


def _of_this(ctx: AsyncContext, key: str) -> str:
    """An idempotency key: an event arms a key once, however often it is handled."""
    return scoped(key, ctx.event.id)


def _marked(event: Event, word: str, value: str) -> Event:
    return replace(event, correlation={**(event.correlation or {}), word: value})


def _turn(ctx: AsyncContext) -> int:
    """How often it was armed again; what a retry's handler arms or publishes has its correlation, not its key."""
    event, correlation = ctx.event, ctx.event.correlation
    if event.key != scoped(RETRY, correlation.get(CAUSATION, "")):
        return 0
    return int(correlation.get(RETRY, "0"))
