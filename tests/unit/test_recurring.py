"""The words of recurring schedules: what is refused, and that what is stored reads as what was asked for."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timerq import Event, InvalidSchedule, Upsert
from timerq.commands import edit, upsert
from timerq.commands.arming import timing_of
from timerq.commands.command import Namespace, Scope
from timerq.commands.record import decode
from timerq.model import Policy, Rule, Timing
from timerq.timing import NO_WORDS, Words, is_asked, resolve_timing
from timerq.timing.definition import read, write

NAMESPACE = Namespace("ns", "1", 1, (b"{ns:0}",), False)
SCOPE = Scope(NAMESPACE, "acme", b"acme")
NOW = 1_750_000_000_000
EVENT = Event("t", {"n": 1})


def refused(field: str, **words: Any) -> InvalidSchedule:
    with pytest.raises(InvalidSchedule) as caught:
        upsert.item(SCOPE, Upsert("k", EVENT, **words), now=lambda: NOW)
    error = caught.value
    assert error.field == field, (error, words)
    assert "want " in error.want
    return error


# ------------------------------------------------------------------------------------------------ refusals

BAD_DURATIONS: list[Any] = [-1, "5", 1.5, True, "", "nan", {"parsecs": 1}, timedelta(-1), 10**400]
NO_NAMES: list[Any] = ["", "a b", "x" * 65, "é", 5, "{a}"]
NO_CRONS: list[Any] = ["", " ", "* * * *", "61 * * * *", "0 0 30 2 *", 5, b"* * * * *", [], {}, [5]]
NO_ZONES: list[Any] = ["", "Mars/Olympus", "UTC+3", "posixrules", 5]
NO_FLAGS: list[Any] = ["yes", 0, 1, 1.0, []]
NO_NUMBERS: list[Any] = [0, -1, 1.0, "3", True]


@pytest.mark.parametrize(
    ("field", "words"),
    [
        *[("cron", {"cron": bad}) for bad in NO_CRONS],
        ("cron", {"cron": ["* * * * *", "x"]}),
        ("cron", {"cron": ["* * * * *"] * 101}),
        *[("timezone", {"cron": "0 9 * * *", "timezone": bad}) for bad in NO_ZONES],
        *[("dst_gap", {"cron": "0 9 * * *", "dst_gap": bad}) for bad in ("", "Shift", "first", 5)],
        *[("dst_overlap", {"cron": "0 9 * * *", "dst_overlap": bad}) for bad in ("", "skip", True)],
        *[("exclude", {"cron": "0 9 * * *", "exclude": bad})
          for bad in ("", "25.12.2026", "2026-02-30", "2026-12-26/2026-12-24", 5, [5], {"a": 1}, "0 9 * * *", b"x",
                      [("2026-12-24", "2026-12-26")], ["2026-12-25"] * 1001)],
        *[("anchor", {"every": 1000, "anchor": bad}) for bad in ("hour", "", -1, 1.5, True)],
        *[("jitter", {"every": 1000, "jitter": bad}) for bad in (*BAD_DURATIONS, 1000, 5000, "1s")],
        *[("jitter", {"cron": "* * * * *", "jitter": bad}) for bad in (*BAD_DURATIONS, "60s", "1h")],
        *[("misfire", {"every": 1000, "misfire": bad}) for bad in ("", "ignore", "SKIP", 5, True)],
        *[("grace", {"every": 1000, "misfire": "skip", "grace": bad}) for bad in BAD_DURATIONS],
        *[("max_catch_up", {"every": 1000, "misfire": "catch_up", "max_catch_up": bad}) for bad in (*NO_NUMBERS, 1001)],
        *[("overlap", {"every": 1000, "overlap": bad}) for bad in ("", "wait", 5, True)],
        *[("ack_group", {"every": 1000, "overlap": "skip", "ack_group": bad}) for bad in NO_NAMES],
        *[("running_timeout", {"every": 1000, "overlap": "skip", "running_timeout": bad})
          for bad in (*BAD_DURATIONS, 0, "367d")],
        *[("fixed_delay", {"every": 1000, "fixed_delay": bad}) for bad in NO_FLAGS],
        *[("pause_after", {"every": 1000, "pause_after": bad}) for bad in (*NO_NUMBERS, 1_000_001)],
        *[("by", {"every": 1000, "by": bad}) for bad in ("", "a\0b", "x" * 513, 5, "\ud800")],
        ("by", {"delay": 5, "by": ""}),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_such_word_is_refused(field: str, words: dict[str, Any]) -> None:
    refused(field, **words)


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("timing", {"cron": "* * * * *", "every": 5}),
        ("timing", {"cron": "* * * * *", "delay": 5}),
        ("timing", {"timezone": "UTC"}),
        ("initial_delay", {"cron": "* * * * *", "initial_delay": 5}),
        ("anchor", {"cron": "* * * * *", "anchor": "clock"}),
        ("timezone", {"every": 5, "timezone": "UTC"}),
        ("dst_gap", {"every": 5, "dst_gap": "shift"}),
        ("dst_overlap", {"every": 5, "dst_overlap": "first"}),
        ("exclude", {"every": 5, "exclude": "2026-12-25"}),
        ("initial_delay", {"every": 5, "initial_delay": 5, "anchor": "clock"}),
        ("initial_delay", {"every": 5, "initial_delay": 5, "jitter": 2}),
        ("grace", {"every": 5, "grace": 5}),
        ("grace", {"every": 5, "misfire": "catch_up", "grace": 5}),
        ("max_catch_up", {"every": 5, "max_catch_up": 5}),
        ("max_catch_up", {"every": 5, "misfire": "skip", "max_catch_up": 5}),
        ("ack_group", {"every": 5, "ack_group": "g"}),
        ("running_timeout", {"every": 5, "running_timeout": 5}),
        ("running_timeout", {"every": 5, "fixed_delay": True, "running_timeout": 5}),
        ("fixed_delay", {"cron": "* * * * *", "fixed_delay": True}),
        ("anchor", {"every": 5, "fixed_delay": True, "anchor": "clock"}),
        ("jitter", {"every": 5, "fixed_delay": True, "jitter": 1}),
        ("misfire", {"every": 5, "fixed_delay": True, "misfire": "skip"}),
        ("overlap", {"every": 5, "fixed_delay": True, "overlap": "skip"}),
        ("until", {"cron": "* * * * *", "start": NOW + 10, "until": NOW + 5}),
        ("limit", {"cron": "* * * * *", "limit": 0}),
        ("mode", {"cron": "* * * * *", "mode": "earliest"}),
        ("max_wait", {"cron": "* * * * *", "max_wait": 5}),
        *[(name, {"delay": 5, name: value}) for name, value in {
            "cron": "* * * * *", "timezone": "UTC", "dst_gap": "shift", "dst_overlap": "first", "exclude": "2026-12-25",
            "anchor": "clock", "jitter": 1, "misfire": "fire_once", "grace": 1, "max_catch_up": 1, "overlap": "allow",
            "ack_group": "g", "running_timeout": 5, "fixed_delay": True, "pause_after": 1,
        }.items() if name != "cron"],
    ],
    ids=str,
)  # fmt: skip
def test_words_that_do_not_go_together_are_refused(field: str, words: dict[str, Any]) -> None:
    refused(field, **words)


@pytest.mark.parametrize(
    ("field", "more"),
    [
        *[("by", {"by": bad}) for bad in ("", "a\0b", "x" * 513, 5)],
        *[("note", {"note": bad}) for bad in ("a\0b", "x" * 1001, 5, b"x")],
    ],
    ids=str,
)
def test_who_and_why_are_texts(field: str, more: dict[str, Any]) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        edit.item(SCOPE, "pause", "k", **more)
    assert caught.value.field == field
    assert edit.item(SCOPE, "pause", "k", note="").args[2:] == (b"", b"", "", "", "", "", "")
    item = edit.item(SCOPE, "pause", "k", by="é", note="x" * 1000, if_version=7)
    assert item.args == ("pause", "7", "é".encode(), b"x" * 1000, "", "", "", "", "")


def test_where_it_goes_on_is_four_words() -> None:
    known = edit.item(SCOPE, "skip", "k", going=edit.Going(5, 20, 30, 2))
    assert known.args == ("skip", "", b"", b"", "5", "20", "30", "2", "")
    unknown = edit.item(SCOPE, "skip", "k", going=edit.Going(5, 20, None, 0))
    assert unknown.args[4:] == ("5", "20", "-", "0", "")


# ------------------------------------------------------------------------------------------------ what they mean


def test_the_words_of_one_are_those_of_upsert_in_order() -> None:
    assert Upsert("k", EVENT, cron="* * * * *", pause_after=3).words == Words(cron="* * * * *", pause_after=3)
    assert Upsert("k", EVENT, every=5).words == NO_WORDS


@pytest.mark.parametrize(
    ("words", "rule", "policy"),
    [
        ({"every": 1000}, None, None),
        ({"every": 1000, "anchor": "clock"}, Rule(anchor_ms=0), None),
        ({"every": 1000, "anchor": NOW + 2250}, Rule(anchor_ms=250), None),
        ({"every": 1000, "jitter": "300ms"}, Rule(jitter_ms=300, anchor_ms=0), None),
        ({"every": 1000, "jitter": 300, "start": 5007}, Rule(jitter_ms=300, anchor_ms=7), None),
        ({"every": 1000, "jitter": 0}, None, None),
        ({"every": 1000, "misfire": "fire_once", "overlap": "allow", "fixed_delay": False}, None, None),
        ({"every": 1000, "misfire": "skip"}, None, Policy("skip")),
        ({"every": 1000, "misfire": "skip", "grace": "1m"}, None, Policy("skip", grace_ms=60_000)),
        ({"every": 1000, "fixed_delay": True, "ack_group": "g"}, None, Policy(fixed_delay=True, ack_group="g")),
        ({"cron": "0 9 * * *"}, Rule(("0 9 * * *",)), None),
        pytest.param(
            {"cron": iter(["0 9 * * *", "5 9 * * *"])}, Rule(("0 9 * * *", "5 9 * * *")), None, id="an iterator"
        ),
        ({"cron": "0 9 * * *", "exclude": date(2026, 12, 25)}, Rule(("0 9 * * *",), exclude=("2026-12-25",)), None),
        ({"cron": "0 9 * * *", "exclude": datetime(2026, 12, 25, 8, tzinfo=UTC)},
         Rule(("0 9 * * *",), exclude=("2026-12-25",)), None),
        ({"cron": "0 9 * * *", "exclude": (date(2026, 12, 24), date(2026, 12, 26))},
         Rule(("0 9 * * *",), exclude=("2026-12-24/2026-12-26",)), None),
        ({"cron": "0 9 * * *", "exclude": ["2026-12-25", (date(2026, 1, 1), date(2026, 1, 2)), "* * 13 * *"]},
         Rule(("0 9 * * *",), exclude=("2026-12-25", "2026-01-01/2026-01-02", "* * 13 * *")), None),
        ({"cron": "0 9 * * *", "exclude": []}, Rule(("0 9 * * *",)), None),
    ],
    ids=str,
)  # fmt: skip
def test_what_words_mean(words: dict[str, Any], rule: Rule | None, policy: Policy | None) -> None:
    timing = timing_of(Upsert("k", EVENT, **words))
    assert (timing.rule, timing.policy) == (rule, policy)


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ({"every": 5}, False), ({"every": 5, "anchor": "clock"}, False), ({"every": 5, "overlap": "skip"}, False),
        ({"every": 5, "fixed_delay": True}, False), ({"every": 5, "misfire": "skip"}, True),
        ({"every": 5, "misfire": "catch_up"}, True), ({"every": 5, "jitter": 1}, True), ({"cron": "* * * * *"}, True),
    ],
)  # fmt: skip
def test_only_what_the_scripts_cannot_compute_is_asked(words: dict[str, Any], asked: bool) -> None:
    wanted = Upsert("k", EVENT, **words)
    assert is_asked(timing_of(wanted)) is asked
    definition = upsert.item(SCOPE, wanted, now=lambda: NOW).args[4]
    assert bytes(definition).startswith(b"c " if asked else b"e5 ")  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------ as it is stored


def stored(wanted: Upsert) -> Timing:
    """The timing read from the record that an upsert would write."""
    item = upsert.item(SCOPE, wanted, now=lambda: NOW)
    flat = [
        word if isinstance(word, bytes) else str(word).encode()
        for word in ("s", f"a 1 {str(item.args[0])[1:]} - 0", *item.args[3:])
    ]
    schedule = decode(b"acme\0k\0", flat)
    assert schedule.by == wanted.by
    return schedule.timing


ZONES = st.sampled_from(["UTC", "Europe/Paris", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"])
CRONS = st.sampled_from(
    [
        "0 9 * * MON-FRI",
        "*/15 * * * *",
        "0 0 1 * *",
        "30 2 * * *",
        "10 0 9 * * *",
        "@daily",
        "0 12 L * *",
        "0 8 * * 5#2",
    ]
)
EXCLUSIONS = st.sampled_from(["2026-12-25", "2026-12-24/2026-12-26", "* * 13 * *", "0 9 24 12 *"])


def words(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any of these words."""
    return st.fixed_dictionaries({}, optional=values)


