"""What a verb hands to a client: commands to send and how to read their replies, without any I/O.

A verb is a generator (`Steps`): it yields lists of commands that may travel at once, is sent the list of their read
replies, and returns the verb's result. A client drives it and does nothing else, so the blocking and the asynchronous
one cannot drift apart.

Verbs on single schedules are made of `Item`s. Items of one partition, script and tenant are gathered into one command,
however they came together: one call with many of them, or many tasks with one each.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeVar

from timerq import keys
from timerq.errors import ContractBroken, InvalidSchedule, NamespaceMismatch, QueueUnavailable, TimerqError
from timerq.lua import SCRIPTS, Script, Word

T = TypeVar("T")

SCHEMA: Final = "1"
"""The format of the records; a script refuses a partition of another one."""

MAX_ITEMS: Final = 200
MAX_BYTES: Final = 262_144
"""One script touches at most so many schedules, and carries at most so many bytes."""

NAMESPACE: Final = -1
"""Stands for the namespace itself where a partition is named."""

Reply = list[bytes]
Steps = Generator[list["Command[Any]"], list[Any], T]


class PartitionUnmade(NamespaceMismatch):
    """The partition has no meta yet (or lost it); the client makes it and sends the command again."""


@dataclass(frozen=True, slots=True)
class Durability:
    """How safe a write must be before the call returns: ``replicas`` copies, or on disk (``fsync``); ``timeout_ms``."""

    replicas: int = 0
    fsync: bool = False
    timeout_ms: int = 1000


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace as its meta describes it."""

    name: str
    layout: str
    partitions: int
    tags: tuple[bytes, ...]
    manual_clock: bool
    settings: dict[str, str] = field(default_factory=dict)

    def partition_of(self, tenant: bytes, lane: bytes) -> int:
        """The partition that holds a lane."""
        return keys.partition_of(tenant, lane, self.partitions)


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose schedules a client works on, and how large a payload may be (bytes)."""

    namespace: Namespace
    tenant: str
    tenant_bytes: bytes
    payload_limit: int = 65_536


@dataclass(slots=True)
class Command(Generic[T]):
    """One script call.

    ``words`` is what follows EVALSHA and the digest; `stamp` completes them before each sending. ``reached`` is the
    durability that the sender saw, set before ``read`` is called. ``meanwhile`` is work that the sender may do (once)
    while the answer is on its way.
    """

    script: Script
    words: list[Word]
    read: Callable[[Reply], T]
    tag: bytes
    durable: Durability | None = None
    reached: str = "accepted"
    meanwhile: Callable[[], None] | None = None

    def stamp(self, session: bytes, seq: int, now_ms: int | None) -> None:
        """Fills in what only the sender knows: the session's memory, its number, and a manual clock's time."""
        count = self.words[0]
        assert isinstance(count, int)
        position = _POSITIONS[self.script.name]
        if position.req:
            self.words[position.req] = keys.request(self.tag, session)
            self.words[count + position.seq] = seq
        if position.now_ms:
            self.words[count + position.now_ms] = "" if now_ms is None else now_ms


class _Positions(NamedTuple):
    req: int
    seq: int
    now_ms: int


def _positions(script: Script) -> _Positions:
    return _Positions(
        script.keys.index("req") + 1 if "req" in script.keys else 0,
        script.args.index("seq") + 1 if "seq" in script.args else 0,
        script.args.index("now_ms") + 1 if "now_ms" in script.args else 0,
    )


_POSITIONS = {name: _positions(script) for name, script in SCRIPTS.items()}


def command(
    name: str,
    namespace: Namespace,
    partition: int,
    read: Callable[[Reply], T],
    *,
    own_keys: dict[str, Word] | None = None,
    own_args: dict[str, Word] | None = None,
    item_keys: Sequence[Word] = (),
    item_args: Sequence[Word] = (),
    durable: Durability | None = None,
) -> Command[T]:
    """A call of script ``name`` on a partition; the keys that are the partition's own are filled in by their names.

    `NAMESPACE` for ``partition`` is the namespace's own slot.
    """
    script = SCRIPTS[name]
    tag = namespace.tags[partition] if partition >= 0 else b"{%b}" % namespace.name.encode()
    given: dict[str, Word] = {} if own_keys is None else dict(own_keys)
    for key in script.keys:
        if key in _PARTITION_KEYS:
            given[key] = _PARTITION_KEYS[key](tag)
        elif key == "req":
            given[key] = b""
    args: dict[str, Word] = {"layout": namespace.layout, "schema": SCHEMA, "now_ms": ""}
    if "seq" in script.args:
        args["seq"] = 0
    if own_args:
        args.update(own_args)
    return Command(script, script.order(given, args, item_keys, item_args), read, tag, durable)


_PARTITION_KEYS: dict[str, Callable[[bytes], bytes]] = {
    "meta": keys.meta,
    "heads": keys.heads,
    "keys": keys.index,
    "held": keys.held,
    "wake": keys.wake,
    "log": keys.log,
    "streams": keys.streams,
}


def read_lines(reply: Reply) -> tuple[int, list[str]]:
    """The script's time (epoch µs) and the lines behind it.

    Raises `PartitionUnmade`, `NamespaceMismatch` (another layout, schema or clock) or `QueueUnavailable` (the request
    was overtaken by a later one of its session: its outcome is unknown).
    """
    head, *lines = reply[0].decode().split("\n")
    word, _, rest = head.partition(" ")
    if word == "OK":
        return int(rest), lines
    if word == "WRONG_LAYOUT":
        if rest == "- -":
            raise PartitionUnmade
        raise NamespaceMismatch(
            f"the partition has layout and schema {rest}, this client another; nothing was written"
        )
    if word == "WRONG_CLOCK":
        raise NamespaceMismatch(
            f"the namespace runs on clock={rest}, this client does not; nothing was written"
        )
    if word == "OLD_REQUEST":
        raise QueueUnavailable("a later request overtook this one; whether it took effect is unknown")
    raise ContractBroken(f"unexpected reply {head[:80]!r}")


@dataclass(slots=True)
class Item(Generic[T]):
    """One schedule's part of a command: ``read`` makes its result of its line's words and what stands behind them."""

    script: str
    partition: int
    keys: list[Word]
    args: list[Word]
    size: int
    read: Callable[[list[str], Iterator[bytes], str], T]


class Later(Exception):
    """The script's bound was reached before this item: it goes into the next one."""


