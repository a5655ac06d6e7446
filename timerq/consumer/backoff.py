"""How long a failed event waits before it is tried again."""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_MS = 600_000
"""How long an event waits at the most where its handler does not say otherwise (ten minutes)."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubles from ``first_ms`` up to ``max_ms`` (milliseconds), each wait shortened by up to half of it at random."""

    first_ms: int = 1_000
    max_ms: int = LONGEST_MS

    def wait_ms(self, attempt: int, luck: float) -> int:
        """How long to wait after handling number ``attempt`` (from 1) has failed; ``luck`` is from 0 to 1.

        The jitter keeps events that failed together from coming back together. Never longer than ``max_ms``.
        """
        full_ms = min(self.max_ms, self.first_ms * 2 ** min(max(attempt, 1) - 1, 40))
        return int(full_ms * (1 - luck / 2))
