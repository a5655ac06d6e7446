"""What one partition holds: the state of the model, the parts its verbs are made of, and that state as Redis keys."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.support.model_words import Id, Record, Wanted, correlation, encode, id_bytes


class Published(dict[str, str | bytes]):
    """An event on a stream."""

    entry = b""
    """Its place there, once that is known."""

    def fields(self) -> dict[bytes, bytes]:
        return {
            name.encode(): value.encode() if isinstance(value, str) else value for name, value in self.items()
        }

    def word(self, name: str) -> str:
        """A field that is a text; empty where there is none."""
        value = self.get(name, "")
        return value if isinstance(value, str) else value.decode()


@dataclass(frozen=True)
class Hold:
    """Who holds an event."""

    consumer: str
    delivery: int
    attempt: str
    failed: int = 0  # when it first failed
    event: str = "-"
    at: str = "0"
    id: str = ""
    past: tuple[str, ...] = ()  # a line for each failure

    @property
    def is_suspect(self) -> bool:
        """Whether this attempt counts only if it is said to begin: nobody knows what the holder before it had done."""
        return self.attempt[0] == "0" and len(self.attempt) > 1

    def __str__(self) -> str:
        return (
            f"{self.consumer} {self.delivery} {self.attempt} {self.failed} {self.event} {self.at} {self.id}"
        )


@dataclass
class Group:
    """A group of consumers of one stream. Each event is unread, pending (held or waiting), or has met its fate."""

    exists: bool = False  # for Redis: it goes with its stream
    read: bytes = b"0-0"
    pending: dict[bytes, str] = field(default_factory=dict)  # entry -> consumer
    leases: dict[bytes, int] = field(default_factory=dict)
    retries: dict[bytes, int] = field(default_factory=dict)
    holds: dict[bytes, Hold] = field(default_factory=dict)
    dead: list[dict[bytes, bytes]] | None = None
    reader: tuple[str, int] | None = None
    sharers: set[str] = field(default_factory=set)  # who is counted among those that share the leads
    seen: int | None = None
    fates: dict[bytes, str] = field(default_factory=dict)  # entry -> acked, stale, gone, dead, or another's

    def settled(self, entry: bytes, fate: str) -> None:
        """Nobody waits for it any more."""
        del self.pending[entry]
        self.fates[entry] = fate
        self.put_away(entry)

    def put_away(self, entry: bytes) -> None:
        self.leases.pop(entry, None)
        self.retries.pop(entry, None)
        self.holds.pop(entry, None)

    def lost(self) -> None:
        """Its stream has gone, and it with it; what is kept elsewhere stays until somebody reads."""
        self.exists, self.read = False, b"0-0"
        self.pending.clear()
        self.fates.clear()

    def begins(self) -> None:
        """It is made anew, or there is nothing to be made for."""
        for kept in (self.leases, self.retries, self.holds):
            kept.clear()

    def keys(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "lease": {entry: float(until) for entry, until in self.leases.items()},
            "retry": {entry: float(until) for entry, until in self.retries.items()},
            "hold": {entry: str(hold).encode() for entry, hold in self.holds.items()}
            | {
                entry + b"!": "\n".join(hold.past).encode() for entry, hold in self.holds.items() if hold.past
            },
        }
        found = {kind: value for kind, value in found.items() if value}
        if self.dead is not None:
            found["dead"] = self.dead
        if self.reader is not None:
            found["reader"] = f"{self.reader[0]} {self.reader[1]}".encode()
        return found


def place_of(entry: bytes) -> tuple[int, int]:
    """What the entries of a stream are in order of."""
    ms, _, seq = entry.partition(b"-")
    return int(ms), int(seq)


@dataclass
class Store:
    """What one partition holds."""

    number: int
    records: dict[Id, Record] = field(default_factory=dict)
    scores: dict[Id, int] = field(default_factory=dict)
    held: dict[Id, int] = field(default_factory=dict)
    floors: dict[tuple[str, ...], int] = field(default_factory=dict)
    fired: set[Id] = field(default_factory=set)  # of which events are out that no record tells of
    perhaps: dict[Id, int] = field(default_factory=dict)  # floors that may be left though they are of no use
    once: dict[tuple[str, str, str], tuple[Wanted, str]] = field(default_factory=dict)
    run: dict[str, Id] = field(default_factory=dict)
    streams: dict[str, list[Published]] = field(default_factory=dict)
    stream_seen: dict[str, int] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    groups: dict[tuple[str, str], Group] = field(default_factory=dict)
    # owners -> the floor of a sweep not ended yet
    unswept: dict[tuple[str, str], int] = field(default_factory=dict)
    # events that were waited for -> when they were handled
    handled: dict[str, int] = field(default_factory=dict)
    log: list[tuple[str, bytes, int, int, str, str]] = field(default_factory=list)
    last: int | None = None
    counters: dict[str, int] = field(default_factory=dict)
    marks: dict[str, int] = field(default_factory=dict)
    woken_at: int | None = None

    # ------------------------------------------------------------------------------------------- parts

    def _ended(self, now: int, id: Id, r: Record, why: str) -> None:
        self._log(now, "ended", id, r.version, f"{why} {(r.totals or (0,))[0]}")

    def _reserve(self, now: int, count: int) -> None:
        self.first_version = max((self.last or 0) + 1, now * 1000)
        self.last = self.first_version + count - 1

    def _score(self, id: Id, score: int | None) -> None:
        if score is None:
            self.scores.pop(id, None)
        else:
            self.scores[id] = score

    def _forget(self, id: Id, *, fired: bool = False) -> None:
        if fired:
            self.fired.add(id)
        del self.records[id]
        self.scores.pop(id, None)
        self.held.pop(id, None)

    def _count(self, counter: str, by: int) -> None:
        if by:
            self.counters[counter] = self.counters.get(counter, 0) + by

    def _skip(self, now: int, id: Id, r: Record, count: int, why: str) -> None:
        """Leaves out so many occurrences for good."""
        if count:
            fired, missed, skipped = r.totals or (0, 0, 0)
            r.totals = fired, missed, skipped + count
            self._count("skipped", count)
            self._log(now, "skipped", id, r.version, f"{count} {why}")

    def _log(self, now: int, what: str, id: Id, version: int, note: str = "", by: str = "") -> None:
        self.log.append((what, id_bytes(id), version, now, note, by))

    def _emit(
        self,
        now: int,
        id: Id,
        r: Record,
        event_id: str,
        at: int,
        n: int,
        missed: int,
        mark: str | None = None,
    ) -> bool:
        content, data = encode(r.event)
        event: dict[str, str | bytes] = {
            "id": event_id, "type": r.event.type, "n": str(n), "version": str(r.version), "at": str(at),
            "missed": str(missed), "payload": data, "correlation": correlation(r.event),
            "content_type": "application/json" if content == "j" else "application/msgpack",
        }  # fmt: skip
        if mark:
            event[mark] = "1"
        return self._put(now, r.event.stream, id, event)

    def _report(
        self, now: int, event_type: str, id: Id, r: Record, suffix: str, at: int, n: int, why: str
    ) -> None:
        """Tells operators, where that is possible; in ASCII, since nobody knows where a text was cut."""
        why = bytes(byte if byte < 128 else ord("?") for byte in why.encode()).decode()
        self._put(now, "errors", id, {
            "id": f"{self.number}-{r.version}-{suffix}", "type": event_type, "n": str(n), "version": str(r.version),
            "at": str(at), "missed": "0", "correlation": b"{}", "content_type": "application/json",
            "payload": b"*" if why == "*" else json.dumps({"reason": why}, separators=(",", ":")).encode(),
        })  # fmt: skip

    def _put(self, now: int, stream: str, id: Id, event: dict[str, str | bytes]) -> bool:
        if stream in self.broken:
            return False
        event |= {"tenant": id[0], "key": id[1], "owner": id[2], "fired_ms": str(now)}
        self.streams.setdefault(stream, []).append(Published(event))
        self.stream_seen.setdefault(stream, now)
        return True

    def heads(self) -> dict[str, int]:
        heads: dict[str, int] = {}
        for id, score in self.scores.items():
            heads[id[0]] = min(score, heads.get(id[0], score))
        return heads

    def head(self) -> int | None:
        return min(self.scores.values(), default=None)

    def _wake(self, before: int | None) -> None:
        head = self.head()
        if head is not None and (before is None or head < before):
            self.woken_at = head

    # ------------------------------------------------------------------------------------------- as Redis holds it

    def learn_floors(self, real: dict[bytes, Any]) -> None:
        """Which floors there are of those that may be; and takes out of ``real`` what only helps with them."""
        for id, version in self.perhaps.items():
            if real.get(b"floor:" + id_bytes(id)) == b"%d" % version:
                self.floors[id] = version
        self.perhaps.clear()
        for name in (b"fired_new", b"fired", b"fired_before"):
            real.pop(name, None)
        assert set(real.pop(b"floors", {})) <= {"\0".join(parts).encode() for parts in self.floors}

    def keys(self) -> dict[bytes, Any]:
        """Every key without its tag, but meta, log, wake and the sessions; `e` and the digests are left out."""
        keys: dict[bytes, Any] = {}

        def put(name: str, member: bytes | str, score: int) -> None:
            member = member.encode() if isinstance(member, str) else member
            keys.setdefault(name.encode(), {})[member] = float(score)

        for id, record in self.records.items():
            keys[b"sch:" + id_bytes(id)] = record.fields()
            put("keys", id_bytes(id), 0)
            if id[2]:
                put(f"own:{id[0]}\0{id[2]}", id_bytes(id), 0)
        for id, score in self.scores.items():
            put(f"due:{id[0]}", id_bytes(id), score)
        for tenant, score in self.heads().items():
            put("heads", tenant, score)
        for id, tries in self.held.items():
            put("held", id_bytes(id), tries)
        for parts, floor in self.floors.items():
            keys[("floor:" + "\0".join(parts)).encode()] = str(floor).encode()
        for token, (_, answer) in self.once.items():
            keys[("once:" + "\0".join(token)).encode()] = {b"answer": answer.encode()}
        for event_id, id in self.run.items():
            keys[f"run:{event_id}".encode()] = id_bytes(id)
        for stream, events in self.streams.items():
            keys[f"s:{stream}".encode()] = [event.fields() for event in events]
        for stream in self.broken:
            keys[f"s:{stream}".encode()] = b"broken"
        for (tenant, owner), ceiling in self.unswept.items():
            put("owners", f"{tenant}\0{owner}\0", -ceiling)
        for (stream, name), group in self.groups.items():
            of = f"{stream}\0{name}"
            if group.seen is not None:
                put("groups", of, group.seen)
            keys.update({f"{kind}:{of}".encode(): value for kind, value in group.keys().items()})
        for stream, seen in self.stream_seen.items():
            put("streams", stream, seen)
        return keys

    def meta(self) -> dict[bytes, bytes]:
        """What changes in the partition's meta."""
        meta = {name.encode(): str(value).encode() for name, value in (self.counters | self.marks).items()}
        if self.last is not None:
            meta[b"last"] = str(self.last).encode()
        return meta
