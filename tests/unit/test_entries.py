"""XREAD's reply, as RESP2 and RESP3 and redis-py's versions of them shape it."""

from __future__ import annotations

import pytest

from timerq.commands.entries import read_entries

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
