"""model.py and errors.py: values that are checked where they are made."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from timerq import (
    Change,
    ContractBroken,
    DurabilityUnavailable,
    Event,
    InvalidSchedule,
    NamespaceMismatch,
    Outcome,
    QueueUnavailable,
    Schedule,
    State,
    TimerqError,
    Timing,
)
from timerq.commands.history import History, LogEntry
from timerq.model import Rule, check_plain_name, check_text, to_datetime

LONG = "k" * 513
TWO_BYTES_EACH = "é" * 256


def test_an_event_has_defaults_and_is_frozen() -> None:
    event = Event("order.paid")
    assert (event.payload, event.stream, event.correlation, event.codec) == (None, "events", None, "msgpack")
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.type = "other"  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(event)) == event
    assert copy.copy(event) == event


@pytest.mark.parametrize("bad", ["", None, 5, b"type", "a\0b", "\ud800", LONG, TWO_BYTES_EACH + "k"])
def test_an_events_type_is_a_text(bad: Any) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        Event(bad)
    assert caught.value.field == "type"


@pytest.mark.parametrize("bad", ["", None, 5, "a b", "a/b", "é", "x" * 65, "a\n", "{a}", "events\0"])
def test_an_events_stream_is_a_plain_name(bad: Any) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        Event("t", stream=bad)
    assert caught.value.field == "stream"


@pytest.mark.parametrize("bad", ["", None, "pickle", "MSGPACK", 1])
def test_an_events_codec_is_one_of_two(bad: Any) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        Event("t", codec=bad)
    assert caught.value.field == "codec"


@pytest.mark.parametrize("good", ["a", TWO_BYTES_EACH, "k" * 512, "a*b [?] \\ : / 🎉", " ", "\n"])
def test_a_text_is_anything_of_512_bytes(good: str) -> None:
    assert check_text("key", good) == good.encode()


@pytest.mark.parametrize("good", ["a", "A-Z_0.9", "x" * 64, "-", "..."])
def test_a_plain_name(good: str) -> None:
    assert check_plain_name("tenant", good) == good


@pytest.mark.parametrize("ms", [0, 1, 999, 1_700_000_000_123, 253_402_300_799_999])
def test_an_instant_as_a_datetime_loses_nothing(ms: int) -> None:
    moment = to_datetime(ms)
    assert moment.tzinfo is UTC
    assert (moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000 == pytest.approx(ms)
    assert moment.microsecond == ms % 1000 * 1000


def test_a_schedule_tells_its_instant() -> None:
    schedule = Schedule("k", Event("t"), Timing("once", at_ms=1000), 1000, 1, State.ARMED)
    assert schedule.at == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert (schedule.tenant, schedule.owner, schedule.n, schedule.held) == ("default", None, 0, None)


def test_what_one_prints_is_short_and_readable() -> None:
    once = Schedule("k", Event("t", {"secret": 1}), Timing("once", at_ms=1000), 1000, 1, State.ARMED)
    assert repr(once) == "<Schedule 'k': due 1970-01-01 00:00:01Z, once, 't'>"
    every = dataclasses.replace(once, owner="o", timing=Timing("every", every_ms=90_500), state=State.PAUSED)
    assert repr(every) == (
        "<Schedule 'k' of 'o': paused, due 1970-01-01 00:00:01Z, every 0:01:30.500000, 't'>"
    )
    rule = Rule(("0 9 * * *", "@monthly"), "Europe/Paris")
    cron = dataclasses.replace(once, timing=Timing("cron", rule=rule), at_ms=1001)
    assert repr(cron) == (
        "<Schedule 'k': due 1970-01-01 00:00:01.001Z, cron '0 9 * * *' and 1 more, Europe/Paris, 't'>"
    )
    assert repr(Change(Outcome.NOT_PENDING, "k", "o")) == "<Change NOT_PENDING 'k' of 'o'>"
    assert repr(Change(Outcome.TRIGGERED, "k", None, 7, 1000, "0-7-t1", "fsync")) == (
        "<Change TRIGGERED 'k', version 7, at 1970-01-01 00:00:01Z, event '0-7-t1', fsync>"
    )
    entry = LogEntry(1000, "paused", 1)
    assert repr(History("k", None, once, (entry,))) == f"<History of 'k': 1 entry, {once!r}>"
    assert repr(History("k", "o", None)) == "<History of 'k' of 'o': 0 entries, nothing is stored>"
    assert repr(History("k", None, None, unreadable="odd")) == "<History of 'k': 0 entries, odd>"


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_change_is_true_where_it_took_effect(outcome: Outcome) -> None:
    without_effect = ("NOT_PENDING", "VERSION_MISMATCH", "OWNER_GONE", "DROPPED")
    assert bool(Change(outcome, "k")) is (outcome not in without_effect)


def test_outcomes_and_states_are_their_words() -> None:
    assert all(outcome == outcome.name for outcome in Outcome)
    assert [str(state) for state in State] == ["armed", "claimed", "held", "paused"]


def test_the_tree_of_errors() -> None:
    assert issubclass(InvalidSchedule, ValueError)
    assert issubclass(DurabilityUnavailable, QueueUnavailable)
    for error in (InvalidSchedule, QueueUnavailable, NamespaceMismatch, ContractBroken):
        assert issubclass(error, TimerqError)
    assert str(QueueUnavailable()) == (QueueUnavailable.__doc__ or "").strip()


def test_an_invalid_schedule_says_what_came_and_survives_a_pickle() -> None:
    error = InvalidSchedule("delay", -5, "want a duration of 0 or more")
    again = pickle.loads(pickle.dumps(error))
    assert (again.field, again.got, again.want, str(again)) == (error.field, -5, error.want, str(error))
    assert str(error) == "delay: got -5; want a duration of 0 or more"


@pytest.mark.parametrize(
    "got", ["x" * 10_000, "\x1b[31m\r\n", "\ud800", pytest.param(10**5000, id="huge"), [1] * 5000]
)
def test_hostile_input_neither_floods_nor_breaks_a_message(got: Any) -> None:
    message = str(InvalidSchedule("key", got, "want less"))
    assert len(message) < 200
    assert message.isascii() or "…" in message
    assert message.isprintable()


def test_a_value_whose_repr_raises_is_shown_by_its_type() -> None:
    class Bad:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert "a Bad" in str(InvalidSchedule("key", Bad(), "want a text"))
