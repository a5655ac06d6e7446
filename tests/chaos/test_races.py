"""Two things at one instant, a thousand times each: whatever the order, both sides are told the truth about it.

A duel lets two threads go from a barrier, each with a connection of its own; Redis decides which comes first.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import redis

from tests.support.events import Events
from tests.support.proxy import wait_for
from tests.support.worker import Worker
from timerq import Event, Outcome, TimerQueue, Upsert
from timerq.clock import ask_redis
from timerq.commands import upsert as upserting
from timerq.commands.command import Scope
from timerq.commands.dispatch import Advance, Fired, Handover, advance, fire
from timerq.commands.items import one
from timerq.dispatcher import Dispatcher
from timerq.link import Link
from timerq.model import Change, Timing
from timerq.timing import Plan

TIMES = 1000
LONG_AGO = 1_000
HOUR = 3_600_000
Told = dict[str, str]


class Arena:
    """A namespace without a dispatcher: the test fires, from a link of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.queue = TimerQueue.connect(url)
        self.namespace = self.queue.init()
        self.link = Link(url, ask_redis)
        self.client: Any = redis.Redis.from_url(url)
        self._threads = ThreadPoolExecutor(8)
        self._seen = b"-"
        self._turn = 1

    def close(self) -> None:
        self._threads.shutdown()
        self.queue.close()
        self.link.close()
        self.client.close()

    def duel(self, *sides: Callable[[], Any]) -> list[Any]:
        """All sides at once; what each said."""
        barrier = threading.Barrier(len(sides))

        def go(side: Callable[[], Any]) -> Any:
            barrier.wait(30)
            return side()

        self._turn = -self._turn  # who is let go last runs first: each side is, every other time
        futures = [self._threads.submit(go, side) for side in sides[:: self._turn]]
        return [future.result(60) for future in futures][:: self._turn]

    def fire(self) -> Fired:
        (fired,) = self.link.send([fire(self.namespace, 0)])
        assert isinstance(fired, Fired)
        return fired

    def advance(self, *steps: Advance) -> list[str]:
        (answers,) = self.link.send([advance(self.namespace, 0, steps)])
        return list(answers)

    def settle(self, plan: Callable[[Handover], Advance]) -> None:
        """Fires and asks calendars until nothing is due."""
        while True:
            fired = self.fire()
            if fired.handovers:
                self.advance(*map(plan, fired.handovers))
            elif fired.wait_us != 0:
                return

    def told(self) -> list[Told]:
        """The events since the last call."""
        entries = self.client.xrange(self.namespace.tags[0] + b":s:events", self._seen)
        if entries:
            self._seen = b"(" + entries[-1][0]
        return [
            {name.decode(): value.decode("latin-1") for name, value in fields.items()}
            for _, fields in entries
        ]

    def arm_calendar(self, key: str, at_ms: int, following: int | None = None) -> int:
        scope = Scope(self.namespace, "default", b"default")
        item = upserting.build(
            scope,
            Upsert(key, Event("old")),
            Timing("cron"),
            f"@{at_ms}",
            ["d", "c events m old", "p", b"\xc0", "x", "x"],
            following=following,
        )
        return self.link.run(one(scope, item)).version

    def claim(self, key: str) -> Handover:
        """A calendar that is due and handed over."""
        self.arm_calendar(key, LONG_AGO)
        (handover,) = self.fire().handovers
        assert handover.word == "claimed"
        return handover


@pytest.fixture
def arena(redis_url: str) -> Iterator[Arena]:
    arena = Arena(redis_url)
    yield arena
    arena.close()


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


# ------------------------------------------------------------------------------------------------ against advance


def forward(handover: Handover) -> Advance:
    """The answer of a calendar with one occurrence an hour: nothing was missed, the next is far away."""
    return Advance(handover, handover.at_ms, 2**42)


def test_upsert_between_a_claim_and_its_advance(arena: Arena) -> None:
    seen: Counter[Any] = Counter()
    for _ in range(TIMES):
        claim = arena.claim("k")
        new, (answer,) = arena.duel(
            lambda: arena.queue.upsert("k", Event("new"), at=LONG_AGO),
            partial(arena.advance, forward(claim)),
        )
        assert new.outcome is Outcome.REPLACED
        arena.settle(forward)
        assert [event["type"] for event in arena.told()] == ["new"]
        seen[answer] += 1
    assert set(seen) == {"ADVANCED", "STALE"}


def test_cancel_between_a_claim_and_its_advance(arena: Arena) -> None:
    seen: Counter[Any] = Counter()
    for _ in range(TIMES):
        claim = arena.claim("k")
        change, (answer,) = arena.duel(
            lambda: arena.queue.cancel("k"), partial(arena.advance, forward(claim))
        )
        assert change.outcome is Outcome.CANCELLED
        arena.settle(forward)
        assert arena.told() == []
        assert arena.queue.get("k") is None
        seen[answer] += 1
    assert set(seen) == {"ADVANCED", "STALE"}


