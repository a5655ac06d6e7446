"""What becomes of an occurrence that is late: the plans compared with a list of all occurrences."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from timerq.errors import ContractBroken, InvalidSchedule
from timerq.model import Policy, Rule, Timing
from timerq.timing import MAX_INSTANT_MS, Plan, first_instants, occurrences_from, plan
from timerq.timing.definition import is_asked, write
from timerq.timing.planning import occurrences_of, plan_timing

ID = b"acme\0k\0"
NOW = 1_750_000_000_000
EVERY_SECOND = Timing("every", every_ms=1000, rule=Rule(anchor_ms=0))

TIMINGS = st.one_of(
    st.builds(
        Timing,
        kind=st.just("every"),
        every_ms=st.integers(1, 50),
        start_ms=st.none() | st.integers(0, 200),
        until_ms=st.none() | st.integers(0, 3000),
        rule=st.builds(Rule, anchor_ms=st.integers(0, 50)),
    ),
    st.builds(
        Timing,
        kind=st.just("every"),
        every_ms=st.integers(20, 50),
        until_ms=st.none() | st.integers(0, 3000),
        rule=st.builds(Rule, anchor_ms=st.integers(0, 50), jitter_ms=st.integers(1, 19)),
    ),
    st.builds(
        Timing,
        kind=st.just("cron"),
        until_ms=st.none() | st.integers(0, 3000),
        rule=st.sampled_from([Rule(("* * * * * *",)), Rule(("*/2 * * * * *",)), Rule(("* * * * * *",), jitter_ms=400)]),
    ),
)  # fmt: skip
END = 10_000  # the occurrences of these that matter come before: up to 5,500, and the two behind


def listed(timing: Timing) -> list[int]:
    """All occurrences up to END."""
    occurrences = occurrences_of(timing, ID, 0)
    found: list[int] = []
    at_ms = occurrences.next_ms(-1)
    while at_ms is not None and at_ms <= END:
        found.append(at_ms)
        at_ms = occurrences.next_ms(at_ms)
    return found


def expected(all_ms: list[int], policy: Policy, at_ms: int, now_ms: int) -> Plan:
    """The rules, over a list."""

    def after(instant: int) -> int | None:
        return next((one for one in all_ms if one > instant), None)

    if at_ms > now_ms:
        return Plan(at_ms, after(at_ms))
    overdue = [one for one in all_ms if at_ms <= one <= now_ms]
    if policy.misfire == "fire_once":
        return Plan(at_ms, after(now_ms), len(overdue) - 1)
    if policy.misfire == "catch_up":
        kept = overdue[-policy.max_catch_up :]
        return Plan(kept[0], after(kept[0]), 0, len(overdue) - len(kept), "over max_catch_up")
    kept = [one for one in overdue if one >= now_ms - policy.grace_ms]
    if kept:
        return Plan(kept[0], after(now_ms), len(kept) - 1, len(overdue) - len(kept))
    first = after(now_ms)
    return Plan(first, None if first is None else after(first), 0, len(overdue))


POLICIES = st.one_of(
    st.just(Policy()),
    st.builds(Policy, misfire=st.just("skip"), grace_ms=st.integers(0, 3000)),
    st.builds(Policy, misfire=st.just("catch_up"), max_catch_up=st.integers(1, 60)),
)


@settings(max_examples=400)
@given(timing=TIMINGS, policy=POLICIES, which=st.integers(0, 10**6), late_ms=st.integers(-500, 2500))
def test_a_plan_is_what_the_rules_make_of_the_list(timing, policy, which, late_ms):
    all_ms = listed(timing)
    known = [one for one in all_ms if one <= 3000]
    assume(known)
    at_ms = known[which % len(known)]
    now_ms = at_ms + late_ms
    occurrences = occurrences_of(timing, ID, at_ms)
    assert plan_timing(occurrences, policy, at_ms, now_ms) == expected(all_ms, policy, at_ms, now_ms)


@settings(max_examples=400)
@given(timing=TIMINGS, policy=POLICIES, waits=st.lists(st.integers(1, 700), min_size=3, max_size=8))
def test_whatever_stops_in_between_each_occurrence_is_published_folded_or_left_out_once(
    timing, policy, waits
):
    all_ms = listed(timing)
    assume(all_ms and all_ms[0] < sum(waits))
    occurrences = occurrences_of(timing, ID, all_ms[0])
    at_ms: int | None = all_ms[0]
    now_ms = published = folded = left_out = 0
    for wait_ms in waits:
        now_ms += wait_ms
        while at_ms is not None and at_ms <= now_ms:
            said = plan_timing(occurrences, policy, at_ms, now_ms)
            assert said.at_ms is None or said.at_ms >= at_ms
            left_out += said.skipped
            at_ms = said.at_ms
            if at_ms is not None and at_ms <= now_ms:
                published, folded, at_ms = published + 1, folded + said.missed, said.then_ms
    assert published + folded + left_out == len([one for one in all_ms if one <= now_ms])
    assert at_ms == next((one for one in all_ms if one > now_ms), None)


@given(timing=TIMINGS, policy=POLICIES, at_ms=st.integers(0, 3000), late_ms=st.integers(-500, 2500))
def test_the_stored_text_plans_what_the_timing_does(timing, policy, at_ms, late_ms):
    timing = replace(timing, policy=policy)
    assume(is_asked(timing))
    until, start = ("-" if part is None else part for part in (timing.until_ms, timing.start_ms))
    window = f"{until} - {start} -"
    now_ms = max(0, at_ms + late_ms)
    occurrences = occurrences_of(timing, ID, at_ms)
    assert plan(ID, write(timing), window, at_ms, now_ms) == plan_timing(occurrences, policy, at_ms, now_ms)


@pytest.mark.parametrize("text", ["", "x", "[]", "null", "5", "{}", '{"every":0}', '{"cron":"* * * * *","most":0}',
                                  '{"cron":"* * * * *","grace":-1}', '{"cron":"* * * * *","jitter":true}',
                                  '{"cron":"* * * * *","more":1}', '{"every":1.5}', "[" * 5000])  # fmt: skip
def test_what_is_no_definition_is_refused(text):
    with pytest.raises((ContractBroken, ValueError)):
        plan(ID, text, "- - - -", 1000, 2000)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"cron":"61 * * * *"}', "cron"),
        ('{"cron":"* * * * *","tz":"Mars/Olympus"}', "timezone"),
        ('{"cron":"* * * * *","exclude":["x"]}', "exclude"),
    ],
)
def test_what_is_not_known_here_any_more_is_refused_by_its_name(text, field):
    with pytest.raises(InvalidSchedule) as caught:
        plan(ID, text, "", 1000, 2000)
    assert caught.value.field == field


# ------------------------------------------------------------------------------------------------ the first one


@pytest.mark.parametrize(
    ("timing", "first", "then"),
    [
        (replace(EVERY_SECOND, rule=None), NOW + 1000, NOW + 2000),
        (replace(EVERY_SECOND, rule=None, initial_delay_ms=0), NOW, NOW + 1000),
        (replace(EVERY_SECOND, rule=None, initial_delay_ms=7300), NOW + 7300, NOW + 8300),
        (replace(EVERY_SECOND, rule=None, start_ms=NOW + 300), NOW + 300, NOW + 1300),
        (replace(EVERY_SECOND, rule=None, start_ms=NOW - 300), NOW + 700, NOW + 1700),
        (replace(EVERY_SECOND, rule=None, start_ms=NOW), NOW, NOW + 1000),
        (replace(EVERY_SECOND, rule=Rule(anchor_ms=250)), NOW + 250, NOW + 1250),
        (replace(EVERY_SECOND, rule=Rule(anchor_ms=0)), NOW, NOW + 1000),
        (replace(EVERY_SECOND, until_ms=NOW), NOW, 0),
        (Timing("cron", rule=Rule(("40 6 15 * * *",))), NOW + 86_400_000, NOW + 2 * 86_400_000),
        (Timing("cron", rule=Rule(("* * * * *",)), start_ms=NOW + 20_000), NOW + 20_000, NOW + 80_000),
    ],
    ids=str,
)  # fmt: skip
def test_the_first_two(timing, first, then):
    assert first_instants(timing, ID, NOW) == (first, then)


@pytest.mark.parametrize(
    ("timing", "field"),
    [
        (replace(EVERY_SECOND, until_ms=NOW - 1), "until"),
        (Timing("cron", rule=Rule(("0 0 1 1 *",)), until_ms=NOW + 5), "until"),
        (Timing("cron", rule=Rule(("0 0 1 1 *",)), start_ms=MAX_INSTANT_MS - 5), "cron"),
        (
            Timing("every", every_ms=1000, initial_delay_ms=MAX_INSTANT_MS, policy=Policy(misfire="skip")),
            "every",
        ),
        (Timing("cron", rule=Rule(("0 0 * * *",), exclude=("1990-01-01/9999-12-31",))), "exclude"),
        (
            Timing("cron", rule=Rule(("* * * * *",), exclude=("2010-01-01/9999-12-31", "* * * 2-12 *"))),
            "exclude",
        ),
        (
            Timing("cron", rule=Rule(("30 2 * 3 0L",), "Europe/Berlin", dst_gap="skip", jitter_ms=5)),
            "dst_gap",
        ),
        (Timing("cron", rule=Rule(("* * * * *",), jitter_ms=60_000)), "jitter"),
        (Timing("cron", rule=Rule(("0 * * * *", "1 * * * *"), jitter_ms=60_000)), "jitter"),
    ],
)
def test_where_nothing_would_ever_fire_it_is_refused(timing, field):
    with pytest.raises(InvalidSchedule) as caught:
        first_instants(timing, ID, NOW)
    assert caught.value.field == field


def test_a_jitter_shorter_than_the_period_will_do():
    timing = Timing("cron", rule=Rule(("* * * * *",), jitter_ms=59_999))
    first, then = first_instants(timing, ID, NOW)
    occurrences = occurrences_from(timing, ID, NOW)
    assert (first, then) == (occurrences.next_ms(NOW), occurrences.next_ms(first))
