"""Payloads and correlations to bytes and back.

Two codecs, named by the content type that travels with the event:

``application/msgpack`` (the default)
    None, bool, int of 64 bits, float (NaN and infinities too), str, bytes, list, dict with keys of any of these, and
    aware datetimes, which become a msgpack timestamp and come back in UTC. bytes and str stay apart.
``application/json``
    None, bool, int of 64 bits, finite float, str, list, dict with str keys: written compactly, as UTF-8.

In both, a tuple is carried as a list, and a value of a subclass (an IntEnum, an OrderedDict, a namedtuple) as its base.
A tuple as a msgpack map key comes back as a tuple. Nothing is changed silently beyond that: what a codec cannot carry
is refused. A payload that is missing is None, and cannot be told from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

import msgpack

from timerq.errors import ContractBroken, InvalidSchedule
from timerq.model import Codec

MSGPACK = "application/msgpack"
JSON = "application/json"

DEFAULT_LIMIT_BYTES = 65_536
"""The most bytes an encoded payload may have, unless a setting says otherwise."""

MAX_JSON_DEPTH = 100
"""How deeply a JSON payload may be nested. Msgpack has a limit of its own, 511 or more."""

MAX_CORRELATION_ENTRIES = 32
MAX_CORRELATION_BYTES = 4096
"""A correlation's bounds; the bytes are those of its JSON text."""

# What encoders raise on what they cannot carry; RuntimeError: a dict that another thread changes meanwhile.
_UNFIT = (TypeError, ValueError, OverflowError, RuntimeError)

_WANT_MSGPACK = (
    "want what msgpack carries: None, bool, int of 64 bits, float, str, bytes, list, dict, aware datetime, "
    "nested at most 500 deep"
)
_WANT_JSON = (
    "want what JSON carries: None, bool, int of 64 bits, finite float, str, list, dict with str keys, "
    f'nested at most {MAX_JSON_DEPTH} deep; or use codec="msgpack"'
)
_WANT_CORRELATION = (
    "want a mapping of str to str: "
    f"at most {MAX_CORRELATION_ENTRIES} entries and {MAX_CORRELATION_BYTES:,} bytes of JSON"
)

_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1

_json_text = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")
).encode


