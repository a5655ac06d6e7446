"""lead, leave: who reads for an ordered group, and who stays in a group."""

from __future__ import annotations

from timerq import keys
from timerq.commands.command import Command, Namespace, Reply, command, read_lines
from timerq.commands.consume import group_place
from timerq.model import check_plain_name

GONE_MS = 86_400_000
"""A consumer that was not heard for longer, and holds nothing, is taken out of its group."""


def lead_partition(
    namespace: Namespace, partition: int, stream: str, group: str, consumer: str, lease_ms: int
) -> Command[int]:
    """Makes ``consumer`` the only reader of a partition for an ordered group; reads as the epoch, 0: another one is.

    Asked again it lengthens the lease, the epoch stays; ``lease_ms`` 0 gives it up. A new epoch means that another one
    may have read meanwhile: begin with `receive`'s ``mine``. The lease runs by the server's time.
    """
    tag, stream_bytes, group_bytes = group_place(namespace, partition, stream, group)

    def read(reply: Reply) -> int:
        word, number = read_lines(reply)[1][0].split(" ")
        return int(number) if word == "LEADS" else 0

    return command(
        "lead",
        namespace,
        partition,
        read,
        own_keys={"reader": keys.reader(tag, stream_bytes, group_bytes)},
        own_args={"consumer": check_plain_name("consumer", consumer), "lease_ms": lease_ms},
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
