"""What a caller asks for, resolved: a `Timing`, or when a one-shot is due."""

from __future__ import annotations

from dataclasses import fields

from timerq.errors import InvalidSchedule
from timerq.model import Timing
from timerq.timing.durations import Duration, exact_ms, resolve_duration
from timerq.timing.instants import MAX_INSTANT_MS, Instant, is_whole, resolve_instant
from timerq.timing.recurring import Words, resolve_policy, resolve_rule

NO_WORDS = Words()
"""Nothing is asked of a recurring schedule besides its instants."""

MAX_LIMIT = 2**53 - 1
"""The largest `limit`: the scripts count in doubles, which are exact up to here."""


def resolve_due(
    *, at: Instant | None = None, delay: Duration | None = None, now_ms: int | None = None
) -> int:
    """The epoch milliseconds at which a one-shot is due: ``at``, or ``delay`` counted from ``now_ms``.

    Exactly one of ``at`` and ``delay``. ``now_ms`` (epoch ms) is needed with ``delay``: nobody reads a clock here.
    Raises `InvalidSchedule` for bad values and for an instant after 9999-12-31T23:59:59.999Z.
    """
    if delay is None:
        if at is None:
            raise InvalidSchedule("timing", None, "want exactly one of at=, delay=")
        return resolve_instant(at)
    if at is not None:
        raise InvalidSchedule("timing", "at and delay", "want exactly one of at=, delay=")
    if now_ms is None or not is_whole(now_ms):
        raise InvalidSchedule("now_ms", now_ms, "want the epoch milliseconds to count delay= from, as an int")
    due_ms = resolve_instant(now_ms, field="now_ms") + resolve_duration(delay)
    if due_ms > MAX_INSTANT_MS:
        raise InvalidSchedule("delay", delay, "want a delay that ends before the year 10000")
    return due_ms


def resolve_timing(
    *,
    at: Instant | None = None,
    delay: Duration | None = None,
    every: Duration | None = None,
    initial_delay: Duration | None = None,
    start: Instant | None = None,
    until: Instant | None = None,
    limit: int | None = None,
    words: Words = NO_WORDS,
) -> Timing:
    """The `Timing` of a schedule: exactly one of ``at``, ``delay``, ``every``, ``words.cron``, and what belongs to it.

    ``at``, ``start``, ``until`` are instants, ``delay``, ``every``, ``initial_delay`` durations; None is "not given".
    With ``every`` (1 ms or more) go ``initial_delay`` (0 fires at once) or ``start``; with it and ``cron`` ``until``,
    ``limit`` (1 or more) and the other ``words`` of recurring schedules. A duration that would end after the year 9999
    even if counted from 1970 is refused here; the rest of that check needs the time, and is made by who knows it.

    Raises `InvalidSchedule` naming the argument.
    """
    plain = words == NO_WORDS
    if (
        every is None
        and initial_delay is None
        and start is None
        and until is None
        and limit is None
        and plain
    ):
        if delay is None:
            if at is not None:
                return _once(resolve_instant(at), None)
        elif at is None:
            return _once(None, resolve_wait(delay, "delay"))

    choices = {"at": at, "delay": delay, "every": every, "cron": words.cron}
    given = [name for name, value in choices.items() if value is not None]
    if len(given) != 1:
        raise InvalidSchedule(
            "timing", " and ".join(given) or None, "want exactly one of at=, delay=, every=, cron="
        )
    if given[0] in ("at", "delay"):
        extras = {
            "initial_delay": initial_delay,
            "start": start,
            "until": until,
            "limit": limit,
            **words._asdict(),
        }
        field, got = next((name, value) for name, value in extras.items() if value is not None)
        raise InvalidSchedule(field, got, f"want {field}= only with recurring schedules (here: {given[0]}=)")

    start_ms = None if start is None else resolve_instant(start, field="start")
    until_ms = None if until is None else resolve_instant(until, field="until")
    if start_ms is not None and until_ms is not None and until_ms < start_ms:
        raise InvalidSchedule("until", until, "want until= at or after start=: nothing would ever fire")
    if limit is not None:
        if not is_whole(limit) or not 1 <= limit <= MAX_LIMIT:
            raise InvalidSchedule("limit", limit, "want the number of occurrences as an int, 1 or more")
        limit = int(limit)
    if every is None:
        if initial_delay is not None:
            raise InvalidSchedule(
                "initial_delay", initial_delay, "want initial_delay= only together with every="
            )
        rule = resolve_rule(words, None, start_ms)
        policy = resolve_policy(words, is_cron=True)
        return Timing("cron", None, None, None, start_ms, None, until_ms, limit, rule, policy)

    every_ms = resolve_wait(every, "every")
    if every_ms < 1 or (every_ms == 1 and type(every) is not int and exact_ms(every) < 1):
        raise InvalidSchedule("every", every, "want an interval of 1 ms or more")
    if initial_delay is not None:
        for name, value in (("start", start), ("anchor", words.anchor), ("jitter", words.jitter)):
            if value is not None:
                raise InvalidSchedule(
                    "initial_delay", initial_delay, f"want either initial_delay= or {name}=, not both"
                )
    initial_delay_ms = None if initial_delay is None else resolve_wait(initial_delay, "initial_delay")
    if plain:
        return Timing("every", None, None, every_ms, start_ms, initial_delay_ms, until_ms, limit)
    rule = resolve_rule(words, every_ms, start_ms)
    policy = resolve_policy(words, is_cron=False)
    return Timing("every", None, None, every_ms, start_ms, initial_delay_ms, until_ms, limit, rule, policy)


def resolve_wait(value: Duration, field: str) -> int:
    """A duration that can be counted from now, in ms: one longer than MAX_INSTANT_MS ends after 9999 in any case.

    Raises `InvalidSchedule` naming ``field``.
    """
    wait_ms = value if type(value) is int and value >= 0 else resolve_duration(value, field=field)
    if wait_ms > MAX_INSTANT_MS:
        raise InvalidSchedule(field, value, "want a duration that ends before the year 10000")
    return wait_ms


# Writing the slots one by one takes half the time of a frozen __init__; a bulk load makes 100,000 a second.
_new = object.__new__
(
    _set_kind,
    _set_at,
    _set_delay,
    _set_every,
    _set_start,
    _set_initial,
    _set_until,
    _set_limit,
    _set_rule,
    _set_policy,
) = (vars(Timing)[field.name].__set__ for field in fields(Timing))


def _once(at_ms: int | None, delay_ms: int | None) -> Timing:
    timing = _new(Timing)
    _set_kind(timing, "once")
    _set_at(timing, at_ms)
    _set_delay(timing, delay_ms)
    _set_every(timing, None)
    _set_start(timing, None)
    _set_initial(timing, None)
    _set_until(timing, None)
    _set_limit(timing, None)
    _set_rule(timing, None)
    _set_policy(timing, None)
    return timing
