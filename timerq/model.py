"""The values of timerq: frozen, validated where they are made, the same in both clients.

All instants are epoch milliseconds (``_ms``, and ``at`` of a stored schedule as an aware datetime beside it).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

from timerq.errors import InvalidSchedule

MAX_NAME_BYTES = 512
"""The longest key, owner, event type or idempotency key, in bytes of UTF-8."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_WANT_TEXT = f"want a text of 1 to {MAX_NAME_BYTES} bytes of UTF-8 without NUL"

Codec = Literal["msgpack", "json"]
"""How a payload is written."""

DstGap = Literal["shift", "skip"]
"""What becomes of a fixed time that a clock change skips: run at the first instant after the gap, or not at all."""

DstOverlap = Literal["first", "second", "both"]
"""On which pass of a repeated hour a fixed time runs."""

Misfire = Literal["fire_once", "skip", "catch_up"]
"""What becomes of occurrences that nobody was there to fire: one late event for all, none, or each one."""

Overlap = Literal["allow", "skip", "queue"]
"""What becomes of an occurrence that is due while the one before it is still being handled."""


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


class State(StrEnum):
    """Where a stored schedule stands."""

    ARMED = "armed"
    """It waits for its instant."""
    CLAIMED = "claimed"
    """It is due; a dispatcher is asking its calendar."""
    HELD = "held"
    """It could not be fired and is tried again; `Schedule.held` says why."""
    PAUSED = "paused"
    """It waits for `resume`."""


def check_text(name: str, value: object) -> bytes:
    """The UTF-8 of a key, owner, event type or idempotency key; raises `InvalidSchedule` naming ``name``."""
    if isinstance(value, str) and value:
        try:
            encoded = value.encode()
        except UnicodeEncodeError:
            raise InvalidSchedule(name, value, "want text without lone surrogates") from None
        if len(encoded) <= MAX_NAME_BYTES and b"\x00" not in encoded:
            return encoded
    raise InvalidSchedule(name, value, _WANT_TEXT)


def check_plain_name(name: str, value: object) -> str:
    """A namespace, tenant or stream name; raises `InvalidSchedule` naming ``name``."""
    if isinstance(value, str) and _PLAIN_NAME.fullmatch(value):
        return value
    raise InvalidSchedule(name, value, "want 1 to 64 of the characters A-Z a-z 0-9 . _ -")


def to_datetime(instant_ms: int) -> datetime:
    """The aware UTC datetime of an instant in epoch milliseconds."""
    return _EPOCH + timedelta(milliseconds=instant_ms)


def tick_name(name: str, at_ms: int) -> str:
    """The stable name of one occurrence: ``weekly-report-2026-10-05T090000Z`` for ``at_ms`` (epoch ms), in UTC.

    Milliseconds stand in it only where there are any: ``…T090000.250Z``.
    """
    instant = to_datetime(at_ms)
    fraction = f".{at_ms % 1000:03d}" if at_ms % 1000 else ""
    return f"{name}-{instant:%Y-%m-%dT%H%M%S}{fraction}Z"


@dataclass(frozen=True, slots=True)
class Event:
    """What is published when a schedule is due.

    ``type`` says what happened (1 to 512 bytes of UTF-8). ``payload`` is any value the codec can carry (msgpack: also
    bytes and aware datetimes; json: what JSON has); none given is None. ``stream`` is where it goes. ``correlation``
    is a small str→str map that is carried unchanged. Raises `InvalidSchedule` for a bad type, stream or codec; the
    payload and the correlation are checked where they are encoded.
    """

    type: str
    payload: Any = None
    stream: str = field(default="events", kw_only=True)
    correlation: Mapping[str, str] | None = field(default=None, kw_only=True)
    codec: Codec = field(default="msgpack", kw_only=True)

    def __post_init__(self) -> None:
        if self.stream != "events":
            check_plain_name("stream", self.stream)
        if self.codec != "msgpack" and self.codec != "json":
            raise InvalidSchedule("codec", self.codec, 'want "msgpack" or "json"')
        check_text("type", self.type)


