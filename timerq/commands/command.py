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
from functools import cache
from typing import Any, Final, Generic, NamedTuple, TypeVar

from timerq import keys
from timerq.errors import ContractBroken, InvalidSchedule, NamespaceMismatch, QueueUnavailable, TimerqError
from timerq.lua import SCRIPTS, Script, Word

T = TypeVar("T")
R = TypeVar("R")

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

_PARTITION_KEYS: dict[str, Callable[[bytes], bytes]] = {
    "meta": keys.meta,
    "req": keys.meta,  # stamped over before each sending
    "heads": keys.heads,
    "keys": keys.index,
    "held": keys.held,
    "wake": keys.wake,
    "log": keys.log,
    "streams": keys.streams,
}


class _Frame(NamedTuple):
    """What is the same in every call of a script on a partition, and where the call's own words belong."""

    keys: list[Word]
    args: list[Word]
    own_keys: dict[str, int]
    own_args: dict[str, int]


@cache  # as many as partitions times scripts
def _frame(name: str, tag: bytes, layout: str) -> _Frame:
    script = SCRIPTS[name]
    common: dict[str, Word] = {"layout": layout, "schema": SCHEMA, "now_ms": "", "seq": 0}
    own_keys = {key: i for i, key in enumerate(script.keys) if key not in _PARTITION_KEYS}
    own_args = {arg: i for i, arg in enumerate(script.args) if arg not in common}
    return _Frame(
        [_PARTITION_KEYS[key](tag) if key in _PARTITION_KEYS else b"" for key in script.keys],
        [common.get(arg, "") for arg in script.args],
        own_keys,
        own_args,
    )


_NOTHING: dict[str, Word] = {}


def command(
    name: str,
    namespace: Namespace,
    partition: int,
    read: Callable[[Reply], T],
    *,
    own_keys: dict[str, Word] = _NOTHING,
    own_args: dict[str, Word] = _NOTHING,
    item_keys: Sequence[Word] = (),
    item_args: Sequence[Word] = (),
    durable: Durability | None = None,
) -> Command[T]:
    """A call of script ``name`` on a partition; the keys that are the partition's own are filled in by their names.

    ``own_keys`` and ``own_args`` give the others, by the names of the script's header: a missing or an extra one
    raises KeyError. `NAMESPACE` for ``partition`` is the namespace's own slot.
    """
    script = SCRIPTS[name]
    tag = namespace.tags[partition] if partition >= 0 else b"{%b}" % namespace.name.encode()
    frame = _frame(name, tag, namespace.layout)
    if own_keys.keys() != frame.own_keys.keys() or own_args.keys() != frame.own_args.keys():
        raise KeyError(
            f"{name}.lua takes {[*frame.own_keys]} and {[*frame.own_args]}: got {[*own_keys]}, {[*own_args]}"
        )
    if (item_keys and not script.repeats_keys) or (item_args and not script.repeats_args):
        raise KeyError(f"{name}.lua takes no items")
    count = len(frame.keys) + len(item_keys)
    words: list[Word] = [count, *frame.keys, *item_keys, *frame.args, *item_args]
    for key, value in own_keys.items():
        words[1 + frame.own_keys[key]] = value
    for arg, value in own_args.items():
        words[1 + count + frame.own_args[arg]] = value
    return Command(script, words, read, tag, durable)


def read_lines(reply: Reply) -> tuple[int, list[str]]:
    """The script's time (epoch µs) and the lines behind it.

    Raises `PartitionUnmade`, `NamespaceMismatch` (another layout, schema or clock) or `QueueUnavailable` (the request
    was overtaken by a later one of its session: its outcome is unknown).
    """
    return read_head(reply), reply[0].decode().split("\n")[1:]


def read_head(reply: Reply) -> int:
    """The script's time (epoch µs); raises as `read_lines`."""
    head = reply[0].partition(b"\n")[0].decode()
    word, _, rest = head.partition(" ")
    if word == "OK":
        return int(rest)
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

    made: Command[list[Any]] = command(
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
    scope: Scope,
    make: Callable[[Any], Item[T]],
    things: Iterable[Any],
    durable: Durability | None = None,
    finish: Callable[[T], R] | None = None,
) -> Steps[list[R | TimerqError]]:
    """The verb on many schedules: all partitions at once, in bounded commands, a result an item, in order.

    An item that `make` refuses is that `InvalidSchedule` in the results and sinks nothing else; ``finish`` makes the
    result that the caller sees. While a round is on its way, the next one is built and the last one's answers are read.
    """
    results: list[Any] = []
    waiting: dict[int, list[tuple[int, Item[T]]]] = {}
    unread: list[tuple[list[tuple[int, Item[T]]], Callable[[], list[Any]]]] = []
    source = iter(things)
    window = MAX_ITEMS * scope.namespace.partitions
    failure: Exception | None = None

    def build() -> None:
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

    def read() -> None:
        """Reads the answers that have come; what a script had no room for goes first into the next round."""
        for batch, answers in unread:
            again = []
            for pair, result in zip(batch, answers(), strict=True):
                if isinstance(result, Later):
                    again.append(pair)
                elif finish is None or isinstance(result, TimerqError):
                    results[pair[0]] = result
                else:
                    results[pair[0]] = finish(result)
            if again:
                waiting.setdefault(again[0][1].partition, [])[:0] = again
        unread.clear()

    def meanwhile() -> None:
        read()
        build()

    build()
    while waiting:
        round_ = [next(batches(pairs)) for pairs in waiting.values()]
        for batch in round_:
            pairs = waiting[batch[0][1].partition]
            del pairs[: len(batch)]
            if not pairs:
                del waiting[batch[0][1].partition]
        commands = [_deferred(gather(scope, [item for _, item in batch], durable)) for batch in round_]
        commands[0].meanwhile = meanwhile
        answers = yield commands
        read()
        unread += zip(round_, [answer for answer, _ in answers], strict=True)
        if any(cut_short for _, cut_short in answers):
            read()
        build()
        if not waiting:
            read()
    if failure is not None:
        raise failure
    return results


def _deferred(command: Command[T]) -> Command[tuple[Callable[[], T], bool]]:
    """The same command, read in two steps: whether it was taken and cut short at once, its answers later."""
    later = command.read

    def read(reply: Reply) -> tuple[Callable[[], T], bool]:
        read_head(reply)
        return lambda: later(reply), b"\nLATER" in reply[0]

    deferred: Command[Any] = command  # the very command: what was reached is told to it
    deferred.read = read
    return deferred
