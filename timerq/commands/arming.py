"""What callers of upsert say (`Upsert`) and what they are told (`Upserted`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Literal, NamedTuple, Self

from timerq.commands.phrasing import unknown_word
from timerq.errors import InvalidSchedule
from timerq.model import (
    DstGap,
    DstOverlap,
    Event,
    Misfire,
    Outcome,
    Overlap,
    Schedule,
    State,
    Timing,
    instant_text,
)
from timerq.timing import NO_WORDS, Duration, Exclusion, Instant, Words, resolve_timing
from timerq.timing.calendar import MAX_EXCLUSIONS, MAX_EXPRESSIONS

Mode = Literal["replace", "keep", "earliest", "latest"]
"""What an upsert does where there is a schedule already."""

EVENT_WORDS = ("type", "payload", "stream", "correlation", "codec")
"""The words of an `Event`, where it is told as a mapping."""


class Upsert(NamedTuple):
    """One schedule to create or replace; the words are those of `TimerQueue.upsert`, which documents them.

    Nothing is checked here but by `upsert` and `upsert_many`, so that one bad item is reported for itself.
    (A named tuple, because a bulk load makes many: a frozen dataclass of so many words takes four times as long.)
    """

    key: str
    event: Event
    at: Instant | None = None
    delay: Duration | None = None
    every: Duration | None = None
    owner: str | None = None
    initial_delay: Duration | None = None
    start: Instant | None = None
    until: Instant | None = None
    limit: int | None = None
    mode: Mode = "replace"
    max_wait: Duration | None = None
    restart: bool = False
    paused: bool | None = None
    reset: bool = False
    if_version: int | None = None
    idempotency_key: str | None = None
    cron: str | Iterable[str] | None = None
    timezone: str | None = None
    dst_gap: DstGap | None = None
    dst_overlap: DstOverlap | None = None
    exclude: Exclusion | Iterable[Exclusion] | None = None
    anchor: Instant | None = None
    jitter: Duration | None = None
    misfire: Misfire | None = None
    grace: Duration | None = None
    max_catch_up: int | None = None
    overlap: Overlap | None = None
    ack_group: str | None = None
    running_timeout: Duration | None = None
    fixed_delay: bool | None = None
    pause_after: int | None = None
    by: str | None = None

    @property
    def words(self) -> Words:
        """Those of recurring schedules alone."""
        return Words._make(self[_FIRST_WORD:_AFTER_WORDS])

    @property
    def needs_time(self) -> bool:
        """Whether its first instant is counted from Redis's time by the client."""
        return self.cron is not None or self.jitter is not None or self.misfire is not None

    def settled(self) -> Self:
        """The same; what of ``cron`` and ``exclude`` is an iterator, which can be read only once, as a list."""
        read: dict[str, Any] = {
            name: [*islice(value, most + 1)]
            for name, most in (("cron", MAX_EXPRESSIONS), ("exclude", MAX_EXCLUSIONS))
            if isinstance(value := getattr(self, name), Iterator)
        }
        return self._replace(**read) if read else self

    @classmethod
    def of(cls, thing: Self | Mapping[str, Any]) -> Self:
        """``thing`` itself, or one made of a mapping with the same words.

        A mapping's event is an `Event`, or a mapping with the words ``type``, ``payload``, ``stream``,
        ``correlation``, ``codec``. Raises `InvalidSchedule` naming what is missing or unknown.
        """
        if isinstance(thing, cls):
            return thing
        if not isinstance(thing, Mapping):
            raise InvalidSchedule("item", thing, "want an Upsert or a mapping with key, event and a timing")
        unknown = [name for name in thing if name not in _UPSERT_WORDS]
        if unknown:
            raise InvalidSchedule(
                str(unknown[0]), thing[unknown[0]], unknown_word(unknown[0], sorted(_UPSERT_WORDS))
            )
        for name in ("key", "event"):
            if name not in thing:
                raise InvalidSchedule(name, None, "want one: an item has a key, an event and a timing")
        event = thing["event"]
        if isinstance(event, Mapping):
            unknown = [name for name in event if name not in EVENT_WORDS]
            if unknown:
                raise InvalidSchedule(
                    f"event.{unknown[0]}", event[unknown[0]], unknown_word(unknown[0], sorted(EVENT_WORDS))
                )
            if "type" not in event:
                raise InvalidSchedule("event.type", None, "want the event's type")
            event = Event(**event)
        return cls(**{**thing, "event": event})


