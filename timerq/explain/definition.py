"""What a schedule is, in sentences: all of its definition that is not as usual."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from timerq.model import Policy, Rule, Schedule, Timing
from timerq.timing.texts import exact, length

When = Callable[[int], str]
"""How an instant (epoch ms) is written."""


def describe(schedule: Schedule, when: When) -> Iterator[str]:
    """What a schedule is, and then each rule of it that is not the usual one."""
    timing = schedule.timing
    parts = [
        f"It publishes {schedule.event.type} on stream {schedule.event.stream}",
        timing_text(timing, when),
    ]
    if timing.start_ms is not None:
        parts.append(f"not before {when(timing.start_ms)}")
    if timing.until_ms is not None:
        parts.append(f"until {when(timing.until_ms)}")
    if timing.limit is not None:
        parts.append(f"{times(timing.limit)} at the most")
    if schedule.label is not None:
        parts.append(f"as the set {schedule.label} declares it")
    yield f"{', '.join(parts)}."
    if timing.kind != "once":
        yield from _clock_changes(timing.rule or Rule())
        yield from _policy(timing.policy or Policy())


def timing_text(timing: Timing, when: When) -> str:
    """A timing in words: ``once``, ``every 5s``, ``by cron 0 9 * * MON-FRI in Europe/Paris``."""
    rule = timing.rule or Rule()
    if rule.cron:
        text = f"by cron {' and '.join(rule.cron)} in {rule.timezone}"
    elif timing.every_ms is not None:
        text = f"every {exact(timing.every_ms)}"
        if timing.policy is not None and timing.policy.fixed_delay:
            text += " after the last one"
    else:
        return "by a calendar" if timing.kind == "cron" else timing.kind
    if rule.anchor_ms is not None:
        text += " on the clock" if rule.anchor_ms == 0 else f" counted from {when(rule.anchor_ms)}"
    if rule.exclude:
        text += f", but not on {' or '.join(rule.exclude)}"
    if rule.jitter_ms:
        text += f", each put off by up to {exact(rule.jitter_ms)}"
    return text


def times(count: int, more: str = "") -> str:
    """``once`` is no good with a number."""
    return f"{count:,} {more}time{'' if count == 1 else 's'}"


def _clock_changes(rule: Rule) -> Iterator[str]:
    if rule.dst_gap == "skip":
        yield "Fixed times that a clock change skips are left out."
    if rule.dst_overlap != "first":
        passes = "on both passes" if rule.dst_overlap == "both" else "on the second pass"
        yield f"Fixed times of an hour that comes twice are due {passes}."


def _policy(policy: Policy) -> Iterator[str]:
    if policy.misfire == "skip":
        yield f"Occurrences that are more than {exact(policy.grace_ms)} late are left out."
    elif policy.misfire == "catch_up":
        yield f"Of those that were missed each is published, the last {policy.max_catch_up:,} at the most."
    if policy.overlap == "skip":
        yield "One that is due while the event before it is not done is left out."
    elif policy.overlap == "queue":
        yield "One that is due while the event before it is not done waits for that."
    waits = policy.overlap != "allow" or (policy.fixed_delay and policy.ack_group is not None)
    if waits:
        group = "" if policy.ack_group is None else f" by {policy.ack_group}"
        yield f"An event that nobody reported as done{group} is given up after {length(policy.running_timeout_ms)}."
    if policy.pause_after is not None:
        failures = (
            "One failure pauses"
            if policy.pause_after == 1
            else f"{policy.pause_after:,} failures in a row pause"
        )
        yield f"{failures} it."
