"""A dead letter as a value, and the words that say which ones are meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from timerq import codec
from timerq.errors import ContractBroken
from timerq.model import check_plain_name, check_text, to_datetime
from timerq.timing import MAX_INSTANT_MS, Instant, resolve_instant

RawLetter = tuple[int, str, list[bytes]]
"""A letter's partition and entry and, where they were asked for, its fields and values."""

_NOTES = 8
"""How many fields settle.lua puts behind the event's own."""


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """Handling number ``attempt`` of an event failed at ``failed_ms`` (epoch ms) with ``error``."""

    attempt: int
    failed_ms: int
    error: str


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that a group has given up.

    ``entry`` is its place among the dead letters of its ``partition``, ``source_entry`` the one it had in the stream.
    ``attempts`` handlings had begun; the first failed at ``first_failed_ms``, the last at ``last_failed_ms`` (epoch ms)
    with ``error`` and the end of its ``traceback``. ``history`` are the failures before it, oldest first: the last nine
    at the most, each error within 200 bytes (an attempt that its process did not outlive has none). ``id``, ``type``,
    ``key``, ``tenant`` and ``owner`` are the event's, empty (``owner`` None) where it has none: what cannot be read is
    a dead letter too. ``fields`` are all of the event's, as they were on the stream.
    """

    partition: int
    entry: str
    stream: str
    group: str
    id: str
    type: str
    key: str
    tenant: str
    owner: str | None
    error: str
    traceback: str
    attempts: int
    first_failed_ms: int
    last_failed_ms: int
    history: tuple[FailedAttempt, ...]
    source_entry: str
    fields: Mapping[bytes, bytes]

    @property
    def place(self) -> str:
        """``partition/entry``: what `Which` takes for an id, also of what has none."""
        return f"{self.partition}/{self.entry}"

    @property
    def last_failed_at(self) -> datetime:
        """When it failed last, as an aware UTC datetime."""
        return to_datetime(self.last_failed_ms)

    @property
    def payload(self) -> Any:
        """The event's payload; raises `ContractBroken` where there is none that can be read."""
        try:
            return codec.decode(self.fields[b"content_type"].decode(), self.fields[b"payload"])
        except (KeyError, ValueError) as error:
            raise ContractBroken(f"no readable payload: {error!r}") from error

    def __repr__(self) -> str:
        """What it is and why it is dead; the payload is not told."""
        return f"<DeadLetter {self.id!r} of group {self.group!r}: {self.type!r} {self.key!r}, {self.error!r}>"


@dataclass(frozen=True, slots=True)
class DeadPage:
    """A page of dead letters; ``after`` is the cursor of the next one, None where there is none."""

    letters: list[DeadLetter]
    after: str | None


@dataclass(frozen=True, slots=True)
class Which:
    """Which dead letters are meant: of one event ``id``, of keys with a ``prefix``, of one ``type``, of an age.

    Those that failed last at ``since`` or later, and before ``before`` (instants). What is not given does not matter:
    ``Which()`` is all. A letter's `DeadLetter.place` will do for an ``id``: what cannot be read may have none.
    """

    id: str | None = None
    prefix: str = ""
    type: str | None = None
    since: Instant | None = None
    before: Instant | None = None


EVERY = Which()
"""All dead letters of a group."""


def check_which(stream: str, group: str, which: Which) -> dict[str, Any]:
    """What is asked for, as ``dead.lua`` has it; raises `InvalidSchedule`."""
    check_plain_name("stream", stream)
    check_plain_name("group", group)
    for name, value in (("id", which.id), ("type", which.type), ("prefix", which.prefix or None)):
        if value is not None:
            check_text(name, value)
    return {
        "event": (which.id or "").encode(),
        "prefix": which.prefix.encode(),
        "type": (which.type or "").encode(),
        "since": 0 if which.since is None else resolve_instant(which.since, field="since"),
        "before": MAX_INSTANT_MS + 1
        if which.before is None
        else resolve_instant(which.before, field="before"),
    }


def read_letter(found: RawLetter, stream: str, group: str) -> DeadLetter:
    """A letter of a group, as far as it can be read."""
    partition, entry, flat = found
    noted_from = len(flat) - 2 * _NOTES
    if noted_from < 0 or flat[noted_from] != b"error":
        noted_from = len(flat)  # not by settle.lua
    own, noted = flat[:noted_from], flat[noted_from:]
    fields = dict(zip(own[::2], own[1::2], strict=True))
    notes = dict(zip(noted[::2], noted[1::2], strict=True))

    def text(name: bytes, of: Mapping[bytes, bytes] = fields) -> str:
        return of.get(name, b"").decode(errors="replace")

    def number(name: bytes) -> int:
        digits = text(name, notes)
        return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 16 else 0

    return DeadLetter(
        partition,
        entry,
        stream,
        group,
        id=text(b"id"),
        type=text(b"type"),
        key=text(b"key"),
        tenant=text(b"tenant"),
        owner=text(b"owner") or None,
        error=text(b"error", notes),
        traceback=text(b"traceback", notes),
        attempts=number(b"attempts"),
        first_failed_ms=number(b"first_failed_ms"),
        last_failed_ms=number(b"last_failed_ms"),
        history=tuple(_failures(text(b"history", notes))),
        source_entry=text(b"entry", notes),
        fields=fields,
    )


def _failures(text: str) -> Iterator[FailedAttempt]:
    """What settle.lua has noted of each, as far as it can be read."""
    for line in text.split("\n"):
        words = line.split(" ", 2)
        if len(words) == 3 and all(
            word.isascii() and word.isdigit() and len(word) <= 16 for word in words[:2]
        ):
            yield FailedAttempt(int(words[0]), int(words[1]), words[2])