_UPSERT_WORDS = frozenset(Upsert._fields)
_FIRST_WORD = Upsert._fields.index(Words._fields[0])
_AFTER_WORDS = _FIRST_WORD + len(Words._fields)
assert Upsert._fields[_FIRST_WORD:_AFTER_WORDS] == Words._fields


class Upserted:
    """What an upsert did.

    ``outcome`` is CREATED, REPLACED, UNCHANGED, KEPT, DUPLICATE, VERSION_MISMATCH, OWNER_GONE or SUPERSEDED.
    ``version``, ``at_ms`` (epoch ms) and ``state`` are those now stored; on VERSION_MISMATCH ``version`` is the stored
    one (0: there is none), on OWNER_GONE the version up to which the owner is dead, and there is no ``at_ms``.
    Where it replaced, ``replaced_version`` and ``replaced_at_ms`` are the old ones. ``durable`` says which level was
    reached. ``is_cancelled``: whether the handle's `cancel` has taken it back.
    """

    __slots__ = (
        *("_schedule", "_tenant", "_upsert", "_words"),
        *("at_ms", "durable", "is_cancelled", "outcome", "state", "version"),
    )

    def __init__(
        self,
        upsert: Upsert,
        tenant: str,
        outcome: Outcome,
        version: int,
        at_ms: int | None,
        state: State | None,
        durable: str,
        words: list[str] | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        self._upsert = upsert
        self._tenant = tenant
        self._words = words  # the script's line where it says more: read when it is asked for
        self._schedule = schedule
        self.outcome = outcome
        self.version = version
        self.at_ms = at_ms
        self.state = state
        self.durable = durable
        self.is_cancelled = False

    @property
    def replaced_version(self) -> int | None:
        """The version that it replaced."""
        return int(self._words[4]) if self._words and self.outcome is Outcome.REPLACED else None

    @property
    def replaced_at_ms(self) -> int | None:
        """When the replaced one would have been due (epoch ms)."""
        return int(self._words[5]) if self._words and self.outcome is Outcome.REPLACED else None

    @property
    def key(self) -> str:
        """The schedule's key."""
        return self._upsert.key

    @property
    def owner(self) -> str | None:
        """The schedule's owner."""
        return self._upsert.owner

    @property
    def schedule(self) -> Schedule | None:
        """The schedule as it was stored when the call returned; None on VERSION_MISMATCH and OWNER_GONE."""
        if self._schedule is None and self.at_ms is not None and self.state is not None:
            wanted = self._upsert
            timing = timing_of(wanted)
            if timing.kind == "once":
                timing = Timing("once", at_ms=self.at_ms)
            n, fired_total, missed_total, skipped_total = self._counts()
            self._schedule = Schedule(
                key=wanted.key,
                event=wanted.event,
                timing=timing,
                at_ms=self.at_ms,
                version=self.version,
                state=self.state,
                owner=wanted.owner,
                tenant=self._tenant,
                n=n,
                fired_total=fired_total,
                missed_total=missed_total,
                skipped_total=skipped_total,
                by=wanted.by,
            )
        return self._schedule

    def _counts(self) -> tuple[int, int, int, int]:
        """Its n, fired_total, missed_total and skipped_total."""
        numbers = [int(word) for word in (self._words or [])[4:]]
        if self.outcome is Outcome.UNCHANGED:
            return numbers[0], numbers[1], numbers[2], numbers[3]
        if self.outcome is Outcome.REPLACED:
            return 0, numbers[2], numbers[3], numbers[4]
        return 0, 0, 0, 0

    def __repr__(self) -> str:
        """What became of it, in one line, as of a `Change`."""
        of = "" if self.owner is None else f" of {self.owner!r}"
        version = f", version {self.version}" if self.version else ""
        due = "" if self.at_ms is None else f", at {instant_text(self.at_ms)}"
        return f"<Handle {self.outcome} {self.key!r}{of}{version}{due}>"


def timing_of(upsert: Upsert) -> Timing:
    """What it asks for, resolved; raises `InvalidSchedule`."""
    return resolve_timing(
        at=upsert.at,
        delay=upsert.delay,
        every=upsert.every,
        initial_delay=upsert.initial_delay,
        start=upsert.start,
        until=upsert.until,
        limit=upsert.limit,
        words=NO_WORDS if upsert[_FIRST_WORD:_AFTER_WORDS] == NO_WORDS else upsert.words,
    )
