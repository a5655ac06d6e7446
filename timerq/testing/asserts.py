"""Assertions about what is scheduled, with messages that say what is known of the key."""

from __future__ import annotations

from datetime import timedelta
from difflib import get_close_matches

from timerq.client import TimerQueue
from timerq.commands.history import History
from timerq.explain import sentences, utc
from timerq.explain.phrases import sentence
from timerq.explain.story import folded, story
from timerq.model import Schedule, State, instant_text
from timerq.testing.kit import TestQueue
from timerq.timing import Duration, Instant, resolve_duration, resolve_instant

_FIRES = (State.ARMED, State.CLAIMED)
_MOST = 5


def assert_scheduled(
    queue: TestQueue | TimerQueue,
    key: str,
    *,
    within: Duration | None = None,
    at: Instant | None = None,
    owner: str | None = None,
) -> Schedule:
    """Asserts that the schedule of ``key`` (and ``owner``) will fire; returns it.

    ``within``: no later than that from now, by the queue's clock; ``at``: its next occurrence is at that instant, to
    the millisecond. One that is paused or held will not fire. Raises AssertionError, and `InvalidSchedule` for a bad
    argument.
    """
    __tracebackhide__ = True
    within_ms = None if within is None else resolve_duration(within, field="within")
    at_ms = None if at is None else resolve_instant(at, field="at")
    client = queue.queue if isinstance(queue, TestQueue) else queue
    history = client.why(key, owner=owner)
    schedule, now_ms = history.schedule, history.asked_ms or 0
    name = _name(key, owner)
    if schedule is None:
        told = [f"{name} is not scheduled", *_past(queue, key, owner, history), *_others(client, key, owner)]
        raise AssertionError("\n".join(told))
    if schedule.state not in _FIRES:
        raise AssertionError("\n".join([f"{name} is {schedule.state}, and will not fire", *_known(history)]))
    if at_ms is not None and schedule.at_ms != at_ms:
        off = _span(abs(schedule.at_ms - at_ms))
        side = "later" if schedule.at_ms > at_ms else "earlier"
        raise AssertionError(
            f"{name} is due at {instant_text(schedule.at_ms)}: {off} {side} than {instant_text(at_ms)}"
        )
    if within_ms is not None and schedule.at_ms - now_ms > within_ms:
        raise AssertionError(
            f"{name} is due at {instant_text(schedule.at_ms)}: in {_span(schedule.at_ms - now_ms)}, "
            f"not within {_span(within_ms)} (it is {instant_text(now_ms)})"
        )
    return schedule


def assert_not_scheduled(queue: TestQueue | TimerQueue, key: str, *, owner: str | None = None) -> None:
    """Asserts that nothing waits under ``key`` (and ``owner``), also nothing paused. Raises AssertionError."""
    __tracebackhide__ = True
    client = queue.queue if isinstance(queue, TestQueue) else queue
    history = client.why(key, owner=owner)
    if history.schedule is not None:
        raise AssertionError("\n".join([f"{_name(key, owner)} is scheduled", *_known(history)]))


def _name(key: str, owner: str | None) -> str:
    return repr(key) if owner is None else f"{key!r} of {owner!r}"


def _span(span_ms: int) -> str:
    return f"{timedelta(milliseconds=span_ms)}"


def _known(history: History) -> list[str]:
    """What `why` knows, a line each."""
    return [f"  {sentence}" for sentence in sentences(history, last=_MOST)]


def _past(queue: TestQueue | TimerQueue, key: str, owner: str | None, history: History) -> list[str]:
    """What has become of a key that is not there any more. (Nobody but a kit has seen every event.)"""
    if not isinstance(queue, TestQueue):
        return _known(history)
    fired = [
        event
        for event in queue.events(key=key)
        if event.owner == owner and event.tenant == queue.queue.tenant
    ]
    past = [f"  {sentence(line, utc)}" for line in folded(story(history)[0])[-_MOST:]]
    if fired:
        times = "once" if len(fired) == 1 else f"{len(fired)} times"
        past.append(f"  Its event came {times}, the last one at {instant_text(fired[-1].fired_ms)}.")
    return past or ["  It was never set."]


def _others(client: TimerQueue, key: str, owner: str | None) -> list[str]:
    """What is scheduled instead: the same key of another owner, keys like it, or else the first ones."""
    same = [found for found in client.list_page(key, limit=_MOST * 4).items if found.key == key]
    if same:
        owners = [repr(found.owner) for found in same if found.owner is not None]
        whose = f"of {', '.join(owners[:_MOST])}" if owners else "without an owner"
        return [f"  There is one of this key {whose}."]
    page = client.list_page(owner=owner, limit=200)
    if not page.items:
        return ["  Nothing is scheduled at all." if owner is None else "  Its owner has nothing scheduled."]
    names = sorted({found.key for found in page.items})
    close = get_close_matches(key, names, n=_MOST)
    more = "" if close or (len(names) <= _MOST and page.cursor is None) else " …"
    return [
        f"  Scheduled {'like it' if close else 'are'}: {', '.join(map(repr, close or names[:_MOST]))}{more}"
    ]
