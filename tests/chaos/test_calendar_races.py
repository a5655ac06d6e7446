"""Two things at one instant, a thousand times each, for schedules with a calendar; see test_races.py.

Time is a manual clock, so that each turn is due when the test says so.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.support.arena import Arena
from tests.support.events import Events
from tests.support.proxy import wait_for
from tests.support.state import dump, parts
from tests.support.ticks import calendar, previewed, told
from tests.support.worker import Worker
from timerq import Event, Outcome, State
from timerq.commands.command import Steps
from timerq.commands.dispatch import Advance, Handover, ask
from timerq.commands.recurring import resume_from_now
from timerq.dispatcher import Dispatcher
from timerq.model import Change
from timerq.testing import ManualClock
from timerq.timing import plan

TIMES = 1000
MINUTE = 60_000
EVENT = Event("t")
EVERY_MINUTE = "* * * * *"


@pytest.fixture
def arena(redis_url: str) -> Iterator[Arena]:
    with Arena(redis_url, ManualClock("2026-03-01T00:00:00Z")) as arena:
        yield arena


def published(arena: Arena) -> list[tuple[int, int]]:
    """`at` and `missed` of the events since the last call."""
    return [(int(event["at"]), int(event["missed"])) for event in arena.told()]


# ------------------------------------------------------------------------------------------------ against advance


def forward(handover: Handover) -> Advance:
    """A calendar's answer: nothing was missed, the next is far away."""
    return Advance(handover, handover.at_ms, 2**42)


def test_upsert_between_a_claim_and_its_advance(arena: Arena) -> None:
    seen: Counter[Any] = Counter()
    for _ in range(TIMES):
        claim = arena.claim("k")
        new, (answer,) = arena.duel(
            lambda: arena.queue.upsert("k", Event("new"), delay=0), partial(arena.advance, forward(claim))
        )
        assert new.outcome is Outcome.REPLACED
        arena.settle()
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
        arena.settle()
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

        advance = ask(plan, claim, arena.clock.now_ms)  # it stands for one that was missed
        change, (answer,) = arena.duel(pause, partial(arena.advance, advance))
        assert change.outcome is Outcome.PAUSED
        if resumed == "later":
            arena.settle()
            assert arena.told() == []
            arena.queue.resume(key)
        arena.settle()
        (event,) = arena.told()
        assert (event["at"], event["missed"], event["n"]) == (str(claim.at_ms), "1", "1")
        stored = arena.queue.get(key)
        assert (stored.at_ms, stored.n) == (claim.at_ms + 2 * MINUTE, 1)
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
        arena.settle()
        triggered, tick = arena.told()
        assert (triggered["id"], tick["n"], tick["at"]) == (change.event_id, "1", str(claim.at_ms))
        arena.queue.cancel(f"k{turn}")


def test_two_advances_of_one_claim(arena: Arena) -> None:
    """The second is that of a dispatcher that was stopped, and wakes up while another does its work."""
    for turn in range(TIMES):
        claim = arena.claim(f"k{turn}")

        def whole(claim: Handover = claim) -> list[str]:
            answers = arena.advance(forward(claim))
            arena.settle()
            return answers

        answers = arena.duel(whole, partial(arena.advance, Advance(claim, claim.at_ms, 2**41, missed=9)))
        assert sorted(answer for (answer,) in answers) == ["ADVANCED", "STALE"]
        arena.settle()
        (event,) = arena.told()
        missed = "0" if answers[0] == ["ADVANCED"] else "9"
        assert (event["n"], event["at"], event["missed"]) == ("1", str(claim.at_ms), missed)
        arena.queue.cancel(f"k{turn}")


# ------------------------------------------------------------------------------------------------ done


