"""Verbs on single schedules, one or many at a time: items that travel together, and how their answers are read.

Items of one partition, script and tenant are gathered into one command, however they came together: one call with many
of them, or many tasks with one each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from timerq import keys
from timerq.commands.command import (
    MAX_BYTES,
    MAX_ITEMS,
    Command,
    Durability,
    Reply,
    Scope,
    Steps,
    command,
    read_head,
    read_lines,
)
from timerq.errors import ContractBroken, InvalidSchedule, QueueUnavailable, TimerqError
from timerq.lua import Word

T = TypeVar("T")
R = TypeVar("R")

FIRST_ITEMS = 25
"""How many items of `many` go first: a small piece, so that Redis has work while the next one is built."""


class Item(Generic[T]):
    """One schedule's part of a command: ``read`` makes its result of its line's words and what stands behind them.

    ``size`` bounds its bytes; ``position`` is its place in the results of `many`. There are 200,000 a second of them
    in a bulk load, all alive while their command is on its way, so it is small and holds no lists (which the garbage
    collector would visit again and again).
    """

    __slots__ = ("args", "keys", "partition", "position", "read", "script", "size")

    def __init__(
        self,
        script: str,
        partition: int,
        keys: tuple[Word, ...],
        args: tuple[Word, ...],
        size: int,
        read: Callable[[list[str], Iterator[bytes], str], T],
    ) -> None:
        self.script = script
        self.partition = partition
        self.keys = keys
        self.args = args
        self.size = size
        self.read = read
        self.position = 0


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


def batches(items: Iterable[Item[T]]) -> Iterator[list[Item[T]]]:
    """Pieces that fit one script each, in order."""
    batch: list[Item[T]] = []
    size = 0
    for item in items:
        if batch and (len(batch) == MAX_ITEMS or size + item.size > MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += item.size
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
    waiting: dict[int, list[Item[T]]] = {}
    unread: list[tuple[list[Item[T]], Callable[[], list[Any]]]] = []
    source = iter(things)
    window = FIRST_ITEMS * scope.namespace.partitions
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
            item.position = len(results)
            waiting.setdefault(item.partition, []).append(item)
            results.append(None)
            left -= 1

    def read() -> None:
        """Reads the answers that have come; what a script had no room for goes first into the next round."""
        for batch, answers in unread:
            again = []
            for item, result in zip(batch, answers(), strict=True):
                if isinstance(result, Later):
                    again.append(item)
                elif finish is None or isinstance(result, TimerqError):
                    results[item.position] = result
                else:
                    results[item.position] = finish(result)
            if again:
                waiting.setdefault(again[0].partition, [])[:0] = again
        unread.clear()

    def meanwhile() -> None:
        read()
        build()

    build()
    while waiting:
        round_ = [next(batches(items)) for items in waiting.values()]
        for batch in round_:
            items = waiting[batch[0].partition]
            del items[: len(batch)]
            if not items:
                del waiting[batch[0].partition]
        commands = [_deferred(gather(scope, batch, durable)) for batch in round_]
        commands[0].meanwhile = meanwhile
        window = MAX_ITEMS * scope.namespace.partitions
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
