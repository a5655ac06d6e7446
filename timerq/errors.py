"""Every exception timerq raises.

    TimerqError
    ├── InvalidSchedule     the caller's: a value that cannot be scheduled (also a ValueError)
    │   └── InvalidDeclaration   a file or module of schedules that cannot be used, with every fault in it
    ├── QueueUnavailable    Redis is away or refuses; the cause is kept as ``__cause__``
    │   └── DurabilityUnavailable   the server cannot give the durability that was asked for
    ├── NamespaceMismatch   the namespace in Redis is not the one this client believes in
    ├── BacklogFull         the stream is full, and its bound holds back what would come then; nothing was published
    ├── InvalidPayload      an event's payload is not what its handler's model wants; trying again would not help
    ├── Incomplete          a handler's own word for "it has failed": returned or raised, with the reason
    └── ContractBroken      ours: a reply or a record that no contract allows

Expected outcomes (a cancel that found nothing, a lost race) are values, not exceptions: see ``timerq.Outcome``.
The docstring of a class is its message when it is raised without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_SHOWN_CHARS = 120


class TimerqError(Exception):
    """timerq failed."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class InvalidSchedule(TimerqError, ValueError):
    """The schedule cannot be accepted.

    ``field`` names the argument, ``got`` is what came (shown shortened in the message), ``want`` says what would be
    right. Nothing was written.
    """

    def __init__(self, field: str, got: Any, want: str) -> None:
        self.field = field
        self.got = got
        self.want = want
        super().__init__(f"{field}: got {_shown(got)}; {want}")

    def __reduce__(self) -> tuple[type[InvalidSchedule], tuple[str, Any, str]]:
        return type(self), (self.field, self.got, self.want)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong in a file of schedules: ``source`` is the file, ``line`` counts from 1 (None: it is not known).

    ``key`` names the entry and its word, as in ``morning.cron`` (empty: the file as a whole); ``text`` says what came
    and what would be right.
    """

    source: str
    line: int | None
    key: str
    text: str

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        return f"{place}: {self.key}: {self.text}" if self.key else f"{place}: {self.text}"


class InvalidDeclaration(InvalidSchedule):
    """A file, folder or module of schedules cannot be used; nothing was written.

    ``faults`` are all that were found (at least one), and the message has a line for each.
    """

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        self.field = faults[0].key or faults[0].source
        self.got = faults[0].source
        self.want = faults[0].text
        TimerqError.__init__(self, "\n".join(map(str, faults)))

    def __reduce__(self) -> tuple[type[InvalidDeclaration], tuple[Any, ...]]:
        return type(self), (self.faults,)


class QueueUnavailable(TimerqError):
    """Redis is away or refuses; whether the call took effect is unknown, and calling again is safe."""


class DurabilityUnavailable(QueueUnavailable):
    """The server cannot give the durability that was asked for; nothing was written."""


class NamespaceMismatch(TimerqError):
    """The namespace in Redis has another layout, schema or clock than this client; nothing was written."""


class BacklogFull(TimerqError):
    """The stream is full, and its bound holds back what would come then.

    Try again when its group has acknowledged some; or let a schedule wait for that (``upsert`` with ``delay=0``), which
    fires once there is room. ``published`` of the events that one call was to publish are out (0 but for a backfill).
    """

    def __init__(self, why: str = "the stream is full", published: int = 0) -> None:
        self.why = why
        self.published = published
        done = f"after {published:,} events" if published else "nothing was published"
        super().__init__(
            f"{why}; {done}. Try again when the group has acknowledged some, or upsert it with delay=0: it then fires "
            "once there is room"
        )

    def __reduce__(self) -> tuple[type[BacklogFull], tuple[str, int]]:
        return type(self), (self.why, self.published)


class InvalidPayload(TimerqError):
    """The payload is not what the handler's model wants."""


class Incomplete(TimerqError):
    """The handler says that its work is not done.

    A handler that returns or raises it has failed with this reason, and is tried again as after any other failure.
    """

    def __init__(self, reason: str = "the handler says that its work is not done") -> None:
        super().__init__(reason)

    @property
    def reason(self) -> str:
        """Why."""
        return str(self)


class ContractBroken(TimerqError):
    """A reply or a stored record that no contract allows; please report it."""


def _shown(value: Any) -> str:
    """A short, printable rendering: hostile input must neither flood a log nor break a terminal."""
    try:
        if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
            return "an integer of more than 256 bits"  # repr() of it may raise, or take seconds
        text = ascii(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"
