"""why: what the log says of one schedule, and what is stored now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from timerq import keys
from timerq.commands.cancel import locate
from timerq.commands.command import Command, Reply, Scope, Steps, command, read_lines
from timerq.commands.dispatch import alive_dispatchers
from timerq.commands.record import decode, take
from timerq.errors import QueueUnavailable
from timerq.model import Schedule
from timerq.timing import MAX_INSTANT_MS

LOOK = 500
"""How many entries of the log one call looks at."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of the log: something that happened to a schedule, other than being made and being fired in time.

    ``at_ms`` is when (epoch ms, the queue's clock), ``what`` one word: replaced, cancelled, paused, resumed,
    triggered, backfilled, skipped, queued, missed, timed_out, failed, held, held_back, ended, dropped, overflowed,
    orphan, or destroyed (its owner was). ``version`` is the schedule's (0: not known). ``note`` says more: why it was
    held or paused, how many were missed, which version was replaced and who had set that one. ``by`` is who did it,
    where that was said.
    """

    at_ms: int
    what: str
    version: int
    note: str = ""
    by: str | None = None


@dataclass(frozen=True, slots=True)
class History:
    """What is known of one key (and owner): the schedule as it is stored, and what the log remembers of it.

    ``schedule`` is None where nothing is stored; ``unreadable`` says why what is stored cannot be read. ``entries`` are
    the log's, oldest first. The log is shared and bounded: ``since_ms`` is the time of its oldest entry, whoever's that
    is (epoch ms; None: it is empty), and ``whole`` whether that is the first there ever was; where it is not, what
    happened before is not known. ``asked_ms`` is the queue's time when the record was read (epoch ms; None: there is no
    namespace). ``dispatchers`` is how many live (None: nobody knows, or the clock is manual and they do not fire).

    Setting a new key and firing in time leave no entries: the time of a version is the version itself, in microseconds,
    and a recurring schedule carries its last fires. `timerq.explain.sentences` puts all of it into words.
    """

    key: str
    owner: str | None
    schedule: Schedule | None
    entries: tuple[LogEntry, ...] = ()
    since_ms: int | None = None
    whole: bool = True
    asked_ms: int | None = None
    unreadable: str | None = None
    dispatchers: int | None = None

    def __repr__(self) -> str:
        """How much is known, in one line; `timerq.explain.sentences` tells it."""
        of = "" if self.owner is None else f" of {self.owner!r}"
        count = f"{len(self.entries):,} entr{'y' if len(self.entries) == 1 else 'ies'}"
        stored = self.unreadable if self.schedule is None else repr(self.schedule)
        return f"<History of {self.key!r}{of}: {count}, {stored or 'nothing is stored'}>"


@dataclass(frozen=True, slots=True)
class _Piece:
    """What one call found: entries newest first, and where to go on (None: the log ended, and its memory begins so)."""

    now_ms: int
    record: Schedule | Exception | None
    entries: list[LogEntry]
    following: bytes | None
    since_ms: int | None
    whole: bool


def history(scope: Scope, key: str, owner: str | None = None) -> Steps[History]:
    """Reads the record and the whole log of its partition, some hundred entries a call; raises `InvalidSchedule`.

    The record and the newest entries are of one instant. What happens meanwhile is not in the answer.
    """
    partition, tag, id, _ = locate(scope, key, owner)
    namespace = scope.namespace
    if not namespace.layout:
        return History(key, owner, None)
    first: list[Command[Any]] = [_look(scope, partition, tag, id, b"+")]
    if not namespace.manual_clock:
        first.append(alive_dispatchers(namespace))
    piece, *alive = yield first
    record, asked_ms, entries = piece.record, piece.now_ms, piece.entries
    while piece.following is not None:
        (piece,) = yield [_look(scope, partition, tag, id, piece.following)]
        entries += piece.entries
    return History(
        key,
        owner,
        record if isinstance(record, Schedule) else None,
        tuple(reversed(entries)),
        piece.since_ms,
        piece.whole,
        asked_ms,
        str(record) if isinstance(record, Exception) else None,
        len(alive[0]) if alive else None,
    )


def _look(scope: Scope, partition: int, tag: bytes, id: bytes, start: bytes) -> Command[_Piece]:
    def read(reply: Reply) -> _Piece:
        now_us, lines = read_lines(reply)
        rest = iter(reply[1:])
        record: Schedule | Exception | None = None
        entries: list[LogEntry] = []
        for line in lines[:-1]:
            word, _, detail = line.partition(" ")
            if word == "ENTRY":
                entries.append(_entry(take(detail, rest)))
            else:
                record = _record(id, word, detail, rest)
        word, _, detail = lines[-1].partition(" ")
        if word == "MORE":
            return _Piece(now_us // 1000, record, entries, detail.encode(), None, False)
        at, whole = detail.split(" ")
        since_ms = None if at == "-" else min(_number(at), MAX_INSTANT_MS)
        return _Piece(now_us // 1000, record, entries, None, since_ms, whole == "whole")

    return command(
        "history",
        scope.namespace,
        partition,
        read,
        own_keys={"record": keys.record(tag, id)},
        own_args={"from": start, "count": LOOK},
    )


def _record(id: bytes, word: str, detail: str, rest: Iterator[bytes]) -> Schedule | Exception | None:
    """What is stored; what cannot be read is a value here: the log may tell how it came about."""
    if word == "BROKEN":
        return QueueUnavailable(f"Redis refused: {detail}")
    flat = take(detail, rest)
    if not flat:
        return None
    try:
        return decode(id, flat)
    except Exception as error:
        return error


def _entry(flat: list[bytes]) -> LogEntry:
    """An entry's fields; whatever they are, it can be shown."""
    fields = {
        name.decode(errors="replace"): value.decode(errors="replace")
        for name, value in zip(flat[::2], flat[1::2], strict=True)
    }
    return LogEntry(
        min(_number(fields.get("at_ms", "")), MAX_INSTANT_MS),
        fields.get("what", ""),
        _number(fields.get("version", "")),
        fields.get("note", ""),
        fields.get("by") or None,
    )


def _number(text: str) -> int:
    """A version or an instant; 0 for what is neither."""
    return int(text) if len(text) <= 16 and text.isascii() and text.isdigit() else 0
