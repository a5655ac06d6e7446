"""receive, settle, once: what a consumer of a group says to Redis.

An event is handed to one consumer at a time, with a **delivery**: a number that grows each time. Who holds it is told
by the hold of that entry alone, so what a consumer says of a delivery that has gone to another one changes nothing
(``NOT_HELD``). How long it holds it is told by a lease, which `settle` lengthens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from timerq import keys
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
from timerq.errors import InvalidSchedule, QueueUnavailable
from timerq.lua import Word
from timerq.model import check_plain_name, check_text

FROM_START = b"0-0"
"""Before every entry of a stream."""

MAX_TRACEBACK = 16_384
MAX_ERROR = 1_000
MAX_OUTCOME = 200
"""Bytes that are kept of the texts of a settlement; the end of a traceback, the beginning of the others."""


@dataclass(slots=True)
class RawDelivery:
    """An event as it was handed out: ``entry`` is its place in the stream, ``delivery`` fences what is said of it.

    ``attempt`` counts the handlings begun, this one included, from 1; one that was handed back before it began is not
    counted. ``waits_until_ms`` (epoch ms) is 0, but for what the reader of an ordered group is only told: it waits
    until then to be tried again, nobody holds it, and its lane stands still. ``counts`` is False where it was taken
    over from a consumer that may not have begun it: ``attempt`` counts once `settle` is told ``begin``. Its consumer
    notes in ``fresh_until_s`` (monotonic) until when it need not be asked again whether it is to be handled.
    """

    entry: bytes
    delivery: int
    attempt: int
    waits_until_ms: int
    fields: dict[bytes, bytes]
    counts: bool = True
    fresh_until_s: float = math.inf

    @property
    def bytes(self) -> int:
        """What the entry weighs."""
        return sum(len(name) + len(value) for name, value in self.fields.items())


@dataclass(slots=True)
class Received:
    """What one call of `receive` brought.

    ``stale`` events were acknowledged unseen, because they had been cancelled, or their owner had gone (or, where that
    was asked for, their schedule had changed); ``gone`` ones were trimmed from the stream before they were handled.
    ``wait_us`` is how long until something may be had without a new event: a retry, or a lease that runs out (0: ask
    again at once; None: never). ``end`` is the stream's last entry, where all is read (else None): what to listen
    behind. ``more`` is where the next page begins (None: there is none). ``leads`` is False where another one reads for
    the ordered group: nothing was handed out. ``again``: this request had been answered before, and the answer was
    lost: what it handed out is held by this consumer, and a page of what it holds tells it. ``cleared``: entries that
    the reader of an ordered group need not wait for any more, stale and gone ones among them; ``void``: nor for any
    other that it was told of before, because the stream or the group had gone and the group begins anew.
    """

    now_us: int
    deliveries: list[RawDelivery]
    stale: int = 0
    gone: int = 0
    wait_us: int | None = None
    leads: bool = True
    end: bytes | None = None
    more: bytes | None = None
    again: bool = False
    cleared: tuple[bytes, ...] = ()
    void: bool = False


def receive(
    namespace: Namespace,
    partition: int,
    stream: str,
    group: str,
    consumer: str,
    *,
    count: int,
    lease_ms: int,
    mine: bool = False,
    after: bytes = FROM_START,
    epoch: int | None = None,
    drop_superseded: bool = False,
    fresh: bool = True,
) -> Command[Received]:
    """Hands out up to ``count`` events for ``lease_ms``: due for another try, with a lease that ran out, new ones.

    Makes the group where there is none, from the oldest entry on. With ``mine`` nothing new: it tells, page by page
    (``after``, from `Received.more`), what this consumer holds already, deliveries and attempts as they are, and
    lengthens these leases: what to ask first after a fault of the connection. With ``epoch``, of a lease by
    `lead_partition`, it is the reader of an ordered group: only then is anything handed out, and ``mine`` takes all
    that is pending, whoever held it, and tells of what waits. ``count`` is 1 to 200; a call also ends at 256 KiB.
    Without ``fresh`` no new events are read (`Received.end` is None), only what is due for another try or taken over.

    Raises `InvalidSchedule` for bad names and numbers.
    """
    tag, stream_bytes, group_bytes = group_place(namespace, partition, stream, group)
    check_plain_name("consumer", consumer)
    if not 1 <= count <= MAX_ITEMS:
        raise InvalidSchedule("count", count, f"want a number from 1 to {MAX_ITEMS}")
    if lease_ms < 1:
        raise InvalidSchedule("lease_ms", lease_ms, "want milliseconds above 0")
    return command(
        "receive",
        namespace,
        partition,
        read_received,
        own_keys={
            "stream": keys.stream(tag, stream_bytes),
            "lease": keys.lease(tag, stream_bytes, group_bytes),
            "retry": keys.retry(tag, stream_bytes, group_bytes),
            "hold": keys.hold(tag, stream_bytes, group_bytes),
            "reader": keys.reader(tag, stream_bytes, group_bytes),
        },
        own_args={
            "name": stream_bytes,
            "group": group_bytes,
            "consumer": consumer,
            "epoch": "" if epoch is None else epoch,
            "count": count,
            "lease_ms": lease_ms,
            "after": after if mine else b"",
            "current": int(drop_superseded),
            "fresh": int(fresh),
        },
    )


def read_received(reply: Reply) -> Received:
    """Reads a reply of receive.lua; raises `QueueUnavailable` where the stream is none."""
    now_us = read_head(reply)
    _, first, *lines = reply[0].split(b"\n")
    word, _, rest = first.decode().partition(" ")
    if word == "NOT_LEADING":
        return Received(now_us, [], leads=False)
    if word == "AGAIN":
        return Received(now_us, [], wait_us=0, again=True)
    if word == "BROKEN":
        raise QueueUnavailable(f"Redis refused: {rest}")
    stale, gone, wait_us, more, end, *cleared = rest.split(" ")
    deliveries = []
    # the fields are arrays of their own behind the text
    for line, flat in zip(lines, cast("list[list[bytes]]", reply[1:]), strict=True):
        _, entry, delivery, attempt, waits_ms = line.split(b" ")
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        deliveries.append(
            RawDelivery(entry, int(delivery), int(attempt), int(waits_ms), fields, attempt[:1] != b"0")
        )
    return Received(
        now_us,
        deliveries,
        int(stale),
        int(gone),
        None if wait_us == "-" else int(wait_us),
        end=None if end == "-" else end.encode(),
        more=None if more == "-" else more.encode(),
        cleared=tuple(entry.encode() for entry in cleared if entry != "*"),
        void="*" in cleared,
    )


@dataclass(slots=True)
class Settlement:
    """What became of one delivery.

    ``ack``: it is handled; ``outcome`` (a text) is kept with the last fires of its schedule.
    ``retry``: it failed, with ``error``, and is tried again at ``at_ms`` (epoch ms).
    ``reject``: it is given up: a dead letter with ``error``, ``traceback`` and what came before. Where it was not
    ``begun`` now, this attempt is none. ``copied_bytes`` is what the entry weighs, which is copied: so that whoever
    sends several does not send too many at once.
    ``extend``: it is held for ``lease_ms`` from now.
    ``begin``: its handling begins, which an attempt that does not count yet needs to count; one that was cancelled, or
    whose owner has gone, since it was handed out is not to be handled, and acknowledged (``STALE``).
    ``back``: it was not begun (no attempt is counted): the next one who asks gets it, from ``at_ms`` on (0: at once).
    """

    entry: bytes
    delivery: int
    verb: Literal["ack", "retry", "reject", "extend", "begin", "back"]
    at_ms: int = 0
    lease_ms: int = 0
    error: str = ""
    traceback: str = ""
    outcome: str = ""
    begun: bool = True
    copied_bytes: int = 0


def settle(
    namespace: Namespace,
    partition: int,
    stream: str,
    group: str,
    consumer: str,
    items: Sequence[Settlement],
) -> Command[list[str]]:
    """Says what became of up to 200 deliveries of one consumer; a status each, in order.

    ``SETTLED``; ``NOT_HELD``: another one has it, or it was settled before, and nothing was changed; ``STALE``: of a
    ``begin``, it was cancelled, or its owner has gone, since it was handed out: it is acknowledged and counted as
    stale, and must not be handled; ``BROKEN reason``: Redis refused, and it is still held. Raises `InvalidSchedule`
    for more items or bad names.
    """
    tag, stream_bytes, group_bytes = group_place(namespace, partition, stream, group)
    check_plain_name("consumer", consumer)
    if len(items) > MAX_ITEMS:
        raise InvalidSchedule("items", len(items), f"want {MAX_ITEMS} at the most")
    item_args: list[Word] = []
    for item in items:
        verb = item.verb
        if verb == "ack":
            if item.outcome:
                item_args += (f"o{item.delivery}", item.entry, _text(item.outcome, MAX_OUTCOME))
            else:
                item_args += (f"a{item.delivery}", item.entry)
        elif verb == "retry":
            item_args += (f"t{item.delivery}", item.entry, str(item.at_ms), _text(item.error, MAX_ERROR))
        elif verb == "reject":
            item_args += (
                *(f"{'r' if item.begun else 'u'}{item.delivery}", item.entry, _text(item.error, MAX_ERROR)),
                item.traceback.encode("utf-8", "replace")[-MAX_TRACEBACK:],
                _text(item.outcome, MAX_OUTCOME),
            )
        elif verb == "extend":
            item_args += (f"e{item.delivery}", item.entry, str(item.lease_ms))
        elif verb == "begin":
            item_args += (f"s{item.delivery}", item.entry)
        else:
            item_args += (f"b{item.delivery}", item.entry, str(item.at_ms))
    return command(
        "settle",
        namespace,
        partition,
        lambda reply: read_lines(reply)[1],
        own_keys={
            "stream": keys.stream(tag, stream_bytes),
            "lease": keys.lease(tag, stream_bytes, group_bytes),
            "retry": keys.retry(tag, stream_bytes, group_bytes),
            "hold": keys.hold(tag, stream_bytes, group_bytes),
            "dead": keys.dead(tag, stream_bytes, group_bytes),
        },
        own_args={"group": group_bytes, "consumer": consumer},
        item_args=item_args,
    )


def once(scope: Scope, token: str, window_ms: int) -> Steps[bool]:
    """True for the first to ask with this token within ``window_ms``; raises `InvalidSchedule` for bad ones.

    The marker comes before the effect: who crashes between the two has marked what did not happen.
    """
    token_bytes = check_text("token", token)
    if window_ms < 1:
        raise InvalidSchedule("window_ms", window_ms, "want milliseconds above 0")
    partition = scope.namespace.partition_of(scope.tenant_bytes, token_bytes)
    (first,) = yield [
        command(
            "once",
            scope.namespace,
            partition,
            lambda reply: read_lines(reply)[1] == ["FIRST"],
            own_keys={"mark": keys.mark(scope.namespace.tags[partition], scope.tenant_bytes, token_bytes)},
            own_args={"window_ms": window_ms},
        )
    ]
    return bool(first)


def group_place(namespace: Namespace, partition: int, stream: str, group: str) -> tuple[bytes, bytes, bytes]:
    """The partition's tag, the stream's and the group's bytes; raises `InvalidSchedule` for a bad name."""
    return (
        namespace.tags[partition],
        check_plain_name("stream", stream).encode(),
        check_plain_name("group", group).encode(),
    )


def _text(text: str, most: int) -> bytes:
    return text.replace("\0", "\ufffd").encode("utf-8", "replace")[:most]
