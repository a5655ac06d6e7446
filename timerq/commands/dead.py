"""dead_list, dead_count, dead_show, dead_replay, dead_discard: what a group has given up."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, cast

from timerq import keys
from timerq.commands.command import MAX_ITEMS, Command, Reply, Scope, Steps, command, read_head, read_lines
from timerq.commands.letters import EVERY, DeadLetter, DeadPage, RawLetter, Which, check_which, read_letter
from timerq.errors import InvalidSchedule, QueueUnavailable


def dead_list(
    scope: Scope,
    stream: str,
    group: str,
    which: Which = EVERY,
    *,
    after: str | None = None,
    limit: int = 100,
) -> Steps[DeadPage]:
    """One page of dead letters, partition by partition, oldest first; raises `InvalidSchedule`.

    ``limit`` is 1 to 200; a page may be shorter, also empty, with more behind it.
    """
    found, following = yield from _walk(scope, stream, group, which, after, limit, fields=True)
    return DeadPage([read_letter(one, stream, group) for one in found], following)


def dead_count(scope: Scope, stream: str, group: str, which: Which = EVERY) -> Steps[int]:
    """How many dead letters there are; raises `InvalidSchedule`."""
    count = 0
    after: str | None = None
    while True:
        found, after = yield from _walk(scope, stream, group, which, after, MAX_ITEMS, fields=False)
        count += len(found)
        if after is None:
            return count


def dead_show(scope: Scope, stream: str, group: str, id: str) -> Steps[DeadLetter | None]:
    """The latest dead letter of an event, or None; raises `InvalidSchedule`."""
    latest = None
    after: str | None = None
    while True:
        page = yield from dead_list(scope, stream, group, Which(id=id), after=after)
        if page.letters:
            latest = page.letters[-1]
        if page.after is None:
            return latest
        after = page.after


def dead_replay(
    scope: Scope,
    stream: str,
    group: str,
    which: Which = EVERY,
    *,
    limit: int | None = None,
    told: Callable[[int], None] = lambda count: None,
) -> Steps[int]:
    """Publishes dead letters again, to the end of their stream and for their group alone; returns how many.

    Each keeps its id; its attempts begin anew. What dies meanwhile is not replayed again. ``limit``: so many at the
    most, the oldest of each partition first. ``told`` hears of each piece how many it was. Raises `InvalidSchedule`,
    and `QueueUnavailable` where the stream refuses one (those before it are replayed).
    """
    return (yield from _settle_all(scope, stream, group, which, "replay", limit, told))


def dead_discard(
    scope: Scope,
    stream: str,
    group: str,
    which: Which = EVERY,
    *,
    limit: int | None = None,
    told: Callable[[int], None] = lambda count: None,
) -> Steps[int]:
    """Throws dead letters away; returns how many. Words and errors are those of `dead_replay`."""
    return (yield from _settle_all(scope, stream, group, which, "discard", limit, told))


def _settle_all(
    scope: Scope,
    stream: str,
    group: str,
    which: Which,
    verb: Literal["replay", "discard"],
    limit: int | None,
    told: Callable[[int], None],
) -> Steps[int]:
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InvalidSchedule("limit", limit, "want a number from 1 on, or None for all")
    count = 0
    after: str | None = None
    while True:
        most = MAX_ITEMS if limit is None else min(MAX_ITEMS, limit - count)
        found, after = yield from _walk(scope, stream, group, which, after, most, fields=False)
        for partition, entries in _by_partition(found):
            while entries:
                (lines,) = yield [_revive(scope, partition, stream, group, verb, entries)]
                settled = sum(line.startswith(("REPLAYED", "DISCARDED")) for line in lines)
                count += settled
                told(settled)
                for line in lines:
                    if line.startswith("BROKEN"):
                        raise QueueUnavailable(f"Redis refused: {line[7:]}")
                entries = [entry for entry, line in zip(entries, lines, strict=True) if line == "LATER"]
        if after is None or count == limit:
            return count


def _walk(
    scope: Scope, stream: str, group: str, which: Which, after: str | None, limit: int, *, fields: bool
) -> Steps[tuple[list[RawLetter], str | None]]:
    """Up to ``limit`` letters behind the cursor ``after``, and the next cursor."""
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_ITEMS:
        raise InvalidSchedule("limit", limit, f"want a page size from 1 to {MAX_ITEMS}")
    place = _PLACE.fullmatch(which.id or "")
    if place is not None:
        which = replace(which, id=None)
    everywhere = _partitions(scope, which) if place is None else _only(scope, int(place[1]))
    first, last = ("-", "+") if place is None else (place[2], place[2])
    wanted = check_which(stream, group, which)
    if after is None:
        partition, start, end = everywhere[0] if everywhere else 0, first, last
    else:
        partition, start, end = _read_cursor(after)
        if partition not in everywhere:
            raise InvalidSchedule("after", after, "want the cursor of a page")
    found: list[RawLetter] = []
    while scope.namespace.layout and everywhere:
        look = _look(scope, partition, stream, group, wanted, start, end, limit - len(found), fields)
        ((letters, following),) = yield [look]
        found += letters
        if following is None:
            if partition == everywhere[-1]:
                break
            partition, following = partition + 1, ("-", "+")
        start, end = following
        if len(found) == limit:
            return found, _cursor(partition, start, end)
    return found, None


_PLACE = re.compile(r"([0-9]{1,4})/([0-9]{1,20}-[0-9]{1,20})")


def _only(scope: Scope, partition: int) -> range:
    return range(partition, min(partition + 1, scope.namespace.partitions))


def _by_partition(letters: list[RawLetter]) -> Iterator[tuple[int, list[str]]]:
    for number in sorted({partition for partition, _, _ in letters}):
        yield number, [entry for partition, entry, _ in letters if partition == number]


def _partitions(scope: Scope, which: Which) -> range:
    """Where to look: an event's id names its partition."""
    everywhere = range(scope.namespace.partitions)
    number, dash, _ = (which.id or "").partition("-")
    if dash and number.isascii() and number.isdigit() and len(number) <= 4 and int(number) in everywhere:
        return range(int(number), int(number) + 1)
    return everywhere


