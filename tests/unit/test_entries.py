"""XREAD's reply, as RESP2 and RESP3 and redis-py's versions of them shape it."""

from __future__ import annotations

import pytest

from timerq.commands.entries import NUMBERS, read_entries, what_is_wrong

ENTRY = (b"1-0", {b"at": b"5", b"now_us": b"4000"})


@pytest.mark.parametrize(
    "reply",
    [
        [[b"w", [ENTRY]]],
        [(b"w", [ENTRY])],
        {b"w": [ENTRY]},
        {b"w": [[ENTRY]]},
        {b"w": [[list(ENTRY)]]},
    ],
    ids=["resp2", "resp2-pair", "resp3", "resp3-nested", "resp3-nested-lists"],
)
def test_every_shape_reads_the_same(reply):
    assert read_entries(reply) == [(b"w", [ENTRY])]


@pytest.mark.parametrize("reply", [None, [], {}])
def test_a_time_out_is_nothing(reply):
    assert read_entries(reply) == []


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_is_none_is_named_with_what_came(name):
    fields = {each.encode(): b"1" for each in NUMBERS} | {name.encode(): b"x\xff"}
    assert (
        what_is_wrong(fields, ValueError("invalid literal")) == f"{name}: got 'x\ufffd'; want a whole number"
    )


@pytest.mark.parametrize("missing", ["id", b"id"])
def test_a_field_that_is_missing_is_named(missing):
    assert what_is_wrong({}, KeyError(missing)) == "it has no field 'id'"


def test_what_else_is_wrong_is_told_as_it_is():
    assert what_is_wrong({}, ValueError("payload: no JSON")) == "payload: no JSON"
