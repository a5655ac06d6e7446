"""What timerq must do, as plain Python: dictionaries and loops, one class for one partition.

It knows what each verb does to the stored state and what it answers, and renders that state as the keys that Redis must
hold. Times are milliseconds of a manual clock. Outcomes are tuples that begin with a status word.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgpack

from timerq import Event

Id = tuple[str, str, str]
"""(tenant, key, owner or "")"""

LEASE_MS = 5000
HELD_MAX_MS = 32_000
RETENTION_MS = 86_400_000


def id_bytes(id: Id) -> bytes:
    return "\0".join(id).encode()


@dataclass
class Record:
    """One stored schedule."""

    event: Event
    kind: str  # o, e, c
    state: str  # a, c, h, p
    version: int
    at: int
    following: int | None = None  # None: not known, 0: none
    n: int = 0
    every: int = 0
    window: tuple[int | None, int | None, int | None, int | None] = (None, None, None, None)
    x: str | None = None
    totals: tuple[int, int] | None = None
    first: int | None = None
    missed: int | None = None
    held: bool = False  # says why
    spoilt: bool = False

    @property
    def definition(self) -> tuple[Any, ...]:
        """What it is, without what has happened to it."""
        return self.event, self.kind, self.every, self.window, self.x, self.spoilt

    def fields(self) -> dict[bytes, bytes]:
        """The hash, but `e`, whose text is the server's."""
        following = "-" if self.following is None else self.following
        content, data = encode(self.event)
        every = self.every if self.kind == "e" else ""
        fields = {
            "s": f"{self.state} {self.version} {self.at} {following} {self.n}".encode(),
            "d": f"{self.kind}{every} {self.event.stream} {content} {self.event.type}".encode(),
        }
        if 64 < len(data) <= 256:
            for i in range(0, len(data), 64):
                fields["p" if i == 0 else f"p{i // 64}"] = data[i : i + 64]
        else:
            fields["p"] = data
        if self.event.correlation:
            fields["c"] = correlation(self.event)
        if self.window != (None, None, None, None):
            fields["w"] = " ".join("-" if part is None else str(part) for part in self.window).encode()
        if self.x is not None:
            fields["x"] = self.x.encode()
        if self.totals is not None:
            fields["t"] = f"{self.totals[0]} {self.totals[1]}".encode()
        if self.first is not None:
            fields["f"] = str(self.first).encode()
        if self.missed is not None:
            fields["m"] = str(self.missed).encode()
        if self.spoilt:
            fields["z"] = b"1"
        return {name.encode(): value for name, value in fields.items()}


def encode(event: Event) -> tuple[str, bytes]:
    if event.codec == "json":
        return "j", json.dumps(event.payload, separators=(",", ":"), ensure_ascii=False).encode()
    return "m", msgpack.packb(event.payload)


def correlation(event: Event) -> bytes:
    return json.dumps(event.correlation or {}, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True)
class Wanted:
    """One upsert, resolved: `when` is an instant (with `delay` None) or a delay."""

    id: Id
    event: Event
    kind: str = "o"
    at: int | None = None
    delay: int | None = None
    every: int = 0
    window: tuple[int | None, int | None, int | None, int | None] = (None, None, None, None)
    x: str | None = None
    following: int | None = None
    mode: str = "replace"
    max_wait: int | None = None
    restart: bool = False
    reset: bool = False
    paused: bool | None = None
    if_version: int | None = None
    incarnation: int | None = None
    token: str | None = None

    @property
    def lane(self) -> str:
        return self.id[2] or "\0" + self.id[1]


@dataclass(frozen=True)
class Handed:
    """A schedule that fire gave to a calendar."""

    word: str
    id: Id
    version: int
    n: int
    at: int
    x: str