WINDOW = words(
    start=st.integers(0, 2 * NOW), until=st.integers(4 * NOW, 5 * NOW), limit=st.integers(1, 2**53 - 1),
    by=st.sampled_from(["ops", "é"]),
)  # fmt: skip
CALENDARS = st.fixed_dictionaries(
    {"cron": CRONS | st.lists(CRONS, min_size=1, max_size=4)},
    optional={
        "timezone": ZONES, "dst_gap": st.sampled_from(["shift", "skip"]),
        "dst_overlap": st.sampled_from(["first", "second", "both"]),
        "exclude": EXCLUSIONS | st.lists(EXCLUSIONS, max_size=4), "jitter": st.integers(0, 59_000),
    },
)  # fmt: skip
INTERVALS = st.one_of(
    st.fixed_dictionaries(
        {"every": st.integers(1000, 10**9)}, optional={"initial_delay": st.integers(0, 10**9)}
    ),
    st.fixed_dictionaries(
        {"every": st.integers(1000, 10**9)},
        optional={"anchor": st.just("clock") | st.integers(0, 2 * NOW), "jitter": st.integers(0, 999)},
    ),
)
LATE = st.one_of(
    st.just({}), st.just({"misfire": "fire_once"}),
    words(grace=st.integers(0, 10**7)).map(lambda more: {"misfire": "skip", **more}),
    words(max_catch_up=st.integers(1, 1000)).map(lambda more: {"misfire": "catch_up", **more}),
)  # fmt: skip
TRACKED = words(ack_group=st.sampled_from(["g", "x" * 64]), running_timeout=st.integers(1, 366 * 86_400_000))
OVERLAP = st.one_of(
    st.just({}), st.just({"overlap": "allow"}), st.builds(dict, pause_after=st.integers(1, 1_000_000)),
    st.tuples(TRACKED, st.sampled_from(["skip", "queue"]), st.none() | st.integers(1, 9)).map(
        lambda parts: {**parts[0], "overlap": parts[1], "pause_after": parts[2]}
    ),
)  # fmt: skip
FIXED = st.tuples(
    st.integers(1, 10**9), TRACKED.filter(lambda more: "ack_group" in more or "running_timeout" not in more)
).map(lambda parts: {"every": parts[0], "fixed_delay": True, **parts[1]})


