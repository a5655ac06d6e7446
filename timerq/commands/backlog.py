"""bound, unbound, tend: how much a stream may have before its group, and what becomes of more.

A bound is kept by the scripts: those that publish look whether there is room, those that acknowledge make some. It is
stored in each partition's meta, so that it is in force for every process with the next script; ``tend`` counts anew
once in a while, and is what a dispatcher sends.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from timerq.commands.command import Command, Namespace, Reply, Scope, Steps, command, read_lines
from timerq.errors import InvalidSchedule, QueueUnavailable
from timerq.model import ERRORS, Backlog, Bound, BoundRule, check_plain_name

MOST_BOUNDS = 50
"""So many streams of a namespace may be bounded."""

RETEND_MS = 1000
"""A stream that was looked after since is left alone."""

_EVENTS = 500
"""How many events one call of tend counts, at the most."""

_LETTERS: dict[str, str] = {"hold": "h", "drop_newest": "n", "drop_oldest": "o"}
RULES: dict[str, BoundRule] = {"h": "hold", "n": "drop_newest", "o": "drop_oldest"}
"""The rules by the letters of the scripts; x is a bound that has ended and still lets go what it held back."""

_MAX_LIMIT = 2**53


@dataclass(frozen=True, slots=True)
class Tended:
    """What one call of tend did: ``stream`` is None where there was none to look after; ``more``: it is not done.

    Where ``is_bounded`` is False there is none at all.
    """

    stream: str | None
    more: bool = False
    broken: str | None = None
    is_bounded: bool = True


def make_bound(
    stream: str, group: str, limit: int | None, lane_limit: int | None, rule: BoundRule, partitions: int
) -> Bound:
    """The bound that is meant; raises `InvalidSchedule`."""
    check_plain_name("stream", stream)
    check_plain_name("group", group)
    if rule not in get_args(BoundRule):
        raise InvalidSchedule("rule", rule, 'want "hold", "drop_oldest" or "drop_newest"')
    if stream == ERRORS and rule == "hold":
        raise InvalidSchedule("rule", rule, 'want "drop_oldest" or "drop_newest" for the stream "errors"')
    if limit is None and lane_limit is None:
        raise InvalidSchedule("limit", None, "want limit=, lane_limit= or both; to end a bound, unbound")
    for name, value in (("limit", limit), ("lane_limit", lane_limit)):
        if value is not None and (type(value) is not int or not 1 <= value < _MAX_LIMIT):
            raise InvalidSchedule(name, value, "want a number of events above 0")
    share = None if limit is None else -(-limit // partitions)
    return Bound(stream, group, limit, lane_limit, rule, share)


def bound(
    scope: Scope, stream: str, group: str, limit: int | None, lane_limit: int | None, rule: BoundRule
) -> Steps[Bound]:
    """Bounds a stream in every partition and counts what there is; in force when it returns."""
    namespace = scope.namespace
    made = make_bound(stream, group, limit, lane_limit, rule, namespace.partitions)
    for partition in range(namespace.partitions):
        (word,) = yield [_bound(namespace, partition, made)]
        if word == "TOO_MANY":
            raise InvalidSchedule("stream", stream, f"want {MOST_BOUNDS} bounded streams at the most")
    yield from _tend_all(namespace, stream)
    return made


def unbound(scope: Scope, stream: str) -> Steps[bool]:
    """Ends a stream's bound, and lets go what it held back; whether there was one."""
    check_plain_name("stream", stream)
    namespace = scope.namespace
    if not namespace.layout:
        return False
    words = yield [
        _bound(namespace, partition, Bound(stream, "-", None, None, None, None))
        for partition in range(namespace.partitions)
    ]
    yield from _tend_all(namespace, stream)
    return "UNBOUND" in words


def _tend_all(namespace: Namespace, stream: str) -> Generator[list[Command[Any]], list[Any], None]:
    for partition in range(namespace.partitions):
        more = True
        while more:
            (tended,) = yield [tend(namespace, partition, stream=stream, every_ms=0)]
            if tended.broken is not None:
                raise QueueUnavailable(f"Redis refused: {tended.broken}")
            more = tended.more


def _bound(namespace: Namespace, partition: int, made: Bound) -> Command[str]:
    return command(
        "bound",
        namespace,
        partition,
        lambda reply: read_lines(reply)[1][0],
        own_args={
            "name": made.stream,
            "group": made.group,
            "limit": _or_none(made.share),
            "lane_limit": _or_none(made.lane_limit),
            "rule": "x" if made.rule is None else _LETTERS[made.rule],
            "whole": _or_none(made.limit),
        },
    )


def _or_none(number: int | None) -> str:
    return "-" if number is None else str(number)


def read_backlog(name: str, parts: Sequence[Sequence[str]]) -> Backlog:
    """A bounded stream's numbers, summed over the ``parts`` that partitions told; ``name`` is stream NUL group."""
    stream, _, group = name.partition("\0")
    _, share, lane_limit, letter, _, _, whole = parts[0]
    counts = [part[0] for part in parts]
    return Backlog(
        Bound(stream, group, _number(whole), _number(lane_limit), RULES.get(letter), _number(share)),
        waiting=None if "-" in counts else sum(map(int, counts)),
        held_back=sum(int(part[4]) for part in parts),
        dropped=sum(int(part[5]) for part in parts),
    )


def _number(text: str) -> int | None:
    return None if text == "-" else int(text)


def tend(
    namespace: Namespace, partition: int, *, stream: str = "", every_ms: int = RETEND_MS
) -> Command[Tended]:
    """Looks after one bounded stream that was not looked after for ``every_ms``: ``stream``, or any of them."""

    def read(reply: Reply) -> Tended:
        word, _, rest = read_lines(reply)[1][0].partition(" ")
        if word in ("IDLE", "UNBOUND"):
            return Tended(None, is_bounded=word == "IDLE")
        name = reply[1].decode()
        return Tended(name, broken=rest) if word == "BROKEN" else Tended(name, rest == "1")

    return command(
        "tend",
        namespace,
        partition,
        read,
        own_args={"name": stream, "every_ms": every_ms, "limit": _EVENTS},
    )
