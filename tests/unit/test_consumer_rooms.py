"""The pure rooms of the consumer: back-off, verdicts, signatures of handlers, reading entries, what a context arms."""

from __future__ import annotations

import asyncio
import functools
import pickle
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timerq import InvalidSchedule, schedule
from timerq.codec import encode
from timerq.commands.command import Namespace, Scope
from timerq.commands.consume import RawDelivery
from timerq.commands.owned import recurring, single
from timerq.consumer import AsyncContext, Consumer, Context
from timerq.consumer.arming import Arming
from timerq.consumer.backoff import Backoff
from timerq.consumer.decode import decode, lane_of
from timerq.consumer.handlers import make_handler
from timerq.consumer.verdict import bounded, failed, succeeded
from timerq.errors import ContractBroken, Incomplete, InvalidPayload
from timerq.model import Delivery, Event

EVENT = Delivery(
    id="0-17-1",
    type="t",
    key="k",
    tenant="default",
    owner=None,
    at_ms=1_000,
    fired_ms=2_000,
    n=1,
    version=17,
    missed=0,
    payload={"order_id": 42},
    correlation={"trace": "x"},
    stream="events",
    group="g",
    attempt=1,
    delivery=1,
    partition=0,
    entry="1-1",
)


# ------------------------------------------------------------------------------------------------ back-off, verdicts


@given(st.integers(1, 2_000), st.floats(0, 1))
def test_a_wait_doubles_up_to_its_cap_and_is_shortened_by_half_at_the_most(attempt: int, luck: float) -> None:
    backoff = Backoff(100, 60_000)
    full = min(60_000, 100 * 2 ** min(attempt - 1, 40))
    assert full // 2 <= backoff.wait_ms(attempt, luck) <= full
    assert backoff.wait_ms(attempt, 0) == full


def test_a_failure_is_tried_again_as_often_as_its_handler_says() -> None:
    handler = make_handler("t", lambda event: None, attempts=3, backoff="1s", max_backoff="1m")
    assert failed(handler, 1, ValueError("x"), 0).verb == "retry"
    assert failed(handler, 2, ValueError("x"), 0).wait_ms == 2_000
    last = failed(handler, 3, ValueError("x"), 0)
    assert (last.verb, last.error) == ("reject", "ValueError: x")


def test_which_errors_are_worth_another_try() -> None:
    handler = make_handler("t", lambda event: None, retry_on=OSError, give_up_on=(FileNotFoundError,))
    assert failed(handler, 1, ConnectionError(), 0).verb == "retry"
    assert failed(handler, 1, FileNotFoundError(), 0).verb == "reject"
    assert failed(handler, 1, ValueError(), 0).verb == "reject"
    assert failed(handler, 1, Incomplete("later"), 0).verb == "retry"
    assert failed(handler, 1, InvalidPayload("no"), 0).verb == "reject"
    usual = make_handler("t", lambda event: None)
    assert failed(usual, 1, asyncio.CancelledError(), 0).verb == "retry"
    assert failed(usual, 1, SystemExit(3), 0).verb == "reject"


def test_what_a_handler_returns_is_kept_in_short() -> None:
    assert succeeded(None).outcome == ""
    assert succeeded("sent").outcome == "sent"
    assert len(succeeded("ä" * 500).outcome.encode()) <= 200

    class Silent:
        def __str__(self) -> str:
            raise RuntimeError

    assert succeeded(Silent()).outcome == "a Silent"


@given(st.text(), st.integers(3, 50), st.booleans())
def test_a_bounded_text_is_text_within_its_bound(text: str, most: int, end: bool) -> None:
    short = bounded(text, most, keep_end=end)
    assert len(short.encode()) <= most
    if len(text.encode("utf-8", "replace")) <= most:
        assert short == text.encode("utf-8", "replace").decode()


def test_a_traceback_is_kept_and_bounded() -> None:
    handler = make_handler("t", lambda event: None, attempts=1)

    def deep(n: int) -> None:
        if n == 0:
            raise ValueError("x" * 50_000)
        deep(n - 1)

    try:
        deep(50)
    except ValueError as error:
        verdict = failed(handler, 1, error, 0)
    assert 0 < len(verdict.traceback.encode()) <= 6_000
    assert len(verdict.error.encode()) <= 1_000


# ------------------------------------------------------------------------------------------------ handlers


class Order(pydantic.BaseModel):
    order_id: int


def by_place(event: Any) -> Any:
    return event


def two_by_place(one: Any, two: Any) -> Any:
    return one, two


def by_name(ctx: Any, payload: Any) -> Any:
    return ctx, payload