def test_done_against_fire_where_one_waits(arena: Arena) -> None:
    """Whether the event before is handled a moment before or after the next one is due: each one comes, once."""
    clock = arena.clock
    first = arena.queue.upsert("k", EVENT, cron=EVERY_MINUTE, overlap="queue")
    clock.advance("1m")
    arena.settle()
    (last,) = arena.told()
    ats = [int(last["at"])]
    for _ in range(TIMES):
        clock.advance("1m")
        change, _ = arena.duel(partial(arena.queue.done, last["id"]), arena.fire_and_ask)
        assert change.outcome is Outcome.DONE
        arena.settle()
        (last,) = arena.told()
        assert last["missed"] == "0"
        ats.append(int(last["at"]))
    stored = arena.queue.get("k")
    assert ats == previewed(calendar(stored), first.at_ms, clock.now_ms)
    assert (stored.fired_total, stored.missed_total, stored.skipped_total) == (TIMES + 1, 0, 0)
    assert 0 < arena.logged("queued") < TIMES  # it was a race


def test_done_against_fire_where_it_is_left_out(arena: Arena) -> None:
    """Either the one before counts as handled, and the next is published, or it is left out and counted."""
    clock = arena.clock
    first = arena.queue.upsert("k", EVENT, cron=EVERY_MINUTE, overlap="skip")
    ats: list[int] = []
    left_out: list[int] = []
    duels = 0
    last: dict[str, str] | None = None
    while duels < TIMES:
        clock.advance("1m")
        if last is None:
            arena.settle()
            (last,) = arena.told()
            ats.append(int(last["at"]))
            continue
        duels += 1
        change, _ = arena.duel(partial(arena.queue.done, last["id"]), arena.fire_and_ask)
        assert change.outcome is Outcome.DONE
        arena.settle()
        (last,) = arena.told() or [None]
        (left_out if last is None else ats).append(clock.now_ms if last is None else int(last["at"]))
    stored = arena.queue.get("k")
    assert sorted(ats + left_out) == previewed(calendar(stored), first.at_ms, clock.now_ms)
    assert (stored.fired_total, stored.skipped_total) == (len(ats), len(left_out))
    assert 0 < len(left_out) < TIMES


