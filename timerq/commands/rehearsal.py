"""What an upsert or a backfill would do: asked without doing it, so nothing is written and no namespace is made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from timerq import keys
from timerq.commands.arming import Upsert, timing_of
from timerq.commands.command import Scope, Steps
from timerq.commands.read import get, server_time
from timerq.commands.recurring import occurrences_between, past_range, upcoming
from timerq.commands.upsert import WANT, item
from timerq.commands.wording import Difference, differences, words_of
from timerq.errors import InvalidSchedule
from timerq.model import Outcome, Schedule, State, Timing
from timerq.timing import MAX_INSTANT_MS, Instant, first_instants, is_asked, occurrences_from

NEXT = 5
"""How many instants are told of what would be stored."""

_FORGETFUL = "want none to see what would happen: what it does depends on what only the call itself finds"


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What an upsert would do to the schedule of ``key`` (and ``owner``).

    ``outcome`` is what it would answer: CREATED, REPLACED, UNCHANGED, KEPT or VERSION_MISMATCH. ``version`` and
    ``stored`` are what is stored now (0 and None: nothing). ``words`` are those asked for, ``differences`` those that
    would change, old and new. ``timing`` is what would be stored then, ``state`` its state and ``upcoming`` its next
    instants, at most five (None and none: nothing would be).
    """

    outcome: Outcome
    key: str
    owner: str | None
    version: int
    stored: Schedule | None
    words: dict[str, Any]
    differences: tuple[Difference, ...]
    timing: Timing | None
    state: State | None
    upcoming: tuple[datetime, ...]

    def __bool__(self) -> bool:
        return self.outcome is not Outcome.VERSION_MISMATCH


def rehearse(scope: Scope, wanted: Upsert, now_ms: int) -> Steps[Rehearsed]:
    """What ``wanted`` would do now; ``now_ms`` is the time (epoch ms) where there is no namespace to ask for Redis's.

    Raises `InvalidSchedule` as the upsert would; also for ``idempotency_key`` and ``max_wait``, which go by what the
    queue remembers.
    """
    for name in ("idempotency_key", "max_wait"):
        if (value := getattr(wanted, name)) is not None:
            raise InvalidSchedule(name, value, _FORGETFUL)
    wanted = wanted.settled()
    now_ms = yield from _time(scope, now_ms)
    item(scope, wanted, now=lambda: now_ms)
    timing, first_ms, ended = _first(scope, wanted, now_ms)
    stored = yield from get(scope, wanted.key, wanted.owner)
    outcome, changes = _outcome(wanted, timing, first_ms, stored)
    after = stored
    if outcome in (Outcome.CREATED, Outcome.REPLACED):
        if ended is not None:
            raise ended
        after = _stored(scope, wanted, timing, first_ms, stored)
    elif outcome is Outcome.UNCHANGED and stored is not None:
        after = replace(stored, state=_state(wanted, stored, stored.state))
    return Rehearsed(
        outcome,
        wanted.key,
        wanted.owner,
        0 if stored is None else stored.version,
        stored,
        words_of(wanted.event, timing),
        changes,
        None if after is None else after.timing,
        None if after is None else after.state,
        () if after is None else tuple(upcoming(after, NEXT)),
    )


def backfill_size(
    scope: Scope, key: str, owner: str | None, start: Instant, end: Instant, now_ms: int
) -> Steps[int | None]:
    """How many events a backfill would publish, None where there is no such schedule; ``now_ms`` as in `rehearse`.

    Raises `InvalidSchedule` as the backfill would.
    """
    now_ms = yield from _time(scope, now_ms)
    span = past_range(start, end, now_ms)
    schedule = yield from get(scope, key, owner)
    return None if schedule is None else len(occurrences_between(schedule, *span))


def _time(scope: Scope, now_ms: int) -> Steps[int]:
    if not scope.namespace.layout:
        return now_ms
    (server_ms,) = yield [server_time(scope.namespace)]
    return server_ms  # type: ignore[no-any-return]


