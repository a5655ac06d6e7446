"""What is to come, and what it means when there is nothing."""

from __future__ import annotations

from collections.abc import Iterator

from timerq.commands.dispatch import LEASE_MS
from timerq.commands.history import History
from timerq.errors import InvalidSchedule
from timerq.explain.phrases import LEAVES_NO_TRACE, When, times
from timerq.model import Policy, Schedule, State, to_datetime
from timerq.timing.texts import exact, length
from timerq.timing.zones import zone


def standing(schedule: Schedule) -> Iterator[str]:
    """What a recurring schedule carries: its sums, and what its handlers have made of it."""
    timing, policy = schedule.timing, schedule.timing.policy or Policy()
    if timing.kind == "once":
        return
    parts = [f"{times(schedule.fired_total)} fired"]
    if schedule.missed_total:
        parts.append(f"{schedule.missed_total:,} missed and folded into later events")
    if schedule.skipped_total:
        parts.append(f"{schedule.skipped_total:,} left out")
    yield f"Over all its versions: {', '.join(parts)}."
    if schedule.running is not None:
        text = f"Event {schedule.running} was not reported as done"
        end = f"until it is, or {length(policy.running_timeout_ms)} old"
        if policy.overlap == "skip":
            text += f": {end}, occurrences are left out"
        elif policy.overlap == "queue":
            text += f": {end}, the next occurrence waits"
        yield f"{text}."
    if schedule.failures:
        text = (
            f"{schedule.failures:,} of its events failed in a row"
            if schedule.failures > 1
            else "Its last event failed"
        )
        if policy.pause_after is not None:
            text += f"; {policy.pause_after:,} in a row pause it"
        yield f"{text}."


def outlook(history: History, schedule: Schedule, now_ms: int, when: When) -> Iterator[str]:
    """What will happen to a schedule next, seen from ``now_ms`` (epoch ms)."""
    if schedule.state is State.PAUSED:
        yield from _paused(history, schedule, now_ms, when)
        return
    at, policy = when(schedule.at_ms), schedule.timing.policy or Policy()
    late_ms = now_ms - schedule.at_ms
    if schedule.state is State.HELD:
        why = f": {schedule.held.rstrip('.')}" if schedule.held else ""
        yield f"Next: its occurrence of {at} could not be fired{why}. It is tried again, every 32s at the least."
    elif schedule.state is State.CLAIMED:
        yield (
            f"Next: its occurrence of {at} is due, and a dispatcher is finding out what was missed; should that one "
            f"stop, another begins anew after {length(LEASE_MS)}."
        )
    elif late_ms < 0 and schedule.running is not None and policy.fixed_delay and policy.ack_group is not None:
        every = exact(schedule.timing.every_ms or 0)
        yield f"Next: it fires {every} after that event is done, at {at} at the latest."
    elif late_ms < 0:
        yield f"Next: it fires at {at}{_on_the_wall(schedule)}, in {length(-late_ms)}."
    elif schedule.running is not None and policy.overlap == "queue":
        yield f"Next: its occurrence of {at} fires as soon as that event is done."
    else:
        yield f"Next: it has been due since {at}, for {length(late_ms)}, and fires as soon as a dispatcher looks."
    limit = schedule.timing.limit
    if limit is not None and schedule.timing.kind != "once":
        yield f"It ends when it has fired {times(max(0, limit - schedule.fired_total), 'more ')}."
    if history.dispatchers == 0:
        yield "No dispatcher lives: nothing fires until one does."


def _paused(history: History, schedule: Schedule, now_ms: int, when: When) -> Iterator[str]:
    """Why nothing is to come, and what resuming will do."""
    last = next((entry for entry in reversed(history.entries) if entry.what in ("paused", "resumed")), None)
    since = f" at {when(last.at_ms)}" if last is not None and last.what == "paused" else ""
    doer = f" by {schedule.paused_by}" if schedule.paused_by else ""
    note = f" ({schedule.paused_note})" if schedule.paused_note else ""
    yield f"Next: nothing, until it is resumed: it was paused{since}{doer}{note}."
    at = when(schedule.at_ms)
    if now_ms < schedule.at_ms:
        yield f"Its next occurrence is due at {at}{_on_the_wall(schedule)}, in {length(schedule.at_ms - now_ms)}."
    elif schedule.timing.kind == "once":
        yield f"It was due at {at}: resumed, it fires at once."
    else:
        policy = schedule.timing.policy or Policy()
        become = {
            "fire_once": "become one late event",
            "skip": f"are left out where they are more than {length(policy.grace_ms)} late",
            "catch_up": f"are published each, the last {policy.max_catch_up:,} at the most",
        }[policy.misfire]
        yield f"Its occurrences have been due since {at}: resumed, those that were missed {become}."


def _on_the_wall(schedule: Schedule) -> str:
    """What a calendar's zone shows at the next occurrence, for one that is not UTC."""
    rule = schedule.timing.rule
    if rule is None or not rule.cron or rule.timezone == "UTC":
        return ""
    try:
        offset_s = zone(rule.timezone).offset_at(schedule.at_ms // 1000)
        wall = to_datetime(schedule.at_ms + offset_s * 1000)
    except (InvalidSchedule, OverflowError):
        return ""  # a zone that is known no more, or the last hours of 9999
    return f" ({wall:%Y-%m-%d %H:%M:%S} in {rule.timezone})"


def nothing(history: History, left: int) -> str:
    """What it means that nothing is stored; ``left`` is the version that went without an entry (0: none)."""
    if left:
        return f"Nothing waits under this key now. Version {left} went without an entry: {LEAVES_NO_TRACE}."
    if history.entries:
        again = "If it was set again since, it has fired"
        return f"Nothing waits under this key now. {again}: {LEAVES_NO_TRACE}."
    if history.whole:
        known = "the log, which has forgotten nothing, has no entry for it: it was never set, or it has fired"
    else:
        known = "the log has no entry for it: it was never set, or it has fired, or it went before that"
    return f"Nothing waits under this key, and {known}; {LEAVES_NO_TRACE}."
