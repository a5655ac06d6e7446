"""lead, leave: who reads for an ordered group, and who stays in a group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from timerq import keys
from timerq.commands.command import Command, Namespace, Reply, command, read_lines
from timerq.commands.consume import group_place
from timerq.model import check_plain_name

GONE_MS = 86_400_000
"""A consumer that was not heard for longer, and holds nothing, is taken out of its group."""


@dataclass(frozen=True, slots=True)
class Lead:
    """Who reads a partition, as one consumer is told.

    ``epoch`` is that of its lease where it reads, else 0; another one's lease lasts for ``wait_ms`` yet (0: nobody
    reads). It shares the leads of all partitions with the others of ``count`` consumers, ``rank`` of which come before
    it by their names (0 of 0: there are enough without it).
    """

    epoch: int
    wait_ms: int
    count: int
    rank: int


def lead_partition(
    namespace: Namespace,
    partition: int,
    stream: str,
    group: str,
    consumer: str,
    lease_ms: int,
    what: Literal["take", "stay", "leave"] = "take",
) -> Command[Lead]:
    """Makes ``consumer`` the only reader of a partition for an ordered group, unless another one is.

    Asked again it lengthens the lease, the epoch stays. With ``stay`` it is only counted among those who share the
    leads, for ``lease_ms``, and gives up this one where it has it; with ``leave`` it is not counted any more either. A
    new epoch means that another one may have read meanwhile: begin with `receive`'s ``mine``. Leases run by the
    server's time.
    """
    tag, stream_bytes, group_bytes = group_place(namespace, partition, stream, group)

    def read(reply: Reply) -> Lead:
        word, number, *sharing = read_lines(reply)[1][0].split(" ")
        count, rank = (int(each) for each in sharing or (0, 0))
        return Lead(int(number), 0, count, rank) if word == "LEADS" else Lead(0, int(number), count, rank)

    return command(
        "lead",
        namespace,
        partition,
        read,
        own_keys={
            "reader": keys.reader(tag, stream_bytes, group_bytes),
            "sharers": keys.sharers(tag, stream_bytes, group_bytes),
        },
        own_args={
            "consumer": check_plain_name("consumer", consumer),
            "what": what,
            "lease_ms": lease_ms,
        },
    )


def leave(namespace: Namespace, partition: int, stream: str, group: str, consumer: str) -> Command[int]:
    """Takes a consumer that stops out of its group, and those unheard for a day, unless they hold something; how many.

    Redis keeps each name that ever read, and every process has a new one.
    """
    tag, stream_bytes, group_bytes = group_place(namespace, partition, stream, group)
    return command(
        "leave",
        namespace,
        partition,
        lambda reply: int(read_lines(reply)[1][0].split(" ")[1]),
        own_keys={"stream": keys.stream(tag, stream_bytes)},
        own_args={
            "group": group_bytes,
            "consumer": check_plain_name("consumer", consumer),
            "idle_ms": GONE_MS,
        },
    )
