"""What timerq must do, as plain Python: dictionaries and loops, one class for one partition.

It knows what each verb does to the stored state and what it answers, and renders that state as the keys that Redis must
hold. Times are milliseconds of a manual clock. Outcomes are tuples that begin with a status word. Every calendar here
is a grid: its slots lie ``every`` ms apart.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import msgpack

from timerq import Event
from timerq.model import Policy, Rule

Id = tuple[str, str, str]
"""(tenant, key, owner or "")"""

LEASE_MS = 5000
HELD_MAX_MS = 32_000
FOREVER = 253_402_300_799_999
USUAL = Policy()


def id_bytes(id: Id) -> bytes:
    return "\0".join(id).encode()


class Running(NamedTuple):
    """An event that is not handled yet."""

    event_id: str
    deadline: int
    waited_for: bool = False  # an occurrence waits for it


@dataclass(frozen=True)
class Definition:
    """What a schedule is, without what has happened to it."""

    event: Event
    kind: str = "o"  # o once, e plain interval, c calendar
    every: int = 0  # how far its slots lie apart
    window: tuple[int | None, int | None, int | None, int | None] = (None, None, None, None)
    rule: Rule | None = None
    policy: Policy | None = None

    @property
    def until(self) -> int:
        return FOREVER if self.window[0] is None else self.window[0]

    @property
    def ways(self) -> Policy:
        return self.policy or USUAL

    @property
    def is_cron(self) -> bool:
        return self.rule is not None and self.rule.cron != ()

    @property
    def waits_for_handling(self) -> bool:
        """Whether the next one comes an interval after the last one was handled."""
        return self.ways.fixed_delay and self.ways.ack_group is not None

    @property
    def tracks(self) -> bool:
        """Whether somebody has to say that its events are handled."""
        return self.ways.overlap != "allow" or self.ways.pause_after is not None or self.waits_for_handling

    def first(self, now: int) -> tuple[int, int]:
        """The first occurrence of a calendar that is made now, and the one after it (0: none).

        A cron's is later than now, an interval's may be due at once. Where none is left, it is behind `until`.
        """
        _, _, start, _ = self.window
        if self.is_cron:
            at = max(now + 1, start or 0)
            phase = 0
        else:
            assert start is not None or self.rule is not None
            at = max(now, start or 0)
            phase = start or 0 if self.rule is None else self.rule.anchor_ms or 0
        at += (phase - at) % self.every
        following = at + self.every
        if at > self.until:
            return self.until + 1, 0
        return at, following if following <= self.until else 0

    def fields(self) -> dict[str, bytes]:
        content, data = encode(self.event)
        every = self.every if self.kind == "e" else ""
        fields = {"d": f"{self.kind}{every} {self.event.stream} {content} {self.event.type}".encode()}
        if 64 < len(data) <= 256:
            for i in range(0, len(data), 64):
                fields["p" if i == 0 else f"p{i // 64}"] = data[i : i + 64]
        else:
            fields["p"] = data
        if self.event.correlation:
            fields["c"] = correlation(self.event)
        if self.window != (None, None, None, None):
            fields["w"] = " ".join("-" if part is None else str(part) for part in self.window).encode()
        if self.calendar:
            fields["x"] = self.calendar.encode()
        if self.followed:
            fields["o"] = self.followed.encode()
        return fields

    @property
    def calendar(self) -> str:
        """What a planner is told."""
        rule, ways = self.rule or Rule(), self.ways
        words: dict[str, Any] = {}
        if rule.cron:
            words["cron"] = rule.cron[0] if len(rule.cron) == 1 else rule.cron
        elif self.kind == "c":
            words["every"] = self.every
        if rule.timezone != "UTC":
            words["tz"] = rule.timezone
        if rule.anchor_ms is not None:
            words["anchor"] = rule.anchor_ms
        if ways.misfire != "fire_once":
            words["misfire"] = ways.misfire
        if ways.grace_ms != USUAL.grace_ms:
            words["grace"] = ways.grace_ms
        if ways.max_catch_up != USUAL.max_catch_up:
            words["most"] = ways.max_catch_up
        return json.dumps(words, separators=(",", ":")) if words else ""

    @property
    def followed(self) -> str:
        """What the scripts are told of the policy."""
        ways = self.ways
        grace = ways.grace_ms if ways.misfire == "skip" else "-"
        text = f"{ways.overlap[0]} {ways.running_timeout_ms} {ways.fixed_delay:d} {ways.pause_after or 0} {grace}"
        text += f" {ways.ack_group or '-'}"
        return "" if text == "a 3600000 0 0 - -" else text


@dataclass
class Record:
    """One stored schedule."""

    definition: Definition
    state: str  # a, c, h, p
    version: int
    at: int
    following: int | None = None  # None: not known, 0: none
    n: int = 0
    by: str | None = None
    totals: tuple[int, int, int] | None = None  # fired, missed, skipped
    fires: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    running: Running | None = None
    failures: int = 0
    triggered: tuple[int, str] | None = None
    first: int | None = None
    missed: int | None = None  # a calendar has said of `at` how many later ones it stands for
    held: bool = False  # says why
    paused_by: tuple[str, str, str] | None = None  # who, why, when
    spoilt: bool = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["definition"], name)

    def fields(self) -> dict[bytes, bytes]:
        """The hash, but `e`, whose text is the server's."""
        following = "-" if self.following is None else self.following
        fields = self.definition.fields()
        fields["s"] = f"{self.state} {self.version} {self.at} {following} {self.n}".encode()
        texts: dict[str, str] = {}
        if self.by is not None:
            texts["b"] = self.by
        if self.totals is not None:
            texts["t"] = " ".join(map(str, self.totals))
        for slot, fire in self.fires.items():
            texts[f"l{slot}"] = " ".join(map(str, fire))
        if self.running is not None:
            texts["u"] = f"{self.running.event_id} {self.running.deadline}{' w' * self.running.waited_for}"
        if self.failures:
            texts["q"] = str(self.failures)
        if self.triggered is not None:
            texts["g"] = f"{self.triggered[0]} {self.triggered[1]}"
        if self.first is not None:
            texts["f"] = str(self.first)
        if self.missed is not None:
            texts["m"] = str(self.missed)
        if self.paused_by is not None:
            texts["z"] = "\0".join(self.paused_by)
        if self.spoilt:
            texts["j"] = "1"
        return {
            name.encode(): value.encode() if isinstance(value, str) else value
            for name, value in (fields | texts).items()
        }


