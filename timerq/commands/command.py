"""What a verb hands to a client: commands to send and how to read their replies, without any I/O.

A verb is a generator (`Steps`): it yields lists of commands that may travel at once, is sent the list of their read
replies, and returns the verb's result. A client drives it and does nothing else, so the blocking and the asynchronous
one cannot drift apart.

Verbs on single schedules are made of items, which travel together: see `timerq.commands.items`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from timerq import keys
from timerq.codec import DEFAULT_LIMIT_BYTES
from timerq.errors import ContractBroken, NamespaceMismatch, QueueUnavailable
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
    payload_limit: int = DEFAULT_LIMIT_BYTES


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

    def call(self, verb: Literal["EVALSHA", "EVAL"]) -> list[Word]:
        """The whole of what is sent. No word of it is a number.

        hiredis 3 writes a number by a function that runs signal handlers, and takes no notice when one raises: a
        Ctrl-C at that instant would end the process with a segmentation fault.
        """
        words, script = self.words, self.script
        count = words[0]
        assert isinstance(count, int)
        first = count + 1
        last = first + len(script.args)
        return [
            *(verb, script.sha if verb == "EVALSHA" else script.text, str(count)),
            *words[1:first],
            *[str(word) if type(word) is int else word for word in words[first:last]],
            *words[last:],  # what items add is text already
        ]


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
    "groups": keys.groups,
    "floors": keys.floors,
    "fired_new": keys.fired_new,
    "fired": keys.fired,
    "fired_before": keys.fired_before,
    "oldest": keys.oldest,
    "never": keys.never,
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
