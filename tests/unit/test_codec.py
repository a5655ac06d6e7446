"""Payloads and correlations to bytes and back: nothing changes silently, and hostile bytes are refused."""

from __future__ import annotations

import contextlib
import json
import math
import pickle
import threading
from collections import OrderedDict, namedtuple
from datetime import UTC, date, datetime, timedelta, timezone
from enum import IntEnum

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timerq.codec import (
    JSON,
    MAX_CORRELATION_BYTES,
    MAX_CORRELATION_ENTRIES,
    MAX_JSON_DEPTH,
    MSGPACK,
    decode,
    decode_correlation,
    encode,
    encode_correlation,
)
from timerq.errors import ContractBroken, InvalidSchedule

CODECS = ["msgpack", "json"]
CONTENT_TYPES = {"msgpack": MSGPACK, "json": JSON}


def exactly(value):
    """A form in which 1, 1.0 and True differ, and NaN equals itself."""
    if isinstance(value, dict):
        return "dict", [(exactly(key), exactly(inner)) for key, inner in value.items()]
    if isinstance(value, list):
        return "list", [exactly(inner) for inner in value]
    return type(value).__name__, repr(value)


def roundtrip(payload, codec):
    content_type, data = encode(payload, codec)
    assert content_type == CONTENT_TYPES[codec]
    assert type(data) is bytes
    return decode(content_type, data)


def nested(depth):
    payload: list = []
    for _ in range(depth - 1):
        payload = [payload]
    return payload


def refusal(payload, codec, **options) -> InvalidSchedule:
    with pytest.raises(InvalidSchedule) as caught:
        encode(payload, codec, **options)
    assert caught.value.field == "payload"
    assert len(str(caught.value)) < 500
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    return caught.value


# ------------------------------------------------------------------------------------------------- payloads


@pytest.mark.parametrize("codec", CODECS)
def test_B81_a_payload_comes_back_deep_equal(codec):
    payload = {"id": 130775545883395173, "l": [], "o": {}, "f": 1.0, "s": "a/b", "u": "é\u0000"}
    first = roundtrip(payload, codec)
    assert exactly(first) == exactly(payload)
    assert encode(first, codec) == encode(payload, codec)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("payload", ["", {}, [], None, b""], ids=ascii)
def test_B82_empty_payloads_stay_apart(payload, codec):
    if codec == "json" and payload == b"" and isinstance(payload, bytes):
        assert "bytes" in str(refusal(payload, codec))
    else:
        assert exactly(roundtrip(payload, codec)) == exactly(payload)


SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text()
JSON_VALUES = st.recursive(
    SCALARS | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
UTC_MOMENTS = st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.replace(fold=0))
KEYS = st.recursive(SCALARS | st.binary(), lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5)
MSGPACK_VALUES = st.recursive(
    SCALARS | st.floats() | st.binary() | UTC_MOMENTS,
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
)


@given(JSON_VALUES)
def test_any_json_value_comes_back(payload):
    assert exactly(roundtrip(payload, "json")) == exactly(payload)
    assert exactly(roundtrip(payload, "msgpack")) == exactly(payload)
    assert json.loads(encode(payload, "json")[1]) == payload


@given(MSGPACK_VALUES)
def test_any_msgpack_value_comes_back(payload):
    assert exactly(roundtrip(payload, "msgpack")) == exactly(payload)


def test_msgpack_keeps_bytes_and_text_and_floats_that_are_no_numbers():
    assert roundtrip([b"a", "a", bytearray(b"b"), memoryview(b"c")], "msgpack") == [b"a", "a", b"b", b"c"]
    nan, inf = roundtrip([float("nan"), float("inf")], "msgpack")
    assert math.isnan(nan)
    assert inf == math.inf
    assert roundtrip({1: "a", "1": "b", None: "c", (1, (2, b"x")): "d"}, "msgpack") == {
        1: "a",
        "1": "b",
        None: "c",
        (1, (2, b"x")): "d",
    }
    assert roundtrip(msgpack.ExtType(5, b"x"), "msgpack") == msgpack.ExtType(5, b"x")


