"""Dead letters, on both clients and every server: listed, counted, tried again by their own group, thrown away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.both import Both
from tests.support.dead import give_up
from timerq import DeadLetter, DeadPage, Event, InvalidSchedule, Which
from timerq.testing import ManualClock


@pytest.fixture(params=["sync", "async"])
def queue(request: pytest.FixtureRequest, any_url: str) -> Iterator[Both]:
    clock = ManualClock()
    with Both(request.param, any_url, tenant="acme", clock=clock) as queue:
        queue.init(partitions=3, clock="manual")
        for n in range(12):
            kind = "sms" if n % 4 == 0 else "mail"
            queue.publish(Event(kind, {"n": n}), key=f"{'order' if n % 2 else 'cart'}:{n}")
        clock.advance(1000)
        assert queue.run(give_up(queue.namespace, "mails")) == 12
        yield queue


def keys(letters: list[DeadLetter]) -> list[str]:
    return sorted(letter.key for letter in letters)


def test_they_are_listed_counted_and_shown(queue: Both) -> None:
    letters = queue.dead_list("mails")
    assert len(keys(letters)) == queue.dead_count("mails") == 12
    assert {letter.error for letter in letters} == {"ValueError: no such account"}
    assert keys(queue.dead_list("mails", Which(prefix="cart:", type="sms"))) == ["cart:0", "cart:4", "cart:8"]
    assert queue.dead_count("mails", Which(type="sms")) == 3
    letter = letters[0]
    assert queue.dead_show("mails", letter.id) == queue.dead_show("mails", letter.place) == letter
    assert letter.payload == {"n": int(letter.key.partition(":")[2])}
    assert queue.dead_show("mails", "0-1-1") is None
    assert queue.dead_list("others") == []
    assert queue.dead_count("mails", stream="elsewhere") == 0


def test_an_age_is_one_of_their_last_failure(queue: Both) -> None:
    failed_at = queue.dead_list("mails")[0].last_failed_at
    assert queue.dead_count("mails", Which(since=failed_at)) == 12
    assert queue.dead_count("mails", Which(before=failed_at)) == 0
    assert queue.dead_count("mails", Which(before=failed_at.isoformat(), since=0)) == 0
    with pytest.raises(InvalidSchedule, match="since"):
        queue.dead_count("mails", Which(since="2026-01-01"))


def test_pages_are_of_any_size_and_hold_each_once(queue: Both) -> None:
    found: list[DeadLetter] = []
    after = None
    while True:
        page: DeadPage = queue.dead_list_page("mails", after=after, limit=5)
        found += page.letters
        after = page.after
        if after is None:
            break
    assert found == queue.dead_list("mails")


def test_a_replay_is_an_event_of_its_group_alone_and_a_discard_is_none(queue: Both) -> None:
    before = queue.events()
    assert queue.dead_replay("mails", Which(prefix="order:"), limit=2) == 2
    assert queue.dead_replay("mails", Which(prefix="order:")) == 4
    replayed = [event for event in queue.events() if event not in before]
    assert len(replayed) == 6
    assert {event["only"] for event in replayed} == {b"mails"}
    assert keys(queue.dead_list("mails")) == sorted(f"cart:{n}" for n in range(0, 12, 2))
    assert queue.dead_discard("mails", Which(type="sms")) == 3
    assert queue.dead_discard("mails", Which()) == 3
    assert queue.dead_count("mails") == queue.dead_replay("mails", Which()) == 0
    assert len(queue.events()) == len(before) + 6


def test_looking_makes_no_namespace(queue: Both) -> None:
    with Both(queue.kind, queue._url, namespace="nowhere") as other:
        assert other.dead_list("mails") == []
        assert other.dead_show("mails", "0-1-1") is None
        assert other.dead_replay("mails", Which()) == other.dead_count("mails") == 0
        assert other.namespace is None
    assert queue.client.exists("{nowhere}:meta") == 0
