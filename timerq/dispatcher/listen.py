"""Hears that an earlier schedule has come: an XREAD that stands open on the wake streams.

It reads from the last id seen, never from ``$``, so nothing that comes between two reads is missed; and every reader of
a stream is told, so a stopped process cannot swallow the signal.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Sequence

from timerq import keys
from timerq.commands.command import Namespace
from timerq.commands.entries import read_entries
from timerq.dispatcher.decide import backoff_s
from timerq.dispatcher.health import Health
from timerq.dispatcher.partition import PartitionLoop
from timerq.topology import Connections

BLOCK_MS = 10_000
"""How long a read stands open; the connection's own time-out is longer."""

SOCKET_TIMEOUT_S = BLOCK_MS / 1000 + 5

logger = logging.getLogger("timerq.dispatcher")


class Listener(threading.Thread):
    """Listens for some partitions that one connection can read: all of them, on a Cluster one."""

    def __init__(
        self,
        connections: Connections,
        namespace: Namespace,
        partitions: Sequence[int],
        loops: Sequence[PartitionLoop],
        health: Health,
    ) -> None:
        super().__init__(name=f"timerq-listen-{partitions[0]}", daemon=True)
        self._connections = connections
        self._loops = {keys.wake(namespace.tags[partition]): loops[partition] for partition in partitions}
        self._seen = dict.fromkeys(self._loops, b"0-0")
        self._health = health
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Ends the thread once its connections are closed, which ends its read."""
        self._stopping.set()

    def run(self) -> None:
        """The loop; only `stop` ends it."""
        failures = 0
        while not self._stopping.is_set():
            try:
                # after a fault the first read does not wait: whether it works is to be known at once
                self._read(None if failures else BLOCK_MS)
            except Exception as error:
                if self._stopping.is_set():
                    return
                failures += 1
                if failures > 1:  # a single read that is cut short is nobody's trouble
                    self._health.failed(self.name, error)
                self._connections.forget_after(error)
                self._stopping.wait(backoff_s(failures, random.random()))
            else:
                failures = 0
                self._health.works(self.name)

    def _read(self, block_ms: int | None) -> None:
        _, client = self._connections.node_of(next(iter(self._seen)))
        for stream, entries in read_entries(client.xread(self._seen, block=block_ms)):
            for entry, fields in entries:
                self._seen[stream] = entry
                self._loops[stream].woken(int(float(fields[b"at"])), int(fields[b"now_us"]))
