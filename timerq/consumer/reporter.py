"""Errors of handlers are never swallowed: each goes to the log and, with its cause, onto the stream `errors`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from timerq.commands.consume import RawDelivery
from timerq.consumer.handlers import Handler
from timerq.consumer.verdict import Verdict, bounded
from timerq.errors import ContractBroken, InvalidSchedule, TimerqError
from timerq.model import ERRORS, Delivery, Event, check_plain_name, instant_text

logger = logging.getLogger("timerq.consumer")

_MAX_TRACE_BYTES = 4_000
_MAX_UNWANTED = 100
"""Of so many types it is said that no handler wants them: types may be made up without end."""

_UNWANTED = {
    "ack": "acknowledged unhandled",
    "dead": "dead letters",
    "leave": "left to other processes of the group",
}

Publish = Callable[[str, Event, str, str | None], Awaitable[Any]]
"""Publishes for a tenant an event under a key and an owner."""


class Reporter:
    """Tells of failures; what it publishes travels beside the handlers and holds none of them up."""

    def __init__(self, stream: str, group: str, publish: Publish) -> None:
        self._stream = stream
        self._group = group
        self._publish = publish
        self._tasks: set[asyncio.Task[None]] = set()
        self._unwanted: set[str] = set()

    def failed(
        self,
        event: Delivery,
        handler: Handler,
        verdict: Verdict,
        error: BaseException | None,
        retry_at_ms: int,
    ) -> None:
        """A handling has failed: it is tried again at ``retry_at_ms`` (epoch ms; 0: it is given up)."""
        if retry_at_ms:
            logger.warning(
                "event %s (%s) failed in %s, attempt %d of %d; again at %s: %s",
                *(event.id, event.type, handler.name, event.attempt, handler.attempts),
                *(instant_text(retry_at_ms), verdict.error),
                exc_info=error,
            )
        else:
            logger.error(
                "event %s (%s) failed in %s, attempt %d of %d; it is a dead letter of group %s: %s",
                *(event.id, event.type, handler.name, event.attempt, handler.attempts, self._group),
                verdict.error,
                exc_info=error,
            )
        payload = {
            "reason": verdict.error,
            "traceback": bounded(verdict.traceback, _MAX_TRACE_BYTES, keep_end=True),
            "event": event.id,
            "type": event.type,
            "stream": self._stream,
            "group": self._group,
            "handler": handler.name,
            "attempt": event.attempt,
            "attempts": handler.attempts,
        }
        if retry_at_ms:
            payload["retry_at"] = retry_at_ms
        word = "handler.failed" if retry_at_ms else "handler.dead"
        self._tell(event.tenant, word, payload, event.key, event.owner)

    def overdue(self, event: Delivery, handler: Handler) -> None:
        """Its time is up, but its thread goes on, and its lane waits for it."""
        logger.warning(
            "event %s (%s): the thread of %s goes on beyond its timeout of %g s; its lane waits until it has ended",
            *(event.id, event.type, handler.name, handler.timeout_s),
        )

    def unreadable(self, raw: RawDelivery, why: ContractBroken) -> None:
        """An entry cannot be read; it is a dead letter."""
        entry = raw.entry.decode()
        logger.error(
            "entry %s of stream %s cannot be read; it is a dead letter of group %s: %s",
            *(entry, self._stream, self._group, why),
        )
        payload = {
            "reason": f"unreadable: {why}",
            "entry": entry,
            "stream": self._stream,
            "group": self._group,
        }
        try:
            tenant = check_plain_name("tenant", raw.fields.get(b"tenant", b"").decode())
        except ValueError:
            tenant = "default"
        self._tell(tenant, "handler.dead", payload, f"{self._stream}/{entry}", None)

    def unwanted(self, event_type: str, how: str) -> None:
        """No handler wants events of this type; ``how`` they are treated is told, once for each type."""
        if event_type in self._unwanted or len(self._unwanted) >= _MAX_UNWANTED:
            return
        self._unwanted.add(event_type)
        logger.info(
            "no handler here for events of type %s on stream %s: they are %s (said once for each type)",
            *(event_type, self._stream, _UNWANTED[how]),
        )

    async def flush(self) -> None:
        """Waits until all is told."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def close(self) -> None:
        """Ends what is still on its way."""
        for task in self._tasks:
            task.cancel()

    def _tell(self, tenant: str, word: str, payload: dict[str, Any], key: str, owner: str | None) -> None:
        if self._stream == ERRORS:
            return  # a failing handler of failures would feed itself for ever
        event = Event(word, payload, stream=ERRORS, codec="json")
        task = asyncio.get_running_loop().create_task(self._send(tenant, event, key, owner))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, tenant: str, event: Event, key: str, owner: str | None) -> None:
        try:
            await self._publish(tenant, event, key, owner)
        except (TimerqError, InvalidSchedule) as error:  # the log has it
            logger.warning("%s could not be published on the stream %s: %s", event.type, ERRORS, error)
