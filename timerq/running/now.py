"""One tick of a schedule, run in this process and waited for."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

from timerq import codec, keys
from timerq.commands import read
from timerq.commands.command import Scope
from timerq.commands.namespace import open_namespace
from timerq.consumer import Consumer
from timerq.consumer.arming import fitted
from timerq.consumer.handlers import Handler, make_handler
from timerq.consumer.service import Service
from timerq.declare import ScheduledFunction
from timerq.errors import InvalidSchedule
from timerq.exchange import unavailable
from timerq.model import Delivery, Event, tick_name
from timerq.timing import Instant, resolve_instant
from timerq.topology import REDIS_FAULTS

CLAIM_MS = 24 * 3_600_000
"""For how long a tick that was run counts as run."""


async def fire_now(
    app: Consumer, schedule: ScheduledFunction[..., Any] | str, *, fired_at: Instant | None = None
) -> bool:
    """Runs one schedule once, in this process, as a tick would, and waits until its handler has ended.

    ``schedule`` is a function under `timerq.schedule`, stored or not, or the key of a stored schedule whose events
    ``app`` handles; it needs to run neither here nor elsewhere. Its event is due at ``fired_at`` (now, unless given),
    to the second. The schedule itself does not notice: its count and its next occurrence stay.

    True when it ran. Two for one second are one tick: the other one, in whichever process, does nothing and returns
    False, for a day; a tick whose run failed may be run again, and its event has the same id. It is tried once: raises
    what the handler raises, the `Incomplete` that it returns, and TimeoutError where it takes longer than its
    ``timeout``. Also raises `InvalidSchedule` where there is nothing to run, and `QueueUnavailable`.
    """
    service = Service(app)
    try:
        service.namespace = await service.link.run(open_namespace(app.place.namespace))
        with app.lend(service):
            return await _fire(service, schedule, fired_at)
    finally:
        await service.close()


async def _fire(
    service: Service, schedule: ScheduledFunction[..., Any] | str, fired_at: Instant | None
) -> bool:
    app = service.app
    scope = service.scope_of(app.place.tenant)
    now_ms = (await service.clock())()
    at_ms = now_ms if fired_at is None else resolve_instant(fired_at, field="fired_at")
    at_ms -= at_ms % 1000
    handler, event = await _found(service, scope, schedule, at_ms, now_ms)
    token = fitted(f"{app.group}/fire_now/{event.id}")
    if not await service.mark(scope, token, CLAIM_MS):
        return False
    error: BaseException | None = None
    try:
        run = asyncio.create_task(service.runner.run(handler, event), context=contextvars.Context())
        _, error, _ = await run
    except BaseException:
        await _release(service, scope, token)
        raise
    if error is not None:
        await _release(service, scope, token)
        raise error
    return True


async def _found(
    service: Service, scope: Scope, schedule: ScheduledFunction[..., Any] | str, at_ms: int, now_ms: int
) -> tuple[Handler, Delivery]:
    """Who is to be run, and for which event: that of the stored schedule, or of the declared one."""
    app = service.app
    if not isinstance(schedule, (str, ScheduledFunction)):
        raise InvalidSchedule("schedule", schedule, "want a function under @timerq.schedule(…), or a key")
    key = schedule if isinstance(schedule, str) else schedule.name
    stored = await service.link.run(read.get(scope, key, None))
    if isinstance(schedule, ScheduledFunction):
        event = schedule.upsert.event
        handler = app.handler_of(schedule.name)
        if handler is None or handler.function is not schedule:
            handler = make_handler(schedule.name, schedule)
    elif stored is None:
        raise InvalidSchedule("schedule", key, "want the key of a stored schedule: there is none")
    else:
        event = stored.event
        found = app.handler_of(event.type)
        if found is None:
            want = f"want one whose events the app handles: nobody handles {event.type!r}"
            raise InvalidSchedule("schedule", key, want)
        handler = found
    version = 0 if stored is None else stored.version
    return handler, _delivery(service, event, key, at_ms, now_ms, version)


def _delivery(service: Service, event: Event, key: str, at_ms: int, now_ms: int, version: int) -> Delivery:
    place = service.app.place
    content_type, payload = codec.encode(event.payload, event.codec, limit_bytes=place.payload_limit)
    return Delivery(
        id=tick_name(key, at_ms),
        type=event.type,
        key=key,
        tenant=place.tenant,
        owner=None,
        at_ms=at_ms,
        fired_ms=now_ms,
        n=0,
        version=version,
        missed=0,
        payload=codec.decode(content_type, payload),  # as it would arrive
        correlation=dict(event.correlation or {}),
        stream=event.stream,
        group=service.app.group,
        attempt=1,
        delivery=1,
        partition=0,
        entry="",
    )


async def _release(service: Service, scope: Scope, token: str) -> None:
    """A tick whose run failed has not been run."""
    token_bytes = token.encode()
    tag = scope.namespace.tags[scope.namespace.partition_of(scope.tenant_bytes, token_bytes)]
    try:
        client: Any = await service.link.connections.open()
        await client.delete(keys.mark(tag, scope.tenant_bytes, token_bytes))
    except REDIS_FAULTS as error:
        raise unavailable(error) from error
