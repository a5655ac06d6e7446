"""When a schedule would be due: the public preview, and what a clock change did to each instant."""

from __future__ import annotations

import inspect
import json
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timerq
from timerq import InvalidSchedule, TimerQueue, keys, preview
from timerq.previews import MAX_PREVIEW, gaps, instants, moments
from timerq.timing import Words, first_instants, resolve_timing

VECTORS = json.loads((Path(__file__).parents[1] / "cases" / "cron-vectors.json").read_text())["vectors"]


def utc(found: list[datetime]) -> list[str]:
    return [f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in found]


def local(after: str, n: int, **words) -> list[tuple[str, str | None]]:
    """Wall time with its offset, and the mark, of each instant."""
    timing = resolve_timing(words=Words(**words))
    found = moments(timing, instants(timing, after=after, n=n))
    return [(moment.local.isoformat(), moment.mark) for moment in found]


# ------------------------------------------------------------------------------------------------ preview


def test_the_agreed_vectors_come_out_of_the_public_function():
    checked = 0
    for case in VECTORS:
        wanted = [at["ms"] for at in case["next"]]
        if case["after"]["ms"] < 0:
            continue  # before 1970 there are no instants
        try:
            found = preview(
                cron=case["expr"], timezone=case["tz"], after=case["after"]["ms"], n=len(wanted) or 1
            )
        except InvalidSchedule:
            assert case.get("may_refuse"), case["id"]
            continue
        assert [round(at.timestamp() * 1000) for at in found] == wanted, case["id"]
        checked += 1
    assert checked > 300


def test_the_answers_are_aware_and_in_utc():
    (at,) = preview(cron="0 9 * * *", timezone="Europe/Paris", after="2026-07-01T00:00:00Z", n=1)
    assert at == datetime(2026, 7, 1, 9, tzinfo=timezone(timedelta(hours=2)))
    assert at.tzinfo is UTC


def test_without_after_it_is_now():
    before = datetime.now(UTC)
    (at,) = preview(cron="* * * * * *", n=1)
    assert before < at <= datetime.now(UTC) + timedelta(seconds=1)
    assert len(preview(every="1h")) == 10


def test_after_is_an_instant_like_any_other_and_left_out():
    wanted = ["2026-01-02T00:00:00Z"]
    for after in (
        "2026-01-01T00:00:00Z",
        1_767_225_600_000,
        datetime(2026, 1, 1, tzinfo=UTC),
        "2026-01-01T05:30:00+05:30",
    ):
        assert utc(preview(cron="@daily", after=after, n=1)) == wanted
    with pytest.raises(InvalidSchedule) as refused:
        preview(cron="@daily", after="2026-01-01T00:00:00")
    assert refused.value.field == "after"


def test_every_begins_after_one_interval_or_on_its_grid():
    after = "2026-01-01T00:07:30Z"
    assert utc(preview(every="15m", after=after, n=2)) == ["2026-01-01T00:22:30Z", "2026-01-01T00:37:30Z"]
    on_the_hour = ["2026-01-01T00:15:00Z", "2026-01-01T00:30:00Z"]
    assert utc(preview(every="15m", anchor="clock", after=after, n=2)) == on_the_hour
    assert utc(preview(every="15m", start="2025-12-31T00:00:00Z", after=after, n=2)) == on_the_hour
    later = ["2026-03-01T10:01:00Z", "2026-03-01T10:16:00Z"]
    assert utc(preview(every="15m", start="2026-03-01T10:01:00Z", after=after, n=2)) == later


def test_a_window_and_a_limit_end_it():
    after = "2026-01-01T00:00:00Z"
    assert len(preview(cron="@daily", after=after, limit=3)) == 3
    assert len(preview(cron="@daily", after=after, until="2026-01-05T00:00:00Z")) == 4
    assert preview(cron="@daily", after=after, until="2025-01-01T00:00:00Z") == []
    assert utc(preview(cron="@daily", after=after, start="2026-05-05T00:00:00Z", n=1)) == [
        "2026-05-05T00:00:00Z"
    ]
    assert preview(every="1d", after="9999-12-31T12:00:00Z") == []


