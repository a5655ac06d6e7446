"""Notes on timings that are right, and may be another one than was meant."""

from __future__ import annotations

from timerq.cli import show
from timerq.model import Timing
from timerq.timing.cron import is_pair_of_days
from timerq.timing.texts import exact

_DAY_MS = 86_400_000


def note_surprises(timing: Timing) -> None:
    """Tells, on stderr, what one who knows cron or clocks may not expect of a timing."""
    rule = timing.rule
    if rule is None:
        return
    for text in rule.cron:
        if is_pair_of_days(text):
            show.note(
                f'"{show.clean(text)}": here a day that fits either day field counts. Debian\'s cron wants both where '
                "one of them begins with *; timerq crontab keeps that."
            )
    every_ms = timing.every_ms or _DAY_MS
    if rule.anchor_ms == 0 and not rule.jitter_ms and _DAY_MS % every_ms and every_ms % _DAY_MS:
        show.note(
            f"{exact(every_ms)} does not divide the day: counted from 1970 in UTC, the times of day change from day to "
            "day. For the same ones every day, give --cron."
        )
