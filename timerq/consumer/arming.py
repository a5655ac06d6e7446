"""What a handler asks of the queue, as commands: pure.

A handler may be run again after a crash, at any distance in time. So what it arms has a name that only its event and
its own word decide, an instant that counts from its event, and a memory that folds every later arming into the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from types import EllipsisType
from typing import Any, TypeVar

from timerq.commands import cancel as cancelling
from timerq.commands import owner as owners
from timerq.commands import read
from timerq.commands import upsert as upserting
from timerq.commands.arming import Upsert, Upserted
from timerq.commands.command import Scope, Steps
from timerq.commands.edit import publish_item
from timerq.commands.items import Item
from timerq.commands.phrasing import unknown_word
from timerq.errors import InvalidSchedule
from timerq.lua import Word
from timerq.model import Change, Codec, Delivery, Event, Page, Schedule, Swept, check_text
from timerq.model.names import MAX_NAME_BYTES
from timerq.timing import Duration, Instant, resolve_instant, resolve_wait

T = TypeVar("T")

WhoseLane = str | None | EllipsisType
"""An owner, None for none, ``...`` for the lane of the event that is being handled."""

CAUSATION = "causation_id"
"""The word of a correlation that holds the id of the event whose handler armed or published this one."""

_WORDS = sorted({*Upsert._fields} - {"key", "event", "owner"})
_TIMINGS = ("at", "every", "cron")


def fitted(text: str) -> str:
    """A name made of what others gave: itself, or where it is longer than a name may be its beginning and its hash."""
    encoded = text.encode("utf-8", "surrogatepass")
    if len(encoded) <= MAX_NAME_BYTES:
        return text
    digest = blake2b(encoded, digest_size=16).hexdigest()
    return encoded[: MAX_NAME_BYTES - len(digest) - 1].decode(errors="ignore") + "~" + digest


def scoped(name: str, event_id: str) -> str:
    """The key of the timer that an event's handler arms under ``name``; it also marks what is done once an event."""
    return fitted(f"{name}@{event_id}")


