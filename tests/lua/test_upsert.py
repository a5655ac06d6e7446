"""upsert.lua: each mode on each state, and what an upsert leaves behind."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.partition import EVENT, NOW, Partition
from timerq import Event, InvalidSchedule, Upsert
from timerq.commands import upsert
from timerq.commands.dispatch import Advance
from timerq.commands.items import gather

STATES = ["armed", "paused", "held", "claimed"]
LETTER = {"armed": "a", "paused": "p", "held": "h", "claimed": "c"}


def bring(partition: Partition, state: str, *, kind: str = "once") -> int:
    """A schedule under "k" in that state; returns its version."""
    if state == "claimed":
        made = partition.calendar(at=NOW, following=None)
        partition.fire()
    else:
        words: dict[str, Any] = {"delay": 50} if kind == "once" else {"every": 50}
        made = partition.upsert(event=Event("t", stream="wrong"), **words)
        if state == "paused":
            partition.edit("pause")
        elif state == "held":
            partition.client.set(partition.key("s:wrong"), "not a stream")
            partition.now += 50
            assert partition.fire().held == 1
    assert partition.record()[b"s"].decode()[0] == LETTER[state]
    version: int = made.version
    return version


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("paused", [None, True, False])
def test_replace_rewrites_the_whole_record_and_a_pause_survives(
    partition: Partition, state: str, paused: Any
) -> None:
    old = bring(partition, state)
    made = partition.upsert("k", Event("new"), delay=20, paused=paused)
    assert made.outcome == "REPLACED"
    assert (made.replaced_version, made.at_ms) == (old, partition.now + 20)
    assert made.version > old
    stays = paused or (state == "paused" and paused is None)
    assert made.state == ("paused" if stays else "armed")
    record = partition.record()
    assert record.pop(b"z", None) == (b"\0\0%d" % NOW if stays and state == "paused" else None)
    assert record == {
        b"s": f"{'p' if stays else 'a'} {made.version} {made.at_ms} - 0".encode(),
        b"d": b"o events m new",
        b"p": b"\xc0",
    }
    partition.check()


@pytest.mark.parametrize("state", STATES)
def test_keep_keeps_whatever_there_is(partition: Partition, state: str) -> None:
    old = bring(partition, state)
    before = partition.record()
    kept = partition.upsert("k", Event("new"), delay=1, mode="keep")
    assert (kept.outcome, kept.version, kept.state) == ("KEPT", old, state)
    assert kept.schedule.event.type == "t"
    assert partition.record() == before
    partition.check()


@pytest.mark.parametrize("state", ["armed", "paused", "held"])
@pytest.mark.parametrize(("mode", "offset", "wins"), [
    ("earliest", -1, True), ("earliest", 0, False), ("earliest", 1, False),
    ("latest", -1, False), ("latest", 0, False), ("latest", 1, True),
])  # fmt: skip
def test_earliest_and_latest_compare_instants_and_the_winner_takes_all(
    partition: Partition, state: str, mode: Any, offset: int, wins: bool
) -> None:
    old = bring(partition, state)
    made = partition.upsert("k", Event("new"), at=NOW + 50 + offset, mode=mode)
    assert made.outcome == ("REPLACED" if wins else "KEPT")
    assert made.schedule.event.type == ("new" if wins else "t")
    assert (made.version == old) is not wins
    assert made.state == ("paused" if state == "paused" else state if not wins else "armed")
    partition.check()


@pytest.mark.parametrize("mode", ["earliest", "latest", "keep", "replace"])
def test_every_mode_creates_where_there_is_nothing(partition: Partition, mode: Any) -> None:
    assert partition.upsert(delay=5, mode=mode).outcome == "CREATED"


@pytest.mark.parametrize("mode", ["earliest", "latest"])
@pytest.mark.parametrize("state", ["armed", "claimed"])
def test_an_instant_does_not_compare_with_a_recurring_one(
    partition: Partition, mode: Any, state: str
) -> None:
    bring(partition, state, kind="every")
    before = partition.record()
    with pytest.raises(InvalidSchedule) as caught:
        partition.upsert(delay=5, mode=mode)
    assert caught.value.field == "mode"
    assert partition.record() == before


@pytest.mark.parametrize("state", ["armed", "paused", "claimed"])
@pytest.mark.parametrize("paused", [None, True, False])
def test_the_same_recurring_definition_is_unchanged_and_keeps_its_phase(
    partition: Partition, state: str, paused: Any
) -> None:
    if state == "claimed":
        partition.calendar(at=NOW, following=None)
        partition.fire()
        again = lambda: partition.calendar(at=NOW + 3, following=NOW + 9, paused=paused)  # noqa: E731
    else:
        partition.upsert(every=50)
        if state == "paused":
            partition.edit("pause")
        again = lambda: partition.upsert(every=50, paused=paused)  # noqa: E731
    before = partition.record()
    partition.now += 7
    made = again()
    assert made.outcome == "UNCHANGED"
    expected = state if paused is None else "paused" if paused else "armed" if state == "paused" else state
    assert made.state == expected
    after = partition.record()
    assert after[b"s"][1:] == before[b"s"][1:]
    assert after[b"s"][:1].decode() == LETTER[expected]
    assert ({*after} - {b"s", b"z"}) == ({*before} - {b"s", b"z"})
    assert (b"z" in after) == (b"z" in before and expected == "paused")
    partition.check()


@pytest.mark.parametrize("words", [
    {"every": 60}, {"every": 50, "limit": 3}, {"every": 50, "until": NOW + 500}, {"every": 50, "initial_delay": 50},
    {"every": 50, "start": NOW}, {"every": 50, "restart": True}, {"every": 50, "reset": True}, {"delay": 50},
    {"every": 50, "event": Event("u", {"n": 1})}, {"every": 50, "event": Event("t", {"n": 2})},
    {"every": 50, "event": Event("t", {"n": 1}, stream="s")},
    {"every": 50, "event": Event("t", {"n": 1}, correlation={"a": "b"})},
])  # fmt: skip
def test_any_other_definition_is_a_replacement(partition: Partition, words: dict[str, Any]) -> None:
    partition.upsert(every=50)
    assert partition.upsert("k", **words).outcome == "REPLACED"
    partition.check()


def test_a_held_recurring_one_is_unchanged_too(partition: Partition) -> None:
    """A service that starts again while its stream is broken must not lose the occurrence that waits."""
    old = bring(partition, "held", kind="every")
    made = partition.upsert("k", Event("t", stream="wrong"), every=50)
    assert (made.outcome, made.version, made.state) == ("UNCHANGED", old, "held")
    partition.check()


@pytest.mark.parametrize(("field", "value"), [("t", "x"), ("u", "x"), ("zz", "1")])
def test_an_upsert_is_the_cure_of_a_held_one_that_cannot_be_read(
    partition: Partition, field: str, value: str
) -> None:
    partition.upsert(every=50)
    partition.client.hset(partition.record_key(), field, value)
    partition.now += 50
    held = partition.fire().held
    assert partition.upsert(every=50).outcome == ("REPLACED" if held else "UNCHANGED")
    partition.now += 50
    assert partition.fire().published == 1
    partition.check()


def test_no_field_of_the_old_one_survives(partition: Partition) -> None:
    partition.upsert("k", Event("t", b"x" * 250, correlation={"a": "b"}), every=50, until=NOW + 500, limit=9)
    partition.now += 100
    partition.fire()
    assert set(partition.record()) == {b"s", b"d", b"p", b"p1", b"p2", b"p3", b"c", b"w", b"t", b"l0"}
    partition.upsert("k", delay=5, max_wait=100)
    assert set(partition.record()) == {b"s", b"d", b"p", b"f"}
    partition.upsert("k", delay=5)
    assert set(partition.record()) == {b"s", b"d", b"p"}


def test_a_debounce_fires_no_later_than_max_wait_after_it_was_first_armed(partition: Partition) -> None:
    assert partition.upsert(delay=100, max_wait=250).at_ms == NOW + 100
    for _ in range(2):
        partition.now += 90
        assert partition.upsert(delay=100, max_wait=250).at_ms == min(partition.now + 100, NOW + 250)
    partition.now += 60
    assert partition.upsert(delay=100, max_wait=250).at_ms == NOW + 250
    partition.now = NOW + 250
    assert partition.fire().published == 1
    assert partition.upsert(delay=100, max_wait=250).at_ms == NOW + 350


def test_a_debounce_of_one_armed_without_counts_from_its_version(partition: Partition) -> None:
    partition.upsert(delay=1000)
    partition.now += 90
    assert partition.upsert(delay=100, max_wait=150).at_ms == NOW + 150
    assert partition.record()[b"f"] == b"%d" % NOW


def test_a_debounce_of_an_unreadable_one_counts_from_now(partition: Partition) -> None:
    partition.upsert(delay=1000)
    partition.client.hset(partition.record_key(), "s", "rubbish")
    assert partition.upsert(delay=100, max_wait=150).at_ms == NOW + 100


@pytest.mark.parametrize("state", STATES)
def test_if_version_is_a_compare_and_set(partition: Partition, state: str) -> None:
    old = bring(partition, state)
    before = partition.record()
    for wrong in (0, old - 1, old + 1):
        missed = partition.upsert(delay=5, if_version=wrong)
        assert (missed.outcome, missed.version, missed.at_ms) == ("VERSION_MISMATCH", old, None)
    assert partition.record() == before
    assert partition.upsert(delay=5, if_version=old).outcome == "REPLACED"


def test_if_version_0_wants_nothing_there(partition: Partition) -> None:
    assert partition.upsert(delay=5, if_version=7).version == 0
    assert partition.upsert(delay=5, if_version=0).outcome == "CREATED"
    assert partition.upsert(delay=5, if_version=0).outcome == "VERSION_MISMATCH"


def test_an_idempotency_key_answers_the_same_even_when_it_has_fired(partition: Partition) -> None:
    first = partition.upsert(delay=0, idempotency_key="x")
    partition.fire()
    again = partition.upsert(delay=0, idempotency_key="x")
    assert (again.outcome, again.version, again.at_ms) == ("DUPLICATE", first.version, first.at_ms)
    assert partition.fire().published == 0
    ttl = partition.client.pttl(partition.key("once:acme\0\0k\0x"))
    assert 86_390_000 < ttl <= 86_400_000  # the retention
    with pytest.raises(InvalidSchedule) as caught:
        partition.upsert(delay=1, idempotency_key="x")
    assert caught.value.field == "idempotency_key"
    assert partition.upsert("other", delay=1, idempotency_key="x").outcome == "CREATED"  # another lane


def test_a_refused_or_lost_upsert_uses_no_idempotency_key(partition: Partition) -> None:
    partition.upsert("k", delay=5)
    assert partition.upsert(delay=5, if_version=7, idempotency_key="x").outcome == "VERSION_MISMATCH"
    with pytest.raises(InvalidSchedule):
        partition.upsert(every=5, until=NOW + 2, idempotency_key="y")
    assert partition.upsert(delay=5, idempotency_key="x").outcome == "REPLACED"
    assert partition.upsert(every=5, idempotency_key="y").outcome == "REPLACED"


def test_one_command_may_hold_the_same_key_many_times(partition: Partition) -> None:
    items = [
        Upsert("k", Event("a"), delay=5), Upsert("k", Event("b"), delay=6, mode="keep"),
        Upsert("k", Event("c"), delay=4), Upsert("k", Event("d"), delay=9, paused=True),
        Upsert("l", Event("e"), delay=1, paused=True),
        Upsert("l", Event("f"), delay=1, paused=False),
    ]  # fmt: skip
    results = partition.all([upsert.item(partition.scope, item) for item in items])
    assert [str(r.outcome) for r in results] == [
        "CREATED",
        "KEPT",
        "REPLACED",
        "REPLACED",
        "CREATED",
        "REPLACED",
    ]
    assert results[1].schedule.event.type == "a"
    assert partition.record()[b"s"].startswith(b"p ")
    assert partition.record("l")[b"s"].startswith(b"a ")
    partition.check()


def test_one_bad_item_sinks_no_other(partition: Partition) -> None:
    partition.client.rpush(partition.record_key("broken"), "not a record")
    items = [
        Upsert("a", EVENT, delay=5), Upsert("b", EVENT, every=5, until=NOW + 2), Upsert("broken", EVENT, delay=5),
        Upsert("c", EVENT, delay=5, if_version=3), Upsert("d", EVENT, delay=5),
    ]  # fmt: skip
    results = partition.all([upsert.item(partition.scope, item) for item in items])
    assert [getattr(r, "outcome", type(r).__name__) for r in results] == [
        "CREATED", "InvalidSchedule", "QueueUnavailable", "VERSION_MISMATCH", "CREATED",
    ]  # fmt: skip


def test_an_index_of_another_type_leaves_no_other_item_half_done(partition: Partition) -> None:
    partition.client.set(partition.key("own:acme\0bad"), "no index")
    items = [
        Upsert("a", EVENT, delay=5),
        Upsert("b", EVENT, delay=5, owner="bad"),
        Upsert("c", EVENT, delay=5),
    ]
    results = partition.all([upsert.item(partition.scope, item) for item in items])
    assert [getattr(r, "outcome", type(r).__name__) for r in results] == [
        "CREATED", "QueueUnavailable", "CREATED",
    ]  # fmt: skip
    due = partition.client.zrange(partition.key("due:acme"), 0, -1)
    assert {b"acme\0a\0", b"acme\0c\0"} <= set(due)


def test_a_debounce_that_replaces_an_interval_begins_then(partition: Partition) -> None:
    partition.upsert(every=50)
    partition.now += 10_000
    assert partition.upsert(delay=100, max_wait=250).at_ms == partition.now + 100


def test_a_grid_whose_next_instant_is_beyond_the_calendar_is_refused(partition: Partition) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        partition.upsert(every=253_402_300_799_999, start=NOW - 1000)
    assert caught.value.field == "every"
    assert partition.record() == {}


@pytest.mark.parametrize(
    ("delay", "wakes"), [(100, True), (99, True), (101, False)], ids=["first", "earlier", "later"]
)
def test_only_an_earlier_head_wakes_the_sleepers(partition: Partition, delay: int, wakes: bool) -> None:
    if delay != 100:
        partition.upsert("first", delay=100)
        partition.client.delete(partition.key("wake"))
    partition.upsert(delay=delay)
    woken = partition.client.xrange(partition.key("wake"))
    assert [fields[b"at"] for _, fields in woken] == ([b"%d" % (NOW + delay)] if wakes else [])
    partition.upsert("again", delay=1)
    assert len(partition.client.xrange(partition.key("wake"))) == 1


def test_delays_are_never_early(client: Any) -> None:
    partition = Partition(client, manual=False)
    for _ in range(20):
        made = partition.upsert(delay=1)
        now_us = partition.client.time()
        assert made.at_ms * 1000 >= made.version + 1000
        assert made.at_ms * 1000 < now_us[0] * 1_000_000 + now_us[1] + 2000


def test_a_start_in_the_past_gives_the_grid_and_no_debt(partition: Partition) -> None:
    assert partition.upsert(every=100, start=NOW - 1030).at_ms == NOW + 70
    assert partition.upsert("l", every=100, start=NOW).at_ms == NOW
    assert partition.upsert("m", every=100, start=0).at_ms == NOW + (-NOW % 100)
    assert partition.upsert("n", every=100, start=NOW + 30).at_ms == NOW + 30
    assert partition.upsert("o", every=100, initial_delay=0).at_ms == NOW


def test_an_instant_in_the_past_is_kept_as_it_is(partition: Partition) -> None:
    assert partition.upsert(at=5).at_ms == 5
    partition.fire()
    (event,) = partition.events()
    assert (event["at"], event["fired_ms"]) == ("5", str(NOW))


def test_an_upsert_between_a_claim_and_its_advance_wins(partition: Partition) -> None:
    partition.calendar(at=NOW, following=None)
    (handover,) = partition.fire().handovers
    partition.upsert(delay=7)
    assert partition.advance(Advance(handover, NOW, NOW + 10)) == ["STALE"]
    partition.check()
    partition.now += 7
    assert partition.fire().published == 1


def test_a_command_of_200_items_with_owners_and_tokens(partition: Partition) -> None:
    items = [
        Upsert(f"k{i}", Event("t", b"x" * 250, correlation={"i": str(i)}), every=50, owner=f"o{i % 3}", limit=5,
               idempotency_key=f"x{i}")
        for i in range(200)
    ]  # fmt: skip
    command = gather(partition.scope, [upsert.item(partition.scope, item) for item in items])
    assert [r.outcome for r in partition.ask(command)] == ["CREATED"] * 200
    assert [r.outcome for r in command.read(partition.evaluate(command))] == ["CREATED"] * 200
    partition.check()
