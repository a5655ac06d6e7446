"""Definitions that were spoilt by hand are refused whole where they are read, so that nothing meets them later."""

from __future__ import annotations

import json
from typing import Any

import pytest

from timerq.commands.record import decode
from timerq.errors import ContractBroken
from timerq.timing.definition import read

CRON = {"cron": "* * * * *"}
NO_WORDS: list[Any] = [[], {}, "zz", None, 1]


@pytest.mark.parametrize(
    "words",
    [
        *({**CRON, name: value} for name in ("gap", "overlap", "misfire") for value in NO_WORDS),
        *({**CRON, name: 10**30} for name in ("jitter", "anchor", "grace", "most")),
        {},
        {"cron": []},
        {"every": 10**30},
        {"every": 1, "anchor": 253_402_300_800_000},
    ],
    ids=json.dumps,
)
def test_a_definition_that_nobody_wrote_is_refused(words: dict[str, Any]) -> None:
    with pytest.raises(ContractBroken, match="unreadable definition"):
        read(json.dumps(words))


RECORD = {b"s": b"a 1 5 6 0", b"d": b"c events m t", b"p": b"\xc0", b"x": json.dumps(CRON).encode()}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (b"s", b"a 1 253402300800000 - 0"),
        (b"s", b"a 99999999999999999999 5 - 0"),
        (b"w", b"- - -"),
        (b"w", b"253402300800000 - - -"),
        (b"w", b"- 9007199254740992 - -"),
        (b"w", b"- - -1 -"),
        (b"l0", b"5 253402300800000 0"),
        (b"l0", b"5 6"),
    ],
)
def test_a_record_with_a_number_that_nobody_wrote_is_refused(field: bytes, value: bytes) -> None:
    fields = RECORD | {field: value}
    with pytest.raises(ContractBroken, match="unreadable record"):
        decode(b"acme\0k\0", [part for pair in fields.items() for part in pair])


def test_a_record_as_it_is_written_is_read() -> None:
    assert decode(b"acme\0k\0", [part for pair in RECORD.items() for part in pair]).at_ms == 5