def test_done_against_the_end_of_its_time(arena: Arena) -> None:
    """At the instant at which its time is up the one that waits comes, whoever looks first, and comes once."""
    clock = arena.clock
    first = arena.queue.upsert("k", EVENT, cron=EVERY_MINUTE, overlap="queue", running_timeout="60s")
    clock.advance("1m")
    arena.settle()
    (last,) = arena.told()
    ats = [int(last["at"])]
    seen: Counter[Any] = Counter()
    for turn in range(TIMES):
        clock.advance(59_999 + turn % 2)  # a millisecond before, and to the very instant
        change, _ = arena.duel(partial(arena.queue.done, last["id"]), arena.fire_and_ask)
        seen[change.outcome] += 1
        clock.advance(1 - turn % 2)
        arena.settle()
        (last,) = arena.told()
        ats.append(int(last["at"]))
    assert seen == {Outcome.DONE: TIMES // 2, Outcome.NOT_PENDING: TIMES // 2}
    stored = arena.queue.get("k")
    assert ats == previewed(calendar(stored), first.at_ms, clock.now_ms)
    assert (stored.fired_total, stored.missed_total, stored.skipped_total) == (TIMES + 1, 0, 0)
    left = parts(dump(arena.client), arena.namespace.tags[0])
    assert [name for name in left if name.startswith(b"run:")] == [b"run:" + last["id"].encode()]


def test_done_against_fire_with_a_fixed_delay(arena: Arena) -> None:
    """The next comes an interval after the last was handled or its time was up; at that instant, too, it is one."""
    clock = arena.clock
    arena.queue.upsert("k", EVENT, every="1m", fixed_delay=True, ack_group="workers", running_timeout="90s")
    clock.advance("1m")
    arena.settle()
    (last,) = arena.told()
    seen: Counter[Any] = Counter()
    for turn in range(TIMES):
        fired_ms = int(last["fired_ms"])
        # while it may run; when its time is up; when for that reason the next one is due
        clock.set(fired_ms + [89_999, 90_000, 150_000][turn % 3])
        change, _ = arena.duel(partial(arena.queue.done, last["id"]), arena.fire)
        seen[turn % 3, change.outcome] += 1
        due_ms = clock.now_ms + MINUTE if change.outcome is Outcome.DONE else fired_ms + 150_000
        found = arena.told()
        assert bool(found) == (clock.now_ms == due_ms)
        clock.set(due_ms)
        arena.settle()
        (last,) = found + arena.told()
        assert (int(last["at"]), int(last["fired_ms"]), last["missed"]) == (due_ms, due_ms, "0")
    assert set(seen) == {(0, Outcome.DONE), (1, Outcome.NOT_PENDING), (2, Outcome.NOT_PENDING)}


def test_done_against_a_new_definition(arena: Arena) -> None:
    """What waits for the handling is the old version's, and goes with it; the new one waits for nothing."""
    clock = arena.clock
    for turn in range(TIMES):
        key = f"k{turn}"
        arena.queue.upsert(key, Event("old"), cron=EVERY_MINUTE, overlap="queue")
        clock.advance("1m")
        arena.settle()
        (running,) = arena.told()
        clock.advance("1m")
        arena.settle()  # the second one waits
        assert arena.told() == []
        change, new = arena.duel(
            partial(arena.queue.done, running["id"]),
            partial(arena.queue.upsert, key, Event("new"), cron="*/5 * * * *", overlap="queue"),
        )
        assert (change.outcome, new.outcome) == (Outcome.DONE, Outcome.REPLACED)
        arena.settle()
        assert arena.told() == []
        clock.set(new.at_ms)
        arena.settle()
        (event,) = arena.told()
        assert (event["type"], event["at"], event["n"]) == ("new", str(new.at_ms), "1")
        arena.queue.cancel(key)


def test_done_against_cancel(arena: Arena) -> None:
    clock = arena.clock
    seen: Counter[Any] = Counter()
    for turn in range(TIMES):
        key = f"k{turn}"
        arena.queue.upsert(key, EVENT, cron=EVERY_MINUTE, overlap="queue")
        clock.advance("1m")
        arena.settle()
        (running,) = arena.told()
        clock.advance("1m")
        arena.settle()
        change, cancelled = arena.duel(
            partial(arena.queue.done, running["id"]), partial(arena.queue.cancel, key)
        )
        assert cancelled.outcome is Outcome.CANCELLED
        clock.advance("1m")
        arena.settle()
        assert arena.told() == []
        seen[change.outcome] += 1
    assert set(seen) == {Outcome.DONE, Outcome.NOT_PENDING}
    left = parts(dump(arena.client), arena.namespace.tags[0])
    assert [name for name in left if name.startswith((b"sch:", b"due:", b"run:"))] == []


def test_two_failures_at_once_pause_once(arena: Arena) -> None:
    """Two events of one schedule fail at the same time: one of them is the last straw, and says so."""
    clock = arena.clock
    arena.queue.upsert("k", EVENT, cron=EVERY_MINUTE, pause_after=2)
    for _ in range(TIMES):
        for _ in range(2):
            clock.advance("1m")
            arena.settle()
        one, two = arena.told()
        said = arena.duel(
            *[partial(arena.queue.done, event["id"], error="no answer") for event in (one, two)]
        )
        assert sorted(change.outcome for change in said) == [Outcome.DONE, Outcome.PAUSED]
        stored = arena.queue.get("k")
        assert (stored.state, stored.failures, stored.paused_by) == (State.PAUSED, 2, "timerq")
        arena.queue.resume("k")
        assert arena.queue.get("k").failures == 0


def test_a_failure_that_pauses_against_fire(arena: Arena) -> None:
    """The next one is published before the pause, or waits for the resume."""
    clock = arena.clock
    first = arena.queue.upsert("k", EVENT, cron=EVERY_MINUTE, pause_after=1)
    clock.advance("1m")
    arena.settle()
    (last,) = arena.told()
    ats = [int(last["at"])]
    seen: Counter[bool] = Counter()
    for _ in range(TIMES):
        clock.advance("1m")
        change, _ = arena.duel(partial(arena.queue.done, last["id"], error="no answer"), arena.fire_and_ask)
        assert change.outcome is Outcome.PAUSED
        arena.settle()
        before = arena.told()
        seen[bool(before)] += 1
        arena.queue.resume("k")
        arena.settle()
        (last,) = before + arena.told()
        ats.append(int(last["at"]))
        assert last["missed"] == "0"
    assert ats == previewed(calendar(arena.queue.get("k")), first.at_ms, clock.now_ms)
    assert set(seen) == {True, False}


def test_an_event_is_handled_once(arena: Arena) -> None:
    """Two consumers say of one event that it is handled and that it failed: one of them is heard."""
    clock = arena.clock
    arena.queue.upsert("k", EVENT, cron=EVERY_MINUTE, pause_after=1)
    seen: Counter[Any] = Counter()
    for _ in range(TIMES):
        clock.advance("1m")
        arena.settle()
        (event,) = arena.told()
        well, badly = arena.duel(
            partial(arena.queue.done, event["id"]), partial(arena.queue.done, event["id"], error="no")
        )
        assert (well.outcome, badly.outcome) in (
            (Outcome.DONE, Outcome.NOT_PENDING),
            (Outcome.NOT_PENDING, Outcome.PAUSED),
        )
        seen[well.outcome] += 1
        if badly.outcome is Outcome.PAUSED:
            arena.queue.resume("k")
    assert set(seen) == {Outcome.DONE, Outcome.NOT_PENDING}


# ------------------------------------------------------------------------------------------------ upsert, resume


def test_an_unchanged_definition_against_fire(arena: Arena) -> None:
    """A service that upserts its schedules at every start neither starves nor repeats them."""
    clock = arena.clock
    words: dict[str, Any] = {"cron": EVERY_MINUTE, "timezone": "Europe/Paris", "misfire": "catch_up"}
    first = arena.queue.upsert("k", EVENT, **words)
    other = arena.client_queue()
    found: list[tuple[int, int]] = []
    for turn in range(TIMES):
        clock.advance("1m" if turn % 10 else "4m")  # now and then it is claimed meanwhile
        said = arena.duel(
            partial(arena.queue.upsert, "k", EVENT, **words),
            arena.fire_and_ask,
            partial(other.upsert, "k", EVENT, **words),
        )
        for handle in (said[0], said[2]):
            assert (handle.outcome, handle.version) == (Outcome.UNCHANGED, first.version)
        arena.settle()
        found += published(arena)
    other.close()
    stored = arena.queue.get("k")
    assert [at for at, _ in found] == previewed(calendar(stored), first.at_ms, clock.now_ms)
    assert {missed for _, missed in found} == {0}
    assert (stored.n, stored.fired_total) == (len(found), len(found))


def test_a_resume_from_now_against_a_new_definition(arena: Arena) -> None:
    """What was missed is left out whoever is first, and the next one is the new definition's."""
    clock = arena.clock
    seen: Counter[bool] = Counter()
    for turn in range(TIMES):
        key = f"k{turn}"
        old = arena.queue.upsert(key, Event("old"), cron=EVERY_MINUTE)
        arena.queue.pause(key)
        clock.advance("3m")
        change, new = arena.duel(
            partial(arena.queue.resume, key, from_now=True),
            partial(arena.queue.upsert, key, Event("new"), cron="*/7 * * * *"),
        )
        assert (change.outcome, new.outcome) == (Outcome.RESUMED, Outcome.REPLACED)
        assert change.version in (old.version, new.version)
        seen[change.version == old.version] += 1
        arena.settle()
        assert arena.told() == []
        stored = arena.queue.get(key)
        assert (stored.state, stored.at_ms, stored.version) == (State.ARMED, new.at_ms, new.version)
        assert stored.skipped_total == (3 if change.version == old.version else 0)
        clock.set(new.at_ms)
        arena.settle()
        (event,) = arena.told()
        assert (event["type"], event["at"], event["missed"]) == ("new", str(new.at_ms), "0")
        arena.queue.cancel(key)
    assert set(seen) == {True, False}


def test_a_resume_from_now_that_was_overtaken_goes_by_what_is(arena: Arena) -> None:
    """Between its look and its word another resumes, it fires, and it is paused again: no tick comes twice."""
    clock = arena.clock
    first = arena.queue.upsert("k", EVENT, cron=EVERY_MINUTE)
    found: list[tuple[int, int]] = []
    left_out = 0

    def finish(steps: Steps[Change], said: list[Any]) -> Change:
        while True:
            try:
                said = arena.link.send(steps.send(said))
            except StopIteration as end:
                return end.value

    for if_version in [None, first.version] * (TIMES // 2):
        arena.queue.pause("k")
        clock.advance("90s")
        scope = arena.queue._open()
        steps = resume_from_now(scope, "k", None, if_version, None, lambda: clock.now_ms, None)
        said = arena.link.send(next(steps))  # it has looked
        arena.queue.resume("k")
        arena.settle()
        clock.advance("1m")
        arena.settle()
        arena.queue.pause("k")
        skipped = arena.queue.get("k").skipped_total
        change = finish(steps, said)
        assert change.outcome is Outcome.RESUMED
        stored = arena.queue.get("k")
        left_out += stored.skipped_total - skipped
        assert stored.at_ms > clock.now_ms
        found += published(arena)
    assert left_out == 0  # what was missed had been published meanwhile
    assert told(calendar(stored), found) == previewed(calendar(stored), first.at_ms, clock.now_ms)


# ------------------------------------------------------------------------------------------------ trigger, backfill


def test_two_triggers_within_a_second_are_one(arena: Arena) -> None:
    clock = arena.clock
    arena.queue.upsert("k", EVENT, cron="* * * * * *")
    other = arena.client_queue()
    first: Counter[int] = Counter()
    for _ in range(TIMES):
        clock.advance("1s")
        one, two, _ = arena.duel(
            partial(arena.queue.trigger, "k", by="one"),
            partial(other.trigger, "k", by="two"),
            arena.fire_and_ask,
        )
        arena.settle()
        assert sorted((one.outcome, two.outcome)) == [Outcome.DUPLICATE, Outcome.TRIGGERED]
        assert one.event_id == two.event_id
        ids = [event["id"] for event in arena.told()]
        assert len(ids) == 2  # the tick is its own
        assert one.event_id in ids
        first[one.outcome is Outcome.TRIGGERED] += 1
    other.close()
    assert set(first) == {True, False}


def test_two_backfills_of_one_range(arena: Arena) -> None:
    """Both do what they were asked; an occurrence has one id, and the schedule goes on as if nothing had been."""
    clock = arena.clock
    first = arena.queue.upsert("k", EVENT, cron=EVERY_MINUTE)
    other = arena.client_queue()
    ticks: list[tuple[int, int]] = []
    for _ in range(TIMES):
        clock.advance("1m")
        start, end = clock.now_ms - 3 * MINUTE, clock.now_ms
        said = arena.duel(
            partial(arena.queue.backfill, "k", start, end),
            partial(other.backfill, "k", start, end),
            arena.fire_and_ask,
        )
        arena.settle()
        assert [(b.outcome, b.published) for b in said[:2]] == [(Outcome.PUBLISHED, 4)] * 2
        events = arena.told()
        filled = Counter(event["id"] for event in events if event.get("backfill"))
        wanted = [f"0-{first.version}-b{at}" for at in range(start, end + 1, MINUTE)]
        assert filled == dict.fromkeys(wanted, 2)
        ticks += [(int(e["at"]), int(e["missed"])) for e in events if not e.get("backfill")]
    other.close()
    stored = arena.queue.get("k")
    assert [at for at, _ in ticks] == previewed(calendar(stored), first.at_ms, clock.now_ms)
    assert (stored.n, stored.fired_total, stored.version) == (TIMES, TIMES, first.version)


# ------------------------------------------------------------------------------------------------ one that fails there

FAILS_ITSELF = """
import os, signal, sys
import timerq.commands.dispatch as dispatch
dispatch.LEASE_MS = 300
import workers.dispatch
from timerq.dispatcher import Dispatcher
from timerq.timing import plan

def failing(id, definition, window, at_ms, now_ms):
    answer = plan(id, definition, window, at_ms, now_ms)
    if now_ms >= at_ms: # it has claimed, and has not advanced
        print("claimed", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGNAL)
    return answer

make = Dispatcher.__init__
Dispatcher.__init__ = lambda self, *args, **kwargs: make(self, *args, **kwargs, planner=failing)
sys.exit(workers.dispatch.main())
"""


@pytest.mark.one_server
def test_a_dispatcher_that_is_stopped_between_claim_and_advance(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timerq.commands.dispatch.LEASE_MS", 300)
    with Arena(redis_url) as arena, Events(arena.url, arena.namespace) as events:
        stopped = Worker(arena.url, program=FAILS_ITSELF.replace("SIGNAL", "SIGSTOP"))
        first = arena.queue.upsert("c", EVENT, every="100ms", jitter="50ms")
        wait_for(lambda: arena.queue.get("c").at_ms + 500 < _server_ms(arena), "several are overdue")
        try:
            stopped.start(wait=False)
            stopped.wait_for_line("claimed")
            wait_for(lambda: stopped.stands_still, "it stands still")
            assert events.all == []
            with Dispatcher(arena.url):
                for turn in range(4):
                    events.wait(5 * (turn + 1), key="c")
                    stopped.thaw()  # its advance comes far too late
                    events.wait(5 * (turn + 1) + 3, key="c")
                    if turn < 3:  # it may have been handed a claim again, and stopped again
                        stopped.thaw()
                found = events.wait(25, key="c")
            events.check()
            slots = calendar(arena.queue.get("c"))
        finally:
            os.kill(stopped.pid, signal.SIGCONT)
            stopped.kill()
    ticks = told(slots, [(event.at_ms, event.missed) for event in found])
    assert ticks == previewed(slots, first.at_ms, ticks[-1])
    assert [event.n for event in found] == list(range(1, len(found) + 1))


@pytest.mark.one_server
def test_dispatchers_that_die_between_claim_and_advance(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timerq.commands.dispatch.LEASE_MS", 300)
    with Arena(redis_url) as arena, Events(arena.url, arena.namespace) as events:
        first = arena.queue.upsert("c", EVENT, every="100ms", jitter="50ms")
        wait_for(lambda: arena.queue.get("c").at_ms + 500 < _server_ms(arena), "several are overdue")
        for _ in range(4):  # each waits until the claim of the one before holds no longer
            dying = Worker(arena.url, program=FAILS_ITSELF.replace("SIGNAL", "SIGKILL")).start(wait=False)
            assert dying.process.wait(30) == -signal.SIGKILL
            dying.wait_for_line("claimed")
        assert events.all == []
        with Dispatcher(arena.url):
            found = events.wait(10, key="c")
        events.check()
        slots = calendar(arena.queue.get("c"))
    ticks = told(slots, [(event.at_ms, event.missed) for event in found])
    assert ticks == previewed(slots, first.at_ms, ticks[-1])
    assert [event.n for event in found] == list(range(1, len(found) + 1))


def _server_ms(arena: Arena) -> int:
    seconds, micros = arena.client.time()
    return int(seconds) * 1000 + int(micros) // 1000
