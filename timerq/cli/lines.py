"""Reads timers from JSON lines, piece by piece, and sends each piece: the words of a line are those of `Upsert`."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from timerq.cli.values import parse_json
from timerq.client import Handle, TimerQueue
from timerq.commands.phrasing import for_file
from timerq.errors import InvalidSchedule, TimerqError

LONGEST_LINE = 1_048_576
"""The longest line that is read (bytes), unless larger payloads are allowed."""

_READ_BYTES = 262_144
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Line:
    """Line ``number`` (from 1): what it holds, or why it cannot be used."""

    number: int
    value: Any = None
    wrong: str | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """The lines that one read completed, and how many bytes it read."""

    lines: list[Line]
    size: int


def read_pieces(source: BinaryIO, longest: int) -> Iterator[Piece]:
    """The lines of ``source``, blank ones left out. Of a line over ``longest`` bytes nothing is kept.

    A piece is what one read brings, so a pipe that stays open is served as its lines come, and a file of any size needs
    the memory of a piece.
    """
    number = 0
    begun = bytearray()
    overlong = False
    while True:
        chunk = source.read1(_READ_BYTES) if hasattr(source, "read1") else source.read(_READ_BYTES)
        lines: list[Line] = []
        *complete, rest = chunk.split(b"\n")
        for part in complete:
            number += 1
            if overlong or len(begun) + len(part) > longest:
                lines.append(_too_long(number, longest))
            else:
                lines += _read_line(number, bytes(begun + part))
            begun.clear()
            overlong = False
        begun += rest
        if len(begun) > longest:
            begun.clear()
            overlong = True
        if not chunk:
            number += 1
            if overlong:
                lines.append(_too_long(number, longest))
            elif begun:
                lines += _read_line(number, bytes(begun))
            yield Piece(lines, 0)
            return
        yield Piece(lines, len(chunk))


def _too_long(number: int, longest: int) -> Line:
    return Line(number, wrong=f"longer than {longest:,} bytes")


def _read_line(number: int, data: bytes) -> list[Line]:
    if number == 1:
        data = data.removeprefix(_BOM)
    if not data.strip():
        return []
    try:
        value = parse_json(data.decode())
    except UnicodeDecodeError as error:
        return [Line(number, wrong=f"not UTF-8 at byte {error.start + 1}")]
    except ValueError as error:
        return [Line(number, wrong=str(error))]
    if not isinstance(value, dict):
        return [Line(number, wrong="want a JSON object with key, event and a timing")]
    return [Line(number, value)]


@dataclass(slots=True)
class Result:
    """What became of a line: a handle, what is wrong with it, or the fault of Redis that it met."""

    number: int
    handle: Handle | None = None
    wrong: str | None = None
    fault: TimerqError | None = None
    value: Any = None


def upsert_pieces(
    queue: TimerQueue,
    source: BinaryIO,
    *,
    longest: int,
    by: str | None = None,
    durable: str | None = None,
    read: Callable[[int], None] = lambda size: None,
) -> Iterator[Result]:
    """Upserts what ``source`` holds; a result a line, in order. ``read`` is told how many bytes each piece was.

    ``by`` is who sets the recurring ones that do not say so.

    Raises `QueueUnavailable` where Redis goes away: the results that came are done, the rest of the piece may be.
    """
    for piece in read_pieces(source, longest):
        if by is not None:
            _sign(piece.lines, by)
        handles = iter(
            queue.upsert_many([line.value for line in piece.lines if line.wrong is None], durable=durable)
        )
        for line in piece.lines:
            if line.wrong is not None:
                yield Result(line.number, wrong=line.wrong)
                continue
            answer = next(handles)
            if isinstance(answer, Handle):
                yield Result(line.number, answer, value=line.value)
            elif isinstance(answer, InvalidSchedule):
                told = for_file(answer, line.value)
                yield Result(
                    line.number, wrong=told if answer.field == "timing" else f"{answer.field}: {told}"
                )
            else:
                yield Result(line.number, fault=answer)
        read(piece.size)


def _sign(lines: list[Line], by: str) -> None:
    for line in lines:
        if line.wrong is None and ("cron" in line.value or "every" in line.value):
            line.value.setdefault("by", by)


def size_of(source: BinaryIO) -> int | None:
    """How many bytes a file has; None for a pipe or a terminal."""
    try:
        found = os.fstat(source.fileno())
    except (OSError, ValueError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None