def test_b34_the_year_9999_ends_it_without_an_error():
    assert preview(cron="0 0 * * *", after="9999-12-31T12:00:00Z") == []
    assert preview(cron="0 0 * * *", timezone="Pacific/Auckland", after="9999-12-31T12:00:00Z") == []
    assert len(preview(cron="0 13 * * *", after="9999-12-31T12:00:00Z")) == 1


def test_b26_seconds_come_first():
    assert utc(preview(cron="0 0 12 * * 1", after="2026-01-01T00:00:00Z", n=1)) == ["2026-01-05T12:00:00Z"]


def test_exclusions_and_several_expressions():
    found = preview(
        cron=["0 9 * * *", "0 12 * * *"],
        exclude=[date(2026, 12, 25), "0 12 24 12 *"],
        after="2026-12-24T00:00:00Z",
        n=3,
    )
    assert utc(found) == ["2026-12-24T09:00:00Z", "2026-12-26T09:00:00Z", "2026-12-26T12:00:00Z"]


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("timing", {}),
        ("timing", {"cron": "@daily", "every": "1h"}),
        ("cron", {"cron": "5 * * *"}),
        ("cron", {"cron": []}),
        ("cron", {"cron": "0 0 31 2 *"}),
        ("timezone", {"cron": "@daily", "timezone": "America/New_Yrok"}),
        ("timezone", {"every": "1h", "timezone": "UTC"}),
        ("dst_gap", {"cron": "@daily", "dst_gap": "jump"}),
        ("dst_overlap", {"cron": "@daily", "dst_overlap": "third"}),
        ("exclude", {"cron": "@daily", "exclude": "0 0 * * *"}),
        ("anchor", {"cron": "@daily", "anchor": "clock"}),
        ("jitter", {"every": "1h", "jitter": "1h"}),
        ("jitter", {"cron": "0 * * * *", "jitter": "60m"}),
        ("until", {"cron": "@daily", "start": 2000, "until": 1000}),
        ("limit", {"cron": "@daily", "limit": 0}),
        ("n", {"cron": "@daily", "n": 0}),
        ("n", {"cron": "@daily", "n": True}),
        ("n", {"cron": "@daily", "n": MAX_PREVIEW + 1}),
        ("n", {"cron": "@daily", "n": "3"}),
        ("after", {"cron": "@daily", "after": "tomorrow"}),
        ("key", {"cron": "@daily", "key": ""}),
        ("owner", {"cron": "@daily", "key": "k", "owner": "\0"}),
        ("tenant", {"cron": "@daily", "tenant": "a b"}),
    ],
)
def test_what_upsert_refuses_is_refused_here(field, words):
    with pytest.raises(InvalidSchedule) as refused:
        preview(**words)
    assert refused.value.field == field


def test_its_words_are_those_of_upsert():
    mine = inspect.signature(preview).parameters
    theirs = inspect.signature(TimerQueue.upsert).parameters
    own = {"after", "n", "key", "tenant"}
    assert set(mine) - own <= set(theirs)
    for name in set(mine) - own:
        assert (mine[name].default, str(mine[name].annotation)) == (
            theirs[name].default,
            str(theirs[name].annotation),
        )
    assert timerq.preview is preview


# ------------------------------------------------------------------------------------------------ jitter


@given(
    words=st.sampled_from([{"cron": "*/7 * * * *"}, {"every": "7m"}, {"every": "7m", "anchor": "clock"}]),
    key=st.text("abc", min_size=1, max_size=5),
    owner=st.none() | st.just("o"),
    after=st.integers(0, 2**41),
)
def test_with_a_key_these_are_the_instants_at_which_it_fires(words, key, owner, after):
    found = preview(**words, jitter="3m", key=key, owner=owner, tenant="acme", after=after, n=2)
    every = words.get("every")
    rest = {name: value for name, value in words.items() if name != "every"}
    timing = resolve_timing(every=every, words=Words(**rest, jitter="3m"))
    stored = first_instants(timing, keys.identity(b"acme", key.encode(), (owner or "").encode()), after)
    assert tuple(round(at.timestamp() * 1000) for at in found) == stored


