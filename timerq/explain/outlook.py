"""What is to come, and what it means when there is nothing."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from timerq.commands.dispatch import LEASE_MS
from timerq.commands.history import History
from timerq.errors import InvalidSchedule
from timerq.explain.definition import When, times
from timerq.explain.mending import mending
from timerq.explain.phrases import LEAVES_NO_TRACE
from timerq.model import Policy, Schedule, State, to_datetime
from timerq.timing.instants import MAX_INSTANT_MS
from timerq.timing.texts import exact, length
from timerq.timing.zones import zone

_RECURRING = frozenset({"ended", "skipped", "missed", "queued", "timed_out", "failed", "backfilled"})
"""Words of the log that only a recurring schedule leaves."""


def standing(schedule: Schedule, when: When) -> Iterator[str]:
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
        until_ms = schedule.running_until_ms
        text = f"Event {schedule.running} was not reported as done"
        if policy.overlap != "allow" or (policy.fixed_delay and policy.ack_group is not None):
            text += f"; it is given up {_given_up(until_ms, policy, when)}"
        yield f"{text}. Say that it is with: {_done(schedule)}"
    if schedule.failures:
        text = (
            f"{schedule.failures:,} of its events failed in a row"
            if schedule.failures > 1
            else "Its last event failed"
        )
        if policy.pause_after is not None and policy.pause_after > 1:
            text += f"; {policy.pause_after:,} in a row pause it"
        yield f"{text}."


def caveat(schedule: Schedule, now_ms: int, when: When) -> str | None:
    """Why the next occurrence may not be what its instant promises, seen from ``now_ms`` (epoch ms); None: it is."""
    policy = schedule.timing.policy or Policy()
    if schedule.state is State.PAUSED:
        return "It is paused: none of these fires until it is resumed."
    if schedule.state is State.HELD:
        return "It is held, and fires once that is mended: timerq why tells the reason."
    if schedule.running is None or policy.overlap == "allow":
        return None
    until_ms = schedule.running_until_ms
    if until_ms is not None and until_ms <= max(schedule.at_ms, now_ms):
        return None
    given_up = f"that event is given up {_given_up(until_ms, policy, when)}"
    if policy.overlap == "queue":
        return f"Event {schedule.running} is not done: the next occurrence waits for that; {given_up}."
    return f"Event {schedule.running} is not done: unless it is by then, the next occurrence is left out; {given_up}."


def outlook(history: History, schedule: Schedule, now_ms: int, when: When) -> Iterator[str]:
    """What will happen to a schedule next, seen from ``now_ms`` (epoch ms)."""
    if schedule.state is State.PAUSED:
        yield from _paused(history, schedule, now_ms, when)
        return
    yield _next(schedule, now_ms, when)
    if schedule.state is State.HELD:
        yield mending(schedule)
    limit = schedule.timing.limit
    if limit is not None and schedule.timing.kind != "once":
        yield f"It ends when it has fired {times(max(0, limit - schedule.fired_total), 'more ')}."
    if history.dispatchers == 0:
        yield "No dispatcher lives: nothing fires until one does."


def _next(schedule: Schedule, now_ms: int, when: When) -> str:
    at, policy = when(schedule.at_ms), schedule.timing.policy or Policy()
    late_ms = now_ms - schedule.at_ms
    if schedule.state is State.HELD:
        why = f": {schedule.held.rstrip('.')}" if schedule.held else ""
        return (
            f"Next: its occurrence of {at} could not be fired{why}. It is tried again, at the most 32s apart."
        )
    if schedule.state is State.CLAIMED:
        return (
            f"Next: its occurrence of {at} is due, and a dispatcher is finding out what was missed; should that one "
            f"stop, another begins anew after {length(LEASE_MS)}."
        )
    if schedule.held and late_ms >= 0:
        return (
            f"Next: its occurrence of {at} is held back: {schedule.held.rstrip('.')}. It fires when that group has "
            "acknowledged some."
        )
    there = f"{at}{on_the_wall(schedule, when)}"
    busy = caveat(schedule, now_ms, when) is not None
    if late_ms < 0 and schedule.running is not None and policy.fixed_delay and policy.ack_group is not None:
        every = exact(schedule.timing.every_ms or 0)
        return f"Next: it fires {every} after that event is done, at {at} at the latest."
    if late_ms < 0 and busy and policy.overlap == "skip":
        return (
            f"Next: its occurrence of {there}, in {length(-late_ms)}, is left out unless event {schedule.running} is "
            "done by then."
        )
    if late_ms < 0 and busy:
        return f"Next: its occurrence of {there}, in {length(-late_ms)}, waits for that event to be done."
    if late_ms < 0:
        return f"Next: it fires at {there}, in {length(-late_ms)}."
    if busy and policy.overlap == "queue":
        return f"Next: its occurrence of {at} fires as soon as that event is done."
    if busy:
        return f"Next: its occurrence of {at} is due, and is left out unless event {schedule.running} is done at once."
    return (
        f"Next: it has been due since {at}, for {length(late_ms)}, and fires as soon as a dispatcher looks."
    )


def _given_up(until_ms: int | None, policy: Policy, when: When) -> str:
    return f"after {length(policy.running_timeout_ms)}" if until_ms is None else f"at {when(until_ms)}"


def _done(schedule: Schedule) -> str:
    """The command that says so; without a full stop behind it, for it is copied."""
    tenant = "" if schedule.tenant == "default" else f"--tenant {shlex.quote(schedule.tenant)} "
    return f"timerq {tenant}done {shlex.quote(schedule.running or '')}"


def _paused(history: History, schedule: Schedule, now_ms: int, when: When) -> Iterator[str]:
    """Why nothing is to come, and what resuming will do."""
    since_ms = schedule.paused_ms
    if since_ms is None:  # by an upsert, which leaves it to the log
        last = next(
            (entry for entry in reversed(history.entries) if entry.what in ("paused", "resumed")), None
        )
        since_ms = last.at_ms if last is not None and last.what == "paused" else None
    since = "" if since_ms is None else f" at {when(since_ms)}"
    doer = f" by {schedule.paused_by}" if schedule.paused_by else ""
    note = f" ({schedule.paused_note})" if schedule.paused_note else ""
    yield f"Next: nothing, until it is resumed: it was paused{since}{doer}{note}."
    there = f"{when(schedule.at_ms)}{on_the_wall(schedule, when)}"
    if now_ms < schedule.at_ms:
        yield f"Its next occurrence is due at {there}, in {length(schedule.at_ms - now_ms)}."
    elif schedule.timing.kind == "once":
        yield f"It was due at {there}: resumed, it fires at once."
    else:
        policy = schedule.timing.policy or Policy()
        become = {
            "fire_once": "become one late event",
            "skip": f"are left out where they are more than {length(policy.grace_ms)} late",
            "catch_up": f"are published each, the last {policy.max_catch_up:,} at the most",
        }[policy.misfire]
        yield f"Its occurrences have been due since {there}: resumed, those that were missed {become}."


def on_the_wall(schedule: Schedule, when: When) -> str:
    """What a calendar's zone shows at the next occurrence, in brackets, where ``when`` does not show that already."""
    rule = schedule.timing.rule
    if rule is None or not rule.cron:
        return ""
    try:
        offset_s = zone(rule.timezone).offset_at(schedule.at_ms // 1000)
        wall = to_datetime(schedule.at_ms + offset_s * 1000)
    except (InvalidSchedule, OverflowError):
        return ""  # a zone that is known no more, or the last hours of 9999
    text = f"{wall:%Y-%m-%d %H:%M:%S}{offset_text(offset_s)}"
    return "" if when(schedule.at_ms // 1000 * 1000) == text else f" ({text} in {rule.timezone})"


def offset_text(offset_s: int) -> str:
    """An offset behind an instant: ``+01:00``, and ``Z`` for none; the seconds of old local times are left out."""
    minutes = abs(offset_s) // 60
    return f"{'-' if offset_s < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}" if offset_s else "Z"


def nothing(history: History, left: int, when: When) -> Iterator[str]:
    """What it means that nothing is stored; ``left`` is the version that went without an entry (0: none)."""
    words = [entry.what for entry in history.entries]
    if words[-1:] == ["ended"]:
        yield "Nothing waits under this key now: it has ended."
        return
    if not left and not _RECURRING.isdisjoint(words):
        yield "Nothing waits under this key now."
        return
    if left:
        since = when(min(left // 1000, MAX_INSTANT_MS))
        yield f"Nothing waits under this key now. What was set at {since} went without an entry: {LEAVES_NO_TRACE}."
    elif history.entries:
        yield f"Nothing waits under this key now. If it was set again since, it has fired: {LEAVES_NO_TRACE}."
    else:
        known = (
            "the log, which has forgotten nothing, has no entry for it: it was never set, or it has fired"
            if history.whole
            else "the log has no entry for it: it was never set, or it has fired, or it went before that"
        )
        yield f"Nothing waits under this key, and {known}; {LEAVES_NO_TRACE}."
    key = shlex.quote(history.key)
    yield f"Look for its event on the stream events with: timerq tail --no-follow --key {key}"
    yield f"Whether handling it failed is seen with: timerq tail --stream errors --no-follow --key {key}"
