"""The occurrences of a recurring `Timing`: slots of a calendar or a grid, with jitter, inside a window.

A *slot* is an instant that the rule names; the *occurrence* is when it is due, which jitter may put off, never to or
past the next slot. All instants are epoch milliseconds, from 1970 to the end of 9999.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal, Protocol

from timerq.model import Timing
from timerq.timing.calendar import calendar_of
from timerq.timing.instants import MAX_INSTANT_MS


class Slots(Protocol):
    """What a `timerq.timing.calendar.Calendar` and a `Grid` have in common."""

    def next_ms(self, after_ms: int) -> int | None:
        """The first slot later than ``after_ms``; None: there is none up to the end of 9999."""
        ...

    def prev_ms(self, at_or_before_ms: int) -> int | None:
        """The last slot not later than ``at_or_before_ms``; None: there is none from 1970 on."""
        ...

    def count(self, after_ms: int, until_ms: int) -> int:
        """How many slots are later than ``after_ms`` and not later than ``until_ms``."""
        ...

    def explain(self, at_ms: int) -> Literal["shifted", "repeated"] | None:
        """What a clock change has to do with a slot."""
        ...


class Grid:
    """The instants ``anchor_ms + k * every_ms`` for all whole k, from 1970 to the end of 9999."""

    __slots__ = ("_every_ms", "_phase_ms")

    def __init__(self, every_ms: int, anchor_ms: int = 0) -> None:
        self._every_ms = every_ms
        self._phase_ms = anchor_ms % every_ms

    def next_ms(self, after_ms: int) -> int | None:
        """The first instant later than ``after_ms``; None: there is none up to the end of 9999."""
        next_ms = max(
            after_ms + self._every_ms - (after_ms - self._phase_ms) % self._every_ms, self._phase_ms
        )
        return next_ms if next_ms <= MAX_INSTANT_MS else None

    def prev_ms(self, at_or_before_ms: int) -> int | None:
        """The last instant not later than ``at_or_before_ms``; None: there is none from 1970 on."""
        at_ms = min(at_or_before_ms, MAX_INSTANT_MS)
        prev_ms = at_ms - (at_ms - self._phase_ms) % self._every_ms
        return prev_ms if prev_ms >= 0 else None

    def count(self, after_ms: int, until_ms: int) -> int:
        """How many instants are later than ``after_ms`` and not later than ``until_ms``."""
        after_ms, until_ms = max(after_ms, -1), min(until_ms, MAX_INSTANT_MS)
        if until_ms <= after_ms:
            return 0
        return (until_ms - self._phase_ms) // self._every_ms - (after_ms - self._phase_ms) // self._every_ms

    def explain(self, at_ms: int) -> None:
        """Nothing: a grid knows no clock changes."""
        return None


class Occurrences:
    """When a recurring schedule is due: later than one instant, before another, how many between two.

    ``timing`` is of kind "cron", or "every" with a grid: ``rule.anchor_ms``, else ``start_ms``, else 1970, and
    multiples of ``every_ms`` from there. What was not meant to be exists for none of the methods: slots before
    ``start_ms`` and occurrences after ``until_ms``. (``limit`` and ``initial_delay_ms`` are not looked at; they need to
    know what has been.)

    The jitter of a slot is made from ``seed`` (the schedule's id) and the slot alone, so that every preview and every
    dispatcher finds the same. Raises `InvalidSchedule` for a rule that cannot be read.
    """

    __slots__ = ("_hash", "_jitter_ms", "_start_ms", "_until_ms", "slots")

    def __init__(self, timing: Timing, seed: bytes = b"") -> None:
        rule = timing.rule
        self.slots: Slots
        if timing.kind == "cron" and rule is not None:
            self.slots = calendar_of(rule)
        elif timing.kind == "every" and timing.every_ms is not None:
            anchor_ms = timing.start_ms if rule is None or rule.anchor_ms is None else rule.anchor_ms
            self.slots = Grid(timing.every_ms, anchor_ms or 0)
        else:
            raise ValueError(f"no recurring timing: {timing}")
        self._jitter_ms = 0 if rule is None else rule.jitter_ms
        self._start_ms = 0 if timing.start_ms is None else timing.start_ms
        self._until_ms = MAX_INSTANT_MS if timing.until_ms is None else timing.until_ms
        self._hash = blake2b(seed, digest_size=8)

    def next_ms(self, after_ms: int) -> int | None:
        """The first occurrence later than ``after_ms``, or None."""
        if self._jitter_ms:
            slot_ms = self.slots.prev_ms(after_ms)
            if slot_ms is not None and slot_ms >= self._start_ms:
                due_ms = self._due_ms(slot_ms)
                if due_ms > after_ms:  # its slot has passed, but it was put off
                    return due_ms if due_ms <= self._until_ms else None
        slot_ms = self.slots.next_ms(max(after_ms, self._start_ms - 1))
        if slot_ms is None or slot_ms > self._until_ms:
            return None
        due_ms = self._due_ms(slot_ms)
        return due_ms if due_ms <= self._until_ms else None

    def prev_ms(self, at_or_before_ms: int) -> int | None:
        """The last occurrence not later than ``at_or_before_ms``, or None."""
        at_ms = min(at_or_before_ms, self._until_ms)
        slot_ms = self.slots.prev_ms(at_ms)
        if slot_ms is not None and self._due_ms(slot_ms) > at_ms:
            slot_ms = self.slots.prev_ms(slot_ms - 1)
        return None if slot_ms is None or slot_ms < self._start_ms else self._due_ms(slot_ms)

    def count(self, after_ms: int, until_ms: int) -> int:
        """How many occurrences are later than ``after_ms`` and not later than ``until_ms``."""
        after_ms, until_ms = max(after_ms, self._start_ms - 1), min(until_ms, self._until_ms)
        if until_ms <= after_ms:
            return 0
        return self.slots.count(after_ms, until_ms) + self._put_off(after_ms) - self._put_off(until_ms)

    def slot_ms(self, at_ms: int) -> int | None:
        """The slot of the occurrence at ``at_ms``, which differs from it by the jitter."""
        return self.slots.prev_ms(at_ms)

    def explain(self, at_ms: int) -> Literal["shifted", "repeated"] | None:
        """What a clock change has to do with the occurrence at ``at_ms``; see `Calendar.explain`."""
        slot_ms = self.slots.prev_ms(at_ms)
        return None if slot_ms is None else self.slots.explain(slot_ms)

    def shortest_gap_ms(self, after_ms: int, n: int = 32) -> int | None:
        """The shortest time (ms) between two neighbours of the next ``n`` slots later than ``after_ms``, and later than
        the start; None where there are fewer than two."""
        slot_ms = self.slots.next_ms(max(after_ms, self._start_ms - 1))
        shortest_ms: int | None = None
        for _ in range(n - 1):
            if slot_ms is None or (next_ms := self.slots.next_ms(slot_ms)) is None:
                break
            gap_ms, slot_ms = next_ms - slot_ms, next_ms
            shortest_ms = gap_ms if shortest_ms is None else min(gap_ms, shortest_ms)
        return shortest_ms

    def _due_ms(self, slot_ms: int) -> int:
        """The slot and its jitter."""
        if not self._jitter_ms:
            return slot_ms
        next_ms = self.slots.next_ms(slot_ms)
        last_ms = MAX_INSTANT_MS if next_ms is None else next_ms - 1
        most_ms = min(self._jitter_ms, last_ms - slot_ms)
        digest = self._hash.copy()
        digest.update(slot_ms.to_bytes(8, "big"))
        return slot_ms + int.from_bytes(digest.digest(), "big") % (most_ms + 1)

    def _put_off(self, at_ms: int) -> int:
        """1 where the last slot not later than ``at_ms`` is due after it, else 0."""
        if not self._jitter_ms:
            return 0
        slot_ms = self.slots.prev_ms(at_ms)
        return int(slot_ms is not None and slot_ms >= self._start_ms and self._due_ms(slot_ms) > at_ms)
