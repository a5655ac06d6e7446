"""The demo's sums: every kind of broken promise is counted, so that a zero says something."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from timerq import Change, Outcome
from timerq.cli.ledger import Ledger, quantile
from timerq.tail import Published

DUE = 1_900_000_000_000
EVENT = Published(
    0, "1-0", "0-7-1", "t", "k", "default", None, DUE, DUE + 2, 1, 7, 0, {"a": 1}, "", {}, DUE * 1000 + 3000
)


def arm(ledger: Ledger, version: int = 7, payload: Any = None, **more: Any) -> None:
    words = {
        "outcome": Outcome.CREATED,
        "at_ms": DUE,
        "key": "k",
        "owner": None,
        "replaced_version": None,
        **more,
    }
    handle: Any = SimpleNamespace(version=version, **words)
    ledger.armed(handle, {"event": {"type": "t", "payload": {"a": 1} if payload is None else payload}})


@pytest.mark.parametrize("first", ["armed", "seen"])
def test_a_kept_promise(first: str) -> None:
    ledger = Ledger()
    if first == "armed":
        arm(ledger)
        assert not ledger.complete
    ledger.saw(EVENT)
    if first == "seen":
        arm(ledger)
    assert ledger.complete
    report = ledger.report()
    assert (report.due, report.fired, report.broken) == (1, 1, False)
    assert (report.lag_p50_ms, report.reader_lag_p99_ms) == (2, 3)


@pytest.mark.parametrize(
    ("events", "what"),
    [
        ([], "lost"),
        ([EVENT, replace(EVENT, entry="2-0")], "duplicated"),
        ([replace(EVENT, fired_ms=DUE - 1)], "early"),
        ([replace(EVENT, read_us=DUE * 1000 - 1)], "early"),
        ([replace(EVENT, payload={"a": 1.0})], "wrong_payload"),
        ([replace(EVENT, payload={"a": True})], "wrong_payload"),
        ([replace(EVENT, type="u")], "wrong_payload"),
        ([replace(EVENT, at_ms=DUE + 1)], "wrong_payload"),
        ([EVENT, replace(EVENT, version=8)], "unknown"),
        ([EVENT, replace(EVENT, owner="o")], "unknown"),
    ],
)
def test_a_broken_promise(events: list[Published], what: str) -> None:
    ledger = Ledger()
    arm(ledger)
    for event in events:
        ledger.saw(event)
    report = ledger.report()
    assert report.broken
    kinds = ("lost", "duplicated", "early", "wrong_payload", "unknown", "revived")
    assert {kind for kind in kinds if getattr(report, kind)} == {what}


def test_cancelled_and_replaced_must_not_fire() -> None:
    ledger = Ledger()
    arm(ledger)
    arm(ledger, 8, "new", outcome=Outcome.REPLACED, replaced_version=7)
    ledger.cancelled(Change(Outcome.CANCELLED, "k", version=8))
    assert ledger.complete
    report = ledger.report()
    assert (report.due, report.replaced, report.cancelled, report.broken) == (0, 1, 1, False)
    ledger.saw(EVENT)
    assert (ledger.report().revived, ledger.report().broken) == (1, True)


def test_a_cancel_that_came_too_late_leaves_the_promise() -> None:
    ledger = Ledger()
    arm(ledger)
    ledger.cancelled(Change(Outcome.NOT_PENDING, "k"))
    assert not ledger.complete
    assert ledger.report().lost == 1
    ledger.saw(EVENT)
    report = ledger.report()
    assert (report.cancelled_too_late, report.fired, report.broken) == (1, 1, False)


def test_lags_before_and_after_the_kill() -> None:
    ledger = Ledger()
    ledger.killed_ms = DUE + 10
    for version, at_ms in ((7, DUE), (8, DUE + 20)):
        arm(ledger, version, at_ms=at_ms)
        ledger.saw(
            replace(EVENT, version=version, at_ms=at_ms, fired_ms=at_ms, read_us=(at_ms + version) * 1000)
        )
    report = ledger.report()
    assert (report.before_kill_p50_ms, report.after_kill_p50_ms) == (7, 8)


def test_quantiles() -> None:
    assert quantile([], 0.5) is None
    assert [quantile(range(1, 101), share) for share in (0.5, 0.99, 0.01)] == [50, 99, 1]
    assert quantile([3.0], 0.99) == 3
