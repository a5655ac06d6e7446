"""dead_list, dead_show, dead_replay, dead_discard: what a group has given up."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from timerq import codec, keys
from timerq.commands.command import MAX_ITEMS, Command, Reply, Scope, Steps, command, read_head, read_lines
from timerq.errors import ContractBroken, InvalidSchedule, QueueUnavailable
from timerq.model import check_plain_name, check_text
from timerq.timing import MAX_INSTANT_MS

_NOTES = 7
"""How many fields settle.lua puts behind the event's own."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that a group has given up.

    ``entry`` is its place among the dead letters of its partition, ``source_entry`` the one it had in the stream.
    ``attempts`` handlings had begun; the first failed at ``first_failed_ms``, the last at ``last_failed_ms`` (epoch ms)
    with ``error`` and ``traceback`` (its last 16 KiB). ``id``, ``type``, ``key``, ``tenant`` and ``owner`` are the
    event's, empty (``owner`` None) where it has none: what cannot be read is a dead letter too. ``fields`` are all of
    the event's, as they were on the stream.
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
    source_entry: str
    fields: Mapping[bytes, bytes]

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

    ``since_ms`` and ``before_ms`` bound the time of the last failure (epoch ms, ``before_ms`` not included).
    """

    id: str | None = None
    prefix: str = ""
    type: str | None = None
    since_ms: int = 0
    before_ms: int = MAX_INSTANT_MS


def dead_list(
    scope: Scope,
    stream: str,
    group: str,
    which: Which = Which(),
    *,
    after: str | None = None,
    limit: int = 100,
) -> Steps[DeadPage]:
    """One page of dead letters, partition by partition, oldest first; raises `InvalidSchedule`.

    ``limit`` is 1 to 200; a page may be shorter, also empty, with more behind it.
    """
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_ITEMS:
        raise InvalidSchedule("limit", limit, f"want a page size from 1 to {MAX_ITEMS}")
    partitions = _partitions(scope, which)
    _check(stream, group, which)
    partition, start, end = partitions[0], "-", "+"
    if after is not None:
        partition, start, end = _read_cursor(after)
        if partition not in partitions:
            raise InvalidSchedule("after", after, "want the cursor of a page")
    letters: list[DeadLetter] = []
    while scope.namespace.layout:
        look = _look(scope, partition, stream, group, which, start, end, limit - len(letters))
        ((found, following),) = yield [look]
        letters += found
        if following is None:
            if partition == partitions[-1]:
                break
            partition, following = partition + 1, ("-", "+")
        start, end = following
        if len(letters) == limit:
            return DeadPage(letters, _cursor(partition, start, end))
    return DeadPage(letters, None)


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


def dead_replay(scope: Scope, stream: str, group: str, which: Which = Which()) -> Steps[int]:
    """Publishes dead letters again, to the end of their stream and for their group alone; returns how many.

    Each keeps its id; its attempts begin anew. What dies meanwhile is not replayed again. Raises `InvalidSchedule`, and
    `QueueUnavailable` where the stream refuses one (those before it are replayed).
    """
    return (yield from _settle_all(scope, stream, group, which, "replay"))


def dead_discard(scope: Scope, stream: str, group: str, which: Which = Which()) -> Steps[int]:
    """Throws dead letters away; returns how many. Raises `InvalidSchedule`."""
    return (yield from _settle_all(scope, stream, group, which, "discard"))


def _settle_all(
    scope: Scope, stream: str, group: str, which: Which, verb: Literal["replay", "discard"]
) -> Steps[int]:
    count = 0
    after: str | None = None
    while True:
        page = yield from dead_list(scope, stream, group, which, after=after, limit=MAX_ITEMS)
        for partition, entries in _by_partition(page.letters):
            while entries:
                (lines,) = yield [_revive(scope, partition, stream, group, verb, entries)]
                count += sum(line.startswith(("REPLAYED", "DISCARDED")) for line in lines)
                for line in lines:
                    if line.startswith("BROKEN"):
                        raise QueueUnavailable(f"Redis refused: {line[7:]}")
                entries = [entry for entry, line in zip(entries, lines, strict=True) if line == "LATER"]
        if page.after is None:
            return count
        after = page.after


def _by_partition(letters: list[DeadLetter]) -> Iterator[tuple[int, list[str]]]:
    for partition in sorted({letter.partition for letter in letters}):
        yield partition, [letter.entry for letter in letters if letter.partition == partition]


def _check(stream: str, group: str, which: Which) -> None:
    check_plain_name("stream", stream)
    check_plain_name("group", group)
    for name, value in (("id", which.id), ("type", which.type), ("prefix", which.prefix or None)):
        if value is not None:
            check_text(name, value)


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


_Found = tuple[list[DeadLetter], tuple[str, str] | None]


def _look(
    scope: Scope, partition: int, stream: str, group: str, which: Which, start: str, end: str, limit: int
) -> Command[_Found]:
    def read(reply: Reply) -> _Found:
        read_head(reply)
        *lines, last = reply[0].decode().split("\n")[1:]
        word, _, rest = last.partition(" ")
        if word == "BROKEN":
            raise QueueUnavailable(f"Redis refused: {rest}")
        letters = [
            _letter(partition, stream, group, line.split(" ")[1], flat)
            # the fields are arrays of their own behind the text
            for line, flat in zip(lines, cast("list[list[bytes]]", reply[1:]), strict=True)
        ]
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
            "event": (which.id or "").encode(),
            "prefix": which.prefix.encode(),
            "type": (which.type or "").encode(),
            "since": which.since_ms,
            "before": which.before_ms,
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


def _letter(partition: int, stream: str, group: str, entry: str, flat: list[bytes]) -> DeadLetter:
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
        source_entry=text(b"entry", notes),
        fields=fields,
    )
