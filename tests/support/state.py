"""The whole state of a Redis, key by key, and what must hold in it whatever was done before."""

from __future__ import annotations

from typing import Any

NUL = b"\0"
State = dict[bytes, Any]
PARKED_MS = 10**15


def dump(client: Any) -> State:
    """Every key's value: a hash as a dict, a zset as a dict of floats, a stream as a list of (id, fields), a text."""
    names = sorted(client.keys())
    pipeline = client.pipeline(transaction=False)
    for name in names:
        pipeline.type(name)
    types = [bytes(kind) for kind in pipeline.execute()] if names else []
    for name, kind in zip(names, types, strict=True):
        if kind == b"hash":
            pipeline.hgetall(name)
        elif kind == b"zset":
            pipeline.zrange(name, 0, -1, withscores=True)
        elif kind == b"stream":
            pipeline.xrange(name)
        elif kind == b"list":
            pipeline.lrange(name, 0, -1)
        else:
            assert kind == b"string", (name, kind)
            pipeline.get(name)
    values = pipeline.execute() if names else []
    return {
        name: dict(value) if kind == b"zset" else value
        for name, kind, value in zip(names, types, values, strict=True)
    }


def parts(state: State, tag: bytes) -> dict[bytes, Any]:
    """The keys of one partition, without their tag."""
    front = tag + b":"
    return {name[len(front) :]: value for name, value in state.items() if name.startswith(front)}


def check_structure(state: State, tags: tuple[bytes, ...]) -> None:
    """What holds in every partition after every script: no index entry without a record, no record without its entries.

    Not for a state into which a test has put something by hand.
    """
    for tag in tags:
        keys = parts(state, tag)
        records = {name[4:]: value for name, value in keys.items() if name.startswith(b"sch:")}
        due: dict[bytes, float] = {}
        for name, members in keys.items():
            if name.startswith(b"due:"):
                for id in members:
                    assert id.split(NUL)[0] == name[4:], f"{id!r} waits under another tenant"
                due |= members
        owned = {
            (name[4:], id) for name, members in keys.items() if name.startswith(b"own:") for id in members
        }
        assert set(keys.get(b"keys", {})) == set(records), "keys and records differ"
        assert owned == {
            (id.split(NUL)[0] + NUL + id.split(NUL)[2], id) for id in records if id.split(NUL)[2]
        }, "an owner's index and the records differ"
        waiting = {id for id, record in records.items() if record[b"s"][:1] != b"p"}
        assert set(due) == waiting, "what waits and the due sets differ"
        for id, record in records.items():
            state_letter, _, at, _, _ = record[b"s"].split(b" ")
            if state_letter == b"a":
                looks = [int(at), int(at) + PARKED_MS]  # or its stream is full
                # it waits until the event before is handled, or its time is up
                if record.get(b"u", b"").endswith(b" w"):
                    looks.append(int(record[b"u"].split(b" ")[1]))
                assert due[id] in looks, f"{id!r} is armed for {at!r} and scored {due[id]}"
        heads = {
            name[4:]: min(members.values()) for name, members in keys.items() if name.startswith(b"due:")
        }
        assert keys.get(b"heads", {}) == heads, "heads are not the earliest of the due sets"
        for id, tries in keys.get(b"held", {}).items():
            assert records[id][b"s"][:1] in b"hc", f"{id!r} is in held and not held"
            assert tries >= 1
        for id, record in records.items():
            if record[b"s"][:1] == b"h":
                assert id in keys[b"held"]
        for name, value in keys.items():
            assert b"e+" not in name
            if isinstance(value, dict):
                for word in value.values():
                    assert isinstance(word, float) or not _exponent(word), (name, word)


def _exponent(word: bytes) -> bool:
    """Whether a number in a text was written by Lua's own hand."""
    return any(part[:1].isdigit() and b"e+" in part and part.replace(b"e+", b"").replace(b".", b"").isdigit()
               for part in word.split(b" "))  # fmt: skip
