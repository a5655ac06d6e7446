"""Who belongs to a declared set: announcing an apply, listing the set's ids, cancelling some of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from timerq import keys
from timerq.commands.command import (
    MAX_ITEMS,
    Command,
    Durability,
    Reply,
    Scope,
    Steps,
    command,
    read_lines,
)
from timerq.commands.options import Membership
from timerq.errors import QueueUnavailable, TimerqError
from timerq.lua import Word
from timerq.model import Change, Outcome


class Place(NamedTuple):
    """Where a schedule is."""

    partition: int
    id: bytes


class Enlisted(NamedTuple):
    """An apply's generation, Redis's time (epoch ms), and whether no later apply had been announced anywhere."""

    generation: int
    now_ms: int
    first: bool


class Members(NamedTuple):
    """A set's ids, those that are the set's no more, and Redis's time (epoch ms)."""

    places: list[Place]
    stale: list[Place]
    now_ms: int


Pruned: TypeAlias = "Change | tuple[str, TimerqError]"
"""What became of one id: it was cancelled, or the key and why it could not be."""


def enlist(scope: Scope, label: str, durable: Durability | None = None) -> Steps[Enlisted]:
    """Takes a generation and announces it in every partition."""
    (taken,) = yield [_enlist_command(scope, label, 0, "", durable)]
    generation, now_ms, _ = taken
    rest = range(1, scope.namespace.partitions)
    answers = (yield [_enlist_command(scope, label, p, generation, durable) for p in rest]) if rest else []
    return Enlisted(generation, now_ms, all(answer.first for answer in answers))


def list_members(scope: Scope, label: str) -> Steps[Members]:
    """All ids that the set may hold, whether their records carry its label or not."""
    places: dict[Place, None] = {}
    stale: dict[Place, None] = {}
    now_ms = 0
    waiting = [(partition, 0) for partition in range(scope.namespace.partitions)]
    while waiting:
        pages = yield [_members_command(scope, label, partition, skip) for partition, skip in waiting]
        again = []
        for (partition, skip), (page_ms, found, more) in zip(waiting, pages, strict=True):
            now_ms = page_ms
            for id, is_member in found:
                (places if is_member else stale)[Place(partition, id)] = None
            if more:
                again.append((partition, skip + MAX_ITEMS))
        waiting = again
    return Members([*places], [*stale], now_ms)


def prune(
    scope: Scope,
    member: Membership,
    places: Iterable[Place],
    done: list[Pruned],
    durable: Durability | None = None,
    by: str = "",
) -> Steps[bool]:
    """Cancels those of the ids that are the set's, all partitions at once, and forgets the others.

    What became of them goes into ``done``. False where a later apply has been announced, which stops it.
    """
    waiting: dict[int, list[bytes]] = {}
    for partition, id in places:
        waiting.setdefault(partition, []).append(id)
    alone = True
    while waiting and alone:
        pieces = [(partition, ids[:MAX_ITEMS]) for partition, ids in waiting.items()]
        waiting = {p: ids[MAX_ITEMS:] for p, ids in waiting.items() if len(ids) > MAX_ITEMS}
        for answer in (yield [_prune_command(scope, member, *piece, durable, by) for piece in pieces]):
            if answer is None:
                alone = False
            else:
                done += answer
    return alone


def _enlist_command(
    scope: Scope, label: str, partition: int, generation: Word, durable: Durability | None
) -> Command[Enlisted]:
    def read(reply: Reply) -> Enlisted:
        now_us, lines = read_lines(reply)
        word, number = lines[0].split(" ")
        return Enlisted(int(number), now_us // 1000, word == "ENLISTED")

    return command(
        "enlist",
        scope.namespace,
        partition,
        read,
        own_keys={"set": _set_key(scope, label, partition)},
        own_args={"generation": generation},
        durable=durable,
    )


def _members_command(
    scope: Scope, label: str, partition: int, skip: int
) -> Command[tuple[int, list[tuple[bytes, bool]], bool]]:
    def read(reply: Reply) -> tuple[int, list[tuple[bytes, bool]], bool]:
        now_us, lines = read_lines(reply)
        more = lines[-1:] == ["MORE"]
        words = lines[:-1] if more else lines
        return now_us // 1000, [(id, w == "MEMBER") for id, w in zip(reply[1:], words, strict=True)], more

    return command(
        "members",
        scope.namespace,
        partition,
        read,
        own_keys={"set": _set_key(scope, label, partition)},
        own_args={"label": label, "skip": skip, "limit": MAX_ITEMS},
    )


def _prune_command(
    scope: Scope,
    member: Membership,
    partition: int,
    ids: Sequence[bytes],
    durable: Durability | None,
    by: str = "",
) -> Command[list[Pruned] | None]:
    """It reads as what became of each id that was the set's; None where it was refused."""

    def read(reply: Reply) -> list[Pruned] | None:
        _, lines = read_lines(reply)
        if lines[0].startswith("SUPERSEDED"):
            return None
        done: list[Pruned] = []
        for id, line in zip(ids, lines, strict=True):
            word, _, rest = line.partition(" ")
            key = keys.split_identity(id)[1]
            if word == "PRUNED":
                version, at_ms = map(int, rest.split(" "))
                done.append(
                    Change(Outcome.CANCELLED, key, version=version, at_ms=at_ms, durable=made.reached)
                )
            elif word == "BROKEN":
                done.append((key, QueueUnavailable(f"Redis refused: {rest}")))
        return done

    tag = scope.namespace.tags[partition]
    item_keys: list[Word] = []
    for id in ids:
        item_keys += (keys.record(tag, id), keys.id_floor(tag, id))
    made: Command[list[Pruned] | None] = command(
        "prune",
        scope.namespace,
        partition,
        read,
        own_keys={
            "due": keys.due(tag, scope.tenant_bytes),
            "set": _set_key(scope, member.label, partition),
        },
        own_args={
            "tenant": scope.tenant_bytes,
            "label": member.label,
            "generation": member.generation,
            "by": by.encode(),
        },
        item_keys=item_keys,
        durable=durable,
    )
    return made


def _set_key(scope: Scope, label: str, partition: int) -> bytes:
    return keys.declared_set(scope.namespace.tags[partition], scope.tenant_bytes, label.encode())