def _cursor(partition: int, start: str, end: str) -> str:
    return base64.urlsafe_b64encode(f"{partition} {start} {end}".encode()).decode()


def _read_cursor(cursor: str) -> tuple[int, str, str]:
    try:
        text = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True).decode("ascii")
        partition, start, end = text.split(" ")
        if _is_place(start.removeprefix("("), "-") and _is_place(end, "+"):
            return int(partition), start, end
    except (AttributeError, ValueError, binascii.Error):
        pass
    raise InvalidSchedule("after", cursor, "want the cursor of a page")


def _is_place(text: str, edge: str) -> bool:
    ms, dash, seq = text.partition("-")
    return text == edge or (bool(dash) and (ms + seq).isdigit() and bool(ms) and bool(seq))


_Found = tuple[list[RawLetter], tuple[str, str] | None]


def _look(
    scope: Scope,
    partition: int,
    stream: str,
    group: str,
    wanted: Mapping[str, Any],
    start: str,
    end: str,
    limit: int,
    fields: bool,
) -> Command[_Found]:
    def read(reply: Reply) -> _Found:
        read_head(reply)
        *lines, last = reply[0].decode().split("\n")[1:]
        word, _, rest = last.partition(" ")
        if word == "BROKEN":
            raise QueueUnavailable(f"Redis refused: {rest}")
        # the fields are arrays of their own behind the text
        flats = cast("list[list[bytes]]", reply[1:]) if fields else [[]] * len(lines)
        letters = [(partition, line.split(" ")[1], flat) for line, flat in zip(lines, flats, strict=True)]
        if word == "END":
            return letters, None
        start, end = rest.split(" ")
        return letters, (start, end)

    return command(
        "dead",
        scope.namespace,
        partition,
        read,
        own_keys={"dead": keys.dead(scope.namespace.tags[partition], stream.encode(), group.encode())},
        own_args={
            "tenant": scope.tenant_bytes,
            "from": start,
            "to": end,
            "limit": limit,
            "fields": int(fields),
            **wanted,
        },
    )


def _revive(
    scope: Scope,
    partition: int,
    stream: str,
    group: str,
    verb: Literal["replay", "discard"],
    entries: list[str],
) -> Command[list[str]]:
    tag = scope.namespace.tags[partition]
    return command(
        "revive",
        scope.namespace,
        partition,
        lambda reply: read_lines(reply)[1],
        own_keys={
            "stream": keys.stream(tag, stream.encode()),
            "dead": keys.dead(tag, stream.encode(), group.encode()),
        },
        own_args={"tenant": scope.tenant_bytes, "group": group, "verb": verb},
        item_args=entries,
    )
