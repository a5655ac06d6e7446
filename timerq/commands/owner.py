"""Owners: incarnations, heartbeats, and the sweep that destroys all of one.

Everything of an owner lies in one partition. A version is the owner's floor: what is at or below it is dead, whoever
still holds it. A handle carries its incarnation, a version of its own; at or below the floor, it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from timerq import keys
from timerq.commands.cancel import sweep
from timerq.commands.command import (
    MAX_ITEMS,
    Command,
    Durability,
    Namespace,
    Reply,
    Scope,
    Steps,
    command,
    read_lines,
)
from timerq.commands.durable import least
from timerq.commands.ranges import key_range
from timerq.errors import QueueUnavailable
from timerq.lua import Word
from timerq.model import Swept, check_text

T = TypeVar("T")

SILENT_AT_ONCE = 100
"""How many silent owners one look names."""


class Owned(NamedTuple):
    """Where an owner's schedules are, and the incarnation of who asks: a version; None where it has none."""

    tenant: bytes
    owner: bytes
    partition: int
    incarnation: int | None = None

    @property
    def member(self) -> bytes:
        """Its name among the owners of a partition."""
        return self.tenant + keys.NUL + self.owner


class Lived(NamedTuple):
    """What `live` says: the ``incarnation`` and the ``last`` version there is; or, where it is gone, the ``floor``."""

    incarnation: int = 0
    last: int = 0
    floor: int | None = None


Heard = int | None | QueueUnavailable
"""What a heartbeat is told: None where its incarnation lives, the floor of one that is gone, or why it is unheard."""


class Piece(NamedTuple):
    """What one piece of a sweep did, and behind which id the next one begins (None: it was the last).

    ``word`` is DESTROYED, OWNER_GONE (only what was left of an earlier destroy was swept) or ALIVE (nothing was done).
    """

    word: str
    swept: int = 0
    ceiling: int = 0
    after: bytes | None = None


class Found(NamedTuple):
    """An owner that a dispatcher has to destroy.

    Its heartbeat should have been heard at ``until_ms``, or its sweep up to ``ceiling`` was begun and not ended; the
    other number is 0.
    """

    owned: Owned
    until_ms: int = 0
    ceiling: int = 0

    @property
    def name(self) -> str:
        """What it is called in a log."""
        return self.owned.owner.decode(errors="replace")


class Destroyed(NamedTuple):
    """What `destroy` did: how many schedules went, up to which version, and whether the incarnation was gone before."""

    swept: Swept
    ceiling: int
    was_gone: bool


def locate_owner(scope: Scope, owner: str, incarnation: int | None = None) -> Owned:
    """An owner's place; raises `InvalidSchedule` for a bad name."""
    owner_bytes = check_text("owner", owner)
    partition = scope.namespace.partition_of(scope.tenant_bytes, owner_bytes)
    return Owned(scope.tenant_bytes, owner_bytes, partition, incarnation)


def live(namespace: Namespace, owned: Owned, ttl_ms: int = 0) -> Command[Lived]:
    """Says that its incarnation lives for ``ttl_ms`` more (0: it has no heartbeat); takes one where it has none."""

    def read(reply: Reply) -> Lived:
        _, lines = read_lines(reply)
        word, *numbers = lines[0].split(" ")
        if word == "OWNER_GONE":
            return Lived(floor=int(numbers[0]))
        return Lived(int(numbers[0]), int(numbers[1]))

    tag = namespace.tags[owned.partition]
    return command(
        "live",
        namespace,
        owned.partition,
        read,
        own_keys={
            "floor": keys.owner_floor(tag, owned.tenant, owned.owner),
            "owners": keys.owners(tag),
        },
        own_args={
            "member": owned.member,
            "incarnation": "" if owned.incarnation is None else owned.incarnation,
            "ttl_ms": ttl_ms,
        },
    )


def hear(namespace: Namespace, partition: int, beats: Sequence[tuple[Owned, int]]) -> Command[list[Heard]]:
    """Says of up to `MAX_ITEMS` incarnations of a partition that each lives for its ttl (ms) more."""

    def read(reply: Reply) -> list[Heard]:
        _, lines = read_lines(reply)
        return [_heard(line) for line in lines]

    tag = namespace.tags[partition]
    words: list[Word] = []
    for owned, ttl_ms in beats:
        words += (owned.member, str(owned.incarnation), str(ttl_ms))
    return command(
        "hear",
        namespace,
        partition,
        read,
        own_keys={"owners": keys.owners(tag)},
        item_keys=[keys.owner_floor(tag, owned.tenant, owned.owner) for owned, _ in beats],
        item_args=words,
    )


def _heard(line: str) -> Heard:
    word, _, rest = line.partition(" ")
    if word == "BROKEN":
        return QueueUnavailable(rest)
    return int(rest) if word == "OWNER_GONE" else None


def begin(scope: Scope, owned: Owned, ttl_ms: int = 0) -> Steps[int]:
    """Takes an incarnation."""
    (lived,) = yield [live(scope.namespace, owned._replace(incarnation=None), ttl_ms)]
    return lived.incarnation  # type: ignore[no-any-return]


