"""What the events of a recurring schedule stand for, beside what its calendar says."""

from __future__ import annotations

from collections.abc import Iterable

from timerq import Schedule
from timerq.keys import identity
from timerq.timing import occurrences_of
from timerq.timing.occurrences import Occurrences


def interval_after(at_ms: int, every_ms: int, now_ms: int) -> tuple[int, int]:
    """The slot to arm after the one at ``at_ms``, and how many slots between them were missed (all in ms).

    The grid is ``at_ms + k * every_ms``: fixed rate, a late fire does not move it. The next slot is the first that is
    later than both ``at_ms`` and ``now_ms``; missed are the slots later than ``at_ms`` that are not later than
    ``now_ms``.
    """
    missed = max(0, (now_ms - at_ms) // every_ms)
    return at_ms + (missed + 1) * every_ms, missed


def calendar(schedule: Schedule) -> Occurrences:
    """The occurrences of a stored schedule, as a preview has them."""
    id = identity(schedule.tenant.encode(), schedule.key.encode(), (schedule.owner or "").encode())
    return occurrences_of(schedule.timing, id, schedule.at_ms)


def previewed(calendar: Occurrences, first_ms: int, last_ms: int) -> list[int]:
    """Every occurrence from ``first_ms`` to ``last_ms``, both included, one after the other (epoch ms)."""
    found = []
    at_ms = calendar.next_ms(first_ms - 1)
    while at_ms is not None and at_ms <= last_ms:
        found.append(at_ms)
        at_ms = calendar.next_ms(at_ms)
    return found


def told(calendar: Occurrences, events: Iterable[tuple[int, int]]) -> list[int]:
    """The occurrences that events (`at` and `missed`) stand for: each one's own, and the missed ones behind it."""
    found = []
    for at_ms, missed in events:
        found.append(at_ms)
        for _ in range(missed):
            next_ms = calendar.next_ms(found[-1])
            assert next_ms is not None, f"{missed} missed behind {at_ms}, and the calendar ends there"
            found.append(next_ms)
    return found