def test_an_aware_datetime_is_a_msgpack_timestamp():
    moment = datetime(2030, 1, 31, 9, 0, 0, 123_456, tzinfo=timezone(timedelta(hours=1)))
    got = roundtrip(moment, "msgpack")
    assert got == moment
    assert got.tzinfo is UTC
    assert msgpack.unpackb(encode(moment)[1]) == msgpack.Timestamp.from_datetime(moment)


@pytest.mark.parametrize("codec", CODECS)
def test_tuples_and_subclasses_are_carried_as_their_base(codec):
    class Colour(IntEnum):
        RED = 3

    Point = namedtuple("Point", "x y")
    payload = {"t": (1, (2,)), "p": Point(1, 2), "o": OrderedDict(a=1), "e": Colour.RED}
    assert exactly(roundtrip(payload, codec)) == exactly({"t": [1, [2]], "p": [1, 2], "o": {"a": 1}, "e": 3})


CYCLE: list = []
CYCLE.append(CYCLE)
NO_CODEC_CARRIES = [
    {1, 2},
    object(),
    1j,
    2**64,
    -(2**63) - 1,
    10**5000,
    "\ud800",
    {"\udfff": 1},
    [{"deep": {"set": set()}}],
    date(2030, 1, 1),
    datetime(2030, 1, 1),
    nested(100_000),
    CYCLE,
    print,
]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("payload", NO_CODEC_CARRIES, ids=lambda payload: type(payload).__name__)
def test_what_no_codec_carries_is_refused(payload, codec):
    assert "want what" in str(refusal(payload, codec))


@pytest.mark.parametrize(
    "payload",
    [
        b"x",
        float("nan"),
        [float("inf")],
        {"a": -math.inf},
        datetime(2030, 1, 1, tzinfo=UTC),
        {1: 2},
        {None: 1},
        {True: 1},
        {1.5: 1},
        {"a": [{b"k": 1}]},
        {(1,): 1},
        nested(MAX_JSON_DEPTH + 2),
    ],
    ids=lambda payload: ascii(payload)[:30],
)
def test_what_json_alone_cannot_carry_is_refused(payload):
    assert 'codec="msgpack"' in str(refusal(payload, "json"))
    encode(payload, "msgpack")


def test_depth():
    for codec, depth in (("msgpack", 500), ("json", MAX_JSON_DEPTH)):
        assert roundtrip(nested(depth), codec) == nested(depth)
    refusal(nested(MAX_JSON_DEPTH + 2), "json")


def test_shared_branches_are_counted_not_written_out():
    payload: list = [0] * 10
    for _ in range(50):
        payload = [payload] * 10  # 10^51 values
    refusal(payload, "json")


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit(codec):
    overhead = len(encode("x" * 1000, codec)[1]) - 1000
    fits = "x" * (2000 - overhead)
    assert len(encode(fits, codec, limit_bytes=2000)[1]) == 2000
    error = refusal(fits + "x", codec, limit_bytes=2000)
    assert error.got == "2,001 bytes"
    assert "at most 2,000 bytes once encoded: store it elsewhere and send a reference" in error.want
    refusal("é" * 33_000, codec)
    assert roundtrip("é" * 32_000, codec) == "é" * 32_000


def test_a_refusal_does_not_show_the_payload():
    for codec in CODECS:
        assert "hunter2" not in str(refusal({"password": "hunter2", "x": {1}}, codec))


@pytest.mark.parametrize("codec", ["xml", "MSGPACK", "", None, 1, MSGPACK])
def test_an_unknown_codec_is_refused(codec):
    with pytest.raises(InvalidSchedule, match='want "msgpack" or "json"') as caught:
        encode(1, codec)
    assert caught.value.field == "codec"


def test_json_is_compact_utf8():
    assert encode({"é": [1, 2.5, None, "😀"]}, "json")[1] == '{"é":[1,2.5,null,"😀"]}'.encode()