def encode(
    payload: Any, codec: Codec = "msgpack", *, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> tuple[str, bytes]:
    """The content type and the bytes of ``payload``.

    Raises `InvalidSchedule` naming ``payload`` for a value the codec cannot carry or that takes more than
    ``limit_bytes`` bytes, and naming ``codec`` for an unknown one.
    """
    if codec == "msgpack":
        content_type = MSGPACK
        # Not shared: a packer is neither thread-safe nor re-entrant, and a new one costs 0.1 µs.
        packer = msgpack.Packer(datetime=True)
        try:
            data = packer.pack(payload)
        except _UNFIT as error:
            raise InvalidSchedule("payload", _kind(payload), f"{_WANT_MSGPACK} ({_reason(error)})") from error
        if len(data) <= limit_bytes:
            return content_type, data
    elif codec == "json":
        content_type = JSON
        _check_json(payload, limit_bytes)
        try:
            data = _json_text(payload).encode()
        except _UNFIT as error:
            raise InvalidSchedule("payload", _kind(payload), f"{_WANT_JSON} ({_reason(error)})") from error
        if len(data) <= limit_bytes:
            return content_type, data
    else:
        raise InvalidSchedule("codec", codec, 'want "msgpack" or "json"')
    _refuse_size(f"{len(data):,} bytes", limit_bytes)


def decode(content_type: str, data: bytes) -> Any:
    """The payload in ``data``: what `encode` was given, with lists for tuples and UTC for other zones.

    Raises `ContractBroken` for bytes that are not one whole value of ``content_type``, and for a content type timerq
    does not know; whoever wrote that event must say how to read it.
    """
    if content_type == MSGPACK:
        try:
            try:
                return msgpack.unpackb(data, raw=False, strict_map_key=False, timestamp=3)
            except TypeError:  # a list as a map key: the one thing the fast way cannot read
                return msgpack.unpackb(
                    data, raw=False, strict_map_key=False, timestamp=3, object_pairs_hook=_hashable_keys
                )
        except (*_UNFIT, msgpack.UnpackException) as error:
            raise ContractBroken(
                f"payload: {len(data):,} bytes are not one msgpack value ({_reason(error)})"
            ) from error
    if content_type == JSON:
        try:
            return _json_value(data.decode())
        except _UNFIT as error:
            raise ContractBroken(
                f"payload: {len(data):,} bytes are not one JSON value ({_reason(error)})"
            ) from error
    raise ContractBroken(f"payload: content type {content_type[:100]!a} is neither {MSGPACK} nor {JSON}")


def encode_correlation(correlation: Mapping[str, str]) -> bytes:
    """``correlation`` as a JSON object, in its own order; an empty one is ``{}``.

    Raises `InvalidSchedule` naming ``correlation`` for anything but a mapping of str to str within the bounds.
    """
    if not correlation and isinstance(correlation, dict):
        return b"{}"
    _check_correlation(correlation)
    try:
        data = _json_text(dict(correlation)).encode()
    except _UNFIT as error:  # lone surrogates
        raise InvalidSchedule(
            "correlation", correlation, f"{_WANT_CORRELATION} ({_reason(error)})"
        ) from error
    if len(data) > MAX_CORRELATION_BYTES:
        raise InvalidSchedule("correlation", f"{len(data):,} bytes", _WANT_CORRELATION)
    return data


def decode_correlation(data: bytes) -> dict[str, str]:
    """The mapping in ``data``; no bytes at all are an empty one. Raises `ContractBroken` for anything else."""
    if data in (b"{}", b""):
        return {}
    try:
        correlation = _json_value(data.decode())
    except _UNFIT as error:
        raise ContractBroken(f"correlation: {len(data):,} bytes are not JSON ({_reason(error)})") from error
    if not isinstance(correlation, dict) or not all(isinstance(text, str) for text in correlation.values()):
        raise ContractBroken("correlation: not a JSON object of texts")
    return correlation


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_json_value = json.JSONDecoder(parse_constant=_refuse_constant).decode


def _kind(payload: object) -> str:
    """What came, without its content: a payload may be secret, and an exception must survive a pickle."""
    return f"a value of type {type(payload).__name__}"


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _refuse_size(size: str, limit_bytes: int) -> NoReturn:
    want = f"want at most {limit_bytes:,} bytes once encoded: store it elsewhere and send a reference"
    raise InvalidSchedule("payload", size, want)


def _check_json(payload: object, limit_bytes: int) -> None:
    """Refuse what the json module would change silently (keys), or could never finish (cycles, shared branches)."""
    level: list[Any] = [payload]
    seen = 1
    for _ in range(MAX_JSON_DEPTH + 1):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                for key in value:
                    if not isinstance(key, str):
                        raise InvalidSchedule("payload", f"a key of type {type(key).__name__}", _WANT_JSON)
                inner: Any = value.values()
            elif isinstance(value, (list, tuple)):
                inner = value
            elif isinstance(value, int) and not _MIN_INT <= value <= _MAX_INT:
                raise InvalidSchedule("payload", "an int of more than 64 bits", _WANT_JSON)
            else:
                continue
            seen += len(inner)
            if seen > limit_bytes:  # a value takes a byte at least
                _refuse_size(f"more than {limit_bytes:,} values", limit_bytes)
            below.extend(inner)
        if not below:
            return
        level = below
    raise InvalidSchedule("payload", f"{_kind(payload)} nested deeper than that", _WANT_JSON)


def _check_correlation(correlation: object) -> None:
    if not isinstance(correlation, Mapping):
        raise InvalidSchedule("correlation", correlation, _WANT_CORRELATION)
    if len(correlation) > MAX_CORRELATION_ENTRIES:
        raise InvalidSchedule("correlation", f"{len(correlation):,} entries", _WANT_CORRELATION)
    for key, text in correlation.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise InvalidSchedule("correlation", {key: text}, _WANT_CORRELATION)


def _hashable_keys(pairs: Any) -> dict[Any, Any]:
    return {_hashable(key): value for key, value in pairs}


def _hashable(key: Any) -> Any:
    return tuple(map(_hashable, key)) if type(key) is list else key
