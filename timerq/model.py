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
class Timing:
    """What was asked for, resolved: all instants in epoch milliseconds, all durations in milliseconds.

    ``kind`` is ``"once"`` (with either ``at_ms`` or ``delay_ms``), ``"every"`` (with ``every_ms``; the first fire is at
    ``start_ms``, else ``initial_delay_ms`` from now, else one interval from now) or ``"cron"``. ``until_ms`` is the
    last instant at which an occurrence may be due, ``limit`` the number of occurrences. None stands for "not given".
    Made by `timerq.timing.resolve_timing`, which alone validates.
    """

    kind: Literal["once", "every", "cron"]
    at_ms: int | None = None
    delay_ms: int | None = None
    every_ms: int | None = None
    start_ms: int | None = None
    initial_delay_ms: int | None = None
    until_ms: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as it is stored.

    ``at_ms`` is the next occurrence's instant (epoch ms), ``n`` how many occurrences this ``version`` has had,
    ``fired_total`` and ``missed_total`` count over all versions of a recurring schedule. ``held`` says why a held one
    could not be fired.
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
    held: str | None = None

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
    over all tenants. ``fired``, ``missed``, ``dropped`` and ``orphans`` are counted since the namespace was made.
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
    streams: dict[str, int]
    dispatchers: list[str]
