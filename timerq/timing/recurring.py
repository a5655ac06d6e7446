"""What a caller asks of a recurring schedule besides its instants, resolved: a `Rule` and a `Policy`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from datetime import date, tzinfo
from itertools import islice
from typing import Any, NamedTuple, TypeAlias, get_args

from timerq.errors import InvalidSchedule
from timerq.model import DstGap, DstOverlap, Misfire, Overlap, Policy, Rule, check_plain_name
from timerq.timing.calendar import MAX_EXCLUSIONS, MAX_EXPRESSIONS, calendar_of
from timerq.timing.durations import Duration, resolve_duration
from timerq.timing.instants import Instant, is_whole, resolve_instant

MAX_CATCH_UP = 1000
"""The largest `max_catch_up`."""

Exclusion: TypeAlias = "str | date | tuple[date, date]"
"""A date, a range of dates (both included, ``"2026-12-24/2026-12-26"``) or a cron expression."""


class Words(NamedTuple):
    """The words of `upsert` that only recurring schedules have; None stands for "not given"."""

    cron: str | Iterable[str] | None = None
    timezone: str | None = None
    dst_gap: DstGap | None = None
    dst_overlap: DstOverlap | None = None
    exclude: Exclusion | Iterable[Exclusion] | None = None
    anchor: Instant | None = None
    jitter: Duration | None = None
    misfire: Misfire | None = None
    grace: Duration | None = None
    max_catch_up: int | None = None
    overlap: Overlap | None = None
    ack_group: str | None = None
    running_timeout: Duration | None = None
    fixed_delay: bool | None = None
    pause_after: int | None = None


def resolve_rule(words: Words, every_ms: int | None, start_ms: int | None) -> Rule | None:
    """The `Rule` of a calendar or a grid; None for a plain interval. Raises `InvalidSchedule` naming the word."""
    if words.cron is None:
        for name in ("timezone", "dst_gap", "dst_overlap", "exclude"):
            if (value := getattr(words, name)) is not None:
                raise InvalidSchedule(name, value, f"want {name}= only together with cron=")
        return _grid(words, every_ms or 0, start_ms)
    if words.anchor is not None:
        raise InvalidSchedule("anchor", words.anchor, "want anchor= only together with every=")
    rule = Rule(
        cron=_expressions(words.cron),
        timezone=_zone_name(words.timezone),
        dst_gap=_one_of("dst_gap", words.dst_gap, get_args(DstGap)),
        dst_overlap=_one_of("dst_overlap", words.dst_overlap, get_args(DstOverlap)),
        exclude=_exclusions(words.exclude),
        jitter_ms=0 if words.jitter is None else resolve_duration(words.jitter, field="jitter"),
    )
    calendar_of(rule)
    return rule


def _grid(words: Words, every_ms: int, start_ms: int | None) -> Rule | None:
    jitter_ms = 0 if words.jitter is None else resolve_duration(words.jitter, field="jitter")
    if words.anchor is None and not jitter_ms:
        return None
    if words.anchor is None:
        anchor_ms = 0 if start_ms is None else start_ms
    else:
        anchor_ms = 0 if words.anchor == "clock" else resolve_instant(words.anchor, field="anchor")
    if jitter_ms >= every_ms:
        raise InvalidSchedule("jitter", words.jitter, "want a jitter shorter than the interval")
    return Rule(jitter_ms=jitter_ms, anchor_ms=anchor_ms % every_ms)


def resolve_policy(words: Words, *, is_cron: bool) -> Policy | None:
    """The `Policy`; None where all of it is the default. Raises `InvalidSchedule` naming the word."""
    usual = Policy()
    misfire = _one_of("misfire", words.misfire, get_args(Misfire))
    overlap = _one_of("overlap", words.overlap, get_args(Overlap))
    for name, needs in (("grace", "skip"), ("max_catch_up", "catch_up")):
        if (value := getattr(words, name)) is not None and misfire != needs:
            raise InvalidSchedule(name, value, f'want {name}= only together with misfire="{needs}"')
    fixed_delay = words.fixed_delay
    if fixed_delay is not None and not isinstance(fixed_delay, bool):
        raise InvalidSchedule("fixed_delay", fixed_delay, "want True or False")
    if fixed_delay:
        _check_fixed_delay(words, is_cron)
    tracked = overlap != "allow" or words.pause_after is not None or fixed_delay
    for name in ("ack_group", "running_timeout"):
        if (value := getattr(words, name)) is not None and not tracked:
            raise InvalidSchedule(
                name, value, f"want {name}= only together with overlap=, fixed_delay= or pause_after="
            )
    if (
        fixed_delay
        and words.ack_group is None
        and words.pause_after is None
        and words.running_timeout is not None
    ):
        raise InvalidSchedule(
            "running_timeout",
            words.running_timeout,
            "want running_timeout= with fixed_delay=True only together with ack_group= (or pause_after=): "
            "without one the next is counted from the firing, and nothing waits",
        )
    if words.ack_group is not None:
        check_plain_name("ack_group", words.ack_group)
    policy = Policy(
        misfire=misfire,
        grace_ms=usual.grace_ms if words.grace is None else resolve_duration(words.grace, field="grace"),
        max_catch_up=_count("max_catch_up", words.max_catch_up, MAX_CATCH_UP) or usual.max_catch_up,
        overlap=overlap,
        ack_group=words.ack_group,
        running_timeout_ms=usual.running_timeout_ms
        if words.running_timeout is None
        else _above_zero("running_timeout", words.running_timeout),
        fixed_delay=bool(fixed_delay),
        pause_after=_count("pause_after", words.pause_after, 1_000_000),
    )
    return None if policy == usual else policy


def _check_fixed_delay(words: Words, is_cron: bool) -> None:
    if is_cron:
        raise InvalidSchedule("fixed_delay", True, "want fixed_delay= only together with every=")
    for name in ("anchor", "jitter", "misfire", "overlap"):
        if (value := getattr(words, name)) is not None:
            raise InvalidSchedule(
                name,
                value,
                f"want fixed_delay=True without {name}=: it has no grid to keep, and never overlaps",
            )


def _zone_name(timezone: object) -> Any:
    if timezone is None:
        return "UTC"
    if isinstance(timezone, tzinfo):
        key = getattr(timezone, "key", None)
        name = f'its name: timezone="{key}"' if key else 'the IANA name of a time zone, like "Europe/Paris"'
        raise InvalidSchedule("timezone", timezone, f"want {name}, as a text")
    return timezone


def _expressions(cron: object) -> tuple[str, ...]:
    if isinstance(cron, str):
        return (cron,)
    if not isinstance(cron, Iterable) or isinstance(cron, (bytes, Mapping)):
        raise InvalidSchedule("cron", cron, 'want an expression like "0 9 * * MON-FRI", or a list of them')
    found = tuple(islice(cron, MAX_EXPRESSIONS + 1))  # it may never end
    if len(found) in (5, 6) and all(isinstance(text, str) and _A_FIELD.fullmatch(text) for text in found):
        raise InvalidSchedule(
            "cron", cron, f'want whole expressions, each one text, as in "{" ".join(found)}"'
        )
    if not 1 <= len(found) <= MAX_EXPRESSIONS:
        raise InvalidSchedule("cron", cron, f"want 1 to {MAX_EXPRESSIONS} expressions")
    for text in found:
        if not isinstance(text, str):
            raise InvalidSchedule(
                "cron", text, 'want an expression like "0 9 * * MON-FRI", or a list of them'
            )
    return _in_order(cron, found)


_A_FIELD = re.compile(r"[^\s@]+")  # no expression: those have blanks, or are macros
_WANT_EXCLUDE = 'want dates ("2026-12-25"), ranges ("2026-12-24/2026-12-26") or cron expressions'


def _exclusions(exclude: object) -> tuple[str, ...]:
    if exclude is None:
        return ()
    if isinstance(exclude, (str, date)) or (
        isinstance(exclude, tuple) and len(exclude) == 2 and all(isinstance(day, date) for day in exclude)
    ):
        exclude = [exclude]
    if not isinstance(exclude, Iterable) or isinstance(exclude, (bytes, Mapping)):
        raise InvalidSchedule("exclude", exclude, _WANT_EXCLUDE)
    found = tuple(map(_exclusion, islice(exclude, MAX_EXCLUSIONS + 1)))
    if len(found) > MAX_EXCLUSIONS:
        raise InvalidSchedule("exclude", exclude, f"want at most {MAX_EXCLUSIONS:,} exclusions")
    return _in_order(exclude, found)


def _in_order(given: object, texts: tuple[str, ...]) -> tuple[str, ...]:
    """``texts``, sorted where they came in a set: its order is another in each process, and would be a change."""
    return tuple(sorted(texts)) if isinstance(given, Set) else texts


def _exclusion(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, date):
        return date(value.year, value.month, value.day).isoformat()
    if isinstance(value, tuple) and len(value) == 2 and all(isinstance(day, date) for day in value):
        return "/".join(map(_exclusion, value))
    raise InvalidSchedule("exclude", value, _WANT_EXCLUDE)


def _one_of(name: str, value: Any, choices: tuple[str, ...]) -> Any:
    """``value``, or the first of ``choices`` where none is given."""
    if value is None:
        return choices[0]
    if value not in choices:
        raise InvalidSchedule(name, value, f"want one of {', '.join(choices)}")
    return value


def _count(name: str, value: object, most: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or not is_whole(value) or not 1 <= value <= most:
        raise InvalidSchedule(name, value, f"want a number from 1 to {most:,}")
    return value


def _above_zero(name: str, value: Duration) -> int:
    duration_ms = resolve_duration(value, field=name)
    if not 1 <= duration_ms <= 366 * 86_400_000:
        raise InvalidSchedule(name, value, "want a duration from 1 ms to 366 days")
    return duration_ms
