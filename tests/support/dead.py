"""Dead letters without a consumer: a group that gives up whatever it is handed."""

from __future__ import annotations

from timerq.commands.command import Namespace, Steps
from timerq.commands.consume import Settlement, receive, settle


def give_up(
    namespace: Namespace, group: str, stream: str = "events", *, error: str = "ValueError: no such account"
) -> Steps[int]:
    """Reads all that the group has not seen, and gives it up at once; returns how much that was."""
    count = 0
    for partition in range(namespace.partitions):
        place = (namespace, partition, stream, group, "c1")
        while True:
            (received,) = yield [receive(*place, count=100, lease_ms=60_000)]
            if not received.deliveries:
                break
            items = [
                Settlement(raw.entry, raw.delivery, "reject", error=error, traceback=f"Traceback:\n  {error}")
                for raw in received.deliveries
            ]
            (words,) = yield [settle(*place, items)]
            assert set(words) == {"SETTLED"}
            count += len(items)
    return count