def test_encoding_in_many_threads_at_once():
    results = []

    def work(number):
        results.append(all(roundtrip({"n": number, "i": i}, "msgpack")["i"] == i for i in range(500)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 8


def test_encoding_while_encoding():
    class Nosy(dict):
        def items(self):
            encode({"other": "payload" * 100})
            return super().items()

    assert roundtrip([1, Nosy(a=2), 3], "msgpack") == [1, {"a": 2}, 3]


# -------------------------------------------------------------------------------------------- hostile bytes


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x01\x01",
        b"\x92\x01",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xa2\xff\xff",
        b"\x91" * 100_000,
        b"\xdc\xff\xff" * 3000,
        b"\x81\x80\x01",
        b"\x81\x91\x80\x01",
        b"\xd6\xff\x00",
        b"\xc7\x0c\xff" + b"\xff" * 12,
        b"\xc7\x03\xff\xff\xff\xff",
        b"\xc7\x0c\xff\x00\x00\x00\x00" + b"\x7f" * 8,
    ],
    ids=lambda data: data[:8].hex(),
)
def test_bytes_that_are_no_msgpack(data):
    with pytest.raises(
        ContractBroken, match=rf"payload: {len(data):,} bytes are not one msgpack value \(.+\)"
    ):
        decode(MSGPACK, data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"NaN",
        b"-Infinity",
        b'{"a":Infinity}',
        b"\xff",
        b"[1]x",
        b"[" * 100_000,
        b"1" * 5000,
        b"\xef\xbb\xbf1",
        "[1]".encode("utf-16"),
        b"{1:2}",
        b"'a'",
    ],
    ids=lambda data: data[:8].hex(),
)
def test_bytes_that_are_no_json(data):
    with pytest.raises(ContractBroken, match=rf"payload: {len(data):,} bytes are not one JSON value \(.+\)"):
        decode(JSON, data)


@given(st.binary(max_size=200), st.sampled_from([MSGPACK, JSON]))
def test_any_bytes_are_a_value_or_refused(data, content_type):
    with contextlib.suppress(ContractBroken):
        decode(content_type, data)


@pytest.mark.parametrize(
    "content_type", ["text/plain", "", "application/msgpack; v=1", "x" * 10_000, "\x1b[31m"]
)
def test_an_unknown_content_type_is_named(content_type):
    with pytest.raises(ContractBroken) as caught:
        decode(content_type, b"\xc0")
    assert ascii(content_type[:100]) in str(caught.value)
    assert len(str(caught.value)) < 300


# --------------------------------------------------------------------------------------------- correlations


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=32))
def test_a_correlation_comes_back_in_its_own_order(correlation):
    data = encode_correlation(correlation)
    assert list(decode_correlation(data).items()) == list(correlation.items())
    assert json.loads(data) == correlation


def test_an_empty_correlation():
    assert encode_correlation({}) == encode_correlation(OrderedDict()) == b"{}"
    assert decode_correlation(b"{}") == decode_correlation(b"") == {}
    assert encode_correlation({"": ""}) == b'{"":""}'


@pytest.mark.parametrize(
    "correlation",
    [
        None,
        "a=b",
        [("a", "b")],
        [],
        0,
        b"",
        {"a": 1},
        {1: "a"},
        {"a": None},
        {"a": b"b"},
        {"a": {}},
        {"\ud800": "a"},
        {"a": "\udfff"},
        {str(n): "" for n in range(MAX_CORRELATION_ENTRIES + 1)},
        {"a": "x" * MAX_CORRELATION_BYTES},
        {"a": 10**5000},
    ],
    ids=lambda value: ascii(type(value).__name__),
)
def test_refused_correlations(correlation):
    with pytest.raises(InvalidSchedule, match="want a mapping of str to str") as caught:
        encode_correlation(correlation)
    assert caught.value.field == "correlation"
    assert len(str(caught.value)) < 500


def test_the_bounds_of_a_correlation():
    whole = {str(n): "" for n in range(MAX_CORRELATION_ENTRIES)}
    assert decode_correlation(encode_correlation(whole)) == whole
    fits = {"a": "x" * (MAX_CORRELATION_BYTES - len('{"a":""}'))}
    assert len(encode_correlation(fits)) == MAX_CORRELATION_BYTES


@pytest.mark.parametrize(
    "data", [b"[]", b"1", b"null", b'{"a":1}', b'{"a":null}', b"{", b"\xff", b'{"a":NaN}']
)
def test_bytes_that_are_no_correlation(data):
    with pytest.raises(ContractBroken, match="correlation: "):
        decode_correlation(data)
