"""What comes after an occurrence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol


def interval_after(at_ms: int, every_ms: int, now_ms: int) -> tuple[int, int]:
    """The slot to arm after the one at ``at_ms``, and how many slots between them were missed.

    The grid is ``at_ms + k * every_ms`` (fixed rate: a late fire does not move it). The next slot is the first that is
    later than both ``at_ms`` and ``now_ms``; missed are the slots later than ``at_ms`` that are not later than
    ``now_ms``. The same arithmetic as the firing script's, for previews and for tests. All in milliseconds.
    """
    missed = max(0, (now_ms - at_ms) // every_ms)
    return at_ms + (missed + 1) * every_ms, missed


class Plan(NamedTuple):
    """What comes after an occurrence: epoch milliseconds, None for "there is none", and the number of missed ones."""

    next_ms: int | None
    then_ms: int | None
    missed: int


class Planner(Protocol):
    """Plans a recurring schedule whose instants the scripts cannot compute.

    Given the stored ``definition``, the occurrence at ``at_ms`` and the time ``now_ms`` (both epoch ms), it answers the
    first occurrence after both, the one after that, and how many in between were missed. Pure: same input, same plan.
    """

    def __call__(self, definition: Mapping[str, str], at_ms: int, now_ms: int, /) -> Plan:
        """What to arm after the occurrence at ``at_ms``."""
        ...
