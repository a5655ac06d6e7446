"""No tick of a calendar is lost and none comes twice, wherever a dispatcher dies or stands still.

The instant that matters lies between `fire`, which hands a calendar over, and `advance`, which says what it answered.
Each turn of these tests visits it: time is a manual clock, and the dispatchers are driven by hand or are processes that
kill or stop themselves there. What was published, told or counted as left out is then compared with the preview.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.arena import Arena
from tests.support.events import Events
from tests.support.state import check_structure, dump
from tests.support.ticks import calendar, previewed, told
from tests.support.worker import ROOT, Worker
from timerq import Event, Outcome, TimerQueue
from timerq.commands.dispatch import LEASE_MS, Advance, Fired, ask
from timerq.dispatcher import Dispatcher
from timerq.testing import ManualClock, fire_due, fire_until
from timerq.timing import plan

TIMES = 1000
REAL = 100
SECOND, MINUTE = 1000, 60_000
EVENT = Event("t")
EVERY_MINUTE = "* * * * *"
START = "2026-03-28T20:00:00Z"
"""Five hours before the clocks of Paris go forward."""

GRACE = {SECOND: 8_000, MINUTE: 90_000}
LEFT_OUT = "schedule.skipped"


def schedules(period_ms: int) -> dict[str, dict[str, Any]]:
    """One of each kind; at each tick nearly all of them are due."""
    cron = "* * * * * *" if period_ms == SECOND else EVERY_MINUTE
    return {
        "plain": {"cron": cron, "timezone": "Europe/Paris"},
        "several": {"cron": [cron, "0 */2 * * *"], "exclude": "*/7 * * * *", "timezone": "Europe/Paris"},
        "jitter": {"every": period_ms, "jitter": period_ms // 2},
        "skip": {"every": period_ms, "misfire": "skip", "grace": GRACE[period_ms]},
        "skip cron": {"cron": cron, "misfire": "skip", "grace": GRACE[period_ms]},
        "catch up": {"cron": cron, "misfire": "catch_up", "max_catch_up": 1000},
        "catch up a few": {"cron": cron, "misfire": "catch_up", "max_catch_up": 3},
        "overlap skip": {"cron": cron, "overlap": "skip"},
        "overlap queue": {"cron": cron, "overlap": "queue"},
    }


class Field:
    """Schedules of all kinds, dispatchers that fail, and a consumer that is done when it pleases."""

    def __init__(self, arena: Arena, period_ms: int, seed: int) -> None:
        self.arena, self.period_ms, self.luck = arena, period_ms, random.Random(seed)
        self.first = {
            key: arena.queue.upsert(key, EVENT, **words).at_ms for key, words in schedules(period_ms).items()
        }
        self.visited: Counter[tuple[str, str]] = Counter()
        self.answers: Counter[str] = Counter()
        self._events: list[dict[str, str]] = []
        self._running: deque[str] = deque()
        self._paused: set[str] = set()
        self.meddled: Counter[str] = Counter()

    def pass_time(self) -> None:
        """Less than a period or more, less than the lease or more."""
        self.arena.clock.advance(
            self.luck.choice(
                [
                    self.period_ms // 3,
                    *[self.period_ms] * 4,
                    self.period_ms * 2,
                    self.luck.randrange(3 * self.period_ms),
                    LEASE_MS - 1,
                    LEASE_MS,
                ]
            )
        )

    def visit(self, fired: Fired) -> None:
        for handover in fired.handovers:
            self.visited[handover.id.split(b"\0")[1].decode(), handover.word] += 1

    def fire_until_handed_over(self) -> Fired:
        """A dispatcher's call that hands over at least one calendar; time passes until there is one."""
        while True:
            fired = self.arena.fire()
            if fired.handovers:
                self.visit(fired)
                return fired
            if fired.wait_us != 0:
                self.pass_time()

    def ask(self, fired: Fired) -> list[Advance]:
        return [ask(plan, handover, fired.now_us // 1000) for handover in fired.handovers]

    def consume(self) -> None:
        """Says of some events that they are handled."""
        self._collect()
        while self._running and self.luck.random() < 0.7:
            self.arena.queue.done(self._running.popleft())

    def _collect(self) -> None:
        new = [event for event in self.arena.told() if "-t" not in event["id"]]
        self._events += new
        self._running += [event["id"] for event in new if event["key"].startswith("overlap")]

    def meddle(self) -> None:
        """What people do meanwhile, none of which takes or adds an occurrence."""
        if self.luck.random() < 0.5:
            return
        queue, key = self.arena.queue, self.luck.choice([*self.first])
        change = self.luck.choice(["pause", "resume", "trigger", "upsert", "upsert paused", "upsert resumed"])
        if len(self._paused) > 3:
            change = "resume"
        if change in ("resume", "upsert resumed") and self._paused:
            key = self._paused.pop()
        elif change in ("pause", "upsert paused"):
            self._paused.add(key)
        if change.startswith("upsert"):
            paused = {"upsert paused": True, "upsert resumed": False}.get(change)
            handle = queue.upsert(key, EVENT, paused=paused, **schedules(self.period_ms)[key])
            assert handle.outcome is Outcome.UNCHANGED
        else:
            assert getattr(queue, change)(key)
        self.meddled[change] += 1

    def finish(self) -> None:
        """All is well again, and everything due is fired."""
        while self._paused:
            self.arena.queue.resume(self._paused.pop())
        self.arena.clock.advance(LEASE_MS)  # the last claim holds no longer
        self.arena.settle()
        self._collect()
        while self._running:
            self.arena.queue.done(self._running.popleft())
            self.arena.settle()
            self._collect()

    def check(self) -> None:
        """What was published, and what was left out by a rule, is what the preview has."""
        arena = self.arena
        now_ms = arena.clock.now_ms
        assert [id for id, count in Counter(event["id"] for event in self._events).items() if count > 1] == []
        for key, words in schedules(self.period_ms).items():
            stored = arena.queue.get(key)
            slots = calendar(stored)
            assert stored.at_ms == slots.next_ms(now_ms), key
            wanted = previewed(slots, self.first[key], now_ms)
            events = [event for event in self._events if event["key"] == key]
            assert [int(event["n"]) for event in events] == list(range(1, len(events) + 1))
            assert all(int(event["fired_ms"]) >= int(event["at"]) for event in events)
            found = told(slots, [(int(event["at"]), int(event["missed"])) for event in events])
            assert found == sorted(set(found)), f"{key}: some come twice, or out of order"
            counts = (stored.fired_total, stored.missed_total, stored.skipped_total)
            assert counts == (len(events), len(found) - len(events), len(wanted) - len(found)), key
            if words.get("overlap") == "skip":
                found = sorted(found + self._left_out(slots, key))
            if "misfire" in words:
                assert set(found) <= set(wanted), key
                late = max(int(event["fired_ms"]) - int(event["at"]) for event in events)
                if words["misfire"] == "skip":
                    assert self.period_ms // 4 < late <= words["grace"]
                else:
                    assert all(event["missed"] == "0" for event in events)
            if words.get("misfire") == "skip" or words.get("max_catch_up") == 3:
                assert 0 < stored.skipped_total < len(wanted), key
            else:
                assert found == wanted, key
        check_structure(dump(arena.client), arena.namespace.tags)

    def _left_out(self, slots: Any, key: str) -> list[int]:
        """The occurrences that were left out because the one before was still running."""
        tag = self.arena.namespace.tags[0]
        ats = [
            int(fields[b"at"])
            for _, fields in self.arena.client.xrange(tag + b":s:errors")
            if (fields[b"type"], fields[b"key"]) == (LEFT_OUT.encode(), key.encode())
        ]
        counts = [
            int(fields[b"note"].split(b" ")[0])
            for _, fields in self.arena.client.xrange(tag + b":log")
            if fields[b"what"] == b"skipped"
            and fields[b"id"].split(b"\0")[1] == key.encode()
            and fields[b"note"].endswith(b"is not done")
        ]
        return told(slots, [(at, count - 1) for at, count in zip(ats, counts, strict=True)])


@pytest.fixture(params=[SECOND, MINUTE], ids=["shorter than the lease", "longer than the lease"])
def ground(redis_url: str, request: pytest.FixtureRequest) -> Iterator[Field]:
    seed = random.randrange(1000)
    print(f"seed {seed}")
    with Arena(redis_url, ManualClock(START)) as arena:
        yield Field(arena, request.param, seed)


def visited_often(ground: Field, least: int) -> None:
    """No kind was spared, neither where it had fired nor where it was claimed."""
    assert {key for key, _ in ground.visited} == ground.first.keys()
    for word in ("refill", "claimed"):
        counts = {key: count for (key, at), count in ground.visited.items() if at == word}
        assert len(counts) == len(ground.first)
        assert min(counts.values()) >= least, (word, counts)


def test_a_dispatcher_that_dies_between_fire_and_advance(ground: Field) -> None:
    for _ in range(TIMES):
        fired = ground.fire_until_handed_over()
        steps = ground.ask(fired)
        said = steps[: ground.luck.choice([0, 0, 0, len(steps) // 2])]  # it may have told a part of it
        if said:
            assert ground.arena.advance(*said) == ["ADVANCED"] * len(said)
        ground.pass_time()
        if ground.luck.random() < 0.7:
            ground.arena.settle()  # another one goes on
        ground.consume()
        ground.meddle()
    ground.finish()
    ground.check()
    visited_often(ground, TIMES // 100)
    assert len(ground.meddled) == 6


def test_a_dispatcher_that_stands_still_between_fire_and_advance(ground: Field) -> None:
    """It wakes up behind the next tick, or much later, when others have done its work or nobody has."""
    stopped: deque[tuple[Fired, list[Advance] | None]] = deque()
    for _ in range(TIMES):
        fired = ground.fire_until_handed_over()
        # it stood still before it had asked the calendars, or after
        stopped.append((fired, ground.ask(fired) if ground.luck.random() < 0.5 else None))
        ground.arena.clock.advance(ground.period_ms)
        if ground.luck.random() < 0.7:
            ground.pass_time()
        if ground.luck.random() < 0.7:
            ground.arena.settle()
        while stopped and ground.luck.random() < 0.6:
            woken, steps = stopped.popleft()
            ground.answers.update(ground.arena.advance(*(steps or ground.ask(woken))))
        ground.consume()
        ground.meddle()
    ground.finish()
    ground.check()
    visited_often(ground, TIMES // 100)
    assert len(ground.meddled) == 6
    assert set(ground.answers) == {"ADVANCED", "STALE"}
    assert min(ground.answers.values()) > TIMES // 20, ground.answers


# ------------------------------------------------------------------------------------------------ processes

NURSERY = """
import os, signal, sys
from collections import Counter
from timerq.commands.dispatch import advance, ask, fire
from timerq.commands.namespace import open_namespace
from timerq.link import Link
from timerq.timing import plan

def dispatch(url, how, now_ms):
    "A dispatcher for one turn; whatever becomes of it, it leaves no trace but in Redis."
    link = Link(url, lambda: now_ms)
    namespace = link.run(open_namespace("timerq"))
    (fired,) = link.send([fire(namespace, 0)])
    words = Counter(handover.word for handover in fired.handovers)
    sys.stdout.write(f"{words['refill']} {words['claimed']}\\n")
    sys.stdout.flush()
    os.kill(os.getpid(), how)
    steps = [ask(plan, handover, now_ms) for handover in fired.handovers]
    answers = link.send([advance(namespace, 0, steps)])[0] if steps else []
    sys.stdout.write(" ".join(answers) + "\\n")
    sys.stdout.flush()

for line in sys.stdin:
    word, *more = line.split()
    if word == "wait":
        pid, status = os.waitpid(int(more[0]), 0)
        print("ended", status, flush=True)
        continue
    pid = os.fork()
    if pid == 0:
        try:
            dispatch(sys.argv[1], getattr(signal, word), int(more[0]))
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, os.WUNTRACED)
    print(pid, status, flush=True)
"""


@dataclass
class Nursery:
    """Makes dispatchers that are processes of their own and die, or stand still, between fire and advance."""

    url: str
    process: Any = field(init=False)

    def __enter__(self) -> Nursery:
        self.process = subprocess.Popen(
            [sys.executable, "-c", NURSERY, self.url],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()

    def _say(self, *words: object) -> None:
        print(*words, file=self.process.stdin, flush=True)

    def _hear(self) -> list[int]:
        return [int(word) for word in self.process.stdout.readline().split()]

    def killed(self, now_ms: int) -> list[int]:
        """How many calendars it had been handed: to refill, and claimed."""
        self._say("SIGKILL", now_ms)
        handed = self._hear()
        _, status = self._hear()
        assert os.WTERMSIG(status) == signal.SIGKILL
        return handed

    def stopped(self, now_ms: int) -> tuple[int, list[int]]:
        """Its process id, and what it had been handed."""
        self._say("SIGSTOP", now_ms)
        handed = self._hear()
        pid, status = self._hear()
        assert os.WIFSTOPPED(status)
        return pid, handed

    def wake(self, pid: int) -> list[str]:
        """What it is told when it says what the calendars answered."""
        os.kill(pid, signal.SIGCONT)
        answers: list[str] = self.process.stdout.readline().split()
        self._say("wait", pid)
        assert self.process.stdout.readline() == "ended 0\n"
        return answers


@pytest.mark.one_server
def test_processes_that_are_killed_between_fire_and_advance(ground: Field) -> None:
    handed = Counter[str]()
    with Nursery(ground.arena.url) as nursery:
        for _ in range(REAL):
            refilled, claimed = nursery.killed(ground.arena.clock.now_ms)
            handed.update(refilled=refilled, claimed=claimed)
            ground.pass_time()
            if ground.luck.random() < 0.6:
                ground.arena.settle()
            ground.consume()
    ground.finish()
    ground.check()
    assert min(handed["refilled"], handed["claimed"]) > REAL // 5, handed


@pytest.mark.one_server
def test_processes_that_are_stopped_between_fire_and_advance(ground: Field) -> None:
    handed, answers = Counter[str](), Counter[str]()
    asleep: deque[int] = deque()
    with Nursery(ground.arena.url) as nursery:
        try:
            for _ in range(REAL):
                pid, (refilled, claimed) = nursery.stopped(ground.arena.clock.now_ms)
                asleep.append(pid)
                handed.update(refilled=refilled, claimed=claimed)
                ground.arena.clock.advance(ground.period_ms)
                if ground.luck.random() < 0.5:
                    ground.pass_time()
                if ground.luck.random() < 0.6:
                    ground.arena.settle()
                while len(asleep) > 3 or (asleep and ground.luck.random() < 0.6):
                    answers.update(nursery.wake(asleep.popleft()))
                ground.consume()
            while asleep:
                answers.update(nursery.wake(asleep.popleft()))
        finally:
            for pid in asleep:
                os.kill(pid, signal.SIGKILL)
    ground.finish()
    ground.check()
    assert min(handed["refilled"], handed["claimed"]) > REAL // 5, handed
    assert min(answers["ADVANCED"], answers["STALE"]) > REAL // 20, (
        answers
    )  # of a hundred or more, but luck varies


# ------------------------------------------------------------------------------------------------ restarts


@pytest.mark.one_server
def test_b49_a_dispatcher_that_is_restarted_five_times_between_two_ticks(redis_url: str) -> None:
    with TimerQueue.connect(redis_url) as queue:
        namespace = queue.init()
        with Events(redis_url, namespace) as events:
            first = queue.upsert("k", EVENT, cron="*/2 * * * * *")
            dispatcher = Dispatcher(redis_url)
            dispatcher.start()
            for tick in range(1, 4):
                events.wait(tick)
                for _ in range(5):
                    dispatcher.stop()
                    dispatcher = Dispatcher(redis_url)
                    dispatcher.start()
            events.wait(4)
            dispatcher.stop()
            events.check()
            slots = calendar(queue.get("k"))
            found = events.all
    ticks = told(
        slots, [(event.at_ms, event.missed) for event in found]
    )  # none is missed, but on a slow machine
    assert ticks == previewed(slots, first.at_ms, ticks[-1])
    assert [event.n for event in found] == list(range(1, len(found) + 1))


@pytest.mark.one_server
def test_b49_a_worker_that_is_killed_again_and_again(redis_url: str) -> None:
    with TimerQueue.connect(redis_url) as queue:
        namespace = queue.init()
        with Events(redis_url, namespace) as events:
            first = queue.upsert("k", EVENT, cron="*/2 * * * * *")
            worker = Worker(redis_url)
            for _ in range(5):
                with worker.start():
                    with contextlib.suppress(TimeoutError):
                        events.wait(len(events.all) + 1, timeout_s=random.uniform(0, 0.5))
                    worker.kill()
            with worker.start():
                events.wait(len(events.all) + 2)
            events.check()
            slots = calendar(queue.get("k"))
            found = events.all
    ticks = told(slots, [(event.at_ms, event.missed) for event in found])
    assert ticks == previewed(slots, first.at_ms, ticks[-1])
    assert [event.n for event in found] == list(range(1, len(found) + 1))


def test_b49_minute_by_minute(redis_url: str) -> None:
    """After the event of each minute five dispatchers come and go; each is new, and knows nothing."""
    clock = ManualClock("2026-03-29T00:30:00Z")
    with Arena(redis_url, clock) as arena:
        first = arena.queue.upsert("k", EVENT, cron=EVERY_MINUTE, timezone="Europe/Paris")
        for _ in range(120):  # the hour in which the clocks go forward lies in them
            clock.advance("1m")
            for after_ms in (0, 1, 5_000, 30_000, 59_999):
                clock.set(clock.now_ms - clock.now_ms % MINUTE + after_ms)
                with TimerQueue.connect(redis_url, clock=clock) as other:
                    assert fire_due(other) == (after_ms == 0)
        events = arena.told()
        ats = [int(event["at"]) for event in events]
        assert ats == previewed(calendar(arena.queue.get("k")), first.at_ms, clock.now_ms)
        assert len(ats) == 120
        assert {event["missed"] for event in events} == {"0"}


@pytest.mark.parametrize(
    ("misfire", "late"),
    [
        ("fire_once", [(1, 59)]),
        ("skip", [(50, 10)]),
        ("catch_up", [(n, 0) for n in range(1, 61)]),
    ],
)
def test_b66_a_dispatcher_that_was_away(redis_url: str, misfire: Any, late: list[tuple[int, int]]) -> None:
    """A minute later, what its rule says of what was missed, with the original instants; then one a second."""
    clock = ManualClock("2026-03-29T00:59:30Z")
    with Arena(redis_url, clock) as arena:
        arena.queue.upsert("k", EVENT, cron="* * * * * *", timezone="Europe/Paris", misfire=misfire)
        begun = clock.now_ms
        clock.advance("60s")
        arena.settle()
        assert relative(arena, begun) == [(n * SECOND, missed) for n, missed in late]
        fire_until(arena.queue, clock, clock.now_ms + 10 * SECOND)
        assert relative(arena, begun) == [(n * SECOND, 0) for n in range(61, 71)]


def test_b72_a_late_one_does_not_move_the_ticks(redis_url: str) -> None:
    clock = ManualClock("2026-03-29T00:59:44.500Z")
    with Arena(redis_url, clock) as arena:
        first = arena.queue.upsert("k", EVENT, cron="*/2 * * * * *", timezone="Europe/Paris").at_ms
        fire_until(arena.queue, clock, first + 9_000)
        assert relative(arena, first) == [(n * SECOND, 0) for n in (0, 2, 4, 6, 8)]
        clock.set(first + 15_300)  # and nobody was there
        arena.settle()
        assert relative(arena, first) == [(10_000, 2)]
        fire_until(arena.queue, clock, first + 40_000)
        assert relative(arena, first) == [(n * SECOND, 0) for n in range(16, 41, 2)]


def relative(arena: Arena, begun: int) -> list[tuple[int, int]]:
    """Of the events since the last call: `at` (ms since ``begun``) and `missed`."""
    return [(int(event["at"]) - begun, int(event["missed"])) for event in arena.told()]
