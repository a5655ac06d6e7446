"""The verbs of recurring schedules, on both clients and every server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.both import NOW, Both, Time
from timerq import Event, Fire, InvalidSchedule, Outcome, Upsert, preview
from timerq.commands.dispatch import fire_all

EVENT = Event("t", {"n": 1})


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def queue(kind: str, any_url: str, clock: Time) -> Iterator[Both]:
    """Three partitions, a manual clock; each server and the Cluster."""
    with Both(kind, any_url, clock=clock) as both:
        both.init(partitions=3, clock="manual")
        yield both


def fire(queue: Both) -> int:
    """What is due is fired and calendars are asked; how many events."""
    published: int = queue.link.run(fire_all(queue.namespace)).published
    return published


def fire_at(queue: Both, clock: Time, ms: int) -> int:
    clock.now = NOW + ms
    return fire(queue)


def ids(queue: Both) -> list[str]:
    return sorted(event["id"].decode() for event in queue.events())


def utc(ms: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)


WORDS: dict[str, Any] = {
    "cron": ["0 9 * * MON-FRI", "30 17 * * FRI"], "timezone": "Europe/Paris", "dst_gap": "skip", "dst_overlap": "both",
    "exclude": ["2025-12-25", "2026-01-01/2026-01-02"], "jitter": "30s", "misfire": "skip", "grace": "1m",
    "overlap": "queue", "ack_group": "workers", "running_timeout": "10m", "pause_after": 3, "limit": 100, "by": "ops",
    "start": NOW, "until": "2030-01-01T00:00:00Z",
}  # fmt: skip


def test_what_was_stored_is_what_is_read(queue: Both) -> None:
    made = queue.upsert("k", EVENT, **WORDS, owner="o")
    assert made.outcome is Outcome.CREATED
    assert made.schedule == queue.get("k", owner="o")
    assert queue.list() == [made.schedule]
    stored = queue.get("k", owner="o")
    assert stored.timing.rule.timezone == "Europe/Paris"
    assert (stored.timing.policy.overlap, stored.timing.policy.pause_after, stored.by) == ("queue", 3, "ops")
    assert queue.upsert("k", EVENT, **WORDS, owner="o").outcome is Outcome.UNCHANGED


def test_what_fires_is_what_next_and_the_preview_say(queue: Both, clock: Time) -> None:
    words: dict[str, Any] = {"cron": "*/7 * * * *", "jitter": "90s", "exclude": "14 * * * *"}
    queue.upsert("k", EVENT, **words)
    instants = queue.next("k", 12)
    assert len(instants) == 12
    assert instants == preview(**words, after=NOW, n=12, key="k")
    assert all(instant.tzinfo is UTC for instant in instants)
    for instant in instants[:6]:
        clock.now = round(instant.timestamp() * 1000)
        assert fire(queue) == 1
    assert [utc(int(event["at"])) for event in queue.events()] == instants[:6]
    assert queue.next("k", 6) == instants[6:]


def test_next_says_no_more_than_is_known(queue: Both) -> None:
    queue.upsert("limited", EVENT, every="1h", limit=3)
    queue.upsert("ending", EVENT, cron="0 * * * *", until="2025-06-15T17:30:00Z")
    queue.upsert("delayed", EVENT, every="1h", fixed_delay=True)
    queue.upsert("once", EVENT, delay="1h")
    assert [len(queue.next(key)) for key in ("limited", "ending", "delayed", "once", "nothing")] == [
        3,
        2,
        1,
        1,
        0,
    ]
    assert queue.next("limited", 2) == [utc(NOW + 3_600_000), utc(NOW + 7_200_000)]
    for bad in (0, -1, 1001, 1.0, "5", True, None):
        with pytest.raises(InvalidSchedule) as caught:
            queue.next("limited", bad)
        assert caught.value.field == "n"


def test_done_lets_go_on_what_waits(queue: Both, clock: Time) -> None:
    queue.upsert("k", EVENT, every=1000, overlap="queue")
    assert fire_at(queue, clock, 1000) == 1
    (first,) = ids(queue)
    assert queue.get("k").running == first
    assert fire_at(queue, clock, 2000) == 0
    done = queue.done(first)
    assert (done.outcome, done.key, done.event_id, done.at_ms) == (Outcome.DONE, "k", first, NOW + 2000)
    assert queue.done(first).outcome is Outcome.NOT_PENDING
    assert fire(queue) == 1


def test_failures_pause_and_a_resume_forgets_them(queue: Both, clock: Time) -> None:
    queue.upsert("k", EVENT, every=1000, pause_after=2)
    for i in (1, 2):
        fire_at(queue, clock, 1000 * i)
    first, second = ids(queue)
    assert queue.done(first, error="no").outcome is Outcome.DONE
    assert queue.done(second, error="still no").outcome is Outcome.PAUSED
    stored = queue.get("k")
    assert (stored.state, stored.failures, stored.paused_by) == ("paused", 2, "timerq")
    assert "still no" in stored.paused_note
    assert queue.resume("k", by="ops").outcome is Outcome.RESUMED
    assert queue.get("k").failures == 0


def test_a_pause_with_a_note_and_a_resume_from_now(queue: Both, clock: Time) -> None:
    for key, words in (("cron", {"cron": "* * * * * *"}), ("every", {"every": 1000})):
        queue.upsert(key, EVENT, **words)
        assert queue.pause(key, note="maintenance", by="ops").outcome is Outcome.PAUSED
        stored = queue.get(key)
        assert (stored.paused_note, stored.paused_by) == ("maintenance", "ops")
    clock.now = NOW + 5500
    for key in ("cron", "every"):
        resumed = queue.resume(key, from_now=True, by="ops")
        assert (resumed.outcome, resumed.at_ms) == (Outcome.RESUMED, NOW + 6000)
        assert queue.resume(key, from_now=True).outcome is Outcome.UNCHANGED
        stored = queue.get(key)
        assert (stored.skipped_total, stored.paused_note) == (5, None)
    assert fire(queue) == 0
    assert queue.stats().skipped == 10
    assert queue.resume("nothing", from_now=True).outcome is Outcome.NOT_PENDING
    assert queue.resume("every", from_now=True, if_version=5).outcome is Outcome.VERSION_MISMATCH


def test_two_triggers_in_a_second_are_one(queue: Both, clock: Time) -> None:
    queue.upsert("k", EVENT, cron="0 0 1 1 *")
    first = queue.trigger("k", by="ops")
    again = queue.trigger("k")
    assert (first.outcome, again.outcome) == (Outcome.TRIGGERED, Outcome.DUPLICATE)
    assert first.event_id == again.event_id
    clock.now += 1000
    assert queue.trigger("k").event_id != first.event_id
    assert len(queue.events()) == 2


def test_a_backfill_publishes_the_past_and_marks_it(queue: Both) -> None:
    queue.upsert("k", EVENT, cron="0 * * * *")
    filled = queue.backfill("k", "2025-06-15T00:00:00Z", "2025-06-15T15:00:00Z", by="ops")
    assert (filled.outcome, filled.published) == (Outcome.PUBLISHED, 16)
    events = queue.events()
    assert {event["backfill"] for event in events} == {b"1"}
    assert [utc(int(event["at"])).hour for event in events] == list(range(16))
    assert queue.backfill("nothing", 0, 1).outcome is Outcome.NOT_PENDING
    with pytest.raises(InvalidSchedule, match="past"):
        queue.backfill("k", 0, "2030-01-01T00:00:00Z")
    assert queue.get("k").fired_total == 0


def test_what_has_fired_is_told(queue: Both, clock: Time) -> None:
    queue.upsert("k", EVENT, every=1000, misfire="skip", grace=1500)
    fire_at(queue, clock, 1003)
    fire_at(queue, clock, 9200)
    stored = queue.get("k")
    assert stored.fires == (Fire(NOW + 1000, NOW + 1003), Fire(NOW + 8000, NOW + 9200, 1))
    assert [fire.lag_ms for fire in stored.fires] == [3, 1200]
    assert (stored.n, stored.fired_total, stored.missed_total, stored.skipped_total) == (2, 2, 1, 6)
    stats = queue.stats()
    assert (stats.fired, stats.missed, stats.skipped) == (2, 1, 6)


def test_many_of_all_kinds_go_together(queue: Both, clock: Time) -> None:
    items: list[Any] = [
        Upsert("cron", EVENT, cron="* * * * * *"),
        {"key": "bad", "event": EVENT, "cron": "61 * * * *"},
        Upsert("once", EVENT, delay=5),
        {"key": "zone", "event": EVENT, "cron": "0 9 * * *", "timezone": "Europe/Pari"},
        Upsert("every", EVENT, every=1000, misfire="catch_up"),
        *[Upsert(f"k{i}", EVENT, cron=f"{i % 60} * * * *") for i in range(450)],
    ]
    results = queue.upsert_many(items)
    assert [getattr(r, "outcome", type(r).__name__) for r in results[:5]] == [
        "CREATED", "InvalidSchedule", "CREATED", "InvalidSchedule", "CREATED",
    ]  # fmt: skip
    assert results[1].field == "cron"
    assert 'did you mean "Europe/Paris"' in str(results[3]).replace("'", '"') or "Europe/Paris" in str(
        results[3]
    )
    assert {str(r.outcome) for r in results[5:]} == {"CREATED"}
    next_hour_ms = NOW - NOW % 3_600_000 + 3_600_000
    assert [r.at_ms for r in results[5:10]] == [next_hour_ms + i * 60_000 for i in range(5)]
    assert fire_at(queue, clock, 1000) == 3  # cron, once and every
    assert queue.count() == 452


def now_ms(queue: Both) -> int:
    """By the server's clock."""
    seconds, micros = queue.client.time()
    return seconds * 1000 + micros // 1000


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_by_the_servers_own_clock_a_calendar_begins_with_the_next_one(kind: str, any_url: str) -> None:
    with Both(kind, any_url) as queue:
        for i in range(20):
            before_ms = now_ms(queue)
            made = queue.upsert(f"k{i}", EVENT, cron="* * * * * *")
            assert made.outcome is Outcome.CREATED
            assert made.at_ms % 1000 == 0
            assert before_ms < made.at_ms <= now_ms(queue) + 1000