@dataclass(frozen=True, slots=True)
class Rule:
    """Which instants a calendar names.

    ``cron`` are its expressions (none: a grid of ``every_ms``), read in the IANA zone ``timezone``; ``exclude`` are
    dates, ranges of dates (``2026-12-24/2026-12-26``) and expressions whose times are left out. ``jitter_ms`` is the
    most by which an occurrence is put off; ``anchor_ms`` is an instant of the grid (epoch ms).
    """

    cron: tuple[str, ...] = ()
    timezone: str = "UTC"
    dst_gap: DstGap = "shift"
    dst_overlap: DstOverlap = "first"
    exclude: tuple[str, ...] = ()
    jitter_ms: int = 0
    anchor_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """What a recurring schedule does when things are late or not handled; all durations in milliseconds.

    ``misfire``: what becomes of missed occurrences; with "skip" those overdue by more than ``grace_ms`` are left out,
    with "catch_up" each one is published, the last ``max_catch_up`` at the most. ``overlap``: what becomes of an
    occurrence that is due while the last one runs, which it does until it is acknowledged by ``ack_group`` (None: by
    anyone), dead-lettered, or ``running_timeout_ms`` old. ``fixed_delay``: the next one comes an interval after the last
    one was handled. ``pause_after``: how many failures in a row pause the schedule.
    """

    misfire: Misfire = "fire_once"
    grace_ms: int = 10_000
    max_catch_up: int = 100
    overlap: Overlap = "allow"
    ack_group: str | None = None
    running_timeout_ms: int = 3_600_000
    fixed_delay: bool = False
    pause_after: int | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """What was asked for, resolved: all instants in epoch milliseconds, all durations in milliseconds.

    ``kind`` is ``"once"`` (with either ``at_ms`` or ``delay_ms``), ``"every"`` (with ``every_ms``; the first fire is at
    ``start_ms``, else ``initial_delay_ms`` from now, else one interval from now) or ``"cron"``. ``until_ms`` is the
    last instant at which an occurrence may be due, ``limit`` the number of occurrences. ``rule`` is what a calendar
    says (None for one-shots and plain intervals), ``policy`` what differs from the defaults. None stands for "not
    given". Made by `timerq.timing.resolve_timing`, which alone validates.
    """

    kind: Literal["once", "every", "cron"]
    at_ms: int | None = None
    delay_ms: int | None = None
    every_ms: int | None = None
    start_ms: int | None = None
    initial_delay_ms: int | None = None
    until_ms: int | None = None
    limit: int | None = None
    rule: Rule | None = None
    policy: Policy | None = None


@dataclass(frozen=True, slots=True)
class Fire:
    """One past occurrence of a recurring schedule: when it was due and when it was published (epoch ms).

    ``missed`` is how many later ones it stands for besides itself.
    """

    at_ms: int
    fired_ms: int
    missed: int = 0

    @property
    def lag_ms(self) -> int:
        """How late it was (ms)."""
        return self.fired_ms - self.at_ms


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as it is stored.

    ``at_ms`` is the next occurrence's instant (epoch ms), ``n`` how many occurrences this ``version`` has had.
    ``fired_total``, ``missed_total`` (folded into a later event) and ``skipped_total`` (left out) count over all versions
    of a recurring schedule, ``fires`` are its last ten, oldest first. ``held`` says why a held one could not be fired.
    ``by`` is who set it, ``paused_by`` and ``paused_note`` who paused it and why, ``label`` the set it was declared in.
    ``running`` is the id of the event that is still being handled, ``failures`` how many failed in a row.
    """

    key: str
    event: Event
    timing: Timing
    at_ms: int
    version: int
    state: State
    owner: str | None = None
    tenant: str = "default"
    n: int = 0
    fired_total: int = 0
    missed_total: int = 0
    skipped_total: int = 0
    held: str | None = None
    fires: tuple[Fire, ...] = ()
    by: str | None = None
    paused_by: str | None = None
    paused_note: str | None = None
    label: str | None = None
    running: str | None = None
    failures: int = 0

    @property
    def at(self) -> datetime:
        """The next occurrence's instant, as an aware UTC datetime."""
        return to_datetime(self.at_ms)


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a cancel, pause, resume, trigger or publish; true where it took effect.

    ``version`` is the version it concerned, on VERSION_MISMATCH the stored one (0: there is none). ``at_ms`` is the
    occurrence it concerned (epoch ms), ``event_id`` the id of what `trigger` and `publish` published. ``durable`` says
    which level was reached: "accepted", "replicas=N" or "fsync".
    """

    outcome: Outcome
    key: str
    owner: str | None = None
    version: int = 0
    at_ms: int | None = None
    event_id: str | None = None
    durable: str = "accepted"

    def __bool__(self) -> bool:
        return self.outcome not in (Outcome.NOT_PENDING, Outcome.VERSION_MISMATCH)


@dataclass(frozen=True, slots=True)
class Backfilled:
    """What a `backfill` did: PUBLISHED, NOT_PENDING (no such schedule) or VERSION_MISMATCH (replaced meanwhile).

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
    """How many schedules a `cancel_prefix` or `cancel_owner` cancelled; ``durable`` is the least level reached."""

    durable: str = "accepted"


@dataclass(frozen=True, slots=True)
class Page:
    """One page of schedules in key order; ``cursor`` is what `list_page(after=…)` takes for the next one, or None."""

    items: list[Schedule]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Stats:
    """What a namespace holds: numbers of schedules of the tenant, and counters of the whole namespace.

    ``schedules`` = ``armed`` (waiting in the due set; among them ``due`` ones, overdue now) + ``paused``.
    ``lag_ms`` is how long the oldest due one has been waiting (ms). ``held`` counts those that could not be fired,
    over all tenants. ``fired``, ``missed``, ``skipped``, ``dropped`` and ``orphans`` are counted since the namespace was made.
    ``streams`` gives each stream's length, ``dispatchers`` the live ones.
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
