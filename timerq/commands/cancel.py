"""cancel: by key, and by range (a prefix, an owner, or both)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from timerq import keys
from timerq.commands.command import MAX_ITEMS, Command, Durability, Reply, Scope, Steps, command, read_lines
from timerq.commands.durable import least
from timerq.commands.items import Item
from timerq.commands.options import check_version
from timerq.commands.ranges import Range, key_range
from timerq.lua import Word
from timerq.model import Change, Outcome, Swept, check_text


def locate(scope: Scope, key: str, owner: str | None) -> tuple[int, bytes, bytes, bytes]:
    """A schedule's partition, its tag, its id and its owner's bytes; raises `InvalidSchedule` for a bad name."""
    key_bytes = check_text("key", key)
    owner_bytes = b"" if owner is None else check_text("owner", owner)
    namespace = scope.namespace
    partition = namespace.partition_of(scope.tenant_bytes, owner_bytes or key_bytes)
    return (
        partition,
        namespace.tags[partition],
        keys.identity(scope.tenant_bytes, key_bytes, owner_bytes),
        owner_bytes,
    )


def read_change(key: str, owner: str | None) -> Callable[[list[str], Iterator[bytes], str], Change]:
    """Reads one line ``STATUS version [at]`` into a `Change`."""

    def read(words: list[str], rest: Iterator[bytes], durable: str) -> Change:
        numbers = [int(word) for word in words[1:3]]
        version = numbers[0] if numbers else 0
        return Change(
            Outcome(words[0]), key, owner, version, numbers[1] if len(numbers) > 1 else None, None, durable
        )

    return read


def item(
    scope: Scope,
    key: str,
    owner: str | None = None,
    if_version: int | None = None,
    by: str | None = None,
    incarnation: int | None = None,
) -> Item[Change]:
    """The command's part for one cancel; raises `InvalidSchedule` for a bad name or version.

    ``incarnation`` is an owner handle's (a version).
    """
    partition, tag, id, owner_bytes = locate(scope, key, owner)
    check_version(if_version)
    item_keys: tuple[Word, ...] = (keys.record(tag, id), keys.id_floor(tag, id))
    if owner_bytes:
        tenant = scope.tenant_bytes
        item_keys += (keys.owner_index(tag, tenant, owner_bytes), keys.owner_floor(tag, tenant, owner_bytes))
    args: tuple[Word, ...] = (
        "" if if_version is None else str(if_version),
        b"" if by is None else check_text("by", by),
        "" if incarnation is None else str(incarnation),
    )
    return Item("cancel", partition, item_keys, args, 2 * len(id) + 100, read_change(key, owner))


def sweep(
    scope: Scope, prefix: str, owner: str | None, durable: Durability | None = None, ceiling: bytes = b""
) -> Steps[Swept]:
    """Cancels every schedule of a prefix, an owner or both, that was armed before; returns how many there were.

    Before: up to the version ``ceiling``, or where that is empty up to the last one that there is when it begins.
    """
    span = key_range(scope, prefix, owner)
    pieces = [_piece(scope, span, partition, span.first, ceiling, durable) for partition in span.partitions]
    cancelled = 0
    levels = set()
    while pieces:
        answers = yield pieces
        levels |= {piece.reached for piece in pieces}
        pieces = []
        for partition, count, ceiling, last in answers:
            cancelled += count
            if last is not None:
                pieces.append(_piece(scope, span, partition, b"(" + last, ceiling, durable))
    swept = Swept(cancelled)
    swept.durable = least(levels)
    return swept


def _piece(
    scope: Scope, span: Range, partition: int, first: bytes, ceiling: bytes, durable: Durability | None
) -> Command[Any]:
    def read(reply: Reply) -> tuple[int, int, bytes, bytes | None]:
        _, lines = read_lines(reply)
        _, count, ceiling = lines[0].split(" ")
        return partition, int(count), ceiling.encode(), reply[1] if len(reply) > 1 else None

    tag = scope.namespace.tags[partition]
    return command(
        "sweep",
        scope.namespace,
        partition,
        read,
        own_keys={"due": keys.due(tag, scope.tenant_bytes), "index": span.index(tag)},
        own_args={
            "tenant": scope.tenant_bytes,
            "from": first,
            "to": span.last,
            "ceiling": ceiling,
            "limit": MAX_ITEMS,
        },
        durable=durable,
    )