def sweep_prefix(
    scope: Scope, owned: Owned, prefix: str, durable: Durability | None, otherwise: Callable[[int], Swept]
) -> Steps[Swept]:
    """Cancels what an owner has under a prefix, as far as it was armed before its incarnation was seen to live."""
    (lived,) = yield [live(scope.namespace, owned)]
    if lived.floor is not None:
        return otherwise(lived.floor)
    return (yield from sweep(scope, prefix, owned.owner.decode(), durable, b"%d" % lived.last))


def destroy_piece(
    namespace: Namespace,
    owned: Owned,
    *,
    silent: bool = False,
    ceiling: int | None = None,
    after: bytes | None = None,
    durable: Durability | None = None,
) -> Command[Piece]:
    """One piece of a sweep: the first writes the floor, the others (with its ``ceiling``) go on behind ``after``.

    ``silent``: nothing is done unless its heartbeat has stopped.
    """

    def read(reply: Reply) -> Piece:
        _, lines = read_lines(reply)
        word, *numbers = lines[0].split(" ")
        if word == "ALIVE":
            return Piece(word)
        return Piece(word, int(numbers[0]), int(numbers[1]), reply[1] if len(reply) > 1 else None)

    tag = namespace.tags[owned.partition]
    return command(
        "destroy",
        namespace,
        owned.partition,
        read,
        own_keys={
            "due": keys.due(tag, owned.tenant),
            "index": keys.owner_index(tag, owned.tenant, owned.owner),
            "floor": keys.owner_floor(tag, owned.tenant, owned.owner),
            "owners": keys.owners(tag),
        },
        own_args={
            "tenant": owned.tenant,
            "owner": owned.owner,
            "incarnation": "" if owned.incarnation is None else owned.incarnation,
            "silent": int(silent),
            "ceiling": "" if ceiling is None else ceiling,
            "from": b"-" if after is None else b"(" + after,
            "limit": MAX_ITEMS,
        },
        durable=durable,
    )


def destroy(scope: Scope, owned: Owned, durable: Durability | None = None) -> Steps[Destroyed]:
    """Destroys an owner: its floor first, then all that is below it, in bounded pieces.

    An incarnation that is gone destroys nothing but what was left of it. Interrupted, it may be asked again; else a
    dispatcher goes on with it.
    """
    made = destroy_piece(scope.namespace, owned, durable=durable)
    (piece,) = yield [made]
    levels = {made.reached}
    was_gone = piece.word == "OWNER_GONE"
    swept = piece.swept
    while piece.after is not None:
        made = destroy_piece(
            scope.namespace, owned, ceiling=piece.ceiling, after=piece.after, durable=durable
        )
        (piece,) = yield [made]
        levels.add(made.reached)
        swept += piece.swept
    total = Swept(swept)
    total.durable = least(levels)
    return Destroyed(total, piece.ceiling, was_gone)


def find_silent(namespace: Namespace, partition: int, limit: int = SILENT_AT_ONCE) -> Command[list[Found]]:
    """Reads as the partition's owners, of every tenant, whose heartbeat has stopped or whose sweep has not ended."""

    def read(reply: Reply) -> list[Found]:
        _, lines = read_lines(reply)
        found = []
        for line, member in zip(lines, reply[1:], strict=True):
            word, number = line.split(" ")
            tenant, _, owner = member.partition(keys.NUL)
            owned = Owned(tenant, owner, partition)
            found.append(
                Found(owned, until_ms=int(number)) if word == "SILENT" else Found(owned, ceiling=int(number))
            )
        return found

    return command(
        "silent",
        namespace,
        partition,
        read,
        own_keys={"owners": keys.owners(namespace.tags[partition])},
        own_args={"limit": limit},
    )


def guarded(scope: Scope, owned: Owned, steps: Steps[T], otherwise: Callable[[int], T]) -> Steps[T]:
    """The verb for a handle that lives; for one that is gone, what ``otherwise`` makes of its owner's floor.

    Beside each of its steps travels the question whether the incarnation lives.
    """
    answers: list[Any] | None = None
    while True:
        try:
            commands = next(steps) if answers is None else steps.send(answers)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        *answers, lived = yield [*commands, live(scope.namespace, owned)]
        if lived.floor is not None:
            steps.close()
            return otherwise(lived.floor)


def list_keys(scope: Scope, owned: Owned, prefix: str) -> Steps[list[str]]:
    """The keys of an owner that begin with a prefix, in order; in bounded pieces, without their records."""
    span = key_range(scope, prefix, owned.owner.decode())
    index = keys.owner_index(scope.namespace.tags[owned.partition], owned.tenant, owned.owner)
    first = span.first
    found: list[str] = []

    def read(reply: Reply) -> tuple[list[bytes], bool]:
        _, lines = read_lines(reply)
        return reply[1:], lines[-1:] == ["MORE"]

    while True:
        (page,) = yield [
            command(
                "page",
                scope.namespace,
                owned.partition,
                read,
                own_keys={"index": index},
                own_args={"from": first, "to": span.last, "limit": MAX_ITEMS, "records": 0},
            )
        ]
        ids, more = page
        found += (keys.split_identity(id)[1] for id in ids)
        if not more:
            return found
        first = b"(" + ids[-1]