def _first(scope: Scope, wanted: Upsert, now_ms: int) -> tuple[Timing, int, InvalidSchedule | None]:
    """What is asked for, and when it would first be due (epoch ms): as the script has it.

    Last, why it would be refused where its `until` is before that, unless it is stored just so.
    """
    timing = timing_of(wanted)
    if timing.kind == "once":
        due_ms = timing.at_ms if timing.delay_ms is None else now_ms + timing.delay_ms
        if due_ms is None or due_ms > MAX_INSTANT_MS:
            raise InvalidSchedule("delay", wanted.delay, WANT["delay"])
        return Timing("once", at_ms=due_ms), due_ms, None
    id = keys.identity(scope.tenant_bytes, wanted.key.encode(), (wanted.owner or "").encode())
    if is_asked(timing):
        try:
            return timing, first_instants(timing, id, now_ms)[0], None
        except InvalidSchedule as error:
            if error.field != "until":
                raise
            return timing, MAX_INSTANT_MS, error
    first_ms = occurrences_from(replace(timing, until_ms=None), id, now_ms).next_ms(now_ms - 1)
    if first_ms is None:
        raise InvalidSchedule("every", wanted.every, WANT["every"])
    if timing.until_ms is not None and first_ms > timing.until_ms:
        return timing, first_ms, InvalidSchedule("until", wanted.until, WANT["until"])
    return timing, first_ms, None


def _outcome(
    wanted: Upsert, timing: Timing, first_ms: int, stored: Schedule | None
) -> tuple[Outcome, tuple[Difference, ...]]:
    """What the script would answer, and the words that would change."""
    if wanted.if_version is not None and wanted.if_version != (0 if stored is None else stored.version):
        return Outcome.VERSION_MISMATCH, ()
    if stored is None:
        return Outcome.CREATED, ()
    if wanted.mode == "keep":
        return Outcome.KEPT, ()
    changes = differences(words_of(stored.event, stored.timing), words_of(wanted.event, timing))
    if stored.label is not None:
        changes += (Difference("set", stored.label, None),)  # it is declared no more
    same = not changes
    if wanted.paused is not None and wanted.paused != (stored.state is State.PAUSED):
        changes += (Difference("paused", not wanted.paused, wanted.paused),)
    if timing.kind != "once":
        if same and not (wanted.restart or wanted.reset or stored.state is State.HELD):
            return Outcome.UNCHANGED, changes
        fired = 0 if wanted.reset or stored.timing.kind == "once" else stored.fired_total
        if timing.limit is not None and fired >= timing.limit:
            raise InvalidSchedule("limit", wanted.limit, WANT["limit"])
    elif wanted.mode in ("earliest", "latest"):
        if stored.timing.kind != "once":
            raise InvalidSchedule("mode", wanted.mode, WANT["mode"])
        if first_ms == stored.at_ms or (first_ms > stored.at_ms) == (wanted.mode == "earliest"):
            return Outcome.KEPT, ()
    return Outcome.REPLACED, changes


def _stored(scope: Scope, wanted: Upsert, timing: Timing, first_ms: int, stored: Schedule | None) -> Schedule:
    """The schedule as it would be stored."""
    recurs = timing.kind != "once" and stored is not None and stored.timing.kind != "once"
    return Schedule(
        key=wanted.key,
        event=wanted.event,
        timing=timing,
        at_ms=first_ms,
        version=0,
        state=_state(wanted, stored, State.ARMED),
        owner=wanted.owner,
        tenant=scope.tenant,
        fired_total=stored.fired_total if recurs and stored is not None and not wanted.reset else 0,
    )


def _state(wanted: Upsert, stored: Schedule | None, other: State) -> State:
    """Paused, or armed where it was; else the ``other`` one."""
    was_paused = stored is not None and stored.state is State.PAUSED
    if wanted.paused or (was_paused and wanted.paused is None):
        return State.PAUSED
    return State.ARMED if was_paused else other