@settings(max_examples=500)
@given(
    timing=CALENDARS | INTERVALS,
    late=LATE,
    overlap=OVERLAP,
    window=WINDOW,
)
def test_what_is_stored_reads_as_what_was_asked_for(
    timing: dict[str, Any], late: dict[str, Any], overlap: dict[str, Any], window: dict[str, Any]
) -> None:
    if "initial_delay" in timing:
        window.pop("start", None)
    if "cron" in timing and timing.get("jitter"):
        timing["cron"] = "0 9 * * *"  # one expression, so that no two slots are nearer than the jitter
    wanted = Upsert("k", EVENT, **timing, **late, **overlap, **window)
    if "cron" in timing and timing.get("exclude"):
        try:
            timing_of(wanted)
        except InvalidSchedule:  # the exclusions leave nothing
            return
    assert stored(wanted) == timing_of(wanted)


@given(given_=FIXED, window=WINDOW)
def test_a_fixed_delay_reads_as_what_was_asked_for(given_: dict[str, Any], window: dict[str, Any]) -> None:
    wanted = Upsert("k", EVENT, **given_, **window)
    assert stored(wanted) == timing_of(wanted)


@pytest.mark.parametrize(
    ("given_", "text"),
    [
        ({"every": 5}, ""),
        ({"every": 5, "overlap": "skip", "start": NOW}, ""),
        ({"every": 5, "anchor": "clock"}, '{"anchor":0}'),
        ({"every": 5, "misfire": "skip"}, '{"every":5,"misfire":"skip"}'),
        ({"cron": "0 9 * * *"}, '{"cron":"0 9 * * *"}'),
        ({"cron": ["0 9 * * *", "@daily"], "timezone": "Europe/Paris", "dst_gap": "skip", "dst_overlap": "both",
          "exclude": "2026-12-25", "jitter": 5, "misfire": "catch_up", "max_catch_up": 7},
         '{"cron":["0 9 * * *","@daily"],"tz":"Europe/Paris","gap":"skip","overlap":"both","exclude":["2026-12-25"],'
         '"jitter":5,"misfire":"catch_up","most":7}'),
    ],
)  # fmt: skip
def test_what_is_as_usual_is_left_out_of_the_text(given_: dict[str, Any], text: str) -> None:
    """The text is what is stored: another one is another format."""
    assert write(timing_of(Upsert("k", EVENT, **given_))) == text


def test_the_zones_name_is_stored_and_never_an_offset() -> None:
    text = write(timing_of(Upsert("k", EVENT, cron="0 9 * * *", timezone="Europe/Paris")))
    _, rule, _ = read(text)
    assert rule == Rule(("0 9 * * *",), timezone="Europe/Paris")


def test_a_timing_resolved_twice_is_the_same() -> None:
    one = resolve_timing(words=Words(cron=["0 9 * * *"], exclude=["2026-12-25"]))
    two = resolve_timing(words=Words(cron="0 9 * * *", exclude=date(2026, 12, 25)))
    assert one == two
    assert hash(one) == hash(two)
