"""What calls answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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
    """The idempotency key was used before; the first answer is given again."""
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
        return self.outcome not in (Outcome.NOT_PENDING, Outcome.VERSION_MISMATCH, Outcome.OWNER_GONE)


@dataclass(frozen=True, slots=True)
class Backfilled:
    """What a `backfill` did: PUBLISHED, NOT_PENDING (no such schedule), VERSION_MISMATCH (replaced) or OWNER_GONE.

    ``published`` is how many events were published, also where it ended before all were.
    """

    outcome: Outcome
    key: str
    owner: str | None
    version: int
    published: int

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


@dataclass(frozen=True, slots=True)
class Stats:
    """What a namespace holds: numbers of schedules of the tenant, and counters of the whole namespace.

    ``schedules`` = ``armed`` (waiting in the due set; among them ``due`` ones, overdue now) + ``paused``.
    ``lag_ms`` is how long the oldest due one has been waiting (ms). ``held`` counts those that could not be fired,
    over all tenants. ``fired``, ``missed``, ``skipped``, ``dropped`` and ``orphans`` are counted since the namespace
    was made. ``streams`` gives each stream's length, ``dispatchers`` the live ones, ``groups`` the consumer groups.
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
