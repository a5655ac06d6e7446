"""get, list, count, stats: what is there."""

from __future__ import annotations

import base64
import binascii
import heapq
from collections.abc import Iterator, Sequence

from timerq import keys
from timerq.commands.backlog import read_backlog
from timerq.commands.cancel import locate
from timerq.commands.command import (
    MAX_ITEMS,
    Command,
    Namespace,
    Reply,
    Scope,
    Steps,
    command,
    read_head,
    read_lines,
)
from timerq.commands.dispatch import alive_dispatchers
from timerq.commands.ranges import Range, key_range
from timerq.commands.record import decode, take
from timerq.errors import InvalidSchedule, QueueUnavailable
from timerq.model import GroupStats, Page, Schedule, Stats
from timerq.timing import MAX_INSTANT_MS, Instant, resolve_instant

MAX_PAGE = MAX_ITEMS
"""The largest ``limit`` of a page: one script's bound."""


def server_time(namespace: Namespace) -> Command[int]:
    """Reads as the server's time (epoch ms)."""
    return command("read", namespace, 0, lambda reply: read_head(reply) // 1000)


def get(scope: Scope, key: str, owner: str | None = None) -> Steps[Schedule | None]:
    """The stored schedule, or None."""
    partition, _, id, _ = locate(scope, key, owner)
    if not scope.namespace.layout:
        return None
    (found,) = yield [_read_command(scope, partition, [id])]
    schedule = found[0]
    if isinstance(schedule, Exception):
        raise schedule
    return schedule  # type: ignore[no-any-return]


def count(scope: Scope, prefix: str = "", owner: str | None = None) -> Steps[int]:
    """How many schedules there are of a prefix, an owner, or both."""
    span = key_range(scope, prefix, owner)

    def read(reply: Reply) -> int:
        return int(read_lines(reply)[1][0].split(" ")[1])

    if not scope.namespace.layout:
        return 0
    counts = yield [
        command(
            "count",
            scope.namespace,
            partition,
            read,
            own_keys={"index": span.index(scope.namespace.tags[partition])},
            own_args={"from": span.first, "to": span.last},
        )
        for partition in span.partitions
    ]
    return sum(counts)


def list_page(
    scope: Scope, prefix: str = "", owner: str | None = None, after: str | None = None, limit: int = 100
) -> Steps[Page]:
    """One page in key order, merged over the partitions.

    Keyset paging: the cursor names the last id, not an offset, so keys that come and go shift nothing.
    """
    check_limit(limit)
    span = key_range(scope, prefix, owner)
    first = span.first if after is None else b"(" + scope.tenant_bytes + keys.NUL + decode_cursor(after)
    if first[1:] < span.first[1:]:
        first = span.first  # a cursor of another prefix never leads outside this one
    if not scope.namespace.layout:
        return Page([], None)
    if len(span.partitions) == 1:
        ((found, more),) = yield [_page_command(scope, span, span.partitions[0], first, limit, records=True)]
        items = [schedule for _, schedule in found if isinstance(schedule, Schedule)]
        return Page(items, encode_cursor(found[-1][0]) if more else None)
    pages = yield [_page_command(scope, span, p, first, limit, records=False) for p in span.partitions]
    merged = heapq.merge(
        *[[(id, p) for id, _ in page] for p, (page, _) in zip(span.partitions, pages, strict=True)]
    )
    chosen = [pair for pair, _ in zip(merged, range(limit), strict=False)]
    items = yield from read_all(scope, chosen)
    return Page(items, encode_cursor(chosen[-1][0]) if len(chosen) == limit else None)


def due_page(
    scope: Scope,
    due_from: Instant | None,
    due_to: Instant | None,
    after: tuple[int, bytes] | None,
    limit: int,
) -> Steps[tuple[list[Schedule], tuple[int, bytes] | None]]:
    """One page in the order of the next look (for an armed schedule: its instant), and where the next page begins."""
    check_limit(limit)
    first = 0 if due_from is None else resolve_instant(due_from, field="due_from")
    last = MAX_INSTANT_MS if due_to is None else resolve_instant(due_to, field="due_to")
    after_id = b""
    if not scope.namespace.layout:
        return [], None
    if after is not None:
        first, after_id = after
    pages = yield [
        _agenda_command(scope, partition, first, last, after_id, limit)
        for partition in range(scope.namespace.partitions)
    ]
    merged = heapq.merge(*[[(score, id, p) for score, id in page] for p, page in enumerate(pages)])
    chosen = [entry for entry, _ in zip(merged, range(limit), strict=False)]
    items = yield from read_all(scope, [(id, p) for _, id, p in chosen])
    return items, chosen[-1][:2] if len(chosen) == limit else None


def of(schedules: Sequence[Schedule], prefix: str, owner: str | None) -> Iterator[Schedule]:
    """Those of a prefix and an owner."""
    return (s for s in schedules if s.key.startswith(prefix) and owner in (None, s.owner))


def stats(scope: Scope) -> Steps[Stats]:
    """Numbers of the tenant's schedules, and counters of the whole namespace."""
    namespace = scope.namespace
    span = key_range(scope)
    if not namespace.layout:
        return Stats(scope.tenant, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {}, [])

    def read(reply: Reply) -> tuple[int, list[str], list[tuple[str, str, list[str]]]]:
        now_us, lines = read_lines(reply)
        told = []
        for name, line in zip(reply[1:], lines[1:], strict=True):
            kind, *numbers = line.split(" ")
            told.append((kind, name.decode(), numbers))
        return now_us, lines[0].split(" ")[1:], told

    answers = yield [
        command(
            "stats",
            namespace,
            partition,
            read,
            own_keys={"due": keys.due(namespace.tags[partition], scope.tenant_bytes)},
            own_args={"from": span.first, "to": span.last},
        )
        for partition in range(namespace.partitions)
    ]
    (alive,) = yield [alive_dispatchers(namespace)]
    streams: dict[str, int] = {}
    groups: dict[str, list[int]] = {}
    backlogs: dict[str, list[list[str]]] = {}
    lag_ms = 0
    totals = [0] * 12
    for now_us, words, told in answers:
        if words[3] != "-":
            lag_ms = max(lag_ms, now_us // 1000 - int(words[3]))
        for position, word in enumerate(words):
            if position != 3:
                totals[position] += int(word)
        for kind, name, numbers in told:
            if kind == "STREAM":
                streams[name] = streams.get(name, 0) + int(numbers[0])
            elif kind == "BACKLOG":
                backlogs.setdefault(name, []).append(numbers)
            else:
                so_far = groups.get(name, [0, 0, 0])
                groups[name] = [one + int(other) for one, other in zip(so_far, numbers, strict=True)]
    schedules, armed, due, _, everything, held, fired, missed, dropped, orphans, skipped, held_back = totals
    return Stats(
        tenant=scope.tenant,
        partitions=namespace.partitions,
        schedules=schedules,
        armed=armed,
        paused=max(0, schedules - armed),
        due=due,
        lag_ms=lag_ms,
        all_schedules=everything,
        held=held,
        fired=fired,
        missed=missed,
        dropped=dropped,
        orphans=orphans,
        skipped=skipped,
        streams=dict(sorted(streams.items())),
        dispatchers=alive,
        groups=tuple(_group_stats(name, numbers) for name, numbers in sorted(groups.items())),
        held_back=held_back,
        backlogs=tuple(read_backlog(name, parts) for name, parts in sorted(backlogs.items())),
    )


def _group_stats(name: str, numbers: list[int]) -> GroupStats:
    stream, _, group = name.partition("\0")
    return GroupStats(stream, group, *numbers)


def check_limit(limit: int) -> None:
    """Raises `InvalidSchedule` unless it is 1 to `MAX_PAGE`."""
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_PAGE:
        raise InvalidSchedule("limit", limit, f"want a page size from 1 to {MAX_PAGE}")


def encode_cursor(id: bytes) -> str:
    """The opaque text of a place in a listing: the id without its tenant."""
    return base64.urlsafe_b64encode(id.partition(keys.NUL)[2]).decode()


def cursor_of(schedule: Schedule) -> str:
    """The place right behind a schedule, as the cursor of a page that ends with it."""
    owner = b"" if schedule.owner is None else schedule.owner.encode()
    return encode_cursor(keys.identity(schedule.tenant.encode(), schedule.key.encode(), owner))


def decode_cursor(cursor: str) -> bytes:
    """The place of a cursor; raises `InvalidSchedule` naming ``after``."""
    try:
        place = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
        place.decode()
        if place.count(keys.NUL) == 1:
            return place
    except (AttributeError, UnicodeError, binascii.Error):
        pass
    raise InvalidSchedule("after", cursor, "want the cursor of a page")


Found = Schedule | Exception | None


def _read_record(id: bytes, line: str, rest: Iterator[bytes]) -> Found:
    status, _, detail = line.partition(" ")
    if status == "BROKEN":
        return QueueUnavailable(f"Redis refused: {detail}")
    flat = take(detail, rest)
    if not flat:
        return None
    try:
        return decode(id, flat)
    except Exception as error:  # handed on as a value: one bad record must not hide the others
        return error


def _read_command(scope: Scope, partition: int, ids: Sequence[bytes]) -> Command[list[Found]]:
    def read(reply: Reply) -> list[Found]:
        _, lines = read_lines(reply)
        rest = iter(reply[1:])
        return [_read_record(id, line, rest) for id, line in zip(ids, lines, strict=True) if line != "LATER"]

    tag = scope.namespace.tags[partition]
    return command("read", scope.namespace, partition, read, item_keys=[keys.record(tag, id) for id in ids])


def read_all(scope: Scope, wanted: Sequence[tuple[bytes, int]]) -> Steps[list[Schedule]]:
    """The records of (id, partition) pairs, in order; those that have gone or cannot be read are left out."""
    found: dict[bytes, Found] = {}
    waiting: dict[int, list[bytes]] = {}
    for id, partition in wanted:
        waiting.setdefault(partition, []).append(id)
    while waiting:
        pieces = [(partition, ids[:MAX_ITEMS]) for partition, ids in waiting.items()]
        answers = yield [_read_command(scope, partition, ids) for partition, ids in pieces]
        for (partition, ids), answer in zip(pieces, answers, strict=True):
            found.update(zip(ids, answer, strict=False))
            del waiting[partition][: len(answer)]
            if not waiting[partition]:
                del waiting[partition]
    return [schedule for id, _ in wanted if isinstance(schedule := found[id], Schedule)]


def _page_command(
    scope: Scope, span: Range, partition: int, first: bytes, limit: int, *, records: bool
) -> Command[tuple[list[tuple[bytes, Found]], bool]]:
    def read(reply: Reply) -> tuple[list[tuple[bytes, Found]], bool]:
        _, lines = read_lines(reply)
        rest = iter(reply[1:])
        found: list[tuple[bytes, Found]] = []
        more = lines[-1:] == ["MORE"]
        for line in lines[:-1] if more else lines:
            id = next(rest)
            found.append((id, _read_record(id, line, rest) if records else None))
        return found, more

    return command(
        "page",
        scope.namespace,
        partition,
        read,
        own_keys={"index": span.index(scope.namespace.tags[partition])},
        own_args={"from": first, "to": span.last, "limit": limit, "records": int(records)},
    )


def _agenda_command(
    scope: Scope, partition: int, first: int, last: int, after: bytes, limit: int
) -> Command[list[tuple[int, bytes]]]:
    def read(reply: Reply) -> list[tuple[int, bytes]]:
        _, lines = read_lines(reply)
        return [(int(line.split(" ")[1]), id) for line, id in zip(lines, reply[1:], strict=True)]

    return command(
        "agenda",
        scope.namespace,
        partition,
        read,
        own_keys={"due": keys.due(scope.namespace.tags[partition], scope.tenant_bytes)},
        own_args={"from": first, "to": last, "after": after, "limit": limit},
    )