@dataclass(slots=True)
class Arming:
    """Builds the commands of one handling of ``event``.

    ``declared`` tells whether an event type is one that the app handles or names; ``memory_ms`` is how long an arming
    is remembered.
    """

    event: Delivery
    scope: Scope
    declared: Callable[[str], bool]
    memory_ms: int
    armed: dict[tuple[Word, ...], tuple[Word, ...]] = field(default_factory=dict)

    def schedule(
        self,
        type: str,
        payload: Any,
        delay: Duration | None,
        at: Instant | None,
        name: str | None,
        correlation: Mapping[str, str] | None,
        codec: Codec,
    ) -> Item[Upserted]:
        """A one-shot of the event's lane; see `Context.schedule`."""
        if (delay is None) == (at is None):
            raise InvalidSchedule("delay", delay, "want exactly one of delay= and at=")
        at_ms = self._after(delay) if at is None else resolve_instant(at)
        event = self._event(Event(type, payload, stream=self.event.stream, codec=codec), correlation)
        given = type if name is None else name
        check_text("name", given)
        key = scoped(given, self.event.id)
        wanted = Upsert(key, event, at=at_ms, owner=self.event.lane, idempotency_key=key)
        item = upserting.item(self.scope, wanted, incarnation=self.event.version, fold_ms=self.memory_ms)
        self._once(item.keys, item.args, "name", given)
        return item

    def upsert(
        self, key: str, event: Event, owner: WhoseLane, words: dict[str, Any], now: Callable[[], int] | None
    ) -> Item[Upserted]:
        """An upsert of the event's lane; a one-shot's delay counts from the event."""
        for word in words:
            if word not in _WORDS:
                raise InvalidSchedule(word, words[word], unknown_word(word, _WORDS))
        words = dict(words)
        # what it is set beside, and may not be, is said of the word that was written
        if words.get("delay") is not None and not any(words.get(word) is not None for word in _TIMINGS):
            words["at"] = self._after(words.pop("delay"))
        wanted = Upsert(key, self._event(event, None), owner=self._owner(owner), **words)
        incarnation = self.event.version if owner is ... else None
        token = wanted.idempotency_key
        fold_ms = None if token is None else self.memory_ms
        item = upserting.item(self.scope, wanted, incarnation=incarnation, now=now, fold_ms=fold_ms)
        if token is not None and wanted.every is None and wanted.cron is None:  # those go by what time it is
            self._once(item.keys, item.args, "idempotency_key", token)
        return item

    def start(self, wanted: Upsert, now: Callable[[], int]) -> Item[Upserted]:
        """A timer of the event's lane, as an owner starts it; a one-shot's delay counts from the event."""
        wanted = wanted._replace(event=self._event(wanted.event, None))
        if wanted.delay is not None:
            wanted = wanted._replace(at=self._after(wanted.delay), delay=None)
        return upserting.item(self.scope, wanted, incarnation=self.event.version, now=now)

    def cancel(self, key: str, owner: WhoseLane) -> Item[Change]:
        """A cancel in the event's lane; by an event of a gone owner, it cancels nothing of a later incarnation."""
        incarnation = self.event.version if owner is ... else None
        return cancelling.item(self.scope, key, self._owner(owner), incarnation=incarnation)

    def get(self, key: str) -> Steps[Schedule | None]:
        """A schedule of the event's lane; None where its owner was destroyed since the event was armed."""
        return self._guarded(read.get(self.scope, key, self.event.lane), None)

    def list_page(self, prefix: str, after: str | None) -> Steps[Page]:
        """A page of the schedules of the event's lane."""
        steps = read.list_page(self.scope, prefix, self.event.lane, after, read.MAX_PAGE)
        return self._guarded(steps, Page([], None))

    def active_keys(self, prefix: str) -> Steps[list[str]]:
        """The keys of the event's lane."""
        nothing: list[str] = []
        return self._guarded(owners.list_keys(self.scope, self._lane(), prefix), nothing)

    def sweep(self, prefix: str) -> Steps[Swept]:
        """Cancels what the event's lane has under a prefix."""
        return owners.sweep_prefix(self.scope, self._lane(), prefix, None, lambda floor: Swept())

    def destroy(self) -> Steps[owners.Destroyed]:
        """Destroys the owner that the event's lane is."""
        return owners.destroy(self.scope, self._lane())

    def _lane(self) -> owners.Owned:
        return owners.locate_owner(self.scope, self.event.lane, self.event.version)

    def _guarded(self, steps: Steps[T], otherwise: T) -> Steps[T]:
        return owners.guarded(self.scope, self._lane(), steps, lambda floor: otherwise)

    def publish(self, event: Event, key: str | None, owner: WhoseLane) -> Item[Change]:
        """An event straight onto the lane."""
        if key is None and owner is ...:  # of an event without an owner, the key is the lane
            owner = self.event.owner
        return publish_item(
            self.scope, self._event(event, None), self.event.key if key is None else key, self._owner(owner)
        )

    def _owner(self, owner: WhoseLane) -> str | None:
        return self.event.lane if isinstance(owner, EllipsisType) else owner

    def _after(self, delay: Any) -> int:
        return self.event.fired_ms + resolve_wait(delay, "delay")

    def _event(self, event: Event, correlation: Mapping[str, str] | None) -> Event:
        """``event`` with what its cause carried along, and the cause's id."""
        if not isinstance(event, Event):
            raise InvalidSchedule("event", event, "want an Event")
        if event.stream == self.event.stream and not self.declared(event.type):
            raise InvalidSchedule(
                "type", event.type, "want an event type that the app handles, or names with app.declare(…)"
            )
        own = {**(event.correlation or {}), **(correlation or {})}
        return replace(event, correlation={**self.event.correlation, CAUSATION: self.event.id, **own})

    def _once(self, where: tuple[Word, ...], what: tuple[Word, ...], word: str, given: str) -> None:
        """One handling arms one timer under one name: a second one would silently be folded into the first."""
        if self.armed.setdefault(where, what) != what:
            raise InvalidSchedule(
                word, given, f"want another {word}=: this handler has armed another timer under this one"
            )