def encode(event: Event) -> tuple[str, bytes]:
    if event.codec == "json":
        return "j", json.dumps(event.payload, separators=(",", ":"), ensure_ascii=False).encode()
    return "m", msgpack.packb(event.payload)


def correlation(event: Event) -> bytes:
    return json.dumps(event.correlation or {}, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True)
class Wanted:
    """One upsert, resolved: the first occurrence is `at` or, where that is None, `delay` ms from now."""

    id: Id
    definition: Definition
    at: int | None = None
    delay: int | None = None
    following: int | None = None
    mode: str = "replace"
    max_wait: int | None = None
    restart: bool = False
    reset: bool = False
    paused: bool | None = None
    if_version: int | None = None
    incarnation: int | None = None
    token: str | None = None
    by: str | None = None

    @property
    def lane(self) -> str:
        return self.id[2] or "\0" + self.id[1]

    @property
    def is_computed(self) -> bool:
        """Whether the client says when the first occurrence is."""
        return self.definition.kind == "c" and self.delay is None

    @property
    def body(self) -> Wanted:
        """What must be the same when it is said again with the same token."""
        body = replace(self, incarnation=None)
        return replace(body, at=None, delay=None, following=None) if self.definition.kind == "c" else body


@dataclass(frozen=True)
class Handed:
    """A schedule that fire gave to a calendar."""

    word: str
    id: Id
    version: int
    n: int
    at: int
    definition: Definition

    def plan(self, now: int) -> tuple[int, int, int, int]:
        """What becomes of it: the occurrence to publish or to arm (0: it has ended), the one after it (0: none), how
        many later ones it stands for, how many are left out.
        """
        ways, every, until = self.definition.ways, self.definition.every, self.definition.until

        def or_none(slot: int) -> int:
            return slot if slot <= until else 0

        overdue = range(self.at, min(now, until) + 1, every)
        if self.word == "refill" or not overdue:
            return self.at, or_none(self.at + every), 0, 0
        told = list(overdue)
        following = or_none(told[-1] + every)
        if ways.misfire == "catch_up":
            told = told[-ways.max_catch_up :]
            return told[0], or_none(told[0] + every), 0, len(overdue) - len(told)
        if ways.misfire == "skip":
            told = [slot for slot in told if slot >= now - ways.grace_ms]
            if not told:
                return following, or_none(following + every) if following else 0, 0, len(overdue)
        return told[0], following, len(told) - 1, len(overdue) - len(told)