def by_annotation(order: Order, what: Delivery, reach: AsyncContext) -> Any:
    return order, what, reach


def keyword_only(event: Any, *, context: Any) -> Any:
    return event, context


def with_default(event: Any, retries: int = 3) -> Any:
    return event, retries


def after_a_default(event: Any, retries: int = 3, ctx: Any = None) -> Any:
    return event, retries, ctx


def nothing() -> str:
    return "nothing"


class Method:
    def handle(self, event: Any) -> Any:
        return event


def test_a_handler_gets_what_its_parameters_ask_for() -> None:
    ctx = object()

    def call(function: Any, **words: Any) -> Any:
        handler = make_handler("t", function, **words)
        return handler.call(handler.prepare(EVENT), ctx)

    assert call(by_place) is EVENT
    assert call(two_by_place) == (EVENT, ctx)
    assert call(by_name) == (ctx, {"order_id": 42})
    order, event, reach = call(by_annotation)
    assert (order, event.payload, reach) == (Order(order_id=42), Order(order_id=42), ctx)
    assert call(keyword_only) == (EVENT, ctx)
    assert call(with_default) == (EVENT, 3)
    assert call(after_a_default) == (EVENT, 3, ctx)
    assert call(nothing) == "nothing"
    assert call(Method().handle) is EVENT
    assert call(functools.partial(two_by_place, two="given")) == (EVENT, "given")
    assert call(by_place, model=Order).payload == Order(order_id=42)
    assert call(by_name, model=dict[str, int])[1] == {"order_id": 42}


def test_which_handlers_are_awaited() -> None:
    async def handler(event: Any) -> None: ...

    class Callable:
        async def __call__(self, event: Any) -> None: ...

    assert make_handler("t", handler).is_async
    assert make_handler("t", Callable()).is_async
    assert make_handler("t", functools.partial(handler)).is_async
    assert not make_handler("t", by_place).is_async
    assert make_handler("t", by_name).takes_context
    assert not make_handler("t", by_place).takes_context


def test_a_payload_that_does_not_fit_is_told_without_what_came() -> None:
    handler = make_handler("t", by_place, model=Order)
    with pytest.raises(InvalidPayload, match=r"payload\.order_id") as raised:
        handler.prepare(replace(EVENT, payload={"order_id": "a secret"}))
    assert "a secret" not in str(raised.value)


@pytest.mark.parametrize(
    "words",
    [
        {"attempts": 0},
        {"attempts": True},
        {"attempts": 1.5},
        {"backoff": "1m", "max_backoff": "1s"},
        {"backoff": "soon"},
        {"timeout": 0},
        {"retry_on": "OSError"},
        {"give_up_on": [1]},
        {"model": object()},
    ],
)
def test_a_handler_s_bad_words_are_refused(words: dict[str, Any]) -> None:
    with pytest.raises(InvalidSchedule) as raised:
        make_handler("t", by_place, **words)
    assert raised.value.field in words or raised.value.field == "max_backoff"


def test_a_long_backoff_alone_is_the_longest_too() -> None:
    assert make_handler("t", by_place, backoff="1h").backoff == Backoff(3_600_000, 3_600_000)
    assert make_handler("t", by_place, backoff="1s").backoff == Backoff(1_000, 600_000)
    assert make_handler("t", by_place, backoff="1s", max_backoff="1h").backoff == Backoff(1_000, 3_600_000)


def test_what_cannot_be_called_with_an_event_is_refused() -> None:
    with pytest.raises(InvalidSchedule, match="function"):
        make_handler("t", lambda a, b, c: None)
    with pytest.raises(InvalidSchedule, match="function"):
        make_handler("t", "no function")  # type: ignore[arg-type]
    with pytest.raises(InvalidSchedule, match="type"):
        make_handler("", by_place)


def test_what_would_run_nothing_is_refused() -> None:
    def yields(event: Any) -> Any:
        yield event

    async def yields_later(event: Any) -> Any:
        yield event

    class Yields:
        def __call__(self, event: Any) -> Any:
            yield event

    for function in (yields, yields_later, Yields(), functools.partial(yields)):
        with pytest.raises(InvalidSchedule, match="not one that yields"):
            make_handler("t", function)
    with pytest.raises(InvalidSchedule, match=r'as in @app.on\("order.placed"\)'):
        Consumer(group="g").on(by_place)  # type: ignore[arg-type]


def test_an_async_handler_awaits_its_context() -> None:
    async def forgets(event: Delivery, ctx: Context) -> None: ...

    with pytest.raises(InvalidSchedule, match="want AsyncContext in an async handler"):
        make_handler("t", forgets)

    async def awaits(event: Delivery, ctx: AsyncContext) -> None: ...

    def blocks(event: Delivery, ctx: Context) -> None: ...

    assert make_handler("t", awaits).takes == make_handler("t", blocks).takes == ("event", "ctx")


