"""A history in plain sentences."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timerq.commands.history import History, LogEntry
from timerq.explain import caveat, sentences, utc
from timerq.model import Event, Fire, Policy, Rule, Schedule, State, Timing

T = 1_767_258_000_000  # 2026-01-01 09:00:00Z
V = T * 1000
MINUTE = 60_000

EVERY = Timing("every", every_ms=MINUTE)
CRON = Timing("cron", rule=Rule(("0 9 * * MON-FRI",), "Europe/Paris"))


def stored(timing: Timing = EVERY, **more: Any) -> Schedule:
    """One that was set at T, and is due in a minute."""
    given: dict[str, Any] = {"at_ms": T + MINUTE, "version": V, "state": State.ARMED, **more}
    return Schedule("k", Event("tick"), timing, **given)


def log(after_ms: int, what: str, note: str = "", by: str | None = None, version: int = V) -> LogEntry:
    return LogEntry(T + after_ms, what, version, note, by)


def of(schedule: Schedule | None, *entries: LogEntry, **more: Any) -> History:
    return History("k", None, schedule, entries, **{"since_ms": T, "asked_ms": T, "dispatchers": 1, **more})


def happened(*entries: LogEntry, schedule: Schedule | None = None, **more: Any) -> list[str]:
    """The sentences about what happened."""
    said = sentences(of(schedule or stored(), *entries, **more))
    return [sentence for sentence in said if sentence[:2] == "20"]


def comes(schedule: Schedule, *entries: LogEntry, **more: Any) -> list[str]:
    """The sentences about what is to come."""
    said = sentences(of(schedule, *entries, **more))
    last = max(i for i, sentence in enumerate(said) if sentence[:2] == "20")
    return said[last + 1 :]


# ------------------------------------------------------------------------------------------------ the whole


def test_the_story_of_a_recurring_schedule() -> None:
    old = V - 5_000_000
    schedule = stored(
        replace(CRON, limit=10),
        by="ann",
        fired_total=3,
        missed_total=2,
        at_ms=T + 3 * MINUTE,
        fires=(Fire(T + 1000, T + 1000), Fire(T + 2000, T + 4500, 2)),
    )
    found = of(
        schedule,
        log(0, "replaced", str(old), "ann"),
        log(1500, "paused", "deploy", "bob"),
        log(4000, "resumed", "", "bob"),
        log(4500, "missed", "2"),
        asked_ms=T + MINUTE,
    )
    assert sentences(found) == [
        "It publishes tick on stream events, by cron 0 9 * * MON-FRI in Europe/Paris, 10 times at the most.",
        "2026-01-01 08:59:55Z: set.",
        "2026-01-01 09:00:00Z: replaced by ann.",
        "2026-01-01 09:00:01Z: fired on time.",
        "2026-01-01 09:00:01.500Z: paused by bob (deploy).",
        "2026-01-01 09:00:04Z: resumed by bob.",
        "2026-01-01 09:00:04.500Z: fired, 2s late; the event stands for 2 later occurrences too.",
        "Over all its versions: 3 times fired, 2 missed and folded into later events.",
        "Next: it fires at 2026-01-01 09:03:00Z (2026-01-01 10:03:00+01:00 in Europe/Paris), in 2m.",
        "It ends when it has fired 7 more times.",
    ]


def test_a_one_shot_that_waits() -> None:
    assert sentences(of(stored(Timing("once", at_ms=T + MINUTE), by="ann"), since_ms=None)) == [
        "It publishes tick on stream events, once.",
        "2026-01-01 09:00:00Z: set by ann.",
        "Next: it fires at 2026-01-01 09:01:00Z, in 1m.",
    ]


def test_instants_are_written_as_one_wants() -> None:
    said = sentences(of(stored()), T + 1, when=lambda ms: f"<{ms - T}>")
    assert said[1:] == [
        "<0>: set.",
        "Over all its versions: 0 times fired.",
        "Next: it fires at <60000>, in 59s.",
    ]
    assert utc(T) == "2026-01-01 09:00:00Z"
    assert utc(T + 5) == "2026-01-01 09:00:00.005Z"


# ------------------------------------------------------------------------------------------------ what it is


@pytest.mark.parametrize(
    ("timing", "text"),
    [
        (EVERY, "every 1m"),
        (Timing("every", every_ms=MINUTE, policy=Policy(fixed_delay=True)), "every 1m after the last one"),
        (Timing("every", every_ms=1, rule=Rule(jitter_ms=90_000)), "every 1ms, each put off by up to 1m30s"),
        (
            Timing("cron", rule=Rule(("0 9 * * *", "30 12 * * *"), exclude=("2026-12-25", "* * * * SUN"))),
            "by cron 0 9 * * * and 30 12 * * * in UTC, but not on 2026-12-25 or * * * * SUN",
        ),
        (Timing("cron"), "by a calendar"),
        (Timing("every", every_ms=1000, rule=Rule(anchor_ms=0)), "every 1s on the clock"),
        (
            Timing("every", every_ms=1000, rule=Rule(anchor_ms=T)),
            "every 1s counted from 2026-01-01 09:00:00Z",
        ),
        (Timing("every", every_ms=1000, start_ms=T), "every 1s, not before 2026-01-01 09:00:00Z"),
        (Timing("every", every_ms=1000, until_ms=T), "every 1s, until 2026-01-01 09:00:00Z"),
    ],
)
def test_what_it_is(timing: Timing, text: str) -> None:
    assert sentences(of(stored(timing)))[0] == f"It publishes tick on stream events, {text}."


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"rule": Rule(("@daily",), dst_gap="skip")}, "Fixed times that a clock change skips are left out."),
        ({"rule": Rule(("@daily",), dst_overlap="both")}, "an hour that comes twice are due on both passes."),
        ({"rule": Rule(("@daily",), dst_overlap="second")}, "that comes twice are due on the second pass."),
        ({"policy": Policy(misfire="skip", grace_ms=5000)}, "Occurrences that are more than 5s late are left out."),
        ({"policy": Policy(misfire="catch_up")}, "each is published, the last 100 at the most."),
        ({"policy": Policy(overlap="skip")}, "One that is due while the event before it is not done is left out."),
        ({"policy": Policy(overlap="queue")}, "One that is due while the event before it is not done waits for that."),
        ({"policy": Policy(overlap="queue", ack_group="g")}, "nobody reported as done by g is given up after 1h."),
        ({"policy": Policy(pause_after=3)}, "3 failures in a row pause it."),
        ({"policy": Policy(pause_after=1)}, "One failure pauses it."),
    ],
)  # fmt: skip
def test_each_rule_that_is_not_the_usual_one_is_told(more: dict[str, Any], text: str) -> None:
    said = sentences(of(stored(replace(CRON, **more))))
    assert any(sentence.endswith(text) for sentence in said[1:3])
    assert text not in " ".join(sentences(of(stored(CRON))))
    assert sentences(of(stored(CRON)))[1].endswith("set.")


def test_the_set_that_declares_it_is_named() -> None:
    said = sentences(of(stored(label="prod")))
    assert said[0] == "It publishes tick on stream events, every 1m, as the set prod declares it."


# ------------------------------------------------------------------------------------------------ each word


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (log(1000, "cancelled", by="ann"), "cancelled by ann."),
        (log(1000, "paused"), "paused."),
        (log(1000, "paused", "3 failures in a row: boom", "timerq"), "paused by timerq (3 failures in a row: boom)."),
        (log(1000, "resumed", "from now", "ann"), "resumed by ann (from now)."),
        (
            log(1000, "triggered", "0-1-t2", "ann"),
            "triggered by ann: published at once as event 0-1-t2, outside its timing.",
        ),
        (log(1000, "triggered"), "triggered: published at once, outside its timing."),
        (
            log(1000, "backfilled", f"12 from {T}", "ann"),
            "backfilled by ann: 12 occurrences of the past published, from that of 2026-01-01 09:00:00Z on.",
        ),
        (log(1000, "skipped", "1 0-1-7 is not done"), "1 occurrence left out: 0-1-7 is not done."),
        (log(1000, "skipped", "1200 too late"), "1,200 occurrences left out: too late."),
        (log(1000, "queued", "0-1-7"), "an occurrence waits for the event before it to be done (0-1-7)."),
        (log(1000, "missed", "3"), "3 occurrences missed, for which one late event stands."),
        (log(1000, "timed_out", "0-1-7"), "the event before was not done in time and is waited for no more (0-1-7)."),
        (log(1000, "failed", "boom."), "the handling of an event failed: boom."),
        (log(1000, "held", "no such zone"), "could not be fired, and is tried again: no such zone."),
        (log(1000, "ended"), "ended: no occurrence was left."),
        (log(1000, "destroyed", version=0), "its owner was destroyed, with all that it had."),
        (
            log(1000, "destroyed", "its heartbeat stopped", version=0),
            "its owner was destroyed, with all that it had (its heartbeat stopped).",
        ),
        (log(1000, "dropped", "its owner is gone"), "dropped: its owner is gone."),
        (log(1000, "orphan", "due without a record", version=0), "removed: due without a record."),
        (log(1000, "replaced", "0"), "replaced, what was there could not be read."),
        (log(1000, "moved", "to Mars", "ann"), "moved by ann (to Mars)."),
        (log(1000, "", version=0), "something."),
    ],
)  # fmt: skip
def test_a_word_of_the_log(entry: LogEntry, text: str) -> None:
    assert happened(entry)[-1] == f"2026-01-01 09:00:01Z: {text}"


def test_runs_of_one_thing_are_told_once() -> None:
    entries = [log(i * 1000, "held", "no such zone") for i in range(1, 31)]
    entries += [log(40_000 + i, "skipped", "2 0-1-1 is not done") for i in range(0, 3000, 1000)]
    entries += [log(50_000, "skipped", "1 0-1-2 is not done")]
    assert happened(*entries)[1:] == [
        "2026-01-01 09:00:01Z to 2026-01-01 09:00:30Z: could not be fired, and is tried again, 30 times: no such zone.",
        "2026-01-01 09:00:40Z to 2026-01-01 09:00:42Z: 6 occurrences left out: 0-1-1 is not done.",
        "2026-01-01 09:00:50Z: 1 occurrence left out: 0-1-2 is not done.",
    ]


def test_an_end_says_why_and_after_how_many() -> None:
    for note, text in (
        ("limit 2", "ended: its limit of 2 is used up; it fired 2 times."),
        ("until 1", "ended: no occurrence was left before its until; it fired 1 time."),
        ("last 0", "ended: no occurrence was left; it fired 0 times."),
        ("odd", "ended: no occurrence was left (odd)."),
    ):
        assert f"2026-01-01 09:00:01Z: {text}" in sentences(of(None, log(1000, "ended", note)))


def test_a_backfill_that_is_done_twice_is_told_twice_and_its_pieces_once() -> None:
    pieces = [log(i, "backfilled", f"200 from {T + i * 60_000}", "ann") for i in (0, 200, 400)]
    again = [replace(piece, at_ms=piece.at_ms + 9000) for piece in pieces]
    said = happened(*pieces, *again)[1:]
    assert [sentence.split("Z: ")[1] for sentence in said] == [
        "backfilled by ann: 600 occurrences of the past published, from that of 2026-01-01 09:00:00Z on."
    ] * 2


def test_a_failure_names_its_event() -> None:
    assert happened(log(1000, "failed", f"0-{V}-3 no such account."))[-1] == (
        f"2026-01-01 09:00:01Z: the handling of event 0-{V}-3 failed: no such account."
    )
    assert happened(log(1000, "failed", f"0-{V}-3"))[-1].endswith(f"the handling of event 0-{V}-3 failed.")


def test_earlier_lives_of_a_key_are_one_sentence_where_one_wants_so() -> None:
    versions = [V + i * 2_000_000 for i in range(4)]
    entries = [log(i * 2000 + 1000, "cancelled", version=versions[i]) for i in range(3)]
    schedule = stored(version=versions[3])
    said = sentences(of(schedule, *entries), earlier_lives=False)
    assert said[1:3] == [
        "Earlier, from 2026-01-01 09:00:00Z to 2026-01-01 09:00:05Z, this key was set 3 times (3 cancelled).",
        "2026-01-01 09:00:06Z: set.",
    ]
    assert len(sentences(of(schedule, *entries))) == len(said) + 5
    only = of(schedule, log(7000, "paused", version=versions[3]))
    assert sentences(only, earlier_lives=False) == sentences(only)
    gone = of(None, *entries)
    assert "set 2 times (2 cancelled)" in sentences(gone, earlier_lives=False)[0]
    assert sentences(gone, earlier_lives=False)[1:3] == sentences(gone)[4:6]


def test_a_debounce_that_was_pushed_often_is_told_once() -> None:
    versions = [V + i * 1_000_000 for i in range(6)]
    entries = [log(i * 1000, "replaced", str(versions[i - 1]), version=versions[i]) for i in range(1, 6)]
    schedule = stored(Timing("once", at_ms=T + MINUTE), version=versions[5])
    assert happened(*entries, schedule=schedule) == [
        "2026-01-01 09:00:00Z: set.",
        "2026-01-01 09:00:01Z to 2026-01-01 09:00:05Z: replaced, 5 times.",
    ]


def test_a_late_fire_and_its_entry_are_one_thing_but_others_are_not() -> None:
    schedule = stored(fires=(Fire(T, T + 5000, 4),))
    assert happened(log(5000, "missed", "4"), log(9000, "missed", "4"), schedule=schedule)[1:] == [
        "2026-01-01 09:00:05Z: fired, 5s late; the event stands for 4 later occurrences too.",
        "2026-01-01 09:00:09Z: 4 occurrences missed, for which one late event stands.",
    ]


def test_what_became_of_the_event_is_told_with_its_fire() -> None:
    fires = (
        Fire(T, T, 0, "ok", 1, "3 mails sent."),
        Fire(T + 1000, T + 1000, 0, "retry", 2, "no route"),
        Fire(T + 2000, T + 2000, 0, "failed", 5),
        Fire(T + 3000, T + 3000, 0, "unheard", 1, "of"),
        Fire(T + 4000, T + 4000),
    )
    said = happened(schedule=stored(fires=fires))[1:]
    assert [sentence.partition("Z: ")[2] for sentence in said] == [
        "fired on time; its event was handled: 3 mails sent.",
        "fired on time; its event failed at attempt 2 and is tried again: no route.",
        "fired on time; its event failed at attempt 5 and was given up.",
        "fired on time.",
        "fired on time.",
    ]


def test_what_came_of_a_fire_in_the_same_millisecond_is_told_behind_it() -> None:
    schedule = stored(fires=(Fire(T, T + 5000), Fire(T + 1000, T + 5000)))
    entries = [
        log(5000, "timed_out"),
        log(5000, "failed", "boom"),
        log(5000, "paused"),
        log(5001, "failed", "boom"),
    ]
    said = happened(*entries, schedule=schedule)[1:]
    assert [sentence.split("Z: ")[1] for sentence in said] == [
        "the event before was not done in time and is waited for no more.",
        "fired, 5s late.",
        "fired, 4s late.",
        "the handling of an event failed: boom.",
        "paused.",
        "the handling of an event failed: boom.",
    ]


def test_only_the_last_are_told_where_one_wants_so() -> None:
    entries = [log(i, "paused" if i % 2 else "resumed") for i in range(20)]
    said = sentences(of(stored(), *entries), last=3)
    assert said[1:5] == [
        "18 earlier entries are left out here.",
        "2026-01-01 09:00:00.017Z: paused.",
        "2026-01-01 09:00:00.018Z: resumed.",
        "2026-01-01 09:00:00.019Z: paused.",
    ]
    assert "1 earlier entry is left out here." in sentences(of(stored(), *entries), last=20)
    assert sentences(of(stored(), *entries), last=0)[2].startswith("Over all")
    assert len(sentences(of(stored(), *entries), last=21)) == len(sentences(of(stored(), *entries)))


# ------------------------------------------------------------------------------------------------ what the log omits


def test_each_version_was_set_even_where_no_entry_says_so() -> None:
    first, second, third = V, V + 1_000_000, V + 2_000_000
    said = happened(
        log(500, "cancelled", version=first),
        log(1500, "paused", version=second),
        log(2500, "replaced", str(second), version=third),
        schedule=stored(version=third, by="ann"),
    )
    assert said == [
        "2026-01-01 09:00:00Z: set.",
        "2026-01-01 09:00:00.500Z: cancelled.",
        "2026-01-01 09:00:01Z: set.",
        "2026-01-01 09:00:01.500Z: paused.",
        "2026-01-01 09:00:02.500Z: replaced.",
    ]


def test_a_version_that_left_without_an_entry_has_fired() -> None:
    second = V + 9_000_000
    said = happened(
        log(500, "resumed"), log(9500, "paused", version=second), schedule=stored(version=second, by="ann")
    )
    assert said[2] == (
        "2026-01-01 09:00:09Z: set by ann; what was set at 2026-01-01 09:00:00Z had gone without an entry: "
        "a one-shot that fires or is consumed leaves nothing but its event, for as long as the stream keeps that."
    )


@pytest.mark.parametrize("way_out", ["cancelled", "destroyed", "ended", "dropped", "orphan"])
def test_all_in_one_millisecond_is_told_in_the_order_of_the_log(way_out: str) -> None:
    second = V + 1
    said = happened(log(0, way_out), log(0, "paused", version=second), schedule=stored(version=second))
    assert [sentence.split(": ")[1].split(",")[0].rstrip(".") for sentence in said] == [
        "set", {"orphan": "removed", "destroyed": "its owner was destroyed"}.get(way_out, way_out), "set", "paused",
    ]  # fmt: skip
    assert "gone" not in " ".join(said)


def test_the_order_of_the_log_holds_also_where_its_clock_went_back() -> None:
    said = happened(log(9000, "paused"), log(-9000, "resumed"), log(-8000, "paused"))
    assert said == [
        "2026-01-01 09:00:00Z: set.",
        "2026-01-01 09:00:09Z: paused.",
        "2026-01-01 08:59:51Z: resumed.",
        "2026-01-01 08:59:52Z: paused.",
    ]


def test_where_the_memory_begins_is_said_only_where_something_is_gone() -> None:
    memory = (
        "The log's memory begins at 2026-01-01 09:00:00Z: what happened before that is not known, but for what the "
        "schedule itself carries."
    )
    assert sentences(of(stored(), whole=False))[1] == memory
    assert memory not in sentences(of(stored()))


@pytest.mark.parametrize(
    ("entries", "more", "texts"),
    [
        ((), {}, ["the log, which has forgotten nothing, has no entry", "never set, or it has fired"]),
        ((), {"since_ms": None, "asked_ms": None}, ["has no entry", "leaves nothing but its event"]),
        ((), {"whole": False}, ["memory begins at 2026-01-01 09:00:00Z", "or it went before that"]),
        ((log(5, "cancelled"),), {}, ["cancelled", "If it was set again since, it has fired"]),
        (
            (log(5, "ended", "limit 2"),),
            {},
            ["its limit of 2 is used up", "under this key now: it has ended."],
        ),
        ((log(4, "failed"), log(5, "cancelled")), {}, ["cancelled.", "Nothing waits under this key now."]),
        (
            (log(5, "replaced", str(V - 5)),),
            {},
            ["What was set at 2026-01-01 09:00:00Z went without an entry"],
        ),
        (
            (log(5, "cancelled"),),
            {},
            [
                "Look for its event on the stream events with: timerq tail --no-follow --key k",
                "Whether handling it failed is seen with: timerq tail --stream errors --no-follow --key k",
            ],
        ),
        ((log(5, "triggered", "0-1-t2"),), {}, ["09:00:00Z went without an entry", "or is consumed"]),
        ((), {"unreadable": "unreadable record of 'k'."}, ["cannot be read: unreadable record of 'k'."]),
    ],
)
def test_what_nothing_means(entries: tuple[LogEntry, ...], more: dict[str, Any], texts: list[str]) -> None:
    said = " ".join(sentences(of(None, *entries, **more)))
    for text in texts:
        assert text in said


# ------------------------------------------------------------------------------------------------ what is to come


def test_one_that_is_overdue() -> None:
    schedule = stored(at_ms=T - 90_000)
    assert comes(schedule)[1:] == [
        "Next: it has been due since 2026-01-01 08:58:30Z, for 1m 30s, and fires as soon as a dispatcher looks."
    ]
    assert comes(schedule, dispatchers=0)[-1] == "No dispatcher lives: nothing fires until one does."
    assert comes(stored(), dispatchers=0)[-1] == "No dispatcher lives: nothing fires until one does."
    assert "No dispatcher" not in " ".join(comes(schedule, dispatchers=None))


@pytest.mark.parametrize("zone", ["Mars/Base", "UTC"])
def test_a_zone_that_is_known_no_more_is_left_out(zone: str) -> None:
    schedule = stored(replace(CRON, rule=Rule(("* * * * *",), zone)))
    assert comes(schedule)[1:] == ["Next: it fires at 2026-01-01 09:01:00Z, in 1m."]


def test_the_end_of_time_can_be_told() -> None:
    at_ms = 253_402_300_799_999
    schedule = stored(replace(CRON, rule=Rule(("* * * * *",), "Asia/Tokyo")), at_ms=at_ms)
    assert comes(schedule)[1].startswith("Next: it fires at 9999-12-31 23:59:59.999Z, in ")
    west = stored(replace(CRON, rule=Rule(("* * * * *",), "America/New_York")), at_ms=at_ms)
    assert "(9999-12-31 18:59:59-05:00 in America/New_York)" in comes(west)[1]


def test_one_that_is_held() -> None:
    schedule = stored(state=State.HELD, held="stream events: WRONGTYPE")
    assert comes(schedule)[1:] == [
        "Next: its occurrence of 2026-01-01 09:01:00Z could not be fired: stream events: WRONGTYPE. It is tried again, "
        "at the most 32s apart.",
        "To mend it, what lies under the name of its stream in Redis is no stream: rename that, or delete it; it then "
        "fires by itself.",
    ]
    assert comes(stored(state=State.HELD, held="timezone: got 'Mars'"))[2].startswith(
        "To mend it, install newer time"
    )
    assert comes(stored(state=State.HELD))[2].startswith("Once the cause is gone it fires by itself")


def test_one_that_is_claimed() -> None:
    (said,) = comes(stored(CRON, state=State.CLAIMED))[1:]
    assert "a dispatcher is finding out what was missed" in said
    assert said.endswith("after 5s.")


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (None, "those that were missed become one late event."),
        (Policy(misfire="skip", grace_ms=10_000), "are left out where they are more than 10s late."),
        (Policy(misfire="catch_up", max_catch_up=7), "are published each, the last 7 at the most."),
    ],
)
def test_one_that_is_paused(policy: Policy | None, text: str) -> None:
    schedule = stored(
        replace(CRON, policy=policy), state=State.PAUSED, paused_by="bob", paused_note="deploy", at_ms=T - 5
    )
    said = comes(schedule, log(0, "paused", "deploy", "bob"))[1:]
    assert said[0] == (
        "Next: nothing, until it is resumed: it was paused at 2026-01-01 09:00:00Z by bob (deploy)."
    )
    since = "2026-01-01 08:59:59.995Z (2026-01-01 09:59:59+01:00 in Europe/Paris)"
    assert said[1].startswith(f"Its occurrences have been due since {since}: resumed,")
    assert said[1].endswith(text)


def test_one_that_is_paused_and_not_yet_due() -> None:
    said = comes(stored(state=State.PAUSED), log(0, "paused"), log(5, "resumed"))[1:]
    assert said == [
        "Next: nothing, until it is resumed: it was paused.",
        "Its next occurrence is due at 2026-01-01 09:01:00Z, in 1m.",
    ]
    once = stored(Timing("once", at_ms=T - 1000), at_ms=T - 1000, state=State.PAUSED)
    assert comes(once)[-1] == "It was due at 2026-01-01 08:59:59Z: resumed, it fires at once."


def test_a_pause_that_the_record_knows_needs_no_log() -> None:
    said = comes(stored(state=State.PAUSED, paused_ms=T - 60_000))
    assert "it was paused at 2026-01-01 08:59:00Z." in said[1]


SKIP = replace(EVERY, policy=Policy(overlap="skip", running_timeout_ms=90_000, pause_after=5))
QUEUE = replace(EVERY, policy=Policy(overlap="queue"))


def test_what_its_handlers_have_made_of_it() -> None:
    schedule = stored(
        SKIP, running="0-1-7", running_until_ms=T + 90_000, failures=2, fired_total=1, skipped_total=4
    )
    assert comes(schedule) == [
        "Over all its versions: 1 time fired, 4 left out.",
        "Event 0-1-7 was not reported as done; it is given up at 2026-01-01 09:01:30Z. Say that it is with: "
        "timerq done 0-1-7",
        "2 of its events failed in a row; 5 in a row pause it.",
        "Next: its occurrence of 2026-01-01 09:01:00Z, in 1m, is left out unless event 0-1-7 is done by then.",
    ]
    assert "Its last event failed." in comes(stored(failures=1))
    said = comes(stored(running="0-1-7", tenant="acme"))
    assert (
        "Event 0-1-7 was not reported as done. Say that it is with: timerq --tenant acme done 0-1-7" in said
    )
    assert said[-1] == "Next: it fires at 2026-01-01 09:01:00Z, in 1m."
    assert "it is given up after 1m 30s." in comes(stored(SKIP, running="0-1-7"))[1]


@pytest.mark.parametrize("until_ms", [T + MINUTE, T + MINUTE - 1])
@pytest.mark.parametrize("timing", [SKIP, QUEUE])
def test_an_event_that_is_given_up_before_keeps_nothing_from_firing(timing: Timing, until_ms: int) -> None:
    schedule = stored(timing, running="0-1-7", running_until_ms=until_ms)
    assert comes(schedule)[-1] == "Next: it fires at 2026-01-01 09:01:00Z, in 1m."
    assert caveat(schedule, T, utc) is None


def test_one_that_is_due_while_the_event_before_runs() -> None:
    schedule = stored(SKIP, running="0-1-7", at_ms=T - 1000, running_until_ms=T + 5)
    assert comes(schedule)[-1] == (
        "Next: its occurrence of 2026-01-01 08:59:59Z is due, and is left out unless event 0-1-7 is done at once."
    )
    gone = stored(SKIP, running="0-1-7", at_ms=T - 1000, running_until_ms=T)
    assert "fires as soon as a dispatcher looks" in comes(gone)[-1]


def test_what_may_keep_the_next_one_is_told_in_a_sentence() -> None:
    assert caveat(stored(), T, utc) is None
    assert caveat(stored(running="0-1-7"), T, utc) is None
    assert caveat(stored(state=State.PAUSED), T, utc) == (
        "It is paused: none of these fires until it is resumed."
    )
    assert "timerq why" in str(caveat(stored(state=State.HELD), T, utc))
    assert caveat(stored(SKIP, running="0-1-7", running_until_ms=T + 90_000), T, utc) == (
        "Event 0-1-7 is not done: unless it is by then, the next occurrence is left out; that event is given up at "
        "2026-01-01 09:01:30Z."
    )
    assert caveat(stored(QUEUE, running="0-1-7", running_until_ms=T + 90_000), T, utc) == (
        "Event 0-1-7 is not done: the next occurrence waits for that; that event is given up at 2026-01-01 09:01:30Z."
    )


def test_one_that_waits_for_the_event_before() -> None:
    schedule = stored(QUEUE, running="0-1-7", at_ms=T - 1000)
    assert comes(schedule)[1:] == [
        "Event 0-1-7 was not reported as done; it is given up after 1h. Say that it is with: timerq done 0-1-7",
        "Next: its occurrence of 2026-01-01 08:59:59Z fires as soon as that event is done.",
    ]
    assert comes(replace(schedule, at_ms=T + MINUTE))[-1] == (
        "Next: its occurrence of 2026-01-01 09:01:00Z, in 1m, waits for that event to be done."
    )


def test_one_that_counts_from_when_it_was_handled() -> None:
    policy = Policy(fixed_delay=True, ack_group="workers")
    schedule = stored(replace(EVERY, policy=policy), running="0-1-7", at_ms=T + 61 * MINUTE)
    assert comes(schedule)[-1] == (
        "Next: it fires 1m after that event is done, at 2026-01-01 10:01:00Z at the latest."
    )


# ------------------------------------------------------------------------------------------------ anything


WORDS = [
    *("replaced", "cancelled", "paused", "resumed", "triggered", "backfilled", "skipped", "queued", "missed"),
    *("timed_out", "failed", "held", "ended", "dropped", "orphan", "destroyed", "odd"),
]
ENTRIES = st.builds(
    LogEntry,
    st.integers(0, 253_402_300_799_999),
    st.sampled_from(WORDS),
    st.integers(0, 10**16),
    st.one_of(st.text(max_size=20), st.integers(0, 10**17).map(str), st.just("5 from 9999999999999")),
    st.one_of(st.none(), st.text(max_size=5)),
)
SCHEDULES = st.one_of(
    st.none(),
    st.builds(
        stored,
        st.sampled_from([EVERY, CRON, Timing("once", at_ms=T)]),
        at_ms=st.integers(0, 253_402_300_799_999),
        version=st.integers(1, 2**53),
        state=st.sampled_from(State),
        fires=st.lists(st.builds(Fire, st.integers(0, T), st.integers(0, T)), max_size=3).map(tuple),
    ),
)


@given(SCHEDULES, st.lists(ENTRIES, max_size=12), st.booleans())
def test_whatever_the_log_holds_can_be_told(
    schedule: Schedule | None, entries: list[LogEntry], whole: bool
) -> None:
    said = sentences(of(schedule, *entries, whole=whole))
    assert all(re.search(r"\.$|: timerq [a-z]+ [^.]+$", sentence) for sentence in said)
    assert len(sentences(of(schedule, *entries, whole=whole), last=0)) <= len(said) + 1


@given(
    SCHEDULES,
    st.lists(ENTRIES.filter(lambda entry: entry.what not in ("replaced", "backfilled")), max_size=12),
)
def test_every_entry_is_told_in_the_order_of_the_log(
    schedule: Schedule | None, entries: list[LogEntry]
) -> None:
    entries = [replace(entry, note=f"<{i}>", by=None) for i, entry in enumerate(entries)]
    said = " ".join(sentences(of(schedule, *entries)))
    assert re.findall(r"<(\d+)>", said) == [str(i) for i in range(len(entries))]
