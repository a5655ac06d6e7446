"""What a handle of an owner says and knows: its words, its life, and what it answers once it is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar

from timerq.commands.arming import Mode, Upsert, Upserted
from timerq.commands.command import Scope
from timerq.commands.owner import Destroyed, Owned, locate_owner
from timerq.errors import InvalidSchedule
from timerq.model import (
    Backfilled,
    Change,
    DstGap,
    DstOverlap,
    Event,
    Misfire,
    Outcome,
    Overlap,
    check_text,
)
from timerq.timing import Duration, Exclusion, Instant, resolve_duration

T = TypeVar("T")
U = TypeVar("U", bound=Upserted)

MIN_TTL_MS = 100
"""The shortest ``ttl`` of an owner; its heartbeat comes three times as often."""


class OwnedWords(TypedDict, total=False):
    """The words of `TimerQueue.upsert`, which documents them, but for the owner and ``durable``."""

    at: Instant | None
    delay: Duration | None
    every: Duration | None
    initial_delay: Duration | None
    start: Instant | None
    until: Instant | None
    limit: int | None
    mode: Mode
    max_wait: Duration | None
    restart: bool
    paused: bool | None
    reset: bool
    if_version: int | None
    idempotency_key: str | None
    cron: str | Iterable[str] | None
    timezone: str | None
    dst_gap: DstGap | None
    dst_overlap: DstOverlap | None
    exclude: Exclusion | Iterable[Exclusion] | None
    anchor: Instant | None
    jitter: Duration | None
    misfire: Misfire | None
    grace: Duration | None
    max_catch_up: int | None
    overlap: Overlap | None
    ack_group: str | None
    running_timeout: Duration | None
    fixed_delay: bool | None
    pause_after: int | None
    by: str | None


@dataclass(slots=True, eq=False)
class Life:
    """What a handle knows of itself: its ``incarnation`` (None: not begun) and, once it is gone, the ``floor``."""

    owner: str
    ttl_ms: int = 0
    incarnation: int | None = None
    floor: int | None = None

    @classmethod
    def of(cls, owner: str, ttl: Duration | None) -> Life:
        """One that has not begun; raises `InvalidSchedule`."""
        check_text("owner", owner)
        ttl_ms = 0 if ttl is None else resolve_duration(ttl, field="ttl")
        if ttl is not None and ttl_ms < MIN_TTL_MS:
            raise InvalidSchedule("ttl", ttl, f"want a duration of {MIN_TTL_MS} ms or more, or None")
        return cls(owner, ttl_ms)

    @property
    def is_gone(self) -> bool:
        """Whether it was destroyed, as far as is known here."""
        return self.floor is not None

    @property
    def must_begin(self) -> bool:
        """Whether it needs an incarnation."""
        return self.incarnation is None and self.floor is None

    def owned(self, scope: Scope) -> Owned:
        """Where its schedules are."""
        return locate_owner(scope, self.owner, self.incarnation)

    def began(self, incarnation: int) -> None:
        """It has an incarnation, its first or another."""
        self.incarnation, self.floor = incarnation, None

    def ended(self, destroyed: Destroyed) -> None:
        """It was destroyed through this handle."""
        self.floor = destroyed.ceiling

    def lost(self, value: T) -> Callable[[int], T]:
        """Takes note of the floor that is said to have been reached; and answers ``value``."""

        def note(floor: int) -> T:
            self.floor = floor
            return value

        return note

    def beaten(self, incarnation: int | None, floor: int | None) -> bool:
        """What its heartbeat was told: its floor, or None; whether there is any point in the next one."""
        if incarnation != self.incarnation:
            return False  # it has begun anew meanwhile, and has another heartbeat
        if floor is not None:
            self.floor = floor
        # an answer that was given before a destroy, and is heard after it, undoes nothing
        return self.floor is None

    def heard(self, answer: T) -> T:
        """The same answer; takes note where it says that the owner is gone."""
        if isinstance(answer, (Change, Upserted)) and answer.outcome is Outcome.OWNER_GONE:
            self.floor = answer.version
        return answer

    def change(self, key: str) -> Change:
        """What a change of ``key`` comes to once it is gone."""
        check_text("key", key)
        return Change(Outcome.OWNER_GONE, key, self.owner, self.floor or 0)

    def backfilled(self, key: str) -> Backfilled:
        """What a backfill comes to once it is gone."""
        return Backfilled(Outcome.OWNER_GONE, key, self.owner, 0, 0)

    def upserted(self, wanted: Upsert, tenant: str, make: type[U]) -> U:
        """What an upsert comes to once it is gone."""
        check_text("key", wanted.key)
        return make(wanted, tenant, Outcome.OWNER_GONE, self.floor or 0, None, None, "accepted")

    def mine(self, thing: Upsert | Mapping[str, Any]) -> Upsert:
        """An item of `upsert_many`, as this owner's; raises `InvalidSchedule` where it names another one."""
        wanted = Upsert.of(thing)
        if wanted.owner not in (None, self.owner):
            raise InvalidSchedule(
                "owner", wanted.owner, f"want none, or {self.owner!r}, whose handle this is"
            )
        return wanted._replace(owner=self.owner)

    def upserted_many(
        self, things: Iterable[Upsert | Mapping[str, Any]], tenant: str, make: type[U]
    ) -> list[U | InvalidSchedule]:
        """What `upsert_many` comes to once it is gone."""
        found: list[U | InvalidSchedule] = []
        for thing in things:
            try:
                found.append(self.upserted(self.mine(thing), tenant, make))
            except InvalidSchedule as error:
                found.append(error)
        return found


def single(owner: str, key: str, event: Event, delay: Duration) -> Upsert:
    """A timer that fires once."""
    return Upsert(key, event, delay=delay, owner=owner, paused=False)


def recurring(
    owner: str,
    key: str,
    event: Event,
    every: Duration,
    initial_delay: Duration | None,
    ack_group: str | None = None,
    *,
    fixed_delay: bool | None = None,
) -> Upsert:
    """A timer that comes again; starting it again begins anew, also where nothing else about it changes."""
    return Upsert(
        key,
        event,
        every=every,
        owner=owner,
        initial_delay=initial_delay,
        restart=True,
        paused=False,
        ack_group=ack_group,
        fixed_delay=fixed_delay,
    )
