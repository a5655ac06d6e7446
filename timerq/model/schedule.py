"""What is published, and the schedule that publishes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

from timerq.errors import InvalidSchedule
from timerq.model.names import check_plain_name, check_text, instant_text, to_datetime
from timerq.model.timing import Timing

Codec = Literal["msgpack", "json"]
"""How a payload is written."""


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
class Fire:
    """One past occurrence of a recurring schedule: when it was due and when it was published (epoch ms).

    ``missed`` is how many later ones it stands for besides itself. ``outcome`` is what a group of consumers last said
    of it: ``ok``, ``retry`` (it failed and is tried again) or ``failed`` (given up); None where none has yet.
    ``attempt`` is the handling it speaks of, from 1, ``summary`` what that brought or why it failed:
    about 40 bytes of it, and an ellipsis where there was more.
    """

    at_ms: int
    fired_ms: int
    missed: int = 0
    outcome: str | None = None
    attempt: int = 0
    summary: str = ""

    @property
    def lag_ms(self) -> int:
        """How late it was (ms)."""
        return self.fired_ms - self.at_ms


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as it is stored.

    ``at_ms`` is the next occurrence's instant (epoch ms), ``n`` how many occurrences this ``version`` has had.
    ``fired_total``, ``missed_total`` (folded into a later event) and ``skipped_total`` (left out) count over all
    versions of a recurring schedule, ``fires`` are its last ten, oldest first. ``held`` says why a held one could not
    be fired. ``by`` is who set it, ``paused_by``, ``paused_note`` and ``paused_ms`` who paused it, why and when,
    ``label`` the set it was declared in. ``running`` is the id of the event that is still being handled,
    ``running_until_ms`` when it is given up, ``failures`` how many failed in a row.
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
    paused_ms: int | None = None
    running: str | None = None
    running_until_ms: int | None = None
    failures: int = 0

    def __repr__(self) -> str:
        """What it is and when it is due, in one line; the payload is not told."""
        of = "" if self.owner is None else f" of {self.owner!r}"
        due = "due" if self.state is State.ARMED else f"{self.state}, due"
        what = f"{_how_often(self.timing)}, {self.event.type!r}"
        return f"<Schedule {self.key!r}{of}: {due} {instant_text(self.at_ms)}, {what}>"

    @property
    def at(self) -> datetime:
        """The next occurrence's instant, as an aware UTC datetime."""
        return to_datetime(self.at_ms)


def _how_often(timing: Timing) -> str:
    if timing.every_ms is not None:
        return f"every {timedelta(milliseconds=timing.every_ms)}"
    rule = timing.rule
    if rule is None or not rule.cron:
        return timing.kind
    more = "" if len(rule.cron) == 1 else f" and {len(rule.cron) - 1} more"
    return f"cron {rule.cron[0]!r}{more}, {rule.timezone}"