def gather(scope: Scope, items: Sequence[Item[Any]], durable: Durability | None = None) -> Command[list[Any]]:
    """One command of items that share partition and script; it reads as a result, an exception or `Later` for each."""
    first = items[0]
    namespace = scope.namespace
    tag = namespace.tags[first.partition]
    item_keys: list[Word] = []
    item_args: list[Word] = []
    for item in items:
        item_keys += item.keys
        item_args += item.args
    own_args: dict[str, Word] = {"tenant": scope.tenant_bytes}
    own_keys: dict[str, Word] = {}
    if first.script == "upsert":
        own_args["items"] = len(items)
    if first.script != "publish":
        own_keys["due"] = keys.due(tag, scope.tenant_bytes)

    def read(reply: Reply) -> list[Any]:
        return read_items(reply, items, made.reached)

    made = command(
        first.script,
        namespace,
        first.partition,
        read,
        own_keys=own_keys,
        own_args=own_args,
        item_keys=item_keys,
        item_args=item_args,
        durable=durable,
    )
    return made


def read_items(reply: Reply, items: Sequence[Item[Any]], durable: str) -> list[Any]:
    """A result or an exception for each item of a reply."""
    _, lines = read_lines(reply)
    if len(lines) != len(items):
        raise ContractBroken(f"{len(lines)} answers to {len(items)} items")
    rest = iter(reply)
    next(rest)
    results: list[Any] = []
    for item, line in zip(items, lines, strict=True):
        words = line.split(" ")
        try:
            status = words[0]
            if status == "LATER":
                raise Later
            if status == "BROKEN":
                raise QueueUnavailable(f"Redis refused: {line[7:]}")
            results.append(item.read(words, rest, durable))
        except (TimerqError, Later) as error:
            results.append(error)
    return results


def batches(items: Iterable[tuple[int, Item[Any]]]) -> Iterator[list[tuple[int, Item[Any]]]]:
    """Pieces of (position, item) pairs that fit one script each, in order."""
    batch: list[tuple[int, Item[Any]]] = []
    size = 0
    for pair in items:
        if batch and (len(batch) == MAX_ITEMS or size + pair[1].size > MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(pair)
        size += pair[1].size
    if batch:
        yield batch


def one(scope: Scope, item: Item[T], durable: Durability | None = None) -> Steps[T]:
    """The verb on one schedule."""
    while True:
        (results,) = yield [gather(scope, [item], durable)]
        (result,) = results
        if isinstance(result, Later):
            continue
        if isinstance(result, Exception):
            raise result
        return result  # type: ignore[no-any-return]


def many(
    scope: Scope, make: Callable[[Any], Item[T]], things: Iterable[Any], durable: Durability | None = None
) -> Steps[list[T | TimerqError]]:
    """The verb on many schedules: all partitions at once, in bounded commands, a result an item, in order.

    An item that `make` refuses is that `InvalidSchedule` in the results and sinks nothing else.
    """
    results: list[Any] = []
    waiting: dict[int, list[tuple[int, Item[T]]]] = {}
    source = iter(things)
    window = MAX_ITEMS * scope.namespace.partitions
    failure: Exception | None = None

    def fill() -> None:
        """Builds items until the next round is full; whatever the caller's iterable raises is raised at the end."""
        nonlocal failure
        left = window - sum(map(len, waiting.values()))
        while left > 0 and failure is None:
            try:
                thing = next(source)
            except StopIteration:
                return
            except Exception as error:
                failure = error
                return
            try:
                item = make(thing)
            except InvalidSchedule as error:
                results.append(error)
                continue
            waiting.setdefault(item.partition, []).append((len(results), item))
            results.append(None)
            left -= 1

    fill()
    while waiting:
        round_ = [next(batches(pairs)) for pairs in waiting.values()]
        for batch in round_:
            pairs = waiting[batch[0][1].partition]
            del pairs[: len(batch)]
            if not pairs:
                del waiting[batch[0][1].partition]
        commands = [gather(scope, [item for _, item in batch], durable) for batch in round_]
        commands[0].meanwhile = fill
        answers = yield commands
        for batch, results_ in zip(round_, answers, strict=True):
            again = []
            for pair, result in zip(batch, results_, strict=True):
                if isinstance(result, Later):
                    again.append(pair)
                else:
                    results[pair[0]] = result
            if again:
                waiting.setdefault(again[0][1].partition, [])[:0] = again
        fill()
    if failure is not None:
        raise failure
    return results
