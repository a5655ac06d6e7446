"""Two things at one instant, a thousand times each: whatever the order, both sides are told the truth about it.

Those of calendars are in test_calendar_races.py.
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
HOUR = 3_600_000


@pytest.fixture
def arena(redis_url: str) -> Iterator[Arena]:
    with Arena(redis_url) as arena:
        yield arena


def both(seen: Counter[Any], *outcomes: Outcome) -> None:
    """It was a race: each side has won at times."""
    assert set(seen) == set(outcomes)
    assert seen.total() == TIMES


# ------------------------------------------------------------------------------------------------ against fire


def test_replace_against_fire(arena: Arena) -> None:
    seen: Counter[Any] = Counter()
    for _ in range(TIMES):
        old = arena.queue.upsert("k", Event("old"), at=LONG_AGO)
        new, _ = arena.duel(lambda: arena.queue.upsert("k", Event("new"), at=LONG_AGO), arena.fire)
        arena.fire()
        told = [(event["type"], int(event["version"])) for event in arena.told()]
        if new.outcome is Outcome.REPLACED:
            assert new.replaced_version == old.version
            assert told == [("new", new.version)]
        else:
            assert told == [("old", old.version), ("new", new.version)]
        seen[new.outcome] += 1
    both(seen, Outcome.REPLACED, Outcome.CREATED)


def test_a_fenced_replace_against_fire(arena: Arena) -> None:
    seen: Counter[Any] = Counter()
    for _ in range(TIMES):
        old = arena.queue.upsert("k", Event("old"), at=LONG_AGO)
        new, _ = arena.duel(
            partial(arena.queue.upsert, "k", Event("new"), at=LONG_AGO, if_version=old.version),
            arena.fire,
        )
        arena.fire()
        told = [event["type"] for event in arena.told()]
        assert told == (["new"] if new.outcome is Outcome.REPLACED else ["old"])
        seen[new.outcome] += 1
    both(seen, Outcome.REPLACED, Outcome.VERSION_MISMATCH)


def test_cancel_against_fire(arena: Arena) -> None:
    seen: Counter[Any] = Counter()
    for _ in range(TIMES):
        arena.queue.upsert("k", Event("old"), at=LONG_AGO)
        change, _ = arena.duel(lambda: arena.queue.cancel("k"), arena.fire)
        arena.fire()
        assert len(arena.told()) == (change.outcome is Outcome.NOT_PENDING)
        seen[change.outcome] += 1
    both(seen, Outcome.CANCELLED, Outcome.NOT_PENDING)


def test_a_handles_cancel_against_a_replace(arena: Arena) -> None:
    seen: Counter[Any] = Counter()
    for _ in range(TIMES):
        handle = arena.queue.upsert("k", Event("old"), at=LONG_AGO)
        cancelled, new = arena.duel(handle.cancel, lambda: arena.queue.upsert("k", Event("new"), at=LONG_AGO))
        arena.fire()
        assert [event["type"] for event in arena.told()] == ["new"]
        assert (new.outcome is Outcome.CREATED) == cancelled
        seen[new.outcome] += 1
    both(seen, Outcome.CREATED, Outcome.REPLACED)


def test_pause_against_fire(arena: Arena) -> None:
    seen: Counter[Any] = Counter()
    for _ in range(TIMES):
        arena.queue.upsert("k", Event("old"), at=LONG_AGO)
        change, _ = arena.duel(lambda: arena.queue.pause("k"), arena.fire)
        arena.fire()
        if change.outcome is Outcome.PAUSED:
            assert arena.told() == []
            assert arena.queue.resume("k").outcome is Outcome.RESUMED
            arena.fire()
        assert len(arena.told()) == 1
        assert arena.queue.get("k") is None
        seen[change.outcome] += 1
    both(seen, Outcome.PAUSED, Outcome.NOT_PENDING)


@pytest.mark.parametrize("consume", [False, True])
def test_trigger_against_fire(arena: Arena, consume: bool) -> None:
    seen: Counter[Any] = Counter()
    for _ in range(TIMES):
        old = arena.queue.upsert("k", Event("old"), at=LONG_AGO)
        change, _ = arena.duel(lambda: arena.queue.trigger("k", consume=consume), arena.fire)
        arena.fire()
        ids = [event["id"] for event in arena.told()]
        fired = f"0-{old.version}-1"
        if change.outcome is Outcome.TRIGGERED:
            assert ids == ([change.event_id] if consume else [change.event_id, fired])
        else:
            assert ids == [fired]
        seen[change.outcome] += 1
    both(seen, Outcome.TRIGGERED, Outcome.NOT_PENDING)


@pytest.mark.parametrize("verb", ["pause", "upsert", "cancel", "trigger"])
def test_changes_of_an_interval_against_fire(arena: Arena, verb: str) -> None:
    """Whatever comes between, each slot of the grid is told once, and none that was not due."""
    slots: dict[int, list[int]] = {}
    count = Counter[str]()
    for _ in range(TIMES):
        arena.queue.upsert("k", Event("tick"), every=1, limit=1_000_000, initial_delay=0)
        sides: dict[str, Callable[[], Any]] = {
            "pause": lambda: arena.queue.pause("k"),
            "upsert": lambda: arena.queue.upsert("k", Event("tick"), every=2, initial_delay=0),
            "cancel": lambda: arena.queue.cancel("k"),
            "trigger": lambda: arena.queue.trigger("k"),
        }
        arena.duel(sides[verb], arena.fire)
        if verb == "pause":
            quiet_from = len(arena.told())
            arena.fire()
            assert arena.told() == []
            arena.queue.resume("k")
            count["before" if quiet_from else "after"] += 1
        arena.fire()
        arena.queue.cancel("k")
    for event in arena.client.xrange(arena.namespace.tags[0] + b":s:events"):
        fields = event[1]
        if b"-t" in fields[b"id"]:
            count["triggered"] += 1
            continue
        told = slots.setdefault(int(fields[b"version"]), [])
        at, missed = int(fields[b"at"]), int(fields[b"missed"])
        told.extend(range(at, at + missed + 1))  # the grid of 1 ms; of 2 ms only the order matters below
        assert int(fields[b"fired_ms"]) >= at
    if verb == "trigger":
        assert count["triggered"] == TIMES
    if verb != "upsert":
        assert all(told == list(range(told[0], told[0] + len(told))) for told in slots.values())
    else:
        assert all(told == sorted(told) for told in slots.values())


def test_two_dispatchers_on_one_partition(arena: Arena) -> None:
    for turn in range(TIMES):
        arena.queue.upsert_many([Upsert(f"k{n}", Event("t"), at=LONG_AGO) for n in range(5)])
        fired = arena.duel(arena.fire, arena.fire)
        assert fired[0].published + fired[1].published == 5, turn
        assert sorted(event["key"] for event in arena.told()) == [f"k{n}" for n in range(5)]


@pytest.mark.parametrize(("mode", "wins"), [("earliest", min), ("latest", max)])
def test_eight_producers_agree(arena: Arena, mode: Any, wins: Callable[[list[int]], int]) -> None:
    for turn in range(TIMES):
        instants = [HOUR + (turn * 7919 + n * 104_729) % 1009 for n in range(8)]
        handles = arena.duel(
            *[partial(arena.queue.upsert, "k", Event("t", at), at=at, mode=mode) for at in instants]
        )
        stored = arena.queue.get("k")
        assert stored is not None
        assert stored.at_ms == stored.event.payload == wins(instants)
        outcomes = Counter(handle.outcome for handle in handles)
        assert outcomes[Outcome.CREATED] == 1
        assert outcomes.total() == 8
        assert max(handle.version for handle in handles) == stored.version
        arena.queue.cancel("k")