def test_an_annotation_that_means_nothing_here_is_refused() -> None:
    class Local: ...

    def handler(order: Local) -> None: ...

    def named(event: Local) -> Any:
        return event

    with pytest.raises(InvalidSchedule, match="annotations"):
        make_handler("t", handler)
    assert make_handler("t", named).call(EVENT, None) is EVENT


def test_a_scheduled_function_gets_its_tick() -> None:
    @schedule(every="1h")
    def hourly(fired_at: Any, name: str) -> Any:
        return fired_at, name

    handler = make_handler("hourly", hourly)
    assert handler.call(EVENT, None) == (EVENT.at, "hourly")


# ------------------------------------------------------------------------------------------------ reading


def raw(**changed: bytes | None) -> RawDelivery:
    content_type, payload = encode({"a": [1, None]})
    fields: dict[str, bytes | None] = {
        "id": b"0-17-1",
        "type": b"t",
        "key": b"k",
        "tenant": b"default",
        "owner": b"o",
        "at": b"1000",
        "fired_ms": b"2000",
        "n": b"1",
        "version": b"17",
        "missed": b"2",
        "payload": payload,
        "content_type": content_type.encode(),
        "correlation": b'{"a":"b"}',
        **changed,
    }
    given = {name.encode(): value for name, value in fields.items() if value is not None}
    return RawDelivery(b"5-1", 3, 2, 0, given)


def test_an_entry_is_read() -> None:
    event = decode(raw(backfill=b"1", later=b"?"), partition=4, stream="s", group="g")
    assert (event.id, event.owner, event.lane, event.payload) == ("0-17-1", "o", "o", {"a": [1, None]})
    assert (event.attempt, event.delivery, event.entry, event.partition) == (2, 3, "5-1", 4)
    assert (event.at_ms, event.fired_ms, event.missed, event.backfill) == (1000, 2000, 2, True)
    assert (event.at.timestamp(), event.fired_at.timestamp()) == (1, 2)
    assert event.correlation == {"a": "b"}
    assert decode(raw(owner=b""), partition=4, stream="s", group="g").lane == "k"


def test_an_event_that_was_read_is_as_one_that_was_made() -> None:
    event = decode(raw(), partition=4, stream="s", group="g")
    made = Delivery(**{one.name: getattr(event, one.name) for one in fields(Delivery)})
    assert type(event) is Delivery
    assert (event, repr(event)) == (made, repr(made))
    assert pickle.loads(pickle.dumps(event)) == replace(event) == event != replace(event, n=event.n + 1)
    with pytest.raises(FrozenInstanceError):
        event.n = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    "changed",
    [{"id": None}, {"at": b"x"}, {"type": b"\xff"}, {"payload": b"\xc1"}, {"content_type": b"text/xml"},
     {"correlation": b"["}],
)  # fmt: skip
def test_an_entry_that_cannot_be_read_says_so(changed: dict[str, Any]) -> None:
    with pytest.raises(ContractBroken):
        decode(raw(**changed), partition=0, stream="s", group="g")


def test_the_lane_of_an_entry() -> None:
    assert lane_of(raw().fields) == (b"default", b"o")
    assert lane_of(raw(owner=b"").fields) == (b"default", b"k")
    assert lane_of({}) == (b"", b"")


# ------------------------------------------------------------------------------------------------ arming


def arming(**changed: Any) -> Arming:
    scope = Scope(Namespace("n", "1", 1, (b"{n:0}",), False), "default", b"default")
    return Arming(replace(EVENT, **changed), scope, {"t", "late"}.__contains__, 60_000)


def arm(what: Arming, type: str = "late", payload: Any = None, **words: Any) -> Any:
    given = {"delay": None, "at": None, "name": None, "correlation": None, "codec": "msgpack", **words}
    item: Any = what.schedule(type, payload, **given)
    return item.wanted


def test_what_a_handler_arms_is_the_same_at_every_run() -> None:
    first, again = arm(arming(), delay="1h"), arm(arming(attempt=5), delay="1h")
    assert first == again
    assert (first.key, first.owner, first.at) == ("late@0-17-1", "k", EVENT.fired_ms + 3_600_000)
    assert first.event.correlation == {"trace": "x", "causation_id": "0-17-1"}
    assert arm(arming(owner="o"), at=5_000).owner == "o"
    assert arm(arming(), delay=0, name="first-nudge").key == "first-nudge@0-17-1"


