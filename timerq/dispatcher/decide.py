"""When to look, how much to take, and who comes first. Pure: time comes in as an argument.

Two clocks meet here. Due is a matter of the server's clock; a sleep is one of this process's monotonic clock. Each
reply tells both, so `Clocks` knows how to turn one into the other, as of the last reply.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

RANK_STEP_MS = 100
"""A dispatcher of rank r leaves alone what is overdue by less than r times this."""

NEAR_LOOK_US = 1_000_000
FAR_LOOK_US = 5_000_000
"""Ranks 0 and 1 look once a second whatever they know, the others every five seconds: for clocks that step, machines
that were suspended, and wake signals that a one-way cut swallowed."""

MIN_BATCH = 10
SLOW_CALL_US = 8_000
FAST_CALL_US = 4_000

BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 2.0


def rank(dispatchers: Sequence[str], name: str, partition: int) -> int:
    """The place of ``name`` among the live dispatchers for a partition: rendezvous hashing (Thaler and Ravishankar).

    Every dispatcher computes the same order from the same list, and one that comes or goes moves only its own share. A
    name that is not in the list comes last.
    """

    def weight(dispatcher: str) -> bytes:
        return hashlib.blake2b(f"{partition}\0{dispatcher}".encode(), digest_size=8).digest()

    mine = (weight(name), name)
    return (
        sum((weight(other), other) > mine for other in dispatchers if other != name)
        if name in dispatchers
        else len(dispatchers)
    )


@dataclass(slots=True)
class Clocks:
    """The server's time (epoch µs) as of this process's monotonic time (µs), from the last round trip."""

    offset_us: int = 0

    def learn(self, server_us: int, sent_us: int, received_us: int) -> None:
        """The server answered ``server_us`` to what left at ``sent_us`` and came back at ``received_us``."""
        self.offset_us = server_us - (sent_us + received_us) // 2

    def to_monotonic(self, server_us: int) -> int:
        """When this process's clock shows it."""
        return server_us - self.offset_us


@dataclass(slots=True)
class Watch:
    """What a partition's loop knows: its rank and the earliest pending instant (server µs; None: nothing pending)."""

    rank: int = 0
    head_us: int | None = None

    @property
    def lag_ms(self) -> int:
        """What it leaves to the ranks before it."""
        return self.rank * RANK_STEP_MS

    def looked(self, now_us: int, wait_us: int | None) -> None:
        """A reply: the script says how long to wait from its ``now_us``, the rank's lag included."""
        self.head_us = None if wait_us is None else now_us + wait_us - self.lag_ms * 1000

    def woken(self, head_us: int) -> bool:
        """A wake signal: an earlier head has come. Whether that changes anything."""
        if self.head_us is None or head_us < self.head_us:
            self.head_us = head_us
            return True
        return False

    def next_look_us(self, clocks: Clocks, last_look_us: int) -> int:
        """The monotonic time of the next look."""
        latest = last_look_us + (NEAR_LOOK_US if self.rank <= 1 else FAR_LOOK_US)
        if self.head_us is None:
            return latest
        return min(latest, clocks.to_monotonic(self.head_us + self.lag_ms * 1000))


def adapt_batch(batch: int, taken: int, took_us: int, largest: int) -> int:
    """The next batch: halved after a slow call, doubled after a fast one that was full."""
    if took_us > SLOW_CALL_US:
        return max(MIN_BATCH, batch // 2)
    if took_us < FAST_CALL_US and taken >= batch:
        return min(largest, batch * 2)
    return batch


def backoff_s(failures: int, luck: float) -> float:
    """How long to wait after so many failures in a row: doubled up to a cap, then a random half of it taken off.

    ``luck`` is a random number from 0 to 1. The jitter keeps many processes from returning at one instant.
    """
    full = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(failures - 1, 16))
    return full * (1 - luck / 2)