class Going(NamedTuple):
    """Where a paused one goes on, and how many it leaves out."""

    at: int
    following: int | None
    skipped: int


class Edit(NamedTuple):
    """One change in place."""

    verb: str  # pause, resume, trigger, consume
    id: Id
    if_version: int | None = None
    by: str = ""
    note: str = ""
    going: Going | None = None


@dataclass
class ModelPartition:
    """One partition."""

    number: int
    records: dict[Id, Record] = field(default_factory=dict)
    scores: dict[Id, int] = field(default_factory=dict)
    held: dict[Id, int] = field(default_factory=dict)
    floors: dict[tuple[str, ...], int] = field(default_factory=dict)
    fired: set[Id] = field(default_factory=set)  # of which events are out that no record tells of
    perhaps: dict[Id, int] = field(default_factory=dict)  # floors that may be left though they are of no use
    once: dict[tuple[str, str, str], tuple[Wanted, str]] = field(default_factory=dict)
    run: dict[str, Id] = field(default_factory=dict)
    streams: dict[str, list[dict[str, str | bytes]]] = field(default_factory=dict)
    stream_seen: dict[str, int] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    log: list[tuple[str, bytes, int, int, str, str]] = field(default_factory=list)
    last: int | None = None
    counters: dict[str, int] = field(default_factory=dict)
    marks: dict[str, int] = field(default_factory=dict)
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
        floor = self.floor(w.id)
        if floor >= 0 and w.incarnation is not None and w.incarnation <= floor:
            return ("OWNER_GONE", floor), version
        if old and old.version <= floor:
            del self.records[w.id]
            self._score(w.id, None)
            self.held.pop(w.id, None)
            old = None
        used = self.once.get((w.id[0], w.lane, w.token)) if w.token is not None else None
        if used and int(used[1].split(" ")[0]) > floor:
            if used[0].body != w.body:
                return ("INVALID", "idempotency_key"), version
            first_version, first_at, first_state = used[1].split(" ")
            return ("DUPLICATE", int(first_version), int(first_at), first_state), version
        if w.if_version is not None and w.if_version != (old.version if old else 0):
            return ("VERSION_MISMATCH", old.version if old else 0), version
        if w.mode == "keep" and old:
            return ("KEPT", old.version, old.at, old.state), version
        kind = w.definition.kind
        due = now + w.delay if w.delay is not None else w.at
        assert due is not None
        record = Record(w.definition, "a", 0, 0, w.following, by=w.by)
        if kind == "o":
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
            if kind == "e" and due < now:
                due += math.ceil((now - due) / record.every) * record.every
            same = old and old.definition == w.definition and not old.spoilt
            if old and same and not w.restart and not w.reset:
                want = old.state
                if w.paused:
                    want = "p"
                elif w.paused is False and old.state == "p":
                    want = "a"
                if want != old.state:
                    if want == "p":
                        self._set_aside_no_more(w.id, old)
                    else:
                        self._let_go_on(old)
                    old.state = want
                    self._score(w.id, old.at if want == "a" else None)
                    self._log(now, "paused" if want == "p" else "resumed", w.id, old.version)
                return ("UNCHANGED", old.version, old.at, want), version
            if due > record.until:
                return ("INVALID", "until"), version
            limit = record.window[1]
            goes_on = old is not None and old.kind != "o"
            if old and goes_on and not w.reset:
                if limit is not None and old.totals and old.totals[0] >= limit:
                    return ("INVALID", "limit"), version
                record.totals, record.fires = old.totals, old.fires
            if w.is_computed and due < now:
                return ("LATE", now), version
            if old and goes_on:
                record.running, record.triggered, record.failures = old.running, old.triggered, old.failures
        if old and ((old.totals and not record.totals) or (old.triggered and not record.triggered)):
            self.fired.add(w.id)
        version += 1
        record.version, record.at = version, due
        record.state = "p" if w.paused or (old and old.state == "p" and w.paused is not False) else "a"
        self.records[w.id] = record
        self._score(w.id, due if record.state == "a" else None)
        if not old:
            return ("CREATED", version, due, record.state), version
        if record.state == "p":
            record.paused_by = old.paused_by
        elif old.state == "p":
            record.failures = 0
        self.held.pop(w.id, None)
        self._log(now, "replaced", w.id, version, str(old.version), w.by or "")
        return ("REPLACED", version, due, record.state, old.version, old.at), version

    def floor(self, id: Id) -> int:
        """The version up to which everything of its owner is dead; -1 for none."""
        return self.floors.get((id[0], id[2]), -1) if id[2] else -1

    # ------------------------------------------------------------------------------------------- other verbs

    def cancel(self, now: int, ids: Sequence[tuple[Id, int | None]], by: str = "") -> list[tuple[Any, ...]]:
        answers: list[tuple[Any, ...]] = []
        for id, if_version in ids:
            old = self.records.get(id)
            if if_version is not None and if_version != (old.version if old else 0):
                answers.append(("VERSION_MISMATCH", old.version if old else 0))
            elif old is None:
                self.floors[id] = self.last or 0
                answers.append(("NOT_PENDING",))
            else:
                self._cancel(now, id, old, by)
                answers.append(("CANCELLED", old.version, old.at))
        return answers

    def _cancel(self, now: int, id: Id, old: Record, by: str = "") -> None:
        if old.n or old.totals or old.triggered or id in self.fired:
            self.floors[id] = old.version
        else:
            self.perhaps[id] = old.version
        self._log(now, "cancelled", id, old.version, by=by)
        self._forget(id)

    def sweep(self, now: int, tenant: str, prefix: str, owner: str | None) -> int:
        found = self.select(tenant, prefix, owner)
        for id in found:
            self._cancel(now, id, self.records[id])
        return len(found)

    def select(self, tenant: str, prefix: str = "", owner: str | None = None) -> list[Id]:
        """Ids in key order."""
        found = [
            id
            for id in self.records
            if id[0] == tenant and id[1].startswith(prefix) and owner in (None, id[2])
        ]
        return sorted(found, key=id_bytes)

    def edit(self, now: int, items: Sequence[Edit]) -> list[tuple[Any, ...]]:
        before = self.head()
        self._request: int | None = None
        answers: list[tuple[Any, ...]] = []
        for item in items:
            old = self.records.get(item.id)
            if old and old.version <= self.floor(item.id):
                answers.append(("NOT_PENDING",))
            elif item.if_version is not None and item.if_version != (old.version if old else 0):
                answers.append(("VERSION_MISMATCH", old.version if old else 0))
            elif old is None:
                answers.append(("NOT_PENDING",))
            elif item.verb in ("trigger", "consume"):
                answers.append(self._trigger(now, old, item, len(items)))
            elif (item.verb == "pause") == (old.state == "p") and not (item.verb == "pause" and item.note):
                answers.append(("UNCHANGED", old.version, old.at))
            elif item.verb == "pause":
                self._pause(now, item.id, old, item.note, item.by)
                answers.append(("PAUSED", old.version, old.at))
            else:
                self._let_go_on(old)
                if item.going is not None:
                    old.at, old.following = item.going.at, item.going.following
                    self._skip(now, item.id, old, item.going.skipped, "resumed from now")
                old.state = "a"
                self._score(item.id, old.at)
                self._log(
                    now, "resumed", item.id, old.version, "from now" if item.going else item.note, item.by
                )
                answers.append(("RESUMED", old.version, old.at))
        self._wake(before)
        return answers

    def _trigger(self, now: int, old: Record, item: Edit, of: int) -> tuple[Any, ...]:
        if old.spoilt:
            return ("BROKEN",)
        if item.verb == "consume" and old.kind != "o":
            return ("INVALID", "consume")
        if old.triggered and old.triggered[0] == now // 1000:  # two in one second are one
            event_id, outcome = old.triggered[1], "DUPLICATE"
        else:
            if self._request is None:
                self._reserve(now, 5 + 9 * of)
                self._request = self.first_version - 1
            self._request += 1
            event_id, outcome = f"{self.number}-{old.version}-t{self._request}", "TRIGGERED"
            if not self._emit(now, item.id, old, event_id, now, 0, 0):
                return ("BROKEN",)
            self._log(now, "triggered", item.id, old.version, event_id, item.by)
            if item.verb == "trigger":
                old.triggered = now // 1000, event_id
        if item.verb == "consume":
            self._forget(item.id, fired=True)
        return (outcome, old.version, event_id)

    def _pause(self, now: int, id: Id, r: Record, note: str, by: str) -> None:
        self._set_aside_no_more(id, r)
        r.state = "p"
        r.paused_by = by, note, str(now)
        self._score(id, None)
        self._log(now, "paused", id, r.version, note, by)

    def _let_go_on(self, r: Record) -> None:
        """What a paused one forgets when it is resumed: who paused it, its failures, what a calendar said of `at`."""
        if r.missed is not None:
            r.missed = r.following = None
        r.paused_by, r.failures = None, 0

    def _set_aside_no_more(self, id: Id, r: Record) -> None:
        self.held.pop(id, None)
        r.held = False

    def publish(self, now: int, items: Sequence[tuple[Id, Event]]) -> list[tuple[Any, ...]]:
        self._reserve(now, len(items))
        answers: list[tuple[Any, ...]] = []
        for i, (id, event) in enumerate(items):
            version = self.first_version + i
            event_id = f"{self.number}-{version}-0"
            record = Record(Definition(event), "a", version, now)
            fine = self._emit(now, id, record, event_id, now, 0, 0)
            answers.append(("PUBLISHED", version, event_id) if fine else ("BROKEN",))
        return answers

    def backfill(self, now: int, id: Id, start: int, end: int, by: str) -> tuple[Any, ...]:
        """Publishes the occurrences from `start` to `end`, both included."""
        r = self.records.get(id)
        if r is None:
            return ("NOT_PENDING", 0)
        if r.kind == "o" or r.ways.fixed_delay:
            return ("INVALID", "key")
        first = max(start, r.window[2] or 0)
        slots = range(first + (r.at - first) % r.every, min(end, r.until) + 1, r.every)
        if not slots:
            return ("PUBLISHED", r.version, 0)
        if r.spoilt:
            return ("BROKEN",)
        if r.version <= self.floor(id):
            return ("VERSION_MISMATCH", 0)
        self.marks["fired_ms"] = now
        for at in slots:
            if not self._emit(now, id, r, f"{self.number}-{r.version}-b{at}", at, 0, 0, mark="backfill"):
                return ("BROKEN",)
            self.fired.add(id)
        self._log(now, "backfilled", id, r.version, f"{len(slots)} from {slots[0]}", by)
        return ("PUBLISHED", r.version, len(slots))

    def done(self, now: int, tenant: str, event_id: str, error: str | None) -> tuple[Any, ...]:
        """An event is handled, or its handling failed."""
        id = self.run.get(event_id)
        if id is None or id[0] != tenant:
            return ("NOT_PENDING",)
        r = self.records.get(id)
        if r and r.spoilt:
            return ("BROKEN",)
        before = self.head()
        self.marks["done_ms"] = now
        del self.run[event_id]
        if r is None:
            return ("NOT_PENDING",)
        was = r.running if r.running and r.running.event_id == event_id else None
        if was:
            if was.deadline <= now:
                return ("NOT_PENDING",)
            r.running = None
        elif event_id.split("-")[1] != str(r.version):
            return ("NOT_PENDING",)
        r.failures = 0 if error is None else r.failures + 1
        if error is not None:
            self._log(now, "failed", id, r.version, f"{event_id} {error}")
        if was and r.waits_for_handling:
            # an event of the version before: this one has its start, still to come unless it was put off
            starts = not r.n and r.at != was.deadline + r.every
            r.at = max(r.at, now + r.every) if starts else now + r.every
            if r.at > r.until:
                self._forget(id, fired=True)
                self._ended(now, id, r, "until")
                return ("DONE", r.version, r.at)
            if r.state != "p":
                self._score(id, r.at)
        elif was and was.waited_for and r.state == "a":
            self._score(id, r.at)
        outcome = "DONE"
        if error is not None and r.failures >= (r.ways.pause_after or math.inf) and r.state != "p":
            outcome = "PAUSED"
            why = f"{r.failures} failure{'' if r.failures == 1 else 's'} in a row: {error}"
            self._pause(now, id, r, why, "timerq")
            self._report(now, "schedule.paused", id, r, f"p{now}", r.at, r.n, why)
        self._wake(before)
        return (outcome, r.version, r.at)

    # ------------------------------------------------------------------------------------------- firing

    def fire(self, now: int, batch: int, lag: int) -> tuple[int, int, int, int | None, list[Handed]]:
        """published, held, dropped, wait_us, what is handed over"""
        cutoff = now - lag
        heads = sorted((score, tenant.encode(), tenant) for tenant, score in self.heads().items())
        tenants = [tenant for score, _, tenant in heads if score <= cutoff][:batch]
        if tenants:
            self.marks["fired_ms"] = now
        count = {"published": 0, "held": 0, "dropped": 0}
        handed: list[Handed] = []
        for turn, tenant in enumerate(tenants):
            share = math.ceil(batch / (len(tenants) - turn))
            for id in self.due(tenant, cutoff)[:share]:
                what = self._fire_one(now, id, handed)
                if what:
                    count[what] += 1
                batch -= 1
        self._count("fired", count["published"])
        self._count("dropped", count["dropped"])
        head = self.head()
        wait = None if head is None else max(0, (head + lag - now) * 1000)
        return count["published"], count["held"], count["dropped"], wait, handed

    def due(self, tenant: str, until: int) -> list[Id]:
        """The tenant's waiting ids in the order in which they are looked at."""
        found = [
            (score, id_bytes(id), id)
            for id, score in self.scores.items()
            if id[0] == tenant and score <= until
        ]
        return [id for _, _, id in sorted(found)]

    def _fire_one(self, now: int, id: Id, handed: list[Handed]) -> str | None:
        """What became of one that is to be looked at."""
        r = self.records[id]
        if r.spoilt:
            return self._hold(now, id, r, now, 0)
        if id[2] and r.version <= self.floors.get((id[0], id[2]), -1):
            self._log(now, "dropped", id, r.version, "its owner is gone")
            self._forget(id, fired=True)
            return "dropped"
        if r.kind == "o":
            if not self._emit(now, id, r, f"{self.number}-{r.version}-1", r.at, 1, 0):
                return self._hold(now, id, r, now, 0)
            self._forget(id, fired=True)
            return "published"

        busy = self._running(now, id, r)
        if busy and r.ways.overlap == "queue":
            self._score(id, busy.deadline)
            if not busy.waited_for:
                r.running = busy._replace(waited_for=True)
                self._log(now, "queued", id, r.version, busy.event_id)
            return None
        if busy and r.waits_for_handling:
            r.at = busy.deadline + r.every
            self._score(id, r.at)
            return None
        if self._must_ask(now, r):
            r.state = "c"
            self._score(id, now + LEASE_MS)
            handed.append(Handed("claimed", id, r.version, r.n, r.at, r.definition))
            return None
        if r.waits_for_handling and r.at > r.until:
            self._ended(now, id, r, "until")
            self._forget(id, fired=True)
            return None

        stands_for, following = self._what_follows(now, r)
        ended = "last" if r.window[0] is None else "until"
        if busy:
            why = f"{busy.event_id} is not done"
            self._skip(now, id, r, 1 + stands_for, why)
            self._report(now, "schedule.skipped", id, r, f"s{r.at}", r.at, r.n, why)
        else:
            event_id = f"{self.number}-{r.version}-{r.n + 1}"
            if r.tracks:
                self.run[event_id] = id
            if not self._emit(now, id, r, event_id, r.at, r.n + 1, stands_for):
                return self._hold(now, id, r, now, 0)
            if stands_for:
                self._log(now, "missed", id, r.version, str(stands_for))
                self._count("missed", stands_for)
            if r.tracks:
                r.running = Running(event_id, now + r.ways.running_timeout_ms)
            fired, missed, skipped = r.totals or (0, 0, 0)
            r.fires = {**r.fires, fired % 10: (r.at, now, stands_for)}
            r.totals = fired + 1, missed + stands_for, skipped
            r.n += 1
            if r.window[1] is not None and r.totals[0] >= r.window[1]:
                following, ended = None, "limit"
        if following is None:
            self._ended(now, id, r, ended)
            self._forget(id, fired=True)
        else:
            self._set_aside_no_more(id, r)
            r.at, r.following, r.state, r.missed = following, None, "a", None
            self._score(id, following)
            if r.kind == "c":
                handed.append(Handed("refill", id, r.version, r.n, following, r.definition))
        return None if busy else "published"

    def _running(self, now: int, id: Id, r: Record) -> Running | None:
        """The event that keeps the next occurrence from being published."""
        if r.running is None or not (r.ways.overlap != "allow" or r.waits_for_handling):
            return None
        if r.running.deadline > now:
            return r.running
        self._log(now, "timed_out", id, r.version, r.running.event_id)
        self.run.pop(r.running.event_id, None)
        r.running = None
        return None

    def _must_ask(self, now: int, r: Record) -> bool:
        """Whether a calendar must say what becomes of the occurrence."""
        if r.kind != "c":
            return False
        if r.ways.misfire == "skip" and now - r.at > r.ways.grace_ms:
            return True
        return r.missed is None and (r.following is None or 0 < r.following <= now)

    def _what_follows(self, now: int, r: Record) -> tuple[int, int | None]:
        """How many later occurrences this one stands for, and the next one."""
        if r.kind == "c":
            return r.missed or 0, r.following or None
        if (
            r.ways.fixed_delay
        ):  # an interval after it is handled, which is now, or when its time is up at the latest
            at_best = now + r.every
            if at_best > r.until:
                return 0, None
            return 0, at_best + (r.ways.running_timeout_ms if r.waits_for_handling else 0)
        overdue = range(r.at + r.every, min(now, r.until) + 1, r.every)
        following = r.at + (len(range(r.at, now + 1, r.every)) or 1) * r.every
        return len(overdue), following if following <= r.until else None

    def _hold(self, now: int, id: Id, r: Record, at: int, n: int) -> str:
        tries = self.held.get(id, 0) + 1
        self.held[id] = tries
        r.state, r.held = "h", True
        self._score(id, now + min(1000 * 2 ** min(tries - 1, 10), HELD_MAX_MS))
        self._log(now, "held", id, r.version, "*")
        if tries == 1:
            self._report(now, "schedule.held", id, r, f"h{now}", at, n, "*")
        return "held"

    def advance(
        self, now: int, steps: Sequence[tuple[Handed, tuple[int, int, int, int], str | None]]
    ) -> list[str]:
        """What calendars said: each step is what was handed over, the plan, and why it is held."""
        before = self.head()
        answers = [self._advance(now, *step) for step in steps]
        self._wake(before)
        return answers

    def _advance(self, now: int, handed: Handed, plan: tuple[int, int, int, int], hold: str | None) -> str:
        r = self.records.get(handed.id)
        if r is None or (r.version, r.n, r.at) != (handed.version, handed.n, handed.at):
            return "STALE"
        at, following, missed, skipped = plan
        if hold is not None:
            if r.state != "c" and not (r.state == "a" and r.following is None):
                return "STALE"
            self._hold(now, handed.id, r, r.at, r.n)
        elif handed.word == "refill":
            if r.following is not None or r.state == "h":
                return "STALE"
            r.following = following
        elif r.state != "c":
            return "STALE"
        else:
            self._skip(
                now,
                handed.id,
                r,
                skipped,
                "over max_catch_up" if r.ways.misfire == "catch_up" else "too late",
            )
            if at == 0:
                self._ended(now, handed.id, r, "last" if r.window[0] is None else "until")
                self._forget(handed.id, fired=True)
                return "ADVANCED"
            r.state, r.at, r.following = "a", at, following
            r.missed = missed if at <= now else None
            self._score(handed.id, at)
            self._set_aside_no_more(handed.id, r)
        return "ADVANCED"

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
        meta = {name.encode(): str(value).encode() for name, value in (self.counters | self.marks).items()}
        if self.last is not None:
            meta[b"last"] = str(self.last).encode()
        return meta
