"""Destroy at one instant with what arms, fires and changes an owner's timers, a thousand times each: whichever comes
first, nothing that was armed before reaches the stream once destroy has returned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.support.arena import Arena
from timerq import Event, Outcome, Upsert

TIMES = 1000
LONG_AGO = 1_000


@pytest.fixture
def arena(redis_url: str) -> Iterator[Arena]:
    with Arena(redis_url) as arena:
        yield arena


def both(seen: Counter[Any], *outcomes: Any) -> None:
    """It was a race: each side has won at times."""
    assert set(seen) == set(outcomes)
    assert seen.total() == TIMES


def test_destroy_against_fire(arena: Arena) -> None:
    seen: Counter[Any] = Counter()
    for turn in range(TIMES):
        timers = arena.queue.owner(f"o{turn % 3}").open()
        timers.start_single("k", Event("t"), 0)
        swept, fired = arena.duel(timers.destroy, arena.fire)
        assert swept + fired.published == 1
        assert len(arena.told()) == fired.published
        arena.fire()
        assert arena.told() == []
        seen[int(swept)] += 1
    both(seen, 0, 1)


def test_destroy_against_upsert(arena: Arena) -> None:
    """What comes too late is told so; what comes in time dies."""
    seen: Counter[Any] = Counter()
    for turn in range(TIMES):
        timers = arena.queue.owner(f"o{turn % 3}").open()
        timers.start_single("old", Event("t"), 0)
        swept, new = arena.duel(timers.destroy, partial(timers.start_single, "k", Event("t"), 0))
        assert swept == (2 if new.outcome is Outcome.CREATED else 1)
        arena.fire()
        assert arena.told() == []
        seen[new.outcome] += 1
    both(seen, Outcome.CREATED, Outcome.OWNER_GONE)


def test_destroy_against_a_new_incarnation(arena: Arena) -> None:
    """Whatever the new one was told is true: what it armed is there, or it is gone as well."""
    seen: Counter[Any] = Counter()
    for turn in range(TIMES):
        name = f"o{turn % 3}"
        old, new = arena.queue.owner(name).open(), arena.queue.owner(name)
        old.start_single("k", Event("old"), 0)
        _, handle = arena.duel(old.destroy, partial(new.start_single, "k", Event("new"), 0))
        arena.fire()
        told = [event["type"] for event in arena.told()]
        alive = new.start_single("again", Event("t"), "1h").outcome is Outcome.CREATED
        if alive:  # it began behind the destroy
            assert handle.outcome is Outcome.CREATED
            assert told == ["new"]
        else:
            assert told == []
        seen[alive] += 1
        new.restart()
    both(seen, True, False)


@pytest.mark.parametrize("verb", ["trigger", "publish", "cancel", "pause"])
def test_destroy_against_a_change(arena: Arena, verb: str) -> None:
    seen: Counter[Any] = Counter()
    for turn in range(TIMES):
        timers = arena.queue.owner(f"o{turn % 3}").open()
        other = arena.queue.owner(timers.name).open()
        timers.start_single("k", Event("t"), "1h")
        changes: dict[str, Callable[[], Any]] = {
            "trigger": partial(other.trigger, "k"),
            "publish": partial(other.publish, Event("t"), key="k"),
            "cancel": partial(other.cancel, "k"),
            "pause": partial(other.pause, "k"),
        }
        swept, said = arena.duel(timers.destroy, changes[verb])
        told = arena.told()
        assert len(told) == (bool(said) if verb in ("trigger", "publish") else 0)
        assert swept == (0 if verb == "cancel" and said else 1)
        if verb != "cancel":
            assert bool(said) == (said.outcome is not Outcome.OWNER_GONE)
        assert not other.trigger("k")
        assert arena.told() == []
        seen[bool(said)] += 1
    both(seen, True, False)


def test_two_destroys_and_a_dispatcher_of_many(arena: Arena) -> None:
    """Three sweep one owner of 450 timers at once, and a new incarnation arms meanwhile."""
    for turn in range(TIMES // 20):
        name = f"o{turn % 3}"
        timers = arena.queue.owner(name).open()
        timers.upsert_many([Upsert(f"k{i:03}", Event("old"), at=LONG_AGO) for i in range(450)])
        successor = arena.queue.owner(name)
        new = [Upsert(key, Event("new"), delay="1h") for key in ("k100", "z")]
        _, _, _, handles = arena.duel(
            timers.destroy,
            arena.queue.owner(name).destroy,
            arena.fire,
            partial(successor.upsert_many, new),
        )
        early = arena.told()
        while arena.fire().wait_us == 0:
            pass
        assert arena.told() == []
        assert {event["type"] for event in early} <= {"old"}
        left = [schedule.key for schedule in arena.queue.list(owner=name)]
        outcomes = [handle.outcome for handle in handles]
        if successor.is_active("z"):
            assert left == ["k100", "z"]
            assert outcomes == [Outcome.CREATED, Outcome.CREATED]
        else:
            assert left == []
        successor.restart()
