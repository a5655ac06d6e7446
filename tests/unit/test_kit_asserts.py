"""assert_scheduled and assert_not_scheduled, and what they say where they fail."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from timerq import Event, InvalidSchedule
from timerq.testing import TestQueue, assert_not_scheduled, assert_scheduled

EVENT = Event("t")


@pytest.fixture
def kit() -> Iterator[TestQueue]:
    with TestQueue() as kit:
        yield kit


def refusal(assertion: Callable[..., Any], *args: Any, **words: Any) -> str:
    with pytest.raises(AssertionError) as raised:
        assertion(*args, **words)
    return str(raised.value)


def test_what_is_scheduled_is_returned(kit):
    kit.queue.upsert("a", EVENT, delay="30m", owner="o")
    schedule = assert_scheduled(kit, "a", owner="o", within="30m", at="2026-01-01T00:30:00Z")
    assert (schedule.key, schedule.event.type, schedule.owner) == ("a", "t", "o")
    assert assert_scheduled(kit.queue, "a", owner="o") == schedule
    assert_not_scheduled(kit, "a")
    assert_not_scheduled(kit.queue, "b", owner="o")


def test_an_overdue_one_is_within_any_time(kit):
    kit.queue.upsert("a", EVENT, delay="30m")
    kit.clock.advance("1h")
    assert_scheduled(kit, "a", within=0)


def test_too_late(kit):
    kit.queue.upsert("a", EVENT, delay="30m1s")
    assert refusal(assert_scheduled, kit, "a", within="30m") == (
        "'a' is due at 2026-01-01 00:30:01Z: in 0:30:01, not within 0:30:00 (it is 2026-01-01 00:00:00Z)"
    )


@pytest.mark.parametrize(
    ("delay", "off"), [("31m", "0:01:00 later"), ("29m59s999ms", "0:00:00.001000 earlier")]
)
def test_at_another_instant(kit, delay, off):
    kit.queue.upsert("a", EVENT, delay=delay, owner="o")
    message = refusal(assert_scheduled, kit, "a", at="2026-01-01T00:30:00Z", owner="o")
    assert message.startswith("'a' of 'o' is due at 2026-01-01 00:")
    assert message.endswith(f": {off} than 2026-01-01 00:30:00Z")


def test_it_was_cancelled(kit):
    kit.queue.upsert("a", EVENT, delay="30m")
    kit.advance("1m")
    kit.queue.cancel("a", by="ann")
    kit.queue.upsert("other", EVENT, delay="30m")
    assert refusal(assert_scheduled, kit, "a").splitlines() == [
        "'a' is not scheduled",
        "  2026-01-01 00:00:00Z: set.",
        "  2026-01-01 00:01:00Z: cancelled by ann.",
        "  Scheduled are: 'other'",
    ]


def test_the_page_shows_what_is_said(kit):
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
    kit.set("2026-02-10T00:00:00Z")
    kit.queue.upsert("reminder:7", EVENT, delay="2h")
    kit.queue.cancel("reminder:7", by="ann")
    kit.queue.upsert("reminder:8", EVENT, delay="2h")
    assert textwrap.indent(refusal(assert_scheduled, kit, "reminder:7"), "    ") in page


def test_it_has_fired(kit):
    kit.queue.upsert("a", EVENT, delay="30m")
    kit.connect("globex").upsert("a", EVENT, delay="1m")
    kit.advance("1h")
    assert refusal(assert_scheduled, kit, "a").splitlines() == [
        "'a' is not scheduled",
        "  Its event came once, the last one at 2026-01-01 00:30:00Z.",
        "  Nothing is scheduled at all.",
    ]


def test_it_never_was_but_something_like_it_is(kit):
    for key in ("reminder:41", "reminder:43", "digest"):
        kit.queue.upsert(key, EVENT, delay="30m")
    assert refusal(assert_scheduled, kit, "reminder:42").splitlines() == [
        "'reminder:42' is not scheduled",
        "  It was never set.",
        "  Scheduled like it: 'reminder:43', 'reminder:41'",
    ]
    for n in range(5):
        kit.queue.upsert(f"{n}", EVENT, delay="30m")
    assert refusal(assert_scheduled, kit, "zzz").endswith("\n  Scheduled are: '0', '1', '2', '3', '4' …")


def test_it_is_anothers(kit):
    kit.queue.upsert("a", EVENT, delay="30m", owner="o")
    assert refusal(assert_scheduled, kit, "a").endswith("\n  There is one of this key of 'o'.")
    kit.queue.upsert("b", EVENT, delay="30m")
    assert refusal(assert_scheduled, kit, "b", owner="o").endswith(
        "\n  There is one of this key without an owner."
    )
    assert refusal(assert_scheduled, kit, "c", owner="p").endswith("\n  Its owner has nothing scheduled.")


def test_it_is_paused(kit):
    kit.queue.upsert("a", EVENT, delay="30m")
    kit.queue.pause("a", note="audit")
    message = refusal(assert_scheduled, kit, "a")
    assert message.startswith("'a' is paused, and will not fire\n")
    assert "audit" in message
    assert refusal(assert_not_scheduled, kit, "a").startswith(
        "'a' is scheduled\n  It publishes t on stream events"
    )


def test_it_is_scheduled_and_should_not_be(kit):
    kit.queue.upsert("a", EVENT, cron="0 9 * * *")
    message = refusal(assert_not_scheduled, kit, "a")
    assert message.splitlines()[0] == "'a' is scheduled"
    assert "  Next: it fires at 2026-01-01 09:00:00Z, in 9h." in message


def test_a_queue_that_is_no_kits_says_what_its_log_knows(kit):
    assert "it was never set, or it has fired" in refusal(assert_scheduled, kit.queue, "a")


@pytest.mark.parametrize("words", [{"within": "soon"}, {"at": "noon"}, {"owner": ""}])
def test_bad_words_are_the_callers(kit, words):
    with pytest.raises(InvalidSchedule, match=next(iter(words))):
        assert_scheduled(kit, "a", **words)
