"""commands/: what is refused before anything is sent, and how items become commands and replies results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from timerq import (
    AsyncTimerQueue,
    ContractBroken,
    Event,
    InvalidSchedule,
    NamespaceMismatch,
    Outcome,
    QueueUnavailable,
    TimerQueue,
    Upsert,
    keys,
)
from timerq.commands import cancel, edit, read, upsert
from timerq.commands.command import (
    MAX_BYTES,
    MAX_ITEMS,
    Durability,
    Namespace,
    PartitionUnmade,
    Scope,
    command,
    read_lines,
)
from timerq.commands.durable import least, parse_durable, reached, wait_words
from timerq.commands.items import Item, Later, batches, gather, many, read_items
from timerq.commands.namespace import open_namespace, parse_namespace
from timerq.commands.options import Membership
from timerq.commands.queue import CallQueue
from timerq.commands.ranges import key_range
from timerq.exchange import check_durability
from timerq.model import instant_text
from timerq.timing import MAX_INSTANT_MS

TAGS = tuple(b"{ns:%d}" % p for p in range(7))
NAMESPACE = Namespace("ns", "1", 7, TAGS, False, {"retention_ms": "1", "max_age_ms": "", "max_length": ""})
SCOPE = Scope(NAMESPACE, "acme", b"acme")
EVENT = Event("t", {"n": 1})
NAN, INF = math.nan, math.inf
LONG = "é" * 257


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


# ------------------------------------------------------------------------------------------------ bad input

BAD_NAMES: list[Any] = ["", LONG, "k" * 513, "a\0b", "\0", "\ud800", "a\udfff", None, 5, b"key", ["k"], True]
BAD_DURATIONS: list[Any] = [
    NAN, INF, -INF, 1e999, 1.5, -1, -0.0, True, False, "", "5", "-5s", "5 s", "1H", "nan", "inf", "1e3s", "٣s", [], {},
    {"minutes": NAN}, {"minutes": INF}, {"minutes": -1}, {"minutes": True}, {"parsecs": 1}, {"seconds": "5"},
    timedelta(milliseconds=-1), timedelta.max, 10**400, Decimal("NaN"), b"5s", "9" * 60 + "w", "1h30",
    {"hours": 10**300}, MAX_INSTANT_MS + 1, "P1Y", "PT", object(),
]  # fmt: skip
BAD_INSTANTS: list[Any] = [
    NAN, INF, -INF, 1e12, -1, True, "", "tomorrow", "2030-01-31", "2030-01-31T09:00:00", datetime(2030, 1, 31),
    date(2030, 1, 31), datetime(1969, 12, 31, tzinfo=UTC), "1969-12-31T23:59:59Z", MAX_INSTANT_MS + 1,
    "9999-12-31T23:59:59.9999Z", "9999-12-31T23:59:59-01:00", 10**400, "2030-02-30T00:00:00Z", "1700000000000", [],
    timedelta(1), b"2030-01-31T09:00:00Z",
]  # fmt: skip


def refusal(act: Callable[[], Any]) -> InvalidSchedule:
    with pytest.raises(InvalidSchedule) as caught:
        act()
    error = caught.value
    assert str(error).startswith(f"{error.field}: got ")
    assert error.want.startswith(("want ", "did you mean "))
    return error


def refused(field: str, **words: Any) -> InvalidSchedule:
    given: dict[str, Any] = {"key": "k", "event": EVENT, **words}
    if not any(given.get(name) is not None for name in ("at", "delay", "every", "cron")):
        given.setdefault("delay", 5)
    error = refusal(lambda: upsert.item(SCOPE, Upsert(**given)))
    assert error.field == field, (error, given)
    return error


@pytest.mark.parametrize("bad", BAD_NAMES)
def test_upsert_refuses_a_bad_key_owner_or_token(bad: Any) -> None:
    refused("key", key=bad)
    if bad is not None:
        refused("owner", owner=bad)
        refused("idempotency_key", idempotency_key=bad)


@pytest.mark.parametrize("bad", BAD_DURATIONS)
def test_upsert_refuses_a_bad_duration(bad: Any) -> None:
    refused("delay", delay=bad)
    refused("every", every=bad)
    refused("initial_delay", every=1000, initial_delay=bad)
    if bad != MAX_INSTANT_MS + 1 and bad != timedelta.max:  # never reached: a bound beyond the end is none
        refused("max_wait", max_wait=bad)


@pytest.mark.parametrize("bad", BAD_INSTANTS)
def test_upsert_refuses_a_bad_instant(bad: Any) -> None:
    refused("at", at=bad)
    refused("start", every=1000, start=bad)
    refused("until", every=1000, until=bad)


@pytest.mark.parametrize("bad", [0, "0.4ms", "0s", timedelta(microseconds=400), timedelta(microseconds=999)])
def test_upsert_refuses_an_interval_under_a_millisecond(bad: Any) -> None:
    assert "1 ms" in refused("every", every=bad).want


@pytest.mark.parametrize(
    "words",
    [
        {},
        {"at": 1, "delay": 1},
        {"at": 1, "every": 1},
        {"delay": 1, "every": 1},
        {"at": 1, "delay": 1, "every": 1},
    ],
)
def test_upsert_wants_exactly_one_timing(words: dict[str, Any]) -> None:
    assert refusal(lambda: upsert.item(SCOPE, Upsert("k", EVENT, **words))).field == "timing"


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("initial_delay", {"delay": 5, "initial_delay": 5}),
        ("start", {"at": 5, "start": 5}),
        ("until", {"at": 5, "until": 5}),
        ("limit", {"delay": 5, "limit": 5}),
        ("initial_delay", {"every": 5, "initial_delay": 5, "start": 5}),
        ("until", {"every": 5, "start": 10, "until": 9}),
        ("mode", {"every": 5, "mode": "earliest"}),
        ("mode", {"every": 5, "mode": "latest"}),
        ("max_wait", {"every": 5, "max_wait": 5}),
    ],
)
def test_upsert_refuses_words_that_do_not_go_together(field: str, words: dict[str, Any]) -> None:
    refused(field, **words)


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        *[("mode", bad) for bad in ("", "REPLACE", "newest", None, 5, ["keep"])],
        *[("limit", bad) for bad in (0, -1, 1.0, NAN, "3", True, 2**53)],
        *[("if_version", bad) for bad in (-1, 1.0, "1", True, 2**53, NAN)],
        *[("paused", bad) for bad in (0, 1, "yes", "no")],
        *[("restart", bad) for bad in (1, "yes")],
        *[("reset", bad) for bad in (1, "yes")],
        *[("event", bad) for bad in (None, "t", {"type": "t"}, 5)],
    ],
)
def test_upsert_refuses_what_is_no_such_word(field: str, bad: Any) -> None:
    extra: dict[str, Any] = {"every": 5} if field == "limit" else {}
    refused(field, **{field: bad}, **extra)


@pytest.mark.parametrize("codec", ["msgpack", "json"])
@pytest.mark.parametrize(
    "payload",
    [
        object(),
        {1, 2},
        lambda: None,
        2**64,
        -(2**63) - 1,
        "\ud800",
        datetime(2030, 1, 1),
        deep(2000),
        "x" * 65_536,
        1j,
    ],
)
def test_upsert_and_publish_refuse_a_payload_that_cannot_be_carried(codec: Any, payload: Any) -> None:
    event = Event("t", payload, codec=codec)
    refused("payload", event=event)
    assert refusal(lambda: edit.publish_item(SCOPE, event, "k")).field == "payload"


@pytest.mark.parametrize("payload", [b"x", NAN, {1: 2}, (1, {2})])
def test_json_refuses_what_it_would_change(payload: Any) -> None:
    refused("payload", event=Event("t", payload, codec="json"))


def test_the_payload_limit_is_a_setting() -> None:
    small = Scope(NAMESPACE, "acme", b"acme", payload_limit=10)
    upsert.item(small, Upsert("k", Event("t", "x" * 9), delay=1))
    assert refusal(lambda: upsert.item(small, Upsert("k", Event("t", "x" * 10), delay=1))).field == "payload"


@pytest.mark.parametrize(
    "bad", [5, ["a"], {"a": 1}, {1: "a"}, {"a": "\ud800"}, {"a": "x" * 5000}, {str(i): "" for i in range(33)}]
)
def test_a_correlation_is_a_small_map_of_texts(bad: Any) -> None:
    refused("correlation", event=Event("t", correlation=bad))
    assert refusal(lambda: edit.publish_item(SCOPE, Event("t", correlation=bad), "k")).field == "correlation"


@pytest.mark.parametrize("bad", BAD_NAMES)
def test_every_verb_refuses_a_bad_key_or_owner(bad: Any) -> None:
    for act in (
        lambda: cancel.item(SCOPE, bad),
        lambda: edit.item(SCOPE, "pause", bad),
        lambda: edit.publish_item(SCOPE, EVENT, bad),
        lambda: next(read.get(SCOPE, bad)),
    ):
        assert refusal(act).field == "key"
    if bad is None:
        return
    for act in (
        lambda: cancel.item(SCOPE, "k", bad),
        lambda: edit.item(SCOPE, "trigger", "k", bad),
        lambda: edit.publish_item(SCOPE, EVENT, "k", bad),
        lambda: next(read.get(SCOPE, "k", bad)),
        lambda: next(read.count(SCOPE, "", bad)),
        lambda: next(read.list_page(SCOPE, "", bad)),
        lambda: next(cancel.sweep(SCOPE, "", bad)),
    ):
        assert refusal(act).field == "owner"


@pytest.mark.parametrize("bad", [bad for bad in BAD_NAMES if bad != ""])
def test_every_listing_refuses_a_bad_prefix(bad: Any) -> None:
    for act in (
        lambda: next(read.count(SCOPE, bad)),
        lambda: next(read.list_page(SCOPE, bad)),
        lambda: next(cancel.sweep(SCOPE, bad, None)),
    ):
        error = refusal(act)
        assert error.field == "prefix"
        assert "empty for all" in error.want


@pytest.mark.parametrize("bad", [-1, 1.0, "1", True, 2**53])
def test_every_fenced_verb_refuses_a_bad_version(bad: Any) -> None:
    assert refusal(lambda: cancel.item(SCOPE, "k", None, bad)).field == "if_version"
    assert refusal(lambda: edit.item(SCOPE, "resume", "k", None, bad)).field == "if_version"


@pytest.mark.parametrize("bad", [0, -1, 201, 1.0, "5", True, None])
def test_a_page_has_a_size(bad: Any) -> None:
    assert refusal(lambda: next(read.list_page(SCOPE, limit=bad))).field == "limit"


@pytest.mark.parametrize("bad", ["", "!", "x", 5, b"YQBi", "w6k", "YQ==", "YQBiAGM=", "gAA="])
def test_a_cursor_is_one_of_ours(bad: Any) -> None:
    assert refusal(lambda: next(read.list_page(SCOPE, after=bad))).field == "after"


@pytest.mark.parametrize("bad", BAD_INSTANTS)
def test_a_listing_by_due_time_refuses_a_bad_instant(bad: Any) -> None:
    assert refusal(lambda: next(read.due_page(SCOPE, bad, None, None, 10))).field == "due_from"
    assert refusal(lambda: next(read.due_page(SCOPE, None, bad, None, 10))).field == "due_to"


@pytest.mark.parametrize("bad", ["", None, 5, "a b", "x" * 65, "é", "a/b", "{a}"])
def test_namespaces_and_tenants_are_plain_names(bad: Any) -> None:
    url = "redis://127.0.0.1:1"
    for client in (TimerQueue, AsyncTimerQueue):
        assert refusal(lambda client=client: client(url, namespace=bad)).field == "namespace"  # type: ignore[misc]
        assert refusal(lambda client=client: client(url, tenant=bad)).field == "tenant"  # type: ignore[misc]
    assert refusal(lambda: next(open_namespace(bad))).field == "namespace"


@pytest.mark.parametrize(
    ("field", "words"),
    [
        *[("partitions", {"partitions": bad}) for bad in (0, -1, 1025, 1.0, "3", True)],
        *[("clock", {"clock": bad}) for bad in ("", "Redis", 5)],
        *[("retention", {"retention": bad}) for bad in (0, "0.4ms", -1, NAN, "24", "x")],
        *[("max_age", {"max_age": bad}) for bad in (-1, NAN, "24")],
        *[("max_length", {"max_length": bad}) for bad in (-1, 1.0, "3", True, 2**53)],
    ],
)
def test_init_refuses_bad_settings(field: str, words: dict[str, Any]) -> None:
    assert refusal(lambda: next(open_namespace("ns", **words))).field == field


@pytest.mark.parametrize(
    "bad",
    [
        *("", "replicas", "replicas=0", "replicas=-1", "replicas=1.5", "replicas=100", "replicas=1,fsync"),
        *("fsync=1", "FSYNC", "fsync,timeout=0s", "fsync,timeout=5s", "fsync,timeout=5", "fsync,timeout="),
        *("fsync, timeout=1s", 1, True, b"fsync"),
    ],
)
def test_durable_refuses_what_it_does_not_know(bad: Any) -> None:
    assert refusal(lambda: parse_durable(bad)).field == "durable"


# ------------------------------------------------------------------------------------------------ mappings


def test_an_item_may_be_a_mapping_with_the_same_words() -> None:
    item = Upsert.of(
        {"key": "k", "event": {"type": "t", "payload": 1, "stream": "s", "codec": "json"}, "delay": "5s"}
    )
    assert item == Upsert("k", Event("t", 1, stream="s", codec="json"), delay="5s")
    assert Upsert.of(item) is item
    assert Upsert.of({"key": "k", "event": EVENT, "at": 5}).event is EVENT


@pytest.mark.parametrize(
    ("field", "item"),
    [
        ("item", 5),
        ("item", None),
        ("item", ["k", "t"]),
        ("key", {"event": EVENT, "delay": 1}),
        ("event", {"key": "k", "delay": 1}),
        ("dely", {"key": "k", "event": EVENT, "dely": 1}),
        ("durable", {"key": "k", "event": EVENT, "delay": 1, "durable": "fsync"}),
        ("5", {"key": "k", "event": EVENT, "delay": 1, 5: 5}),
        ("event.type", {"key": "k", "event": {"payload": 1}, "delay": 1}),
        ("event.typ", {"key": "k", "event": {"type": "t", "typ": 1}, "delay": 1}),
        ("type", {"key": "k", "event": {"type": ""}, "delay": 1}),
        ("event", {"key": "k", "event": "t", "delay": 1}),
    ],
)
def test_a_mapping_that_is_no_item_is_refused_by_the_word(field: str, item: Any) -> None:
    assert refusal(lambda: upsert.item(SCOPE, item)).field == field


def test_a_slip_in_a_word_of_a_mapping_is_told_the_nearest_one() -> None:
    dely = refusal(lambda: upsert.item(SCOPE, {"key": "k", "event": EVENT, "dely": 1}))
    assert dely.want == "did you mean delay?"
    typ = refusal(lambda: upsert.item(SCOPE, {"key": "k", "event": {"type": "t", "typ": 1}, "delay": 1}))
    assert typ.want == "did you mean type?"


def test_a_word_of_a_mapping_may_be_none_for_not_given() -> None:
    upsert.item(SCOPE, {"key": "k", "event": EVENT, "delay": 1, "at": None, "owner": None})


# ------------------------------------------------------------------------------------------------ what is sent


def test_most_upserts_need_no_options() -> None:
    assert upsert.item(SCOPE, Upsert("k", EVENT, delay=5)).args[:2] == ("+5", "")
    assert upsert.item(SCOPE, Upsert("k", EVENT, at=5)).args[:2] == ("@5", "")
    assert upsert.item(SCOPE, Upsert("k", EVENT, every=5)).args[:2] == ("+5", "")
    assert upsert.item(SCOPE, Upsert("k", EVENT, every=5, initial_delay=0)).args[:2] == ("+0", "")
    assert upsert.item(SCOPE, Upsert("k", EVENT, every=5, start=7)).args[:2] == ("@7", "")


def test_options_are_thirteen_words() -> None:
    full = Upsert(
        "k", EVENT, every=5, until=100, limit=3, mode="keep", restart=True, paused=False, reset=True, if_version=9,
        idempotency_key="t", owner="o", by="ops",
    )  # fmt: skip
    item = upsert.item(SCOPE, full, incarnation=8, member=Membership("jobs", 4))
    *words, digest = str(item.args[1]).split(" ")
    assert words == ["keep", "0", "1", "1", "9", "-", "8", "-", "100", "3", "4", "1"]
    assert len(digest) == 32
    assert len(item.keys) == 5  # record, owner's index and floor, token, the set
    assert item.keys[4] == keys.declared_set(TAGS[item.partition], b"acme", b"jobs")


@pytest.mark.parametrize(
    ("word", "position", "said"),
    [
        ({"mode": "keep"}, 0, "keep"),
        ({"paused": True}, 1, "1"),
        ({"paused": False}, 1, "0"),
        ({"restart": True}, 2, "1"),
        ({"reset": True}, 3, "1"),
        ({"if_version": 0}, 4, "0"),
        ({"until": 100}, 8, "100"),
        ({"limit": 3}, 9, "3"),
        ({"by": "ops"}, 11, "1"),
    ],
)
def test_each_option_has_its_place(word: dict[str, Any], position: int, said: str) -> None:
    plain = ["replace", "-", "0", "0", "-", "-", "-", "-", "-", "-", "-", "-", "-"]
    plain[position] = said
    assert str(upsert.item(SCOPE, Upsert("k", EVENT, every=5, **word)).args[1]).split(" ") == plain


def test_a_calendar_says_its_first_instant_and_the_one_after_it() -> None:
    now_ms = 1_750_000_000_000  # 2025-06-15T15:06:40Z
    item = upsert.item(SCOPE, Upsert("k", EVENT, cron="0 * * * *"), now=lambda: now_ms)
    first_ms, then_ms = 1_750_003_200_000, 1_750_006_800_000
    assert item.args[0] == f"@{first_ms}"
    assert str(item.args[1]).split(" ")[7] == str(then_ms)
    last = upsert.item(SCOPE, Upsert("k", EVENT, cron="0 * * * *", until=first_ms), now=lambda: now_ms)
    assert str(last.args[1]).split(" ")[7] == "0"


def test_a_first_instant_that_has_passed_on_its_way_is_told_anew() -> None:
    for words in ({}, {"idempotency_key": "t", "owner": "o"}):
        wanted = Upsert("k", EVENT, cron="0 * * * *", **words)  # type: ignore[arg-type]
        item = upsert.item(SCOPE, wanted, now=lambda: 1_750_000_000_000)
        before = item.args
        (late,) = read_items([b"OK 1\nLATE 1750003200001"], [item], "accepted")
        assert isinstance(late, Later)
        assert item.args[0] == "@1750006800000"
        # a repeated call has the same digest, whenever it comes
        assert str(item.args[1]).split(" ")[12] == str(before[1]).split(" ")[12]
        assert item.args[2:] == before[2:]


def test_a_calendar_without_a_clock_is_told_the_time_by_the_script() -> None:
    item = upsert.item(SCOPE, Upsert("k", EVENT, cron="0 * * * *"))
    assert item.args[0] == f"@{3_600_000}"
    read_items([b"OK 1\nLATE 1750003200001"], [item], "accepted")
    assert item.args[0] == "@1750006800000"


def test_the_digest_tells_bodies_apart() -> None:
    def digest(**words: Any) -> str:
        given: dict[str, Any] = {"key": "k", "event": EVENT, "delay": 5, "idempotency_key": "t", **words}
        return str(upsert.item(SCOPE, Upsert(**given)).args[1]).split(" ")[-1]

    bodies = [
        digest(), digest(key="l"), digest(owner="k"), digest(delay=6), digest(delay=None, at=5), digest(mode="keep"),
        digest(event=Event("t", {"n": 2})), digest(event=Event("u", {"n": 1})), digest(paused=True),
        digest(event=Event("t", {"n": 1}, stream="s")), digest(event=Event("t", {"n": 1}, correlation={"a": "b"})),
    ]  # fmt: skip
    assert len(set(bodies)) == len(bodies)
    assert digest() == digest()


def test_a_payload_is_cut_only_where_that_saves_memory() -> None:
    def pieces(size: int) -> list[tuple[str, int]]:
        args = upsert.item(SCOPE, Upsert("k", Event("t", b"x" * (size - 2)), delay=1)).args[3:]
        return [(str(n), len(v)) for n, v in zip(args[::2], args[1::2], strict=True) if str(n)[0] == "p"]  # type: ignore[arg-type]

    assert pieces(64) == [("p", 64)]
    assert pieces(65) == [("p", 64), ("p1", 1)]
    assert pieces(192) == [("p", 64), ("p1", 64), ("p2", 64)]
    assert pieces(256) == [("p", 64), ("p1", 64), ("p2", 64), ("p3", 64)]
    assert [size for _, size in pieces(258)] == [259]  # msgpack's longer head


def test_a_command_takes_names_and_refuses_missing_and_extra_ones() -> None:
    def make(**own: Any) -> Any:
        return command("count", NAMESPACE, 0, lambda reply: reply, own_keys={"index": b"i"}, own_args=own)

    made = make(**{"from": b"[a", "to": b"(b"})
    assert made.words == [2, b"{ns:0}:meta", b"i", "1", "1", "", b"[a", b"(b"]
    with pytest.raises(KeyError):
        make(**{"from": b"[a"})
    with pytest.raises(KeyError):
        make(**{"from": b"[a", "to": b"(b", "more": 1})
    with pytest.raises(KeyError):
        command("count", NAMESPACE, 0, lambda reply: reply, own_args={"from": b"", "to": b""})
    with pytest.raises(KeyError):
        command(
            "count",
            NAMESPACE,
            0,
            lambda reply: reply,
            own_keys={"index": b"", "x": b""},
            own_args={"from": b"", "to": b""},
        )


def test_a_stamp_fills_in_session_number_and_time() -> None:
    made = gather(SCOPE, [cancel.item(SCOPE, "k")])
    made.stamp(b"session", 7, None)
    count = made.words[0]
    assert isinstance(count, int)
    assert made.words[2] == made.tag + b":req:session"
    names = made.words[count + 1 :]
    assert names[:5] == ["1", "1", "", 7, b"acme"]
    made.stamp(b"other", 8, 1234)
    assert made.words[2] == made.tag + b":req:other"
    assert made.words[count + 1 :][2:4] == [1234, 8]


def test_lanes_stay_together() -> None:
    ours = {upsert.item(SCOPE, Upsert(f"k{i}", EVENT, delay=1, owner="o")).partition for i in range(50)}
    assert len(ours) == 1
    assert len({upsert.item(SCOPE, Upsert(f"k{i}", EVENT, delay=1)).partition for i in range(50)}) == 7
    for i in range(20):
        key = f"k{i}"
        partition = upsert.item(SCOPE, Upsert(key, EVENT, delay=1)).partition
        assert cancel.item(SCOPE, key).partition == partition
        assert edit.item(SCOPE, "pause", key).partition == partition
        assert edit.publish_item(SCOPE, EVENT, key).partition == partition


def test_an_owner_lives_in_one_partition_and_a_prefix_in_all() -> None:
    assert len(key_range(SCOPE, "a").partitions) == 7
    span = key_range(SCOPE, "a", "o")
    assert len(span.partitions) == 1
    assert span.index(b"{t}") == b"{t}:own:acme\0o"
    assert (span.first, span.last) == (b"[acme\0a", b"(acme\0a\xff")


# ------------------------------------------------------------------------------------------------ gathering


def dummy(partition: int = 0, size: int = 1) -> Item[Any]:
    return Item("cancel", partition, (b"r", b"f"), ("",), size, lambda words, rest, durable: words)


def test_batches_are_bounded_by_items_and_bytes() -> None:
    pairs = [dummy() for _ in range(2 * MAX_ITEMS + 1)]
    assert [len(batch) for batch in batches(pairs)] == [MAX_ITEMS, MAX_ITEMS, 1]
    large = [dummy(size=MAX_BYTES // 2) for _ in range(5)]
    assert [len(batch) for batch in batches(large)] == [2, 2, 1]
    assert [len(batch) for batch in batches([dummy(size=10 * MAX_BYTES)])] == [1]
    assert list(batches([])) == []


def test_many_asks_all_partitions_at_once_keeps_the_order_and_repeats_what_came_too_late() -> None:
    def make(thing: Any) -> Item[Any]:
        if thing == "bad":
            raise InvalidSchedule("key", thing, "want better")
        return Item(
            "cancel", thing % 7, (b"r", b"f"), ("",), 1, lambda words, rest, durable: (thing, words[0])
        )

    things: list[Any] = [0, 1, "bad", 7, 2, 14]
    steps = many(SCOPE, make, things)
    commands = next(steps)
    assert len(commands) == 3
    late = iter([True])

    def answer(made: Any) -> list[Any]:
        lines = ["LATER" if len(made.words) > 20 and next(late, False) else "OK"]
        return lines

    results: Any = None
    try:
        while True:
            replies = []
            for made in commands:
                items = (int(made.words[0]) - len(made.script.keys)) // 2
                lines = ["NOT_PENDING"] * items
                if items == 3:
                    lines[2] = "LATER"
                replies.append(made.read([b"OK 1\n" + "\n".join(lines).encode()]))
            commands = steps.send(replies)
    except StopIteration as done:
        results = done.value
    assert isinstance(results[2], InvalidSchedule)
    assert [r for i, r in enumerate(results) if i != 2] == [(n, "NOT_PENDING") for n in (0, 1, 7, 2, 14)]


def test_calls_gather_by_script_and_durability_in_order() -> None:
    queue: CallQueue[int] = CallQueue()
    fsync = Durability(fsync=True)
    pause = Item("edit", 0, (), (), 1, lambda words, rest, durable: words)
    calls: list[tuple[Item[Any], Durability | None]] = [
        (dummy(), None), (dummy(), None), (pause, None), (dummy(), None), (dummy(), fsync), (dummy(), fsync),
    ]  # fmt: skip
    for who, (item, durable) in enumerate(calls):
        queue.add(item, durable, who)
    taken = [queue.take() for _ in range(5)]
    assert [[who for _, _, who in piece] for piece in taken] == [[0, 1], [2], [3], [4, 5], []]
    queue.add(dummy(), None, 9)
    queue.again(taken[0])
    assert [who for _, _, who in queue.take()] == [0, 1, 9]
    for who in range(MAX_ITEMS + 1):
        queue.add(dummy(), None, who)
    assert len(queue.take()) == MAX_ITEMS
    assert len(queue.take()) == 1
    for _ in range(3):
        queue.add(dummy(size=MAX_BYTES), None, 0)
    assert len(queue.take()) == 1


# ------------------------------------------------------------------------------------------------ replies


def test_a_head_line_is_time_or_a_refusal() -> None:
    assert read_lines([b"OK 1700000000000000\nA 1\nB"]) == (1_700_000_000_000_000, ["A 1", "B"])
    for text, error in (
        (b"WRONG_LAYOUT - -", PartitionUnmade),
        (b"WRONG_LAYOUT 2 1", NamespaceMismatch),
        (b"WRONG_CLOCK manual", NamespaceMismatch),
        (b"OLD_REQUEST", QueueUnavailable),
        (b"SOMETHING", ContractBroken),
    ):
        with pytest.raises(error):
            read_lines([text])


def test_an_item_reads_its_line_and_what_stands_behind_it() -> None:
    def reader(words: list[str], rest: Iterator[bytes], durable: str) -> Any:
        return words[0], next(rest), durable

    items = [Item("upsert", 0, (), (), 1, reader)] * 4
    lines = b"OK 1\nONE\nBROKEN WRONGTYPE it is a list\nLATER\nTWO"
    one, broken, later, two = read_items([lines, b"a", b"b"], items, "fsync")
    assert (one, two) == (("ONE", b"a", "fsync"), ("TWO", b"b", "fsync"))
    assert isinstance(broken, QueueUnavailable)
    assert "WRONGTYPE it is a list" in str(broken)
    assert isinstance(later, Later)
    with pytest.raises(ContractBroken):
        read_items([b"OK 1\nONE"], items, "accepted")


@pytest.mark.parametrize(
    ("line", "rest", "outcome", "version", "at_ms", "state"),
    [
        ("CREATED 5 10 a", [], "CREATED", 5, 10, "armed"),
        ("REPLACED 5 10 p 4 9 7 8 9", [], "REPLACED", 5, 10, "paused"),
        ("UNCHANGED 5 10 c 2 7 8 9", [], "UNCHANGED", 5, 10, "claimed"),
        ("DUPLICATE 5 10 h", [], "DUPLICATE", 5, 10, "held"),
        ("VERSION_MISMATCH 0", [], "VERSION_MISMATCH", 0, None, None),
        ("OWNER_GONE 7", [], "OWNER_GONE", 7, None, None),
        ("SUPERSEDED 7", [], "SUPERSEDED", 7, None, None),
        (
            "KEPT 5 10 a 6",
            [b"s", b"a 5 10 - 2", b"d", b"o events m old", b"p", b"\xc0"],
            "KEPT",
            5,
            10,
            "armed",
        ),
    ],
)
def test_what_an_upsert_says(
    line: str, rest: list[bytes], outcome: str, version: int, at_ms: Any, state: Any
) -> None:
    item = upsert.item(SCOPE, Upsert("k", EVENT, delay=10, owner="o"))
    (result,) = read_items([f"OK 1\n{line}".encode(), *rest], [item], "accepted")
    assert (result.outcome, result.version, result.at_ms, result.state) == (outcome, version, at_ms, state)
    assert (result.key, result.owner, result.durable) == ("k", "o", "accepted")
    if outcome == "REPLACED":
        assert (result.replaced_version, result.replaced_at_ms) == (4, 9)
    if at_ms is None:
        assert result.schedule is None
    else:
        assert result.schedule is not None
        assert result.schedule.version == version
        assert result.schedule.event.type == ("old" if outcome == "KEPT" else "t")
        assert result.schedule.n == (2 if outcome in ("KEPT", "UNCHANGED") else 0)
        stored = result.schedule
        totals = (stored.fired_total, stored.missed_total, stored.skipped_total)
        assert totals == ((7, 8, 9) if outcome in ("REPLACED", "UNCHANGED") else (0, 0, 0))
    due = "" if at_ms is None else f", at {instant_text(at_ms)}"
    whose = "'k' of 'o'" if result.owner else "'k'"
    assert (
        repr(result) == f"<Handle {outcome} {whose}" + (f", version {version}" if version else "") + f"{due}>"
    )


@pytest.mark.parametrize("field", ["delay", "until", "limit", "mode", "idempotency_key"])
def test_what_the_script_refuses_names_its_field(field: str) -> None:
    item = upsert.item(SCOPE, Upsert("k", EVENT, delay=10))
    (error,) = read_items([f"OK 1\nINVALID {field}".encode()], [item], "accepted")
    assert isinstance(error, InvalidSchedule)
    assert error.field == field


def test_an_interval_that_would_start_too_late_is_refused_by_its_own_name() -> None:
    for words, field in (({"every": 10}, "every"), ({"every": 10, "initial_delay": 20}, "initial_delay")):
        item = upsert.item(SCOPE, Upsert("k", EVENT, **words))  # type: ignore[arg-type]
        (error,) = read_items([b"OK 1\nINVALID delay"], [item], "accepted")
        assert (error.field, error.got) == (field, words[field])


def test_an_unreadable_record_is_an_error_of_its_own() -> None:
    item = upsert.item(SCOPE, Upsert("k", EVENT, delay=10, mode="keep"))
    bad, good = read_items(
        [b"OK 1\nKEPT 5 10 a 2\nCREATED 6 10 a", b"s", b"rubbish"],
        [item, upsert.item(SCOPE, Upsert("l", EVENT, delay=10))],
        "accepted",
    )
    assert isinstance(bad, ContractBroken)
    assert good.outcome is Outcome.CREATED


def test_a_trigger_names_its_event() -> None:
    item = edit.item(SCOPE, "trigger", "k")
    for word in ("TRIGGERED", "DUPLICATE"):
        (change,) = read_items([f"OK 1\n{word} 5 0-5-t9".encode()], [item], "accepted")
        assert (change.outcome, change.version, change.event_id) == (word, 5, "0-5-t9")
        assert change
    (error,) = read_items([b"OK 1\nINVALID consume"], [edit.item(SCOPE, "consume", "k")], "accepted")
    assert isinstance(error, InvalidSchedule)
    assert error.field == "consume"


def test_a_namespace_is_what_its_meta_says() -> None:
    stored = {
        "layout": "1", "schema": "1", "partitions": "2", "tags": "a b", "clock": "manual", "retention_ms": "5",
        "max_age_ms": "", "max_length": "7",
    }  # fmt: skip
    namespace = parse_namespace("ns", stored)
    assert (namespace.tags, namespace.partitions, namespace.manual_clock) == ((b"{a}", b"{b}"), 2, True)
    for change in ({"layout": "2"}, {"schema": "0"}):
        with pytest.raises(NamespaceMismatch):
            parse_namespace("ns", {**stored, **change})
    with pytest.raises(NamespaceMismatch):
        parse_namespace("ns", {})
    for missing in ("tags", "partitions", "clock", "retention_ms"):
        with pytest.raises(ContractBroken):
            parse_namespace("ns", {name: value for name, value in stored.items() if name != missing})


# ------------------------------------------------------------------------------------------------ durable


def test_durable_words() -> None:
    assert parse_durable(None) is None
    assert parse_durable("accepted") is None
    assert parse_durable("fsync") == Durability(fsync=True, timeout_ms=3000)
    assert parse_durable("replicas=2,timeout=500ms") == Durability(replicas=2, timeout_ms=500)
    assert parse_durable("fsync,timeout=4s") == Durability(fsync=True, timeout_ms=4000)
    assert wait_words(Durability(replicas=2, timeout_ms=5)) == ("WAIT", "2", "5")
    assert wait_words(Durability(fsync=True, timeout_ms=5)) == ("WAITAOF", "1", "0", "5")
    assert reached(Durability(replicas=2), 1) == "replicas=1"
    assert reached(Durability(replicas=2), 0) == "accepted"
    assert reached(Durability(fsync=True, timeout_ms=3000), [1, 0]) == "fsync"
    assert reached(Durability(fsync=True, timeout_ms=3000), [0, 0]) == "accepted"


@pytest.mark.parametrize(
    ("info", "appendfsync", "expected"),
    [
        ({"aof_enabled": 0, "redis_version": "8.2.3"}, "always", "appendonly yes"),
        ({"redis_version": "8.2.3"}, None, "appendonly yes"),
        ({"aof_enabled": 1, "redis_version": "7.0.15"}, "everysec", "7.2"),
        ({"aof_enabled": 1, "redis_version": "7.0.15"}, None, "7.2"),
        ({"aof_enabled": 1, "redis_version": "7.0.15"}, "always", False),
        ({"aof_enabled": 1, "redis_version": "7.2.0"}, "everysec", True),
        ({"aof_enabled": 1, "redis_version": "8.2.3"}, "always", True),
    ],
)
def test_whether_a_server_can_sync(
    info: dict[str, Any], appendfsync: str | None, expected: bool | str
) -> None:
    durability = Durability(fsync=True)
    if isinstance(expected, str):
        with pytest.raises(QueueUnavailable, match=expected):
            check_durability(durability, info, appendfsync)
    else:
        assert check_durability(durability, info, appendfsync) is expected
    assert check_durability(Durability(replicas=1), {}, None)


def test_the_least_level_is_what_all_reached() -> None:
    assert least(["replicas=10", "replicas=9"]) == "replicas=9"
    assert least(["fsync", "accepted", "fsync"]) == "accepted"
    assert least(["fsync"]) == "fsync"
