"""What calls answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from timerq.model.names import instant_text
from timerq.model.schedule import Schedule


class Outcome(StrEnum):
    """What became of a call: expected outcomes are values, not exceptions."""

    CREATED = "CREATED"
    """A new schedule waits."""
    REPLACED = "REPLACED"
    """It took the place of an older one, which will never fire."""
    UNCHANGED = "UNCHANGED"
    """It was so already."""
    KEPT = "KEPT"
    """The mode left the existing one in place."""
    DUPLICATE = "DUPLICATE"
    """The idempotency key was used before, or it was triggered in this second: the first answer is given again."""
    VERSION_MISMATCH = "VERSION_MISMATCH"
    """``if_version`` is not the stored version; nothing was done."""
    OWNER_GONE = "OWNER_GONE"
    """The owner was destroyed after this handle of it was made; nothing was done."""
    CANCELLED = "CANCELLED"
    """It will never fire."""
    NOT_PENDING = "NOT_PENDING"
    """Nothing waits under this key: it has fired, was cancelled, or never was."""
    PAUSED = "PAUSED"
    """It waits for `resume`."""
    RESUMED = "RESUMED"
    """It is armed again."""
    TRIGGERED = "TRIGGERED"
    """Its event was published now, outside its timing."""
    PUBLISHED = "PUBLISHED"
    """The event is on its stream."""
    DROPPED = "DROPPED"
    """The stream is full, and its bound drops the newest: the event is not on it."""
    DONE = "DONE"
    """The event counts as handled."""
    SUPERSEDED = "SUPERSEDED"
    """A later `apply` of the same set has begun; nothing was done."""


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a cancel, pause, resume, trigger or publish; true where it took effect.

    ``version`` is the version it concerned, on VERSION_MISMATCH the stored one (0: there is none), on OWNER_GONE the
    one up to which the owner is dead. ``at_ms`` is the occurrence it concerned (epoch ms), ``event_id`` the id of what
    `trigger` and `publish` published. ``durable`` says which level was reached: "accepted", "replicas=N" or "fsync".
    """

    outcome: Outcome
    key: str
    owner: str | None = None
    version: int = 0
    at_ms: int | None = None
    event_id: str | None = None
    durable: str = "accepted"

    def __repr__(self) -> str:
        """What became of it, in one line, without what there is nothing to say of."""
        parts = [f"{self.outcome} {self.key!r}" + ("" if self.owner is None else f" of {self.owner!r}")]
        if self.version:
            parts.append(f"version {self.version}")
        if self.at_ms is not None:
            parts.append(f"at {instant_text(self.at_ms)}")
        if self.event_id is not None:
            parts.append(f"event {self.event_id!r}")
        if self.durable != "accepted":
            parts.append(self.durable)
        return f"<Change {', '.join(parts)}>"

    def __bool__(self) -> bool:
        return self.outcome not in _WITHOUT_EFFECT


_WITHOUT_EFFECT = frozenset(
    {Outcome.NOT_PENDING, Outcome.VERSION_MISMATCH, Outcome.OWNER_GONE, Outcome.DROPPED}
)


@dataclass(frozen=True, slots=True)
class Backfilled:
    """What a `backfill` did: PUBLISHED, NOT_PENDING (no such schedule), VERSION_MISMATCH (replaced) or OWNER_GONE.

    ``published`` is how many events were published, also where it ended before all were; ``dropped`` how many were not
    because the stream was full.
    """

    outcome: Outcome
    key: str
    owner: str | None
    version: int
    published: int
    dropped: int = 0

    def __bool__(self) -> bool:
        return self.outcome is Outcome.PUBLISHED


class Swept(int):
    """How many schedules a `cancel_prefix`, `cancel_owner` or `destroy` took; ``durable``: the least level reached."""

    durable: str = "accepted"


@dataclass(frozen=True, slots=True)
class Page:
    """One page of schedules in key order; ``cursor`` is what `list_page(after=…)` takes for the next one, or None."""

    items: list[Schedule]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class GroupStats:
    """What a group of consumers has before it.

    ``pending`` events were handed out and are not acknowledged, among them ``retrying`` ones, which wait to be tried
    again; ``dead`` ones were given up.
    """

    stream: str
    group: str
    pending: int
    retrying: int
    dead: int


BoundRule = Literal["hold", "drop_oldest", "drop_newest"]
"""What becomes of events where a stream is full."""


@dataclass(frozen=True, slots=True)
class Bound:
    """How many events of a stream may wait for ``group``, and what becomes of more.

    ``limit`` is for the whole stream (None: there is none), ``share`` what each partition may have of it: its equal
    part, rounded up. ``lane_limit`` is for each lane. ``rule`` is None where the bound has ended, and still lets go
    what it had held back.
    """

    stream: str
    group: str
    limit: int | None
    lane_limit: int | None
    rule: BoundRule | None
    share: int | None


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a bounded stream has before its group: ``waiting`` events (None: they are not counted yet).

    ``held_back`` schedules were kept from firing (those that were cancelled since among them, until it is their turn),
    and ``dropped`` events went because of the bound since it was set.
    """

    bound: Bound
    waiting: int | None
    held_back: int
    dropped: int


@dataclass(frozen=True, slots=True)
class Stats:
    """What a namespace holds: numbers of schedules of the tenant, and counters of the whole namespace.

    ``schedules`` = ``armed`` (waiting in the due set; among them ``due`` ones, overdue now) + ``paused``.
    ``lag_ms`` is how long the oldest due one has been waiting (ms). ``held`` counts those that could not be fired,
    over all tenants. ``fired``, ``missed``, ``skipped``, ``dropped`` and ``orphans`` are counted since the namespace
    was made. ``streams`` gives each stream's length, ``dispatchers`` the live ones, ``groups`` the consumer groups.
    ``held_back`` of the due ones wait for room on a stream that is full; ``backlogs`` are the streams with a bound.
    """

    tenant: str
    partitions: int
    schedules: int
    armed: int
    paused: int
    due: int
    lag_ms: int
    all_schedules: int
    held: int
    fired: int
    missed: int
    dropped: int
    orphans: int
    skipped: int
    streams: dict[str, int]
    dispatchers: list[str]
    groups: tuple[GroupStats, ...] = ()
    held_back: int = 0
    backlogs: tuple[Backlog, ...] = ()
