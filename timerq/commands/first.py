"""When the first occurrence of a schedule is, as upsert.lua takes it."""

from __future__ import annotations

from timerq.model import Timing


def waits(timing: Timing) -> bool:
    """Whether the first instant of a recurring one is counted from the script's own time."""
    return timing.kind == "every" and timing.start_ms is None and timing.rule is None


def when_of(timing: Timing) -> str:
    """When the first occurrence is, as the script takes it."""
    if timing.kind == "once":
        return f"@{timing.at_ms}" if timing.delay_ms is None else f"+{timing.delay_ms}"
    if timing.rule is not None and timing.rule.anchor_ms is not None:
        every_ms, start_ms = timing.every_ms or 1, timing.start_ms or 0
        return f"@{start_ms + (timing.rule.anchor_ms - start_ms) % every_ms}"
    if timing.start_ms is not None:
        return f"@{timing.start_ms}"
    return f"+{timing.every_ms if timing.initial_delay_ms is None else timing.initial_delay_ms}"
