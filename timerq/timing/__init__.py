"""When a schedule is due, as pure arithmetic on whole milliseconds. Nobody here reads a clock.

durations   "1h30m" → ms                   instants   "2030-01-31T09:00:00Z" → epoch ms
resolve     what a caller asks for → Timing
planning    what comes after an occurrence
"""

from timerq.timing.durations import MAX_DURATION_MS, Duration, resolve_duration
from timerq.timing.instants import MAX_INSTANT_MS, Instant, resolve_instant
from timerq.timing.planning import Plan, Planner, interval_after
from timerq.timing.resolve import MAX_LIMIT, resolve_due, resolve_timing, resolve_wait

__all__ = [
    "MAX_DURATION_MS",
    "MAX_INSTANT_MS",
    "MAX_LIMIT",
    "Duration",
    "Instant",
    "Plan",
    "Planner",
    "interval_after",
    "resolve_due",
    "resolve_duration",
    "resolve_instant",
    "resolve_timing",
    "resolve_wait",
]
