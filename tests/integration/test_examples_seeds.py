"""The examples do what they say: an escrow, a follow-up, schedules that are handled, actors with timers."""

from __future__ import annotations

import dataclasses
import importlib
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import timerq
from tests.support.consumers import Running, Seen
from timerq import AsyncContext, Delivery, Event, Fire, Handle, Outcome, Owner, TimerQueue, patterns
from timerq.dispatcher import Dispatcher
from timerq.testing import ManualClock, TestQueue, assert_not_scheduled, assert_scheduled

ROOT = Path(__file__).parents[2]
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
START_MS = 1_767_225_600_000


def deploy(name: str) -> ModuleType:
    """The example's module as a process that starts now has it."""
    sys.modules.pop(f"examples.{name}", None)
    return importlib.import_module(f"examples.{name}")


@pytest.fixture(params=["fakeredis", "redis"])
def kit(request: pytest.FixtureRequest, any_url: str) -> Iterator[TestQueue]:
    with TestQueue(None if request.param == "fakeredis" else any_url, partitions=2) as kit:
        yield kit


def since_start(kit: TestQueue, *types: str) -> list[tuple[str, int]]:
    """Types and instants (ms since the kit's start) of the events of these types."""
    return [(event.type, event.fired_ms - START_MS) for event in kit.events() if event.type in types]


# ------------------------------------------------------------------------------------------------ 001: the escrow


