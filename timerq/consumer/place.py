"""Where a consumer's queue is: what it was given, or what the environment says."""

from __future__ import annotations

from timerq.async_client import AsyncTimerQueue
from timerq.client import TimerQueue
from timerq.clock import ask_redis
from timerq.errors import InvalidSchedule
from timerq.exchange import Place
from timerq.model import check_plain_name
from timerq.settings import Settings


def place_of(queue: TimerQueue | AsyncTimerQueue | str | None, namespace: str | None) -> Place:
    """The place of a client, of a URL, or of the environment; raises `InvalidSchedule`."""
    settings = Settings.from_environment()
    if isinstance(queue, (TimerQueue, AsyncTimerQueue)):
        if namespace is not None and namespace != queue.place.namespace:
            raise InvalidSchedule("namespace", namespace, f"want the queue's, {queue.place.namespace!r}")
        return queue.place
    if queue is not None and not isinstance(queue, str):
        raise InvalidSchedule("queue", queue, "want a TimerQueue, an AsyncTimerQueue, a URL or None")
    return Place(
        settings.redis_url if queue is None else queue,
        check_plain_name("namespace", settings.namespace if namespace is None else namespace),
        settings.tenant,
        ask_redis,
        settings.max_payload_bytes,
        {},
    )