def test_the_jitter_is_the_same_every_time_and_another_for_each_schedule():
    def drawn(**whose):
        return preview(cron="0 * * * *", jitter="59m", after="2026-01-01T00:59:30Z", **whose)

    answers = [
        drawn(),
        drawn(key="a"),
        drawn(key="b"),
        drawn(key="a", owner="b"),
        drawn(key="a", tenant="acme"),
    ]
    assert answers == [
        drawn(),
        drawn(key="a"),
        drawn(key="b"),
        drawn(key="a", owner="b"),
        drawn(key="a", tenant="acme"),
    ]
    assert len({tuple(answer) for answer in answers}) == 5
    for answer in answers:
        assert [at.hour for at in answer] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
        assert len({at.minute for at in answer}) > 3


# ------------------------------------------------------------------------------------------------ clock changes

SPRING, AUTUMN = "2026-03-28T12:00:00Z", "2026-10-24T12:00:00Z"


def test_a_skipped_time_is_shifted_or_left_out():
    words = {"cron": "30 2 * * *", "timezone": "Europe/Paris"}
    assert local(SPRING, 2, **words) == [
        ("2026-03-29T03:00:00+02:00", "shifted"),
        ("2026-03-30T02:30:00+02:00", None),
    ]
    assert local(SPRING, 1, **words, dst_gap="skip") == [("2026-03-30T02:30:00+02:00", None)]


def test_a_time_that_comes_twice_tells_its_pass():
    words = {"cron": "30 2 * * *", "timezone": "Europe/Paris"}
    first = ("2026-10-25T02:30:00+02:00", "first pass")
    second = ("2026-10-25T02:30:00+01:00", "second pass")
    after = ("2026-10-26T02:30:00+01:00", None)
    assert local(AUTUMN, 2, **words) == [first, after]
    assert local(AUTUMN, 2, **words, dst_overlap="second") == [second, after]
    assert local(AUTUMN, 3, **words, dst_overlap="both") == [first, second, after]


def test_what_exists_there_anyway_is_not_shifted():
    found = local(SPRING, 1, cron=["30 2 * * *", "0 3 29 * *"], timezone="Europe/Paris")
    assert found == [("2026-03-29T03:00:00+02:00", None)]


def test_a_job_that_follows_the_clock_is_marked_on_both_passes():
    found = local("2026-10-24T23:45:00Z", 6, cron="*/30 * * * *", timezone="Europe/Paris")
    assert [mark for _, mark in found] == [*["first pass"] * 2, *["second pass"] * 2, None, None]
    assert {mark for _, mark in local(SPRING, 48, cron="*/30 * * * *", timezone="Europe/Paris")} == {None}


def test_half_an_hour_may_come_twice_too():
    words = {"cron": "45 1 * * *", "timezone": "Australia/Lord_Howe", "dst_overlap": "both"}
    assert local("2026-04-04T00:00:00Z", 2, **words) == [
        ("2026-04-05T01:45:00+11:00", "first pass"),
        ("2026-04-05T01:45:00+10:30", "second pass"),
    ]


def test_a_shifted_one_is_told_through_its_jitter():
    words: dict[str, Any] = {"cron": "30 2 * * *", "timezone": "Europe/Paris", "jitter": "50m"}
    ((text, mark),) = local(SPRING, 1, **words)
    assert text > "2026-03-29T03:00:00"
    assert mark == "shifted"
    timing = resolve_timing(words=Words(**words))
    for i in range(20):  # put off into the second pass, or beyond both: the mark is of what the clock shows
        (moment,) = moments(timing, instants(timing, after=AUTUMN, n=1, key=f"k{i}"))
        inside = moment.at < datetime(2026, 10, 25, 2, tzinfo=UTC)
        assert moment.mark == (("second pass" if moment.at.hour else "first pass") if inside else None)