class Bank:
    """What the escrow did with the money."""

    def __init__(self, escrow: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.booked: dict[str, tuple[str, str, int]] = {}
        self.calls = 0
        self._monkeypatch = monkeypatch
        self.serves(escrow)

    def serves(self, escrow: ModuleType) -> None:
        for name in ("pay_out", "refund"):
            self._monkeypatch.setattr(escrow, name, self._book(name))

    def _book(self, name: str) -> Any:
        def book(offer_id: str, amount: int, *, idempotency_key: str) -> None:
            self.calls += 1
            self.booked.setdefault(idempotency_key, (name, offer_id, amount))

        return book

    @property
    def all(self) -> list[tuple[str, str, int]]:
        return [*self.booked.values()]


@pytest.fixture
def escrow() -> ModuleType:
    return deploy("escrow")


@pytest.fixture
def bank(escrow: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Bank:
    return Bank(escrow, monkeypatch)


def test_an_offer_that_nobody_accepts_is_refunded_after_an_hour(kit, escrow, bank):
    kit.handlers = escrow.app
    escrow.make_offer(kit.queue, "offer-42", 1999)
    kit.advance("59m59s999ms")
    assert bank.all == []
    assert escrow.held.keys() == {"offer-42"}
    kit.advance("1ms")
    assert bank.all == [("refund", "offer-42", 1999)]
    escrow.accept_offer(kit.queue, "offer-42")  # too late: it meets the guard
    kit.advance("1d")
    assert bank.calls == 1


def test_an_offer_that_is_accepted_is_paid_out_and_its_deadline_cancelled(kit, escrow, bank):
    kit.handlers = escrow.app
    escrow.make_offer(kit.queue, "offer-42", 1999)
    escrow.make_offer(kit.queue, "offer-43", 500)
    kit.advance("30m")
    escrow.accept_offer(kit.queue, "offer-42")
    kit.advance()
    assert [schedule.owner for schedule in kit.pending()] == ["offer-43"]
    kit.advance("1d")
    assert bank.all == [("pay_out", "offer-42", 1999), ("refund", "offer-43", 500)]
    assert escrow.held == {}


def test_a_deadline_that_comes_all_the_same_does_nothing(kit, escrow, bank):
    """As where `accept` leaves its cancel out: stale timers are no-ops."""
    kit.handlers = escrow.app
    escrow.make_offer(kit.queue, "offer-42", 1999)
    kit.advance("30m")
    escrow.expire_offer(kit.queue, "offer-42", "2026-01-01T02:00:00Z")
    escrow.accept_offer(kit.queue, "offer-42")
    kit.advance("1d")
    assert since_start(kit, "release") == [("release", 2 * HOUR)]  # the log says that it fired
    assert bank.all == [("pay_out", "offer-42", 1999)]


def test_a_deadline_outlives_a_deploy(kit, escrow, bank):
    escrow.make_offer(kit.queue, "offer-42", 1999)
    kit.advance("1m", escrow.app)
    kit.advance("30m")  # nobody runs
    deployed = deploy("escrow")
    assert deployed.app is not escrow.app
    deployed.held.update(escrow.held)  # the table has outlived it too
    bank.serves(deployed)
    kit.advance("1d", deployed.app)
    assert since_start(kit, "release") == [("release", HOUR)]
    assert bank.all == [("refund", "offer-42", 1999)]
    assert escrow.held.keys() == {"offer-42"}  # the old process had no part in it


def test_a_hold_that_crashes_and_runs_again_arms_one_deadline(kit, escrow, bank, monkeypatch):
    class Crashing(dict[str, Any]):
        tries = 0

        def __setitem__(self, key: str, value: Any) -> None:
            self.tries += 1
            if self.tries < 4:
                raise ConnectionError("the table is away")
            super().__setitem__(key, value)

    table = Crashing()
    monkeypatch.setattr(escrow, "held", table)
    kit.handlers = escrow.app
    escrow.make_offer(kit.queue, "offer-42", 1999)
    kit.advance("10m")
    assert table.tries == 4
    (deadline,) = kit.pending()
    (hold,) = kit.events("hold")
    assert deadline.key == f"release@{hold.id}"
    assert_scheduled(kit, deadline.key, owner="offer-42", at=hold.fired_ms + HOUR)  # not of the last try
    kit.advance("1d")
    assert since_start(kit, "release") == [("release", HOUR)]


def test_a_payout_that_crashes_behind_the_bank_is_booked_once(kit, escrow, bank, monkeypatch):
    kit.handlers = escrow.app
    escrow.make_offer(kit.queue, "offer-42", 1999)
    kit.advance("1m")
    book = escrow.pay_out

    def pay_out(*args: Any, **words: Any) -> None:
        book(*args, **words)
        if bank.calls == 1:
            raise ConnectionError("no answer")

    monkeypatch.setattr(escrow, "pay_out", pay_out)
    escrow.accept_offer(kit.queue, "offer-42")
    kit.advance("1d")
    assert bank.calls == 2
    assert bank.all == [("pay_out", "offer-42", 1999)]


def test_an_escrow_is_timed_from_outside_too(kit, escrow, bank):
    kit.handlers = escrow.app
    escrow.make_offer(kit.queue, "offer-42", 1999)
    kit.advance("1m")
    escrow.expire_offer(kit.queue, "offer-42", "2026-01-01T00:30:00Z")
    kit.advance("30m")
    assert bank.all == [("refund", "offer-42", 1999)]


@pytest.mark.one_server
def test_an_escrow_with_a_dispatcher(redis_url, escrow, monkeypatch):
    booked = Seen()
    for name in ("pay_out", "refund"):
        monkeypatch.setattr(escrow, name, lambda offer, *_, name=name, **__: booked.add((name, offer)))
    escrow.app.configure(url=redis_url)
    with TimerQueue.connect(redis_url) as queue:
        queue.init()
        with Running(escrow.app), Dispatcher(redis_url):
            for offer in ("a", "b"):
                escrow.make_offer(queue, offer, 5)
            escrow.accept_offer(queue, "a")
            queue.upsert("expire-offer", Event("release", {"offer_id": "b"}), delay="50ms", owner="b")
            assert sorted(booked.wait(2)) == [("pay_out", "a"), ("refund", "b")]


# ------------------------------------------------------------------------------------------------ 000: the follow-up


@pytest.fixture
def follow_up(kit: TestQueue) -> ModuleType:
    module = deploy("follow_up")
    kit.handlers = module.app
    return module


def test_a_message_that_nobody_answers_is_followed_up_once(kit, follow_up):
    follow_up.say(kit.queue, "agent.message", "forum-1", "agent", "How can I help?")
    kit.advance("9m59s")
    assert_scheduled(kit, "follow-up:forum-1", within="1s", owner="forum-1")
    kit.advance("30d")
    assert since_start(kit, "assistant.follow_up_due", "agent.message") == [
        ("agent.message", 0),
        ("assistant.follow_up_due", 10 * MINUTE),
        ("agent.message", 10 * MINUTE),
    ]
    _, own = kit.events("agent.message")
    assert own.payload == {
        "forum_id": "forum-1",
        "participant_id": "agent",
        "text": "Are you still there?",
        "follow_up": True,
    }
    assert own.correlation["causation_id"] == kit.events("assistant.follow_up_due")[0].id
    assert not kit.pending()


def test_an_answer_cancels_it_and_the_next_message_arms_it_again(kit, follow_up):
    follow_up.say(kit.queue, "agent.message", "forum-1", "agent", "How can I help?")
    kit.advance("5m")
    follow_up.say(kit.queue, "human.message", "forum-1", "ann", "My order is late.")
    kit.advance("1h")
    assert_not_scheduled(kit, "follow-up:forum-1", owner="forum-1")
    assert kit.events("assistant.follow_up_due") == []
    follow_up.say(kit.queue, "agent.message", "forum-1", "agent", "Which one?")
    kit.advance("1h")
    assert len(kit.events("assistant.follow_up_due")) == 1


def test_each_message_of_the_agent_pushes_it_back(kit, follow_up):
    for _ in range(5):
        follow_up.say(kit.queue, "agent.message", "forum-1", "agent", "…")
        kit.advance("9m")
    kit.advance("1h")
    assert since_start(kit, "assistant.follow_up_due") == [("assistant.follow_up_due", 46 * MINUTE)]


def test_an_answer_beats_a_follow_up_that_has_come_due_and_is_not_handled_yet(kit, follow_up):
    follow_up.say(kit.queue, "agent.message", "forum-1", "agent", "How can I help?")
    kit.advance()
    kit.handlers = None  # the consumers are down
    kit.advance("10m")
    assert len(kit.events("assistant.follow_up_due")) == 1
    assert kit.queue.cancel("follow-up:forum-1", owner="forum-1").outcome is Outcome.NOT_PENDING
    kit.advance("1h", follow_up.app)
    assert len(kit.events("agent.message")) == 1  # nothing was said
    assert follow_up.app.counts.stale == 1


# ------------------------------------------------------------------------------------------------ 002: schedules


@pytest.fixture
def jobs() -> ModuleType:
    return deploy("schedules.jobs")


def test_a_week_of_schedules_is_handled(kit, jobs):
    for function in (jobs.morning, jobs.cleanup):
        kit.queue.upsert_many([function.upsert])
    kit.advance("7d", jobs.app)  # from Thursday, 1 January
    assert [event.key for event in kit.events()].count("cleanup") == 7
    assert [event.key for event in kit.events()].count("morning") == 5
    fires = kit.queue.get("morning").fires
    assert [(fire.outcome, fire.summary) for fire in fires] == [
        ("ok", "the agent is asked: Summarise yesterday.")
    ] * 5
    assert kit.queue.get("cleanup").fires[0].summary == "cleaned up as of Fri 02 Jan 00:00 UTC"


def test_a_run_that_does_not_end_as_it_should_has_failed_with_its_reason_and_stops_no_other(
    kit, jobs, monkeypatch
):
    monkeypatch.setattr(jobs, "ask_agent", lambda prompt: ("awaiting-approval", ""))
    for function in (jobs.morning, jobs.cleanup):
        kit.queue.upsert_many([function.upsert])
    kit.advance("2d", jobs.app)
    (fire, _) = kit.queue.get("morning").fires
    assert (fire.outcome, fire.summary) == ("failed", "Incomplete: awaiting-approval")
    reports = kit.events("handler.dead", stream="errors")
    assert [report.payload["reason"] for report in reports] == ["Incomplete: awaiting-approval"] * 2
    assert [fire.outcome for fire in kit.queue.get("cleanup").fires] == ["ok", "ok"]


def test_a_fire_that_is_still_running_skips_the_next_one(kit, jobs):
    """Nobody handles the first: the second is left out, and reported."""
    kit.queue.upsert("nightly", jobs.cleanup.upsert.event, every="10m", overlap="skip")
    kit.advance("30m")
    assert len(kit.events("cleanup")) == 1
    assert [report.type for report in kit.events(stream="errors")] == ["schedule.skipped"] * 2


def test_what_was_missed_is_not_made_up_for(kit, jobs):
    kit.queue.upsert_many([jobs.cleanup.upsert])
    kit.clock.advance("5d6h")  # suspended
    (event,) = kit.advance("1d", jobs.app)
    assert event.at == event.fired_at == datetime(2026, 1, 7, tzinfo=UTC)


# ------------------------------------------------------------------------------------------------ 003: the heartbeat


@pytest.fixture
def heartbeat(kit: TestQueue) -> ModuleType:
    module = deploy("heartbeat")
    kit.handlers = module.app
    return module


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "heartbeat"]


def test_a_heartbeat_ticks_and_its_interval_is_replaced(kit, heartbeat, caplog):
    caplog.set_level(logging.INFO, "heartbeat")
    with heartbeat.spawn(kit.queue, "sensor-1") as timers:
        assert timers.active_keys() == ["hb", "idle", "poll"]
        kit.advance("12s")
        timers.publish(Event("set", {"interval_ms": 20_000}), key="set")
        kit.advance("50s")
        # no duplicate fires
        assert since_start(kit, "tick") == [("tick", at * SECOND) for at in (5, 10, 32, 52)]
        assert since_start(kit, "poll") == [("poll", 30 * SECOND), ("poll", 60 * SECOND)]
    assert said(caplog).count("sensor-1: heartbeat") == 4


def test_an_idle_actor_times_out_and_a_sign_of_life_puts_that_off(kit, heartbeat, caplog):
    caplog.set_level(logging.INFO, "heartbeat")
    with heartbeat.spawn(kit.queue, "sensor-1") as timers:
        kit.advance("4m")
        timers.publish(Event("set", {"interval_ms": 60_000}), key="set")
        kit.advance("4m59s")
        assert "sensor-1: idle" not in said(caplog)
        kit.advance("1s")
        assert "sensor-1: idle" in said(caplog)
        assert timers.active_keys() == ["hb"]


def test_timers_die_with_the_actor(kit, heartbeat):
    timers = heartbeat.spawn(kit.queue, "sensor-1")
    other = heartbeat.spawn(kit.queue, "sensor-2")
    kit.advance("11s")
    assert timers.destroy() == 3
    kit.advance("11s")
    assert [event.fired_ms - START_MS for event in kit.events("tick", owner="sensor-1")] == [5_000, 10_000]
    assert len(kit.events("tick", owner="sensor-2")) == 4
    assert timers.start_single("late", heartbeat.IDLE, "1s").outcome is Outcome.OWNER_GONE
    other.destroy()


def test_a_tick_that_is_not_handled_before_the_actor_dies_is_not_handled_after(kit, heartbeat, caplog):
    caplog.set_level(logging.INFO, "heartbeat")
    kit.advance()  # the group is there
    kit.handlers = None  # and nobody reads
    timers = heartbeat.spawn(kit.queue, "sensor-1")
    kit.advance("5s")
    assert len(kit.events("tick")) == 1
    timers.destroy()
    kit.advance("1m", heartbeat.app)
    assert said(caplog) == []
    assert heartbeat.app.counts.stale == 1


def test_a_restarted_actor_inherits_nothing(kit, heartbeat):
    with heartbeat.spawn(kit.queue, "sensor-1") as timers:
        timers.start_single("extra", heartbeat.IDLE, "1m")
        kit.advance("4s")
        heartbeat.restart(timers)
        assert timers.active_keys() == ["hb", "idle", "poll"]
        kit.advance("30s")
        assert since_start(kit, "tick")[0] == ("tick", 9 * SECOND)
        assert timers.cancel_all() == 3
        assert timers.is_active("hb") is False
        kit.advance("1h")
        assert since_start(kit, "idle") == []


@pytest.mark.one_server
def test_a_heartbeat_with_a_dispatcher(redis_url, monkeypatch):
    heartbeat = deploy("heartbeat")
    ticks = threading.Event()
    monkeypatch.setattr(heartbeat.log, "info", lambda *_: ticks.set())
    heartbeat.app.configure(url=redis_url)
    with TimerQueue.connect(redis_url) as queue:
        queue.init()
        with Running(heartbeat.app), Dispatcher(redis_url), heartbeat.spawn(queue, "sensor-1") as timers:
            timers.publish(Event("set", {"interval_ms": 50}), key="set")
            assert ticks.wait(30)


# ------------------------------------------------------------------------------------------------ as programs


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("escrow", "offer-43: 5.00 refunded"),
        ("follow_up", "'text': 'Are you still there?', 'follow_up': True}"),
        ("heartbeat", "destroyed: []"),
    ],
)
def test_an_example_runs_with_one_command(name: str, last: str) -> None:
    script = ROOT / "examples" / f"{name}.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith(last)


def test_what_the_page_of_the_seeds_names_is_there() -> None:
    lines = (ROOT / "docs" / "seeds.md").read_text(encoding="utf-8").splitlines()
    here = "\n".join(line.split(" | ", 1)[1] for line in lines if " | " in line)
    places: dict[str, Any] = {
        "timerq": timerq,
        "patterns": patterns,
        "ctx": AsyncContext,
        "queue": TimerQueue,
        "owner": Owner,
        "running": timerq.Running,
        "handle": Handle,
        "event": Delivery,
        "Fire": Fire,
    }
    named = re.findall(r"`(?:await )?(\w+)\.(\w+)", here)
    named = [
        (place, name) for place, name in named if place in places and name not in ("testing", "patterns")
    ]
    assert len(named) > 40
    fields = {field.name for kind in (Delivery, Fire) for field in dataclasses.fields(kind)}
    assert [(p, name) for p, name in named if not (hasattr(places[p], name) or name in fields)] == []


def test_the_clock_starts_where_these_tests_say() -> None:
    assert ManualClock().now_ms == START_MS
