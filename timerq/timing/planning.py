"""What becomes of an occurrence, and what comes after it: what a dispatcher asks on behalf of the scripts."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, Protocol

from timerq.errors import InvalidSchedule
from timerq.model import Policy, Rule, Timing
from timerq.timing import definition as definitions
from timerq.timing.occurrences import Occurrences
from timerq.timing.texts import exact


class Plan(NamedTuple):
    """What to do about a due occurrence; instants in epoch ms.

    ``at_ms`` is the one to publish, or where it is still to come the next one to arm; None: the schedule has ended.
    ``then_ms`` is the one after it, None where there is none. ``missed`` is how many later ones ``at_ms`` stands for
    besides itself, ``skipped`` how many are left out for good, and ``why``.
    """

    at_ms: int | None
    then_ms: int | None
    missed: int = 0
    skipped: int = 0
    why: str = "too late"


class Planner(Protocol):
    """Plans a recurring schedule whose instants the scripts cannot compute.

    Given the schedule's ``id``, its stored ``definition`` and ``window`` (the record's fields x and w), the occurrence
    at ``at_ms`` and the time ``now_ms`` (both epoch ms), it says what becomes of it. Pure: same input, same plan.
    Raises where the definition cannot be read; the schedule is then held.
    """

    def __call__(self, id: bytes, definition: str, window: str, at_ms: int, now_ms: int, /) -> Plan:
        """What becomes of the occurrence at ``at_ms``, and what to arm after it."""
        ...


def plan(id: bytes, definition: str, window: str, at_ms: int, now_ms: int, /) -> Plan:
    """The `Planner` of timerq's own calendars and grids.

    Raises `InvalidSchedule` for an expression or a zone that is not known here (any more), `ContractBroken` for a text
    that is no definition.
    """
    timing = _timing(definition, window)
    return plan_timing(occurrences_of(timing, id, at_ms), timing.policy or _USUAL, at_ms, now_ms)


def first_instants(timing: Timing, id: bytes, now_ms: int) -> tuple[int, int]:
    """The first occurrence of a timing that `is_asked`, and the one after it, 0 for none (epoch ms).

    That of a calendar is later than ``now_ms``, that of an interval may be due at once. Raises `InvalidSchedule` where
    there is none, and for a jitter that is as long as the calendar's period.
    """
    occurrences = occurrences_from(timing, id, now_ms)
    first_ms = occurrences.next_ms(now_ms if timing.kind == "cron" else now_ms - 1)
    if first_ms is None:
        if timing.until_ms is not None:
            raise InvalidSchedule(
                "until",
                timing.until_ms,
                "want until= at or after the first occurrence: nothing would ever fire",
            )
        raise _never(timing, id, now_ms)
    return first_ms, occurrences.next_ms(first_ms) or 0


def _never(timing: Timing, id: bytes, now_ms: int) -> InvalidSchedule:
    """Why a timing that does not end is not due any more from ``now_ms`` on: which of its words leaves nothing."""
    rule = timing.rule
    if timing.kind != "cron" or rule is None:
        return InvalidSchedule("every", timing.every_ms, "want a first occurrence before the year 10000")
    usual = replace(rule, jitter_ms=0)

    def is_due(other: Rule) -> bool:
        return occurrences_from(replace(timing, rule=other), id, now_ms).next_ms(now_ms) is not None

    if rule.dst_gap == "skip" and is_due(replace(usual, dst_gap="shift")):
        return InvalidSchedule(
            "dst_gap",
            rule.dst_gap,
            'want dst_gap="shift": the clock skips each of its times, and none is left',
        )
    if rule.exclude and is_due(replace(usual, exclude=())):
        return InvalidSchedule(
            "exclude",
            rule.exclude,
            "want exclusions that leave something of what is to come; nothing would ever fire",
        )
    return InvalidSchedule("cron", rule.cron, "want one that fires before the year 10000")


def occurrences_from(timing: Timing, id: bytes, now_ms: int) -> Occurrences:
    """The occurrences of a recurring timing of the schedule ``id`` that is made at ``now_ms`` (epoch ms).

    Raises `InvalidSchedule` for a jitter that is as long as the calendar's period.
    """
    if timing.kind == "every" and (timing.rule is None or timing.rule.anchor_ms is None):
        timing = replace(timing, start_ms=_base(timing, now_ms))
    occurrences = occurrences_of(timing, id, timing.start_ms or 0)
    if timing.rule is not None and timing.rule.jitter_ms:
        # Not from now on: what was accepted once must be so whenever a service sets it again.
        shortest_ms = occurrences.shortest_gap_ms(_SINCE_MS)
        if shortest_ms is not None and timing.rule.jitter_ms >= shortest_ms:
            raise InvalidSchedule(
                "jitter",
                timing.rule.jitter_ms,
                f"want a jitter shorter than the shortest period, {exact(shortest_ms)}",
            )
    return occurrences


_SINCE_MS = 946_684_800_000
"""2000-01-01T00:00:00Z: from here on, or from its start on, the period of a calendar is measured."""


def _base(timing: Timing, now_ms: int) -> int:
    """The first instant of an interval without an anchor; its grid begins there."""
    if timing.start_ms is not None:
        return timing.start_ms
    wait_ms = timing.every_ms if timing.initial_delay_ms is None else timing.initial_delay_ms
    return now_ms + (wait_ms or 0)


def occurrences_of(timing: Timing, id: bytes, at_ms: int) -> Occurrences:
    """The occurrences of a recurring timing of the schedule ``id``, of which ``at_ms`` is one (epoch ms)."""
    if timing.kind == "every" and (timing.rule is None or timing.rule.anchor_ms is None):
        timing = replace(
            timing, rule=replace(timing.rule or Rule(), anchor_ms=at_ms % (timing.every_ms or 1))
        )
    return Occurrences(timing, id)


def plan_timing(occurrences: Occurrences, policy: Policy, at_ms: int, now_ms: int) -> Plan:
    """What becomes of the occurrence at ``at_ms`` of ``occurrences`` under ``policy``, at the time ``now_ms``."""
    if at_ms > now_ms:
        return Plan(at_ms, occurrences.next_ms(at_ms))
    if policy.misfire == "skip":
        return _skip(occurrences, at_ms, now_ms, policy.grace_ms)
    if policy.misfire == "catch_up":
        return _catch_up(occurrences, at_ms, now_ms, policy.max_catch_up)
    return Plan(at_ms, occurrences.next_ms(now_ms), occurrences.count(at_ms, now_ms))


def _skip(occurrences: Occurrences, at_ms: int, now_ms: int, grace_ms: int) -> Plan:
    """What is overdue by more than the grace is left out; the rest is one event."""
    oldest_ms = now_ms - grace_ms
    skipped = 0
    first_ms: int | None = at_ms
    if at_ms < oldest_ms:
        first_ms = occurrences.next_ms(oldest_ms - 1)
        skipped = 1 + occurrences.count(at_ms, oldest_ms - 1)
    if first_ms is None or first_ms > now_ms:
        return Plan(first_ms, None if first_ms is None else occurrences.next_ms(first_ms), 0, skipped)
    return Plan(first_ms, occurrences.next_ms(now_ms), occurrences.count(first_ms, now_ms), skipped)


def _catch_up(occurrences: Occurrences, at_ms: int, now_ms: int, most: int) -> Plan:
    """Each one is published, the last ``most`` of them."""
    overdue = 1 + occurrences.count(at_ms, now_ms)
    skipped = max(0, overdue - most)
    if skipped:
        first_ms = occurrences.prev_ms(now_ms)
        for _ in range(most - 1):
            assert first_ms is not None
            first_ms = occurrences.prev_ms(first_ms - 1)
        assert first_ms is not None
        at_ms = first_ms
    return Plan(at_ms, occurrences.next_ms(at_ms), 0, skipped, "over max_catch_up")


_USUAL = Policy()


_LARGE = 1000
"""Definitions of more characters are rare, and a hundred times as large in memory: few of them are kept."""


def _timing(text: str, window: str) -> Timing:
    """The timing that a record's fields x and w describe."""
    return (_read if len(text) <= _LARGE else _read_large)(text, window)


def _read_timing(text: str, window: str) -> Timing:
    every_ms, rule, policy = definitions.read(text)
    until_ms, _, start_ms = _window(window)
    is_cron = rule is not None and bool(rule.cron)
    return Timing(
        "cron" if is_cron else "every",
        every_ms=every_ms,
        start_ms=start_ms,
        until_ms=until_ms,
        rule=rule,
        policy=policy,
    )


_read = lru_cache(maxsize=4096)(_read_timing)
_read_large = lru_cache(maxsize=16)(_read_timing)


def _window(text: str) -> tuple[int | None, int | None, int | None]:
    """Until, limit and start in a record's field w."""
    until, limit, start = (None if part == "-" else int(part) for part in (text or "- - - -").split(" ")[:3])
    return until, limit, start
