"""The text of a recurring schedule's definition as it is stored: JSON, with what is as usual left out.

==========  ================================================================
name        holds
==========  ================================================================
cron        an expression, or a list of them
tz          the zone's name, where it is not UTC
gap         "skip" of `dst_gap`
overlap     "second" or "both" of `dst_overlap`
exclude     dates, ranges of dates, expressions
jitter      ms
every       ms, of an interval that has to be asked for
anchor      ms, an instant of the interval's grid
misfire     "skip" or "catch_up"
grace       ms
most        `max_catch_up`
==========  ================================================================

The zone's name is stored, never an offset: it is read anew at each step, with the rules of that day.
"""

from __future__ import annotations

import json
from typing import Any, get_args

from timerq.errors import ContractBroken
from timerq.model import DstGap, DstOverlap, Misfire, Policy, Rule, Timing
from timerq.timing.durations import MAX_DURATION_MS
from timerq.timing.instants import MAX_INSTANT_MS

_USUAL_RULE = Rule()
_USUAL_POLICY = Policy()


def write(timing: Timing) -> str:
    """The definition's text; empty where the script's own arithmetic needs none."""
    rule = timing.rule or _USUAL_RULE
    policy = timing.policy or _USUAL_POLICY
    words: dict[str, Any] = {}
    if rule.cron:
        words["cron"] = rule.cron[0] if len(rule.cron) == 1 else rule.cron
    elif is_asked(timing):
        words["every"] = timing.every_ms
    if rule.timezone != "UTC":
        words["tz"] = rule.timezone
    if rule.dst_gap != "shift":
        words["gap"] = rule.dst_gap
    if rule.dst_overlap != "first":
        words["overlap"] = rule.dst_overlap
    if rule.exclude:
        words["exclude"] = rule.exclude
    if rule.jitter_ms:
        words["jitter"] = rule.jitter_ms
    if rule.anchor_ms is not None:
        words["anchor"] = rule.anchor_ms
    if policy.misfire != "fire_once":
        words["misfire"] = policy.misfire
        if policy.grace_ms != _USUAL_POLICY.grace_ms:
            words["grace"] = policy.grace_ms
        if policy.max_catch_up != _USUAL_POLICY.max_catch_up:
            words["most"] = policy.max_catch_up
    return json.dumps(words, separators=(",", ":"), ensure_ascii=False) if words else ""


def is_asked(timing: Timing) -> bool:
    """Whether its instants are more than the scripts can compute, so that the dispatcher is asked."""
    if timing.kind != "every":
        return timing.kind == "cron"
    jitter = timing.rule is not None and timing.rule.jitter_ms > 0
    return jitter or (timing.policy is not None and timing.policy.misfire != "fire_once")


def read(text: str, *, every_ms: int | None = None) -> tuple[int | None, Rule | None, Policy]:
    """The interval, the rule and the part of the policy in a stored text; ``every_ms`` where the text has none.

    Raises `ContractBroken` for one that cannot be read.
    """
    try:
        words = json.loads(text)
        cron = words.pop("cron", ())
        every_ms = words.pop("every", every_ms)
        rule = Rule(
            cron=(cron,) if isinstance(cron, str) else tuple(cron),
            timezone=words.pop("tz", "UTC"),
            dst_gap=words.pop("gap", "shift"),
            dst_overlap=words.pop("overlap", "first"),
            exclude=tuple(words.pop("exclude", ())),
            jitter_ms=words.pop("jitter", 0),
            anchor_ms=words.pop("anchor", None),
        )
        policy = Policy(
            misfire=words.pop("misfire", "fire_once"),
            grace_ms=words.pop("grace", _USUAL_POLICY.grace_ms),
            max_catch_up=words.pop("most", _USUAL_POLICY.max_catch_up),
        )
        choices = ((rule.dst_gap, DstGap), (rule.dst_overlap, DstOverlap), (policy.misfire, Misfire))
        if words or any(word not in get_args(known) for word, known in choices):
            raise ValueError("unknown words")
        if every_ms is None and not rule.cron:
            raise ValueError("neither cron nor every")
        numbers = (rule.jitter_ms, rule.anchor_ms or 0, policy.grace_ms, every_ms or 0, policy.max_catch_up)
        for number, least in zip(numbers, (0, 0, 0, every_ms is not None, 1), strict=True):
            if type(number) is not int or not least <= number <= MAX_DURATION_MS:
                raise ValueError(f"{number!r} is no such number")
        if (rule.anchor_ms or 0) > MAX_INSTANT_MS:
            raise ValueError(f"{rule.anchor_ms} is no instant")
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ContractBroken(f"unreadable definition {text[:120]!r}: {error}") from error
    return every_ms, None if rule == _USUAL_RULE else rule, policy