def test_one_run_arms_one_timer_under_one_name() -> None:
    what = arming()
    arm(what, delay="1h")
    arm(what, delay="1h")
    with pytest.raises(InvalidSchedule, match="name"):
        arm(what, delay="2h")
    arm(what, delay="2h", name="second")
    payload = {"n": 1}
    arm(what, delay="1h", name="counted", payload=payload)
    payload["n"] = 2
    with pytest.raises(InvalidSchedule, match="name"):
        arm(what, delay="1h", name="counted", payload=payload)


def test_one_run_uses_an_idempotency_key_for_one_body() -> None:
    what = arming()

    def upsert(payload: int, key: str = "k", **words: Any) -> None:
        what.upsert(key, Event("late", payload), ..., {"idempotency_key": "x", **words}, lambda: 0)

    upsert(1, delay="1h")
    upsert(1, delay="1h")
    upsert(2, key="another", delay="1h")
    for payload, delay in ((2, "1h"), (1, "2h")):
        with pytest.raises(InvalidSchedule, match="idempotency_key"):
            upsert(payload, delay=delay)
    upsert(1, key="recurs", every="1h")
    upsert(1, key="recurs", every="1h")


def test_what_an_app_does_not_declare_is_refused() -> None:
    with pytest.raises(InvalidSchedule, match="type"):
        arm(arming(), "unheard of", delay="1h")
    with pytest.raises(InvalidSchedule, match="type"):
        arming().publish(Event("unheard of"), None, ...)
    arming().publish(Event("unheard of", stream="elsewhere"), None, ...)
    with pytest.raises(InvalidSchedule, match="delay"):
        arm(arming())
    with pytest.raises(InvalidSchedule, match="delay"):
        arm(arming(), delay="1h", at=0)


def test_an_upsert_of_a_handler_counts_from_its_event() -> None:
    item: Any = arming().upsert("idle", Event("late"), ..., {"delay": "5m", "mode": "latest"}, None)
    assert (item.wanted.key, item.wanted.owner, item.wanted.mode) == ("idle", "k", "latest")
    assert item.wanted.at == EVENT.fired_ms + 300_000
    free: Any = arming().upsert("idle", Event("late"), None, {"every": "5m"}, None)
    assert (free.wanted.owner, free.wanted.every) == (None, "5m")
    with pytest.raises(InvalidSchedule, match="sometime: got 1"):
        arming().upsert("idle", Event("late"), ..., {"sometime": 1}, None)


def test_an_upsert_of_a_handler_with_an_idempotency_key_is_remembered_as_an_arming_is() -> None:
    def options(**words: Any) -> str:
        item: Any = arming().upsert("idle", Event("late"), ..., {"idempotency_key": "x", **words}, lambda: 0)
        return str(item.args[1])

    assert options(delay="5m").endswith(" =60000")
    assert options(every="5m").endswith(" =60000")
    assert options(every="5m", jitter="1s").endswith(" =60000")
    assert options(cron="* * * * *").endswith(" =60000")


def test_a_handler_of_a_gone_owner_cancels_nothing_in_its_lane() -> None:
    def incarnation(item: Any) -> str:
        return str(item.args[2])

    assert incarnation(arming(owner="o").cancel("k", ...)) == "17"
    assert incarnation(arming().cancel("k", ...)) == "17"
    assert incarnation(arming(owner="o").cancel("k", "another")) == ""
    assert incarnation(arming(owner="o").cancel("k", None)) == ""


def test_a_timer_that_a_handler_starts_is_its_lanes() -> None:
    once: Any = arming(owner="o").start(single("o", "idle", Event("late"), "5m"), lambda: 0)
    assert (once.wanted.key, once.wanted.owner, once.wanted.at) == ("idle", "o", EVENT.fired_ms + 300_000)
    assert once.wanted.event.correlation == {"trace": "x", "causation_id": "0-17-1"}
    again: Any = arming().start(recurring("k", "hb", Event("t"), "5s", 0), lambda: 0)
    assert (again.wanted.every, again.wanted.initial_delay, again.wanted.restart) == ("5s", 0, True)
    # the event's incarnation: a gone owner's handler starts nothing
    assert again.args[1].split(" ")[6] == "17"
    with pytest.raises(InvalidSchedule, match="declare"):
        arming().start(single("k", "idle", Event("unheard of"), "5m"), lambda: 0)


def test_both_contexts_have_the_same_verbs() -> None:
    def verbs(thing: type) -> set[str]:
        return {name for name in dir(thing) if not name.startswith("_")}

    assert verbs(AsyncContext) == verbs(Context)