@pytest.mark.parametrize("resumed", ["later", "at once"])
def test_pause_between_a_claim_and_its_advance(arena: Arena, resumed: str) -> None:
    seen: Counter[Any] = Counter()
    for turn in range(TIMES):
        key = f"k{turn}"
        claim = arena.claim(key)

        def pause(key: str = key) -> Change:
            change = arena.queue.pause(key)
            if resumed == "at once":
                arena.queue.resume(key)
            return change

        change, (answer,) = arena.duel(pause, partial(arena.advance, forward(claim)))
        assert change.outcome is Outcome.PAUSED
        if resumed == "later":
            arena.settle(forward)
            assert arena.told() == []
            arena.queue.resume(key)
        arena.settle(forward)
        (event,) = arena.told()
        assert (event["at"], event["missed"], event["n"]) == (str(LONG_AGO), "0", "1")
        stored = arena.queue.get(key)
        assert stored is not None
        assert (stored.at_ms, stored.n) == (2**42, 1)
        seen[answer] += 1
        arena.queue.cancel(key)
    assert set(seen) == {"ADVANCED", "STALE"}


def test_trigger_between_a_claim_and_its_advance(arena: Arena) -> None:
    for turn in range(TIMES):
        claim = arena.claim(f"k{turn}")
        change, (answer,) = arena.duel(
            partial(arena.queue.trigger, f"k{turn}"),
            partial(arena.advance, forward(claim)),
        )
        assert (change.outcome, answer) == (Outcome.TRIGGERED, "ADVANCED")
        arena.settle(forward)
        triggered, tick = arena.told()
        assert (triggered["id"], tick["n"], tick["at"]) == (change.event_id, "1", str(LONG_AGO))
        arena.queue.cancel(f"k{turn}")


def test_two_advances_of_one_claim(arena: Arena) -> None:
    """The second is that of a dispatcher that was stopped, and wakes up while another does its work."""
    for turn in range(TIMES):
        claim = arena.claim(f"k{turn}")

        def whole(claim: Handover = claim) -> list[str]:
            answers = arena.advance(forward(claim))
            arena.settle(forward)
            return answers

        answers = arena.duel(whole, partial(arena.advance, Advance(claim, claim.at_ms, 2**41, missed=9)))
        assert sorted(answer for (answer,) in answers) == ["ADVANCED", "STALE"]
        arena.settle(forward)
        (event,) = arena.told()
        assert (event["n"], event["at"], event["missed"]) == (
            "1",
            str(LONG_AGO),
            "0" if answers[0] == ["ADVANCED"] else "9",
        )
        arena.queue.cancel(f"k{turn}")


# ------------------------------------------------------------------------------------------------ a stopped dispatcher

STOPS_ITSELF = """
import os, signal, sys
import timerq.commands.dispatch as dispatch
dispatch.LEASE_MS = 300
import workers.dispatch
from timerq.dispatcher import Dispatcher
from timerq.timing import Plan

STEP = 100

def plan(definition, at_ms, now_ms):
    missed = max(0, (now_ms - at_ms) // STEP)
    following = at_ms + (missed + 1) * STEP
    if now_ms != at_ms:  # it has claimed, and has not advanced
        print("claimed", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    return Plan(following, following + STEP, missed)

make = Dispatcher.__init__
Dispatcher.__init__ = lambda self, *args, **kwargs: make(self, *args, **kwargs, planner=plan)
sys.exit(workers.dispatch.main())
"""


def every_100_ms(definition: Mapping[str, str], at_ms: int, now_ms: int) -> Plan:
    missed = max(0, (now_ms - at_ms) // 100)
    following = at_ms + (missed + 1) * 100
    return Plan(following, following + 100, missed)


@pytest.mark.one_server
def test_a_dispatcher_that_is_stopped_between_claim_and_advance(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timerq.commands.dispatch.LEASE_MS", 300)
    seconds, micros = arena.client.time()
    start = int(seconds) * 1000 + int(micros) // 1000 - 250
    arena.arm_calendar("c", start)
    stopped = Worker(arena.url, program=STOPS_ITSELF)
    try:
        with Events(arena.url, arena.namespace) as events:
            stopped.start(wait=False)
            stopped.wait_for_line("claimed")
            wait_for(lambda: _is_stopped(stopped.pid), "it stands still")
            assert events.all == []
            with Dispatcher(arena.url, planner=every_100_ms):
                for turn in range(4):
                    events.wait(5 * (turn + 1), key="c")
                    stopped.thaw()  # its advance comes far too late
                    events.wait(5 * (turn + 1) + 3, key="c")
                    if turn < 3:  # it may have been handed a claim again, and stopped again
                        stopped.thaw()
                found = events.wait(25, key="c")
            events.check()
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
        stopped.kill()
    slots = [event.at_ms + i * 100 for event in found for i in range(event.missed + 1)]
    assert slots == [start + i * 100 for i in range(len(slots))]
    assert [event.n for event in found] == list(range(1, len(found) + 1))


def _is_stopped(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "T"