@dataclass
class ModelPartition:
    """One partition."""

    number: int
    records: dict[Id, Record] = field(default_factory=dict)
    scores: dict[Id, int] = field(default_factory=dict)
    held: dict[Id, int] = field(default_factory=dict)
    floors: dict[tuple[str, ...], int] = field(default_factory=dict)
    once: dict[tuple[str, str, str], tuple[Wanted, str]] = field(default_factory=dict)
    streams: dict[str, list[dict[str, str | bytes]]] = field(default_factory=dict)
    stream_seen: dict[str, int] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    log: list[tuple[str, bytes, int, str]] = field(default_factory=list)
    last: int | None = None
    counters: dict[str, int] = field(default_factory=dict)
    fired_ms: int | None = None
    woken_at: int | None = None

    # ------------------------------------------------------------------------------------------- upsert

    def upsert(self, now: int, items: Sequence[Wanted]) -> list[tuple[Any, ...]]:
        before = self.head()
        self._reserve(now, len(items))
        version = self.first_version - 1
        answers = []
        for wanted in items:
            answer, version = self._upsert(now, wanted, version)
            if wanted.token is not None and answer[0] in ("CREATED", "REPLACED", "UNCHANGED", "KEPT"):
                key = (wanted.id[0], wanted.lane, wanted.token)
                self.once[key] = wanted, f"{answer[1]} {answer[2]} {answer[3]}"
            answers.append(answer)
        self._wake(before)
        return answers

    def _upsert(self, now: int, w: Wanted, version: int) -> tuple[tuple[Any, ...], int]:
        old = self.records.get(w.id)
        if w.token is not None and (used := self.once.get((w.id[0], w.lane, w.token))):
            if used[0] != w:
                return ("INVALID", "idempotency_key"), version
            first_version, first_at, first_state = used[1].split(" ")
            return ("DUPLICATE", int(first_version), int(first_at), first_state), version
        floor = self.floors.get((w.id[0], w.id[2])) if w.id[2] else None
        if floor is not None and w.incarnation is not None and w.incarnation <= floor:
            return ("OWNER_GONE", floor), version
        if w.if_version is not None and w.if_version != (old.version if old else 0):
            return ("VERSION_MISMATCH", old.version if old else 0), version
        if w.mode == "keep" and old:
            return ("KEPT", old.version, old.at, old.state), version
        due = w.at if w.delay is None else now + w.delay
        assert due is not None
        record = Record(w.event, w.kind, "a", 0, 0, w.following, every=w.every, window=w.window, x=w.x)
        if w.kind == "o":
            if old and w.mode in ("earliest", "latest") and old.kind != "o":
                return ("INVALID", "mode"), version
            if w.max_wait is not None:
                record.first = now
                if old and old.first is not None:
                    record.first = old.first
                elif old and old.kind == "o":  # armed without max_wait: its version tells when
                    record.first = old.version // 1000
                due = min(due, record.first + w.max_wait)
            if old and ((w.mode == "earliest" and due >= old.at) or (w.mode == "latest" and due <= old.at)):
                return ("KEPT", old.version, old.at, old.state), version
        else:
            until, limit, _, _ = w.window
            if w.kind == "e" and due < now:
                due += math.ceil((now - due) / w.every) * w.every
            if until is not None and due > until:
                return ("INVALID", "until"), version
            if old and old.kind != "o" and not w.reset:
                if limit is not None and old.totals and old.totals[0] >= limit:
                    return ("INVALID", "limit"), version
                record.totals = old.totals
            same = old and old.definition == record.definition
            if old and same and not w.restart and not w.reset and old.state != "h":
                want = old.state
                if w.paused:
                    want = "p"
                elif w.paused is False and old.state == "p":
                    want = "a"
                if want != old.state:
                    old.state = want
                    self._score(w.id, old.at if want == "a" else None)
                    self._log("paused" if want == "p" else "resumed", w.id, old.version)
                return ("UNCHANGED", old.version, old.at, want), version
        version += 1
        record.version, record.at = version, due
        record.state = "p" if w.paused or (old and old.state == "p" and w.paused is not False) else "a"
        self.records[w.id] = record
        self._score(w.id, due if record.state == "a" else None)
        if not old:
            return ("CREATED", version, due, record.state), version
        self.held.pop(w.id, None)
        self._log("replaced", w.id, version, str(old.version))
        return ("REPLACED", version, due, record.state, old.version, old.at), version

    # ------------------------------------------------------------------------------------------- other verbs

    def cancel(self, ids: Sequence[tuple[Id, int | None]]) -> list[tuple[Any, ...]]:
        answers: list[tuple[Any, ...]] = []
        for id, if_version in ids:
            old = self.records.get(id)
            if if_version is not None and if_version != (old.version if old else 0):
                answers.append(("VERSION_MISMATCH", old.version if old else 0))
            elif old is None:
                self.floors[id] = self.last or 0
                answers.append(("NOT_PENDING",))
            else:
                self._cancel(id, old)
                answers.append(("CANCELLED", old.version, old.at))
        return answers

    def _cancel(self, id: Id, old: Record) -> None:
        if old.n:
            self.floors[id] = old.version
        self._log("cancelled", id, old.version)
        self._forget(id)

    def sweep(self, tenant: str, prefix: str, owner: str | None) -> int:
        found = self.select(tenant, prefix, owner)
        for id in found:
            self._cancel(id, self.records[id])
        return len(found)

    def select(self, tenant: str, prefix: str = "", owner: str | None = None) -> list[Id]:
        """Ids in key order."""
        found = [
            id
            for id in self.records
            if id[0] == tenant and id[1].startswith(prefix) and owner in (None, id[2])
        ]
        return sorted(found, key=id_bytes)

    def edit(self, now: int, items: Sequence[tuple[str, Id, int | None]]) -> list[tuple[Any, ...]]:
        before = self.head()
        request: int | None = None
        answers: list[tuple[Any, ...]] = []
        for verb, id, if_version in items:
            old = self.records.get(id)
            if if_version is not None and if_version != (old.version if old else 0):
                answers.append(("VERSION_MISMATCH", old.version if old else 0))
            elif old is None:
                answers.append(("NOT_PENDING",))
            elif verb in ("trigger", "consume"):
                if old.spoilt:
                    answers.append(("BROKEN",))
                    continue
                if verb == "consume" and old.kind != "o":
                    answers.append(("INVALID", "consume"))
                    continue
                if request is None:
                    self._reserve(now, 5 + 2 * len(items))
                    request = self.first_version - 1
                request += 1
                event_id = f"{self.number}-{old.version}-t{request}"
                if not self._emit(now, id, old, event_id, now, 0, 0):
                    answers.append(("BROKEN",))
                    continue
                if verb == "consume":
                    self._forget(id)
                answers.append(("TRIGGERED", old.version, event_id))
            elif (verb == "pause") == (old.state == "p"):
                answers.append(("UNCHANGED", old.version, old.at))
            elif verb == "pause":
                old.state, old.held = "p", False
                self.held.pop(id, None)
                self._score(id, None)
                self._log("paused", id, old.version)
                answers.append(("PAUSED", old.version, old.at))
            else:
                old.state = "a"
                self._score(id, old.at)
                self._log("resumed", id, old.version)
                answers.append(("RESUMED", old.version, old.at))
        self._wake(before)
        return answers

    def publish(self, now: int, items: Sequence[tuple[Id, Event]]) -> list[tuple[Any, ...]]:
        self._reserve(now, len(items))
        answers: list[tuple[Any, ...]] = []
        for i, (id, event) in enumerate(items):
            version = self.first_version + i
            event_id = f"{self.number}-{version}-0"
            record = Record(event, "o", "a", version, now)
            fine = self._emit(now, id, record, event_id, now, 0, 0)
            answers.append(("PUBLISHED", version, event_id) if fine else ("BROKEN",))
        return answers

    # ------------------------------------------------------------------------------------------- firing

    def fire(self, now: int, batch: int, lag: int) -> tuple[int, int, int, int | None, list[Handed]]:
        """published, held, dropped, wait_us, what is handed over"""
        cutoff = now - lag
        heads = sorted((score, tenant.encode(), tenant) for tenant, score in self.heads().items())
        tenants = [tenant for score, _, tenant in heads if score <= cutoff][:batch]
        if tenants:
            self.fired_ms = now
        count = {"fired": 0, "missed": 0, "dropped": 0}
        held = 0
        handed: list[Handed] = []
        for turn, tenant in enumerate(tenants):
            share = math.ceil(batch / (len(tenants) - turn))
            for id in self.due(tenant, cutoff)[:share]:
                held += self._fire_one(now, id, count, handed)
                batch -= 1
        for name, by in count.items():
            if by:
                self.counters[name] = self.counters.get(name, 0) + by
        head = self.head()
        wait = None if head is None else max(0, (head + lag - now) * 1000)
        return count["fired"], held, count["dropped"], wait, handed

    def due(self, tenant: str, until: int) -> list[Id]:
        """The tenant's waiting ids in the order in which they are looked at."""
        found = [
            (score, id_bytes(id), id)
            for id, score in self.scores.items()
            if id[0] == tenant and score <= until
        ]
        return [id for _, _, id in sorted(found)]

    def _fire_one(self, now: int, id: Id, count: dict[str, int], handed: list[Handed]) -> int:
        r = self.records[id]
        if r.spoilt:
            return self._hold(now, id, r)
        if id[2] and r.version <= self.floors.get((id[0], id[2]), -1):
            self._log("dropped", id, r.version, "its owner is gone")
            self._forget(id)
            count["dropped"] += 1
            return 0
        if r.kind == "c" and (r.following is None or 0 < r.following <= now):
            r.state = "c"
            self._score(id, now + LEASE_MS)
            handed.append(Handed("claimed", id, r.version, r.n, r.at, r.x or ""))
            return 0
        following: int | None = None
        missed = 0
        if r.kind == "e":
            until, limit, _, _ = r.window
            missed = max(0, (now - r.at) // r.every)
            following = r.at + (missed + 1) * r.every
            if until is not None:
                missed = min(missed, (until - r.at) // r.every)
                following = None if following > until else following
            if limit is not None and (r.totals or (0, 0))[0] + 1 >= limit:
                following = None
        elif r.kind == "c":
            missed = r.missed or 0
            following = r.following or None
        if not self._emit(now, id, r, f"{self.number}-{r.version}-{r.n + 1}", r.at, r.n + 1, missed):
            return self._hold(now, id, r)
        count["fired"] += 1
        count["missed"] += missed
        if r.kind != "o" and missed:
            self._log("missed", id, r.version, str(missed))
        if following is None:
            if r.kind != "o":
                self._log("ended", id, r.version)
            self._forget(id)
            return 0
        fired, missed_before = r.totals or (0, 0)
        r.totals = fired + 1, missed_before + missed
        r.at, r.following, r.n, r.state = following, None, r.n + 1, "a"
        r.missed, r.held = None, False
        self.held.pop(id, None)
        self._score(id, following)
        if r.kind == "c":
            handed.append(Handed("refill", id, r.version, r.n, following, r.x or ""))
        return 0

    def _hold(self, now: int, id: Id, r: Record) -> int:
        tries = self.held.get(id, 0) + 1
        self.held[id] = tries
        r.state, r.held = "h", True
        self._score(id, now + min(1000 * 2 ** min(tries - 1, 10), HELD_MAX_MS))
        self._log("held", id, r.version, "*")
        return 1

    def advance(self, now: int, steps: Sequence[tuple[Handed, int, int, str | None]]) -> list[str]:
        """Each step: what was handed over, following, missed, why it is held."""
        before = self.head()
        answers = []
        for handed, following, missed, hold in steps:
            r = self.records.get(handed.id)
            answer = "STALE"
            if r and (r.version, r.n) == (handed.version, handed.n):
                if handed.word == "refill" and hold is None:
                    if r.at == handed.at and r.following is None:
                        r.following = following
                        answer = "ADVANCED"
                elif r.state == "c":
                    answer = "ADVANCED"
                    if hold is not None:
                        self._hold(now, handed.id, r)
                    else:
                        r.state, r.at, r.following, r.missed = "a", handed.at, following, missed
                        self._score(handed.id, r.at)
                        if self.held.pop(handed.id, None):
                            r.held = False
            answers.append(answer)
        self._wake(before)
        return answers

    # ------------------------------------------------------------------------------------------- parts

    def _reserve(self, now: int, count: int) -> None:
        self.first_version = max((self.last or 0) + 1, now * 1000)
        self.last = self.first_version + count - 1

    def _score(self, id: Id, score: int | None) -> None:
        if score is None:
            self.scores.pop(id, None)
        else:
            self.scores[id] = score

    def _forget(self, id: Id) -> None:
        del self.records[id]
        self.scores.pop(id, None)
        self.held.pop(id, None)

    def _log(self, what: str, id: Id, version: int, note: str = "") -> None:
        self.log.append((what, id_bytes(id), version, note))

    def _emit(self, now: int, id: Id, r: Record, event_id: str, at: int, n: int, missed: int) -> bool:
        stream = r.event.stream
        if stream in self.broken:
            return False
        content, data = encode(r.event)
        event: dict[str, str | bytes] = {
            "id": event_id, "type": r.event.type, "key": id[1], "tenant": id[0], "owner": id[2], "at": str(at),
            "fired_ms": str(now), "n": str(n), "version": str(r.version), "missed": str(missed), "payload": data,
            "content_type": "application/json" if content == "j" else "application/msgpack",
            "correlation": correlation(r.event),
        }  # fmt: skip
        self.streams.setdefault(stream, []).append(event)
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
        for stream, events in self.streams.items():
            keys[f"s:{stream}".encode()] = [
                {
                    name.encode(): value.encode() if isinstance(value, str) else value
                    for name, value in event.items()
                }
                for event in events
            ]
        for stream in self.broken:
            keys[f"s:{stream}".encode()] = b"broken"
        for stream, seen in self.stream_seen.items():
            put("streams", stream, seen)
        return keys

    def meta(self) -> dict[bytes, bytes]:
        """What changes in the partition's meta."""
        meta = {name.encode(): str(by).encode() for name, by in self.counters.items()}
        if self.last is not None:
            meta[b"last"] = str(self.last).encode()
        if self.fired_ms is not None:
            meta[b"fired_ms"] = str(self.fired_ms).encode()
        return meta
