"""upsert.lua and edit.lua for recurring ones: what outlives a change, late first instants, sets, going on from now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.lua.test_policies import KINDS, at_of, both_kinds, fire_at, get, ids, told
from tests.support.partition import EVENT, NOW, Partition
from timerq import Change, Event, Fire, InvalidSchedule, Upsert
from timerq.commands import edit, recurring, upsert
from timerq.commands.dispatch import Advance
from timerq.commands.items import Later, one
from timerq.commands.options import Membership

JOBS = Membership("jobs", 5)
HISTORY = {b"t", b"u", b"g", b"q", *(b"l%d" % i for i in range(10))}


def history(partition: Partition) -> dict[bytes, bytes]:
    return {name: value for name, value in partition.record().items() if name in HISTORY}


def lived(partition: Partition, fires: int = 12) -> None:
    """A schedule under "k" with something in every field of its history."""
    partition.upsert(every=1000, overlap="skip", pause_after=9)
    for i in range(1, fires + 1):
        assert fire_at(partition, 1000 * i + i) == 1
        assert partition.done(ids(partition)[-1], "no" if i > fires - 2 else None).outcome == "DONE"
    fire_at(partition, 1000 * (fires + 1))
    partition.edit("trigger")


# ------------------------------------------------------------------------------------------------ history


def test_the_last_ten_fires_are_kept_in_order(partition: Partition) -> None:
    partition.upsert(every=1000)
    for i in range(1, 24):
        fire_at(partition, 1000 * i + i)
        fires = get(partition).fires
        assert fires == tuple(Fire(NOW + 1000 * n, NOW + 1000 * n + n) for n in range(max(1, i - 9), i + 1))
        assert [fire.lag_ms for fire in fires] == list(range(max(1, i - 9), i + 1))
    fire_at(partition, 30_000)
    assert get(partition).fires[-1] == Fire(NOW + 24_000, NOW + 30_000, 6)
    assert partition.record()[b"t"] == b"24 6 0"
    partition.check()


@both_kinds
def test_a_new_definition_keeps_what_happened_and_counts_n_anew(
    partition: Partition, kind: dict[str, Any]
) -> None:
    lived(partition)
    before = history(partition)
    assert set(before) == HISTORY
    made = partition.upsert("k", Event("new"), **kind, overlap="queue", limit=50, start=NOW + 20_000)
    assert made.outcome == "REPLACED"
    schedule = made.schedule
    assert (schedule.n, schedule.fired_total, schedule.missed_total, schedule.skipped_total) == (0, 13, 0, 0)
    assert history(partition) == before
    stored = get(partition)
    assert (stored.n, stored.fired_total, stored.failures, stored.running) == (0, 13, 2, ids(partition)[12])
    assert [fire.at_ms - NOW for fire in stored.fires] == [1000 * i for i in range(4, 14)]
    partition.done(stored.running)
    fire_at(partition, 20_000)
    assert partition.events()[-1]["n"] == "1"
    assert [fire.at_ms - NOW for fire in get(partition).fires] == [*(1000 * i for i in range(5, 14)), 20_000]
    partition.check()


def test_the_totals_are_what_was_stored_wherever_an_answer_has_them(partition: Partition) -> None:
    partition.upsert(every=1000, overlap="skip")
    fire_at(partition, 3500)
    fire_at(partition, 6500)  # three are left out

    def counts(made: Any) -> tuple[int, int, int]:
        return made.schedule.fired_total, made.schedule.missed_total, made.schedule.skipped_total

    unchanged = partition.upsert(every=1000, overlap="skip")
    assert (unchanged.outcome, unchanged.schedule.n, counts(unchanged)) == ("UNCHANGED", 1, (1, 2, 3))
    replaced = partition.upsert(every=500, overlap="skip")
    assert (replaced.outcome, replaced.schedule.n, counts(replaced)) == ("REPLACED", 0, (1, 2, 3))
    kept = partition.upsert(every=500, mode="keep")
    assert (kept.outcome, counts(kept)) == ("KEPT", (1, 2, 3))
    # before anything could be skipped; of no use
    for old, now in (
        ("4 5", (4, 5, 0)),
        ("rubbish", (0, 0, 0)),
    ):
        partition.client.hset(partition.record_key(), "t", old)
        assert counts(partition.upsert(every=500, overlap="skip")) == now
        assert counts(partition.upsert(every=500, overlap="skip", restart=True)) == now


def test_a_reset_forgets_what_was_counted_and_the_fires_with_it(partition: Partition) -> None:
    lived(partition)
    made = partition.upsert(every=1000, overlap="skip", pause_after=9, reset=True)
    assert (made.outcome, made.schedule.fired_total) == ("REPLACED", 0)
    assert set(history(partition)) == {b"u", b"g", b"q"}
    partition.done(get(partition).running)
    assert fire_at(partition, 14_000) == 1
    stored = get(partition)
    assert (stored.fired_total, [fire.at_ms for fire in stored.fires]) == (1, [NOW + 14_000])
    partition.check()


def test_a_reset_counts_a_limit_anew(partition: Partition) -> None:
    words: dict[str, Any] = {"every": 1000, "limit": 3}
    partition.upsert(**words)
    for at in (1000, 2000):
        fire_at(partition, at)
    with pytest.raises(InvalidSchedule, match="limit"):
        partition.upsert(every=1000, limit=2)
    partition.upsert(**words, reset=True)
    for at in (3000, 4000, 5000):
        assert fire_at(partition, at) == 1
    assert partition.record() == {}


def test_a_one_shot_that_takes_the_key_begins_with_nothing(partition: Partition) -> None:
    lived(partition)
    made = partition.upsert(delay=5000)
    assert made.outcome == "REPLACED"
    assert set(partition.record()) == {b"s", b"d", b"p"}
    assert partition.upsert(every=1000).schedule.fired_total == 0
    assert history(partition) == {}
    partition.check()


def test_a_paused_one_shot_keeps_why_when_a_recurring_one_takes_its_key(partition: Partition) -> None:
    partition.upsert(delay=5000)
    partition.edit("pause", by="ops", note="stop")
    made = partition.upsert(every=1000)
    assert made.state == "paused"
    assert (get(partition).paused_by, get(partition).paused_note) == ("ops", "stop")


def test_a_memory_of_missed_ones_outlives_no_change(partition: Partition) -> None:
    for change in ("upsert", "pause"):
        partition.now = NOW
        partition.calendar(at=NOW, following=None)
        (claimed,) = partition.fire().handovers
        assert partition.advance(Advance(claimed, NOW, NOW + 10, missed=7)) == ["ADVANCED"]
        assert partition.record()[b"m"] == b"7"
        if change == "upsert":
            partition.calendar(at=NOW + 5, following=NOW + 6, x='{"cron":"0 0 * * *"}')
        else:
            partition.edit("pause")
            partition.edit("resume")
            assert partition.record()[b"s"].split(b" ")[3] == b"-"  # what follows has to be asked again
        assert b"m" not in partition.record()
        partition.cancel()


# ------------------------------------------------------------------------------------------------ unchanged


@pytest.mark.parametrize(
    "words",
    [
        {"every": 1000, "overlap": "skip", "ack_group": "g", "running_timeout": "5m"},
        {"every": 1000, "misfire": "skip", "grace": "1m"},
        {"every": 1000, "misfire": "catch_up", "max_catch_up": 5},
        {"every": 1000, "anchor": "clock"},
        {"every": 1000, "jitter": 500},
        {"every": 1000, "fixed_delay": True, "pause_after": 3},
        {"cron": "0 9 * * MON-FRI", "timezone": "Europe/Paris", "dst_gap": "skip", "dst_overlap": "both"},
        {
            "cron": ["0 9 * * *", "30 17 * * *"],
            "exclude": ["2026-12-25", "* * * * 0"],
            "until": "2030-01-01T00:00:00Z",
        },
    ],
    ids=str,
)
def test_a_service_that_sets_its_schedule_at_every_start_neither_starves_nor_repeats_it(
    partition: Partition, words: dict[str, Any]
) -> None:
    first = partition.upsert(**words)
    record = partition.record()
    for _ in range(3):
        partition.now += 300
        again = partition.upsert(**words, by="another")
        assert (again.outcome, again.version, again.at_ms) == ("UNCHANGED", first.version, first.at_ms)
    assert partition.record() == record
    partition.now = max(partition.now, first.at_ms)
    assert partition.drain()[0] == 1
    assert partition.upsert(**words).outcome == "UNCHANGED"
    assert partition.upsert(**words, restart=True).outcome == "REPLACED"
    partition.check()


@pytest.mark.parametrize(
    "other",
    [
        {"cron": "1 * * * *"}, {"timezone": "Europe/Paris"}, {"dst_gap": "skip"}, {"dst_overlap": "second"},
        {"exclude": "2026-12-25"}, {"jitter": 5000}, {"misfire": "skip"}, {"misfire": "catch_up"},
        {"overlap": "skip"}, {"overlap": "queue"}, {"pause_after": 3}, {"start": NOW + 5}, {"limit": 9},
        {"until": "2030-01-01T00:00:00Z"}, {"cron": ["0 * * * *", "1 * * * *"]},
    ],
    ids=str,
)  # fmt: skip
def test_any_other_word_is_a_change_which_moves_the_next_fire_without_firing(
    partition: Partition, other: dict[str, Any]
) -> None:
    given: dict[str, Any] = {"cron": "0 * * * *"}
    first = partition.upsert(**given)
    changed = partition.upsert(**(given | other))
    assert (changed.outcome, changed.replaced_version) == ("REPLACED", first.version)
    assert partition.drain() == (0, 0)
    assert get(partition).at_ms == changed.at_ms > NOW
    partition.check()


@pytest.mark.parametrize("grid", [{"anchor": "clock"}, {"anchor": NOW}, {"start": NOW}], ids=str)
@pytest.mark.parametrize("old", [*KINDS, {"every": 1000, "start": NOW}], ids=str)
def test_a_change_in_the_millisecond_of_a_tick_fires_that_tick_no_more(
    partition: Partition, old: dict[str, Any], grid: dict[str, Any]
) -> None:
    partition.upsert("k", Event("old"), **old)
    fire_at(partition, 1000)
    fire_at(partition, 2000)
    assert partition.upsert("k", Event("new"), every=1000, **grid).at_ms == NOW + 3000
    assert partition.upsert("k", Event("newer"), every=1000, **grid, restart=True).at_ms == NOW + 3000
    assert partition.drain()[0] == 0
    assert partition.upsert("k", Event("anew"), every=1000, **grid, reset=True).at_ms == NOW + 2000
    assert partition.drain()[0] == 1
    partition.check()


@both_kinds
def test_a_change_in_the_millisecond_of_a_tick_that_has_not_fired_fires_it(
    partition: Partition, kind: dict[str, Any]
) -> None:
    partition.upsert("k", Event("old"), **kind)
    fire_at(partition, 1000)
    partition.now = NOW + 2000
    assert partition.upsert("k", Event("new"), every=1000, anchor="clock").at_ms == NOW + 2000
    assert partition.drain()[0] == 1
    partition.now = NOW + 2001
    assert partition.upsert("k", Event("newer"), every=1000, anchor="clock").at_ms == NOW + 3000
    partition.check()


def test_who_sets_it_is_kept_and_logged(partition: Partition) -> None:
    partition.upsert(every=1000, by="deploy-7")
    assert get(partition).by == "deploy-7"
    assert partition.upsert(every=1000, by="deploy-8").outcome == "UNCHANGED"
    assert get(partition).by == "deploy-7"
    partition.upsert(every=2000, by="deploy-8")
    assert get(partition).by == "deploy-8"
    partition.upsert(every=3000)
    assert get(partition).by is None
    assert [(e["what"], e["by"]) for e in partition.entries()] == [("replaced", "deploy-8"), ("replaced", "")]
    partition.upsert("once", delay=5, by="ops")
    partition.upsert("once", delay=6, by="ops")
    assert partition.entries()[-1]["by"] == "ops"


# ------------------------------------------------------------------------------------------------ late


def test_a_first_instant_that_has_passed_on_its_way_is_asked_for_anew(partition: Partition) -> None:
    item = upsert.item(partition.scope, Upsert("k", EVENT, cron="* * * * * *"), now=lambda: NOW)
    partition.now = NOW + 1001
    before = partition.state()
    (late,) = partition.all([item])
    assert isinstance(late, Later)
    assert partition.record() == {}
    assert set(partition.state()) - set(before) <= {partition.key("req:test")}
    (made,) = partition.all([item])
    assert (made.outcome, made.at_ms) == ("CREATED", NOW + 2000)
    assert partition.record()[b"s"].split(b" ")[3] == b"%d" % (NOW + 3000)
    partition.check()


def test_the_first_instant_may_be_now(partition: Partition) -> None:
    item = upsert.item(partition.scope, Upsert("k", EVENT, cron="* * * * * *"), now=lambda: NOW)
    partition.now = NOW + 1000
    (made,) = partition.all([item])
    assert made.at_ms == NOW + 1000
    assert partition.drain()[0] == 1


def test_without_a_clock_the_script_is_asked_what_time_it_is(partition: Partition) -> None:
    item = upsert.item(partition.scope, Upsert("k", EVENT, cron="* * * * * *", owner="o"))
    made = partition.run(one(partition.scope, item))
    assert (made.outcome, made.at_ms) == ("CREATED", NOW + 1000)
    partition.check()


@pytest.mark.parametrize("words", [{"jitter": 500}, {"misfire": "skip", "start": NOW - 5000}], ids=str)
def test_intervals_that_calendars_are_asked_about_come_late_too(
    partition: Partition, words: dict[str, Any]
) -> None:
    item = upsert.item(partition.scope, Upsert("k", EVENT, every=1000, **words), now=lambda: NOW - 60_000)
    assert isinstance(partition.all([item])[0], Later)
    (made,) = partition.all([item])
    assert NOW <= made.at_ms < NOW + 2000


def test_what_needs_no_first_instant_is_never_late(partition: Partition) -> None:
    def early(**words: Any) -> Any:
        wanted = Upsert("k", EVENT, cron="* * * * * *", **words)
        return partition.all([upsert.item(partition.scope, wanted, now=lambda: NOW - 60_000)])[0]

    assert early(if_version=7).outcome == "VERSION_MISMATCH"
    first = partition.upsert(cron="* * * * * *")
    assert early().outcome == "UNCHANGED"
    assert early(mode="keep").outcome == "KEPT"
    assert early(paused=True).state == "paused"
    assert get(partition).at_ms == first.at_ms
    assert isinstance(early(limit=5), Later)


def test_a_repeated_call_is_known_by_its_idempotency_key_though_other_instants_come_with_it(
    partition: Partition,
) -> None:
    words: dict[str, Any] = {"cron": "* * * * * *", "idempotency_key": "x"}
    first = partition.upsert(**words)
    partition.now += 90_500
    again = partition.upsert(**words)
    assert (again.outcome, again.version, again.at_ms) == ("DUPLICATE", first.version, first.at_ms)
    with pytest.raises(InvalidSchedule, match="idempotency_key"):
        partition.upsert(**(words | {"cron": "* * * * *"}))


def test_a_late_one_among_others_holds_none_of_them_up(partition: Partition) -> None:
    late = upsert.item(partition.scope, Upsert("late", EVENT, cron="* * * * * *"), now=lambda: NOW - 5000)
    others = [upsert.item(partition.scope, Upsert(f"k{i}", EVENT, delay=5)) for i in range(3)]
    results = partition.all([others[0], late, *others[1:]])
    assert [getattr(r, "outcome", type(r).__name__) for r in results] == [
        "CREATED",
        "Later",
        "CREATED",
        "CREATED",
    ]
    partition.check()


# ------------------------------------------------------------------------------------------------ declared sets


def members(partition: Partition) -> dict[bytes, float]:
    return dict(partition.client.zrange(partition.key("set:acme\0jobs"), 0, -1, withscores=True))


def test_an_upsert_of_a_set_is_listed_in_it_whatever_its_outcome(partition: Partition) -> None:
    words: dict[str, Any] = {"every": 1000, "member": JOBS}
    assert partition.upsert(**words).outcome == "CREATED"
    assert get(partition).label == "jobs"
    assert members(partition) == {b"acme\0k\0": 5}
    assert partition.upsert(every=1000, member=Membership("jobs", 6)).outcome == "UNCHANGED"
    assert members(partition) == {b"acme\0k\0": 6}
    assert partition.upsert(every=2000, member=Membership("jobs", 7)).outcome == "REPLACED"
    assert members(partition) == {b"acme\0k\0": 7}
    assert partition.upsert(every=2000).outcome == "REPLACED"  # it belongs to no set now
    assert get(partition).label is None


def test_a_one_shot_of_a_set_and_one_with_owner_and_token(partition: Partition) -> None:
    made = partition.upsert(delay=5000, member=JOBS, owner="o", idempotency_key="x")
    assert made.outcome == "CREATED"
    assert members(partition) == {b"acme\0k\0o": 5}
    assert partition.record(owner="o")[b"y"] == b"jobs"
    assert partition.upsert(delay=5000, member=JOBS, owner="o", idempotency_key="x").outcome == "DUPLICATE"
    partition.check()


@pytest.mark.parametrize("announced", [4, 5, 6])
def test_an_upsert_of_an_earlier_apply_is_superseded(partition: Partition, announced: int) -> None:
    partition.client.zadd(partition.key("set:acme\0jobs"), {"": announced})
    before = partition.state()
    made = partition.upsert(every=1000, member=JOBS, idempotency_key="x")
    if announced > 5:
        assert (made.outcome, made.version, made.at_ms, made.schedule) == ("SUPERSEDED", 6, None, None)
        changed = {name for name, value in partition.state().items() if before.get(name) != value}
        assert changed <= {partition.key("req:test"), partition.key("meta")}
    else:
        assert made.outcome == "CREATED"


# ------------------------------------------------------------------------------------------------ pause and resume


def test_a_pause_says_by_whom_and_why_until_it_ends(partition: Partition) -> None:
    partition.upsert(every=1000)
    assert partition.edit("pause", by="ops", note="the database\nmoves").outcome == "PAUSED"
    assert partition.record()[b"z"] == b"ops\0the database\nmoves\0%d" % NOW
    paused = get(partition)
    assert (paused.paused_by, paused.paused_note, paused.paused_ms) == ("ops", "the database\nmoves", NOW)
    assert partition.edit("pause").outcome == "UNCHANGED"
    assert get(partition).paused_by == "ops"
    assert partition.edit("pause", by="ops", note="the database\nmoves again").outcome == "PAUSED"
    assert partition.edit("pause", by="ops", note="the database\nmoves").outcome == "PAUSED"
    assert partition.upsert(every=500).state == "paused"
    assert get(partition).paused_note == "the database\nmoves"
    assert partition.edit("resume", by="dev").outcome == "RESUMED"
    assert b"z" not in partition.record()
    assert (get(partition).paused_by, get(partition).paused_note) == (None, None)
    entries = [(e["what"], e["note"], e["by"]) for e in partition.entries() if e["what"] != "replaced"]
    assert entries == [
        ("paused", "the database\nmoves", "ops"),
        ("paused", "the database\nmoves again", "ops"),
        ("paused", "the database\nmoves", "ops"),
        ("resumed", "", "dev"),
    ]
    partition.edit("pause")
    assert (get(partition).paused_by, get(partition).paused_note, get(partition).paused_ms) == (
        None,
        None,
        NOW,
    )
    partition.upsert(every=500, paused=False)
    assert (get(partition).state, get(partition).paused_ms) == ("armed", None)
    partition.check()


@pytest.mark.parametrize(("by", "note"), [("ops", None), (None, "why")])
def test_a_pause_may_say_one_of_the_two(partition: Partition, by: str | None, note: str | None) -> None:
    partition.upsert(delay=5000)
    partition.edit("pause", by=by, note=note)
    assert (get(partition).paused_by, get(partition).paused_note) == (by, note)


def resume(partition: Partition, if_version: int | None = None, by: str | None = None) -> Any:
    now = lambda: partition.now  # noqa: E731
    steps = recurring.resume_from_now(partition.scope, "k", None, if_version, by, now, None)
    return partition.run(steps)


@both_kinds
@pytest.mark.parametrize("misfire", ["fire_once", "skip", "catch_up"])
def test_a_resume_from_now_leaves_out_what_was_missed_and_counts_it(
    partition: Partition, kind: dict[str, Any], misfire: Any
) -> None:
    version = partition.upsert(**kind, misfire=misfire).version
    partition.edit("pause", by="ops", note="x")
    partition.now = NOW + 5400
    change = resume(partition, by="dev")
    assert (change.outcome, change.version, change.at_ms) == ("RESUMED", version, NOW + 6000)
    assert partition.record()[b"t"] == b"0 0 5"
    assert b"z" not in partition.record()
    assert partition.client.hget(partition.key("meta"), "skipped") == b"5"
    entries = [(e["what"], e["note"], e["by"]) for e in partition.entries()[1:]]
    assert entries == [("skipped", "5 resumed from now", ""), ("resumed", "from now", "dev")]
    assert partition.drain() == (0, 0)
    partition.check()
    partition.now = NOW + 6000
    assert partition.fire().published == 1  # nobody has to be asked about it
    assert told(partition) == [(6000, 0)]
    partition.check()


@pytest.mark.parametrize("words", [*KINDS, {"delay": 1000}], ids=["every", "cron", "once"])
def test_where_nothing_was_missed_a_resume_from_now_is_a_resume(
    partition: Partition, words: dict[str, Any]
) -> None:
    partition.upsert(**words)
    assert resume(partition).outcome == "UNCHANGED"
    partition.edit("pause")
    partition.now = NOW + 999
    assert resume(partition).at_ms == NOW + 1000
    assert b"t" not in partition.record()
    partition.edit("pause")
    partition.now = NOW + 5000
    assert resume(partition, if_version=7).outcome == "VERSION_MISMATCH"
    if "delay" in words:
        assert resume(partition).at_ms == NOW + 1000  # a one-shot is due now
        assert partition.drain()[0] == 1
    partition.cancel()
    assert resume(partition).outcome == "NOT_PENDING"
    partition.check()


def test_a_fixed_delay_goes_on_an_interval_from_now(partition: Partition) -> None:
    partition.upsert(every=1000, fixed_delay=True, until=NOW + 10_000)
    partition.edit("pause")
    partition.now = NOW + 5400
    assert resume(partition).at_ms == NOW + 6400
    assert b"t" not in partition.record()
    partition.edit("pause")
    partition.now = NOW + 9001
    with pytest.raises(InvalidSchedule, match="from_now"):
        resume(partition)
    partition.check()


@both_kinds
def test_a_schedule_that_has_ended_by_now_cannot_go_on_from_now(
    partition: Partition, kind: dict[str, Any]
) -> None:
    partition.upsert(**kind, until=NOW + 3000)
    partition.edit("pause")
    partition.now = NOW + 3000
    before = partition.record()
    with pytest.raises(InvalidSchedule, match="from_now"):
        resume(partition)
    assert partition.record() == before
    partition.edit("resume")
    assert partition.drain()[0] == 1  # what was missed can still be had
    assert told(partition) == [(1000, 2)]
    assert partition.record() == {}


@both_kinds
def test_the_last_one_left_ends_it(partition: Partition, kind: dict[str, Any]) -> None:
    partition.upsert(**kind, until=NOW + 3000)
    partition.edit("pause")
    partition.now = NOW + 2500
    assert resume(partition).at_ms == NOW + 3000
    assert fire_at(partition, 3000) == 1
    assert partition.record() == {}


def test_a_resume_computed_from_another_occurrence_is_refused(partition: Partition) -> None:
    version = partition.upsert(every=1000).version
    partition.edit("pause")
    partition.now = NOW + 3000
    before = partition.record()
    refused = partition.edit("skip", going=edit.Going(NOW + 2000, NOW + 4000, None, 2))
    assert (refused.outcome, refused.version) == ("VERSION_MISMATCH", version)
    assert partition.record() == before


def resume_meanwhile(
    partition: Partition, change: Callable[[], Any], if_version: int | None = None
) -> Change:
    """A resume from now with a change between its look and what it does."""
    steps = recurring.resume_from_now(
        partition.scope, "k", None, if_version, None, lambda: partition.now, None
    )
    answers = [partition.ask(command) for command in next(steps)]
    change()
    try:
        while True:
            answers = [partition.ask(command) for command in steps.send(answers)]
    except StopIteration as end:
        done: Change = end.value
        return done


@pytest.mark.parametrize("fenced", [True, False])
def test_one_that_moves_meanwhile_is_looked_at_again(partition: Partition, fenced: bool) -> None:
    version = partition.upsert(every=1000, fixed_delay=True, ack_group="g").version
    fire_at(partition, 1000)
    partition.edit("pause")
    partition.now = NOW + 10**7
    change = resume_meanwhile(
        partition, lambda: partition.done(ids(partition)[0]), version if fenced else None
    )
    assert (change.outcome, change.at_ms) == ("RESUMED", NOW + 10**7 + 1000)
    partition.check()


@pytest.mark.parametrize("fenced", [True, False])
def test_one_that_is_replaced_meanwhile_is_another(partition: Partition, fenced: bool) -> None:
    first = partition.upsert(every=1000).version
    partition.edit("pause")
    partition.now = NOW + 3500
    change = resume_meanwhile(partition, lambda: partition.upsert(every=700), first if fenced else None)
    second = get(partition).version
    assert (change.outcome, change.version) == ("VERSION_MISMATCH" if fenced else "RESUMED", second)
    assert get(partition).state == ("paused" if fenced else "armed")
    assert at_of(partition) == 4200
    partition.check()


def test_one_that_is_resumed_or_cancelled_meanwhile(partition: Partition) -> None:
    partition.upsert(every=1000)
    partition.edit("pause")
    partition.now = NOW + 3500
    assert resume_meanwhile(partition, lambda: partition.edit("resume")).outcome == "UNCHANGED"
    assert at_of(partition) == 1000
    partition.edit("pause")
    assert resume_meanwhile(partition, partition.cancel).outcome == "NOT_PENDING"
    partition.check()
