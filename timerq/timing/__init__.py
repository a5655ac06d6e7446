"""When a schedule is due, as pure arithmetic on whole milliseconds. Nobody here reads a clock.

durations   "1h30m" → ms                            instants   "2030-01-31T09:00:00Z" → epoch ms
texts       ms → "1h30m"                            zones      a zone's name → when its offset changes
cron        an expression → sets of numbers         cronfield  one field of it
days        the days it names in a month            times      the times it names in a day
walls       expressions → the times a clock shows   exclusions what is left out
calendar    expressions, exclusions, a zone → instants, with the DST rules
occurrences a calendar or a grid, its window and jitter → occurrences
recurring   the words of recurring schedules        definition as they are stored
resolve     what a caller asks for → Timing
planning    what becomes of an occurrence, and what comes after it
"""

from timerq.timing.definition import is_asked
from timerq.timing.durations import MAX_DURATION_MS, Duration, resolve_duration
from timerq.timing.instants import MAX_INSTANT_MS, Instant, resolve_instant
from timerq.timing.planning import (
    Plan,
    Planner,
    first_instants,
    occurrences_from,
    occurrences_of,
    plan,
)
from timerq.timing.recurring import Exclusion, Words
from timerq.timing.resolve import MAX_LIMIT, NO_WORDS, resolve_due, resolve_timing, resolve_wait

__all__ = [
    "MAX_DURATION_MS",
    "MAX_INSTANT_MS",
    "MAX_LIMIT",
    "NO_WORDS",
    "Duration",
    "Exclusion",
    "Instant",
    "Plan",
    "Planner",
    "Words",
    "first_instants",
    "is_asked",
    "occurrences_from",
    "occurrences_of",
    "plan",
    "resolve_due",
    "resolve_duration",
    "resolve_instant",
    "resolve_timing",
    "resolve_wait",
]
