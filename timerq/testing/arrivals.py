"""The events on all streams of a namespace, as far as they have come."""

from __future__ import annotations

import heapq
import time
from typing import Any

from timerq import keys
from timerq.commands.command import Namespace
from timerq.commands.entries import read_entries
from timerq.exchange import unavailable
from timerq.tail import Published, Unreadable, read_event
from timerq.topology import REDIS_FAULTS, Connections


class Arrivals:
    """Reads the streams of every partition without a group, and remembers where it stands."""

    def __init__(self, connections: Connections, namespace: Namespace) -> None:
        self._connections = connections
        self._namespace = namespace
        self._after: dict[bytes, bytes] = {}
        self.unreadable: list[Unreadable] = []
        """What lay on a stream and is no event."""

    def read(self) -> list[Published]:
        """What has come since the last call, in the order of publication: by instant, then by partition.

        Events of one stream of one partition are never given in another order than theirs. Raises `QueueUnavailable`.
        """
        try:
            found = [
                self._read_stream(partition, name, entries)
                for partition, tag in enumerate(self._namespace.tags)
                for name, entries in self._entries(tag)
            ]
        except REDIS_FAULTS as error:
            raise unavailable(error) from error
        return list(heapq.merge(*found, key=_place))

    def _entries(self, tag: bytes) -> list[tuple[bytes, list[Any]]]:
        """The new entries of a partition's streams, with the streams' names."""
        client = self._connections.open()
        names: list[bytes] = client.zrange(keys.streams(tag), 0, -1)
        after = {keys.stream(tag, name): self._after.get(keys.stream(tag, name), b"0-0") for name in names}
        if not after:
            return []
        skip = len(keys.stream(tag, b""))
        found = []
        for key, entries in read_entries(client.xread(after)):
            if entries:
                self._after[key] = entries[-1][0]
                found.append((key[skip:], entries))
        return found

    def _read_stream(self, partition: int, name: bytes, entries: list[Any]) -> list[Published]:
        read_us = time.time_ns() // 1000
        events = []
        for entry, fields in entries:
            event = read_event(partition, entry, fields, read_us, name.decode())
            if isinstance(event, Published):
                events.append(event)
            else:
                self.unreadable.append(event)
        return events


def _place(event: Published) -> tuple[int, int, int, int, str]:
    made, _, number = event.entry.partition("-")
    return event.fired_ms, event.partition, int(made), int(number), event.stream
