"""The words of the model: what a schedule is, what is stored of it, and what is asked for."""

from __future__ import annotations

import json
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
    results: dict[int, str] = field(default_factory=dict)  # what consumers said of a fire, in its slot
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
        for slot, result in self.results.items():
            texts[f"r{slot}"] = result
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
    incarnation: int | None = None