def test_a_correction_of_the_clock_marks_nothing():
    found = local("2011-12-29T00:00:00Z", 3, cron="0 12 * * *", timezone="Pacific/Apia")
    assert found == [
        ("2011-12-29T12:00:00-10:00", None),
        ("2011-12-31T12:00:00+14:00", None),
        ("2012-01-01T12:00:00+14:00", None),
    ]


def test_an_interval_has_no_zone():
    timing = resolve_timing(every="30m", words=Words(anchor="clock"))
    (moment,) = moments(timing, instants(timing, after=AUTUMN, n=1))
    assert (moment.local, moment.mark, moment.at_ms) == (
        datetime(2026, 10, 24, 12, 30, tzinfo=UTC),
        None,
        1_792_845_000_000,
    )


def test_where_no_local_time_can_be_told_it_is_utc():
    found = local("9999-12-31T22:00:00Z", 1, cron="30 * * * *", timezone="Pacific/Auckland")
    assert found == [("9999-12-31T22:30:00+00:00", None)]


PARIS_SPRING = (datetime(2026, 3, 1, tzinfo=UTC), datetime(2027, 3, 31, tzinfo=UTC))


def skipped(since: datetime, until: datetime, **words: Any) -> list[tuple[str, list[str], bool]]:
    timing = resolve_timing(words=Words(**{"timezone": "Europe/Paris", **words}))
    return [
        (f"{gap.at:%Y-%m-%dT%H:%MZ}", [f"{wall:%d %H:%M:%S}" for wall in gap.walls], gap.made_up)
        for gap in gaps(timing, since, until)
    ]


def test_the_fixed_times_that_a_gap_skips_are_told():
    both = [("2026-03-29T01:00Z", ["29 02:30:00"], True), ("2027-03-28T01:00Z", ["28 02:30:00"], True)]
    assert skipped(*PARIS_SPRING, cron="30 2 * * *") == both
    left_out = [(at, walls, False) for at, walls, _ in both]
    assert skipped(*PARIS_SPRING, cron="30 2 * * *", dst_gap="skip") == left_out
    ((_, walls, _), _) = skipped(*PARIS_SPRING, cron="0-59 2 * * *")
    assert walls == [f"29 02:0{i}:00" for i in range(4)]


@pytest.mark.parametrize(
    "words",
    [
        {"cron": "*/10 2 * * *"},  # follows the clock: it never meant to be due in the gap
        {"cron": "0 3 * * *"},
        {"cron": "30 2 * * SAT"},
        {"cron": "30 2 * * *", "timezone": "UTC"},
        {"cron": "30 2 * * *", "exclude": ["2026-03-29", "2027-03-28"]},
    ],
)
def test_what_no_gap_skips_is_not_told(words: dict[str, Any]):
    assert skipped(*PARIS_SPRING, **words) == []


def test_the_gaps_are_those_of_the_span_and_of_the_window():
    at = datetime(2026, 3, 29, 1, tzinfo=UTC)
    words = {"cron": "30 2 * * *"}
    assert skipped(at, at + timedelta(days=1), **words) == []
    assert len(skipped(at - timedelta(milliseconds=1), at, **words)) == 1
    windows: list[dict[str, Any]] = [{"start": "2026-03-30T00:00:00Z"}, {"until": "2026-03-28T00:00:00Z"}]
    for window in windows:
        timing = resolve_timing(words=Words(cron="30 2 * * *", timezone="Europe/Paris"), **window)
        assert gaps(timing, PARIS_SPRING[0], datetime(2026, 4, 1, tzinfo=UTC)) == []
    assert gaps(resolve_timing(every="1h"), *PARIS_SPRING) == []


def test_an_expression_may_stand_alone():
    assert preview("@daily", n=1, after="2026-01-01T00:00:00Z") == preview(
        cron="@daily", n=1, after="2026-01-01T00:00:00Z"
    )
