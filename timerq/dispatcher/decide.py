"""When to look, how much to take, and who comes first. Pure: time comes in as an argument.

Two clocks meet here. Due is a matter of the server's clock; a sleep is one of this process's monotonic clock. Each
reply tells both, so `Clocks` knows how to turn one into the other.
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

ASK_LATER_US = 20
LATE_WAKE_US = 200
"""A sleep ends so late at the least, or less."""

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
    """When to ask, so that the script runs at an instant of the server's clock (epoch µs) and hardly later.

    ``ahead_us`` is how far the server's clock, read by the script, is ahead of the instant for which the question was
    planned on this process's clock (monotonic µs): the clocks' difference, a late wake-up and the way there, each as
    small as it gets. ``quickest_us`` is what the way there and back takes at least. Both are let grow a little with
    each answer, for ways change.
    """

    ahead_us: int = 0
    quickest_us: int | None = None

    def learn(self, server_us: int, sent_us: int, received_us: int, planned_us: int | None = None) -> None:
        """The script read ``server_us`` when asked at ``sent_us``; its answer was here at ``received_us``.

        ``planned_us`` is for when the sleep was set that ended in this question; None where it ended otherwise.

        An answer bounds what is sought: it is no more than this question needed, and no less than the difference of the
        clocks would be, had the answer taken no time. So one that was slow, wherever it stood still, tells little and
        spoils nothing; and a clock that stepped is believed at once.
        """
        took_us = received_us - sent_us
        if self.quickest_us is None:
            self.quickest_us, self.ahead_us = took_us, server_us - sent_us
            return
        self.quickest_us = min(took_us, self.quickest_us + self.quickest_us // 16 + 1)
        needed_us = server_us - sent_us + LATE_WAKE_US if planned_us is None else server_us - planned_us
        self.ahead_us = max(server_us - received_us, min(needed_us, self.ahead_us + 1))

    def ask_at(self, server_us: int) -> int:
        """The monotonic time to plan a question for; by a margin too late, since one that comes too early is lost."""
        return server_us - self.ahead_us + ASK_LATER_US


@dataclass(slots=True)
class Watch:
    """What a partition's loop knows: its rank and the earliest pending instant (server µs; None: nothing pending).

    ``heard_us`` is the last wake signal's head, ``heard_at_us`` when the server gave it.
    """

    rank: int = 0
    head_us: int | None = None
    heard_us: int = 0
    heard_at_us: int = 0

    @property
    def lag_ms(self) -> int:
        """What it leaves to the ranks before it."""
        return self.rank * RANK_STEP_MS

    def looked(self, now_us: int, wait_us: int | None, lag_ms: int) -> None:
        """A reply: how long to wait from the script's ``now_us``, the ``lag_ms`` that it was asked with included.

        A wake signal may overtake it on its way here; then the reply is the older of the two, and does not know better.
        """
        self.head_us = None if wait_us is None else now_us + wait_us - lag_ms * 1000
        if self.heard_at_us >= now_us and (self.head_us is None or self.heard_us < self.head_us):
            self.head_us = self.heard_us

    def woken(self, head_us: int, now_us: int) -> bool:
        """A wake signal: at ``now_us`` (the server's) an earlier head has come. Whether that changes anything."""
        self.heard_us, self.heard_at_us = head_us, now_us
        if self.head_us is None or head_us < self.head_us:
            self.head_us = head_us
            return True
        return False

    def next_look_us(self, clocks: Clocks, last_look_us: int) -> int:
        """The monotonic time of the next look."""
        latest = last_look_us + (NEAR_LOOK_US if self.rank <= 1 else FAR_LOOK_US)
        if self.head_us is None:
            return latest
        return min(latest, clocks.ask_at(self.head_us + self.lag_ms * 1000))


def adapt_batch(batch: int, taken: int, took_us: int, largest: int) -> int:
    """The next batch: halved after a slow call, doubled after a fast one that was full.

    ``took_us`` is without the way there and back: a distant server is no busy one.
    """
    if took_us > SLOW_CALL_US:
        return min(batch, max(MIN_BATCH, batch // 2))
    if took_us < FAST_CALL_US and taken >= batch:
        return min(largest, batch * 2)
    return batch


def backoff_s(failures: int, luck: float) -> float:
    """How long to wait after so many failures in a row: doubled up to a cap, then a random half of it taken off.

    ``luck`` is a random number from 0 to 1. The jitter keeps many processes from returning at one instant.
    """
    full = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(failures - 1, 16))
    return full * (1 - luck / 2)
