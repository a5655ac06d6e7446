"""Random verbs of two tenants against a plain model: after each step the whole state of Redis is the model's.

Time is a manual clock; any reply may be lost and its command sent again; old requests arrive late; streams break and
records are spoilt; calendars answer late, twice, or not at all; events are handled, fail, or are forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import fakeredis
import hypothesis.strategies as st
import pytest
import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.support.connections import Wire
from tests.support.model import Definition, Edit, Going, Handed, Id, ModelPartition, Record, Wanted, id_bytes
from tests.support.state import check_structure, dump, parts
from timerq import Event, Handle, InvalidSchedule, QueueUnavailable, TimerQueue, Upsert, keys
from timerq.commands import upsert as upserting
from timerq.commands.dispatch import Advance, Handover, advance, ask, fire
from timerq.commands.items import one
from timerq.embedded import EmbeddedRedis
from timerq.model import Backfilled, Fire, Policy, Rule, State, Timing, to_datetime
from timerq.timing import plan

START = 1_750_000_000_000
TENANTS = ["A", "B"]
KEYS = ["a", "a*", "ab", "é:1", "b"]
OWNERS = ["", "o", "o1"]
POOL = [(tenant, key, owner) for key in KEYS for tenant in TENANTS for owner in OWNERS]
STATES = {"a": State.ARMED, "c": State.CLAIMED, "h": State.HELD, "p": State.PAUSED}
WORDS = [name for name in Upsert._fields if name not in ("key", "event")]
EVENTS = [
    Event("t", {"n": 1}),
    Event("t", {"n": 1, "l": [], "é": 1.5}, codec="json", correlation={"trace": "1", "é": "ü"}),
    Event("u", b"x" * 100, stream="audit"),
    Event("v", "y" * 230, stream="bad"),
    Event("w", stream="bad"),
]
CRONS: dict[tuple[str, ...], int] = {
    ("* * * * * *",): 1000,
    ("*/5 * * * * *",): 5000,
    ("0,30 * * * * *", "15-45/30 * * * * *"): 15_000,
}
"""Expressions, and how far (ms) the instants that they name lie apart."""

who = st.integers(0, 63)  # see Machine.id
events = st.sampled_from(EVENTS)
rarely = st.integers(0, 7).map(lambda n: n == 7)
offsets = st.sampled_from([-5000, -1, 0, 1, 2, 10, 250, 1000, 5000, 40_000])
intervals = st.sampled_from([1, 7, 250, 1000, 5000])
fences = st.sampled_from([None] * 9 + ["current", "current", "none", "stale"])
callers = st.sampled_from([None, None, "ann", "é"])


@st.composite
def wishes(draw: Any, kind: str | None = None) -> dict[str, Any]:
    """The words of an upsert; instants as offsets from now."""
    kind = kind or draw(st.sampled_from("ooec"))
    wish: dict[str, Any] = {"who": draw(who), "event": draw(events), "kind": kind, "fence": draw(fences)}
    wish["paused"] = draw(st.sampled_from([None] * 4 + [True, False]))
    wish["token"] = draw(st.sampled_from([None] * 8 + ["x", "y"]))
    wish["incarnation"] = draw(st.sampled_from([None] * 6 + ["old", "new"]))
    wish["mode"] = draw(st.sampled_from(["replace"] * 4 + ["keep"]))
    wish["by"] = draw(callers)
    if kind == "o":
        if draw(st.booleans()):
            wish["at"] = draw(offsets)
        else:
            wish["delay"] = draw(offsets.map(abs))
        wish["mode"] = draw(st.sampled_from(["replace"] * 3 + ["keep", "earliest", "latest"]))
        wish["max_wait"] = draw(st.sampled_from([None] * 3 + [0, 300, 2000]))
        return wish
    wish["restart"], wish["reset"] = draw(rarely), draw(rarely)
    wish["policy"] = draw(policies())
    ends = [3000, 20_000] if "fixed_delay" in wish["policy"] else [None] * 4 + [500, 3000, 20_000, 60_000]
    wish["until"] = draw(st.sampled_from([None, *ends]))
    wish["limit"] = draw(st.sampled_from([None] * 4 + [1, 2, 5]))
    if kind == "c":
        wish["cron"] = draw(st.sampled_from([None, None, *CRONS]))
        wish["timezone"] = draw(st.sampled_from([None, "Asia/Kathmandu"]))
        wish["policy"] |= draw(catch_ups)
        # what a client that believes it is earlier says, and one that cannot tell what comes behind the first
        wish["behind"] = draw(st.sampled_from([0] * 5 + [1, 6000]))
        wish["following"] = draw(st.sampled_from([None] * 5 + ["-", "0"]))
    wish["every"] = draw(intervals) if wish.get("cron") is None else CRONS[wish["cron"]]
    start = draw(st.sampled_from(["", "", "start", "initial", "anchor"]))
    if start in ("start", "anchor"):
        wish[start] = draw(offsets)
    elif start == "initial":
        wish["initial"] = draw(offsets.map(abs))
    return wish


@st.composite
def policies(draw: Any) -> dict[str, Any]:
    """The words that say what is to wait for what."""
    style = draw(st.sampled_from(["", "", "skip", "queue", "queue", "failures", "delay", "delay"]))
    if not style:
        return {}
    words: dict[str, Any] = {
        "ack_group": draw(st.sampled_from([None, "g", "g"])),
        "running_timeout": draw(st.sampled_from([None, 300, 2000, 20_000])),
        "pause_after": draw(st.sampled_from([1, 2] if style == "failures" else [None, None, 1, 2])),
    }
    if style == "delay":
        if words["ack_group"] is None and words["pause_after"] is None:
            del words["running_timeout"]
        return words | {"fixed_delay": True}
    return words if style == "failures" else words | {"overlap": style}


catch_ups: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({"misfire": "fire_once"}),
    st.fixed_dictionaries({"misfire": st.just("skip"), "grace": st.sampled_from([None, 0, 300, 2000])}),
    st.fixed_dictionaries({"misfire": st.just("catch_up"), "max_catch_up": st.sampled_from([None, 1, 2, 3])}),
)


def definition(wish: dict[str, Any], now: int) -> tuple[Definition, dict[str, Any]]:
    """What a recurring wish of now is: for the model, and in the words of an upsert."""
    every, policy, cron = wish["every"], dict(wish["policy"]), wish.get("cron")
    kind = wish["kind"]
    if cron is None and policy.get("misfire") == "fire_once":  # the scripts compute it themselves
        kind = "e"
        del policy["misfire"]
    if kind == "c" or "anchor" in wish or cron is not None:
        policy.pop("fixed_delay", None)
    if policy.keys() >= {"ack_group"} and not (
        policy.get("overlap") or policy.get("fixed_delay") or policy.get("pause_after")
    ):
        policy = {name: word for name, word in policy.items() if name in ("misfire", "grace", "max_catch_up")}
    start = None if wish.get("start") is None else now + wish["start"]
    anchor = None if cron or wish.get("anchor") is None else now + wish["anchor"]
    initial = None if cron else wish.get("initial")
    until = None if wish["until"] is None else max(now + wish["until"], start or 0)
    rule = None
    if cron:
        rule = Rule(cron=cron, timezone=wish["timezone"] or "UTC")
    elif anchor is not None:
        rule = Rule(anchor_ms=anchor % every)
    usual = Policy()
    given = Policy(
        misfire=policy.get("misfire", "fire_once"),
        grace_ms=usual.grace_ms if policy.get("grace") is None else policy["grace"],
        max_catch_up=policy.get("max_catch_up") or usual.max_catch_up,
        overlap=policy.get("overlap", "allow"),
        ack_group=policy.get("ack_group"),
        running_timeout_ms=policy.get("running_timeout") or usual.running_timeout_ms,
        fixed_delay=policy.get("fixed_delay", False),
        pause_after=policy.get("pause_after"),
    )
    window = (until, wish["limit"], start, initial)
    made = Definition(wish["event"], kind, every, window, rule, None if given == usual else given)
    named = {"until": until, "limit": wish["limit"], "start": start, **policy}
    if cron:
        return made, named | {"cron": cron, "timezone": wish["timezone"]}
    return made, named | {"every": every, "initial_delay": initial, "anchor": anchor}


GIVEN: dict[str, st.SearchStrategy[dict[str, Any]]] = {}
WEIGHTED: list[str] = []


def action(weight: int, **given: Any) -> Callable[[Any], Any]:
    """One thing that may happen; hypothesis's own rules are too seldom together in one history."""

    def keep(method: Any) -> Any:
        GIVEN[method.__name__] = st.fixed_dictionaries(given)
        WEIGHTED.extend([method.__name__] * weight)
        return method

    return keep


actions = st.deferred(
    lambda: st.sampled_from(WEIGHTED).flatmap(lambda name: st.tuples(st.just(name), GIVEN[name]))
)


class Machine(RuleBasedStateMachine):
    """The queue on one side, the model on the other."""

    partitions = 1

    @staticmethod
    def client() -> Any:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.redis = self.client()
        self.redis.flushall()
        self.wire = Wire(self.redis)
        self.queues: dict[str, TimerQueue] = {}
        for tenant in TENANTS:
            queue = TimerQueue("redis://unused", namespace="ns", tenant=tenant, clock=lambda: self.now)
            queue._link.connections = self.wire  # type: ignore[assignment]
            self.queues[tenant] = queue
        self.handed: list[Given] = []
        self.past: list[tuple[Wanted, Upsert, int | None]] = []
        self.begun: dict[
            tuple[bytes, int], tuple[int, Definition]
        ] = {}  # (id, version) -> its first occurrence
        self.handled: dict[str, int] = {}  # event -> when
        self.focus: Id = POOL[0]

    @initialize()
    def make(self) -> None:
        namespace = self.queues["A"].init(partitions=self.partitions, clock="manual")
        self.namespace = self.queues["B"].init(partitions=self.partitions)
        assert self.namespace == namespace
        self.model = [ModelPartition(p) for p in range(self.partitions)]
        self.metas = [self.redis.hgetall(keys.meta(tag)) for tag in namespace.tags]

    def teardown(self) -> None:
        self.redis.close()

    @rule(history=st.lists(actions, min_size=4, max_size=12))
    def go_on(self, history: list[tuple[str, dict[str, Any]]]) -> None:
        for name, given in history:
            getattr(self, name)(**given)
            self.the_whole_state_is_the_models()

    # ------------------------------------------------------------------------------------------- helpers

    def id(self, who: int, any_below: int = 16, states: str = "achp") -> Id:
        """A schedule: the last recurring one that was upserted, any that exists (in one of these states, where there
        are any), or any.
        """
        stored = {id: r.state for place in self.model for id, r in place.records.items()}
        if self.focus in stored and who % 2 and who >= any_below:
            return self.focus
        existing = sorted(stored, key=id_bytes)
        existing = [id for id in existing if stored[id] in states] or existing
        return existing[who % len(existing)] if existing and who >= any_below else POOL[who % len(POOL)]

    def place(self, id: Id) -> ModelPartition:
        return self.model[keys.partition_of(id[0].encode(), (id[2] or id[1]).encode(), self.partitions)]

    def version(self, id: Id, fence: str | None) -> int | None:
        if fence is None:
            return None
        old = self.place(id).records.get(id)
        current = old.version if old else 0
        return {"current": current, "none": 0, "stale": max(0, current - 1)}[fence]

    def wanted(self, wish: dict[str, Any]) -> tuple[Wanted, Upsert, int | None]:
        """A wish of now, for the model and for the queue."""
        id, kind, now = wish.get("id") or self.id(wish["who"], any_below=44), wish["kind"], self.now
        common: dict[str, Any] = {
            "mode": wish["mode"],
            "paused": wish["paused"],
            "if_version": self.version(id, wish["fence"]),
            "by": wish["by"],
        }
        incarnation = None
        if wish["incarnation"] and id[2]:
            floor = self.place(id).floors.get((id[0], id[2]), 5)
            incarnation = floor if wish["incarnation"] == "old" else floor + 1
        when: dict[str, Any] = {}
        named: dict[str, Any]
        if kind == "o":
            common["max_wait"] = wish["max_wait"]
            when = {"at": now + wish["at"]} if "at" in wish else {"delay": wish["delay"]}
            made, named = Definition(wish["event"]), {**when}
        else:
            common |= {"restart": wish["restart"], "reset": wish["reset"]}
            made, named = definition(wish, now)
            _, _, start, initial = made.window
            if made.kind == "e" and made.rule is not None:
                assert made.rule.anchor_ms is not None
                when = {"at": (start or 0) + (made.rule.anchor_ms - (start or 0)) % made.every}
            elif made.kind == "e" and start is not None:
                when = {"at": start}
            elif not made.is_cron and made.rule is None and start is None:
                when = {"delay": made.every if initial is None else initial}
        token = wish["token"]
        wanted = Wanted(id, made, token=token, incarnation=incarnation, **common, **when)
        words = Upsert(id[1], wish["event"], owner=id[2] or None, idempotency_key=token, **common, **named)
        return wanted, words, incarnation

    def item(
        self, wanted: Wanted, words: Upsert, incarnation: int | None, behind: int, following: str | None
    ) -> Any:
        scope = self.queues[wanted.id[0]]._open()
        believed = self.now - behind
        item = upserting.item(scope, words, incarnation=incarnation, now=lambda: believed)
        if following is not None:
            when, options, *rest = item.args
            told = str(options).split(" ")
            told[7] = following
            item.args = (when, " ".join(told), *rest)
        return item

    def answer(self, act: Callable[[], Any]) -> tuple[Any, ...]:
        """What a verb says, as the model's tuples."""
        try:
            return self.tell(act())
        except (InvalidSchedule, QueueUnavailable) as error:
            return self.tell(error)

    def tell(self, result: Any) -> tuple[Any, ...]:
        if isinstance(result, InvalidSchedule):
            return ("INVALID", result.field)
        if isinstance(result, QueueUnavailable):
            assert "Redis refused" in str(result) or "unknown field" in str(result)
            return ("BROKEN",)
        outcome = str(result.outcome)
        if isinstance(result, Backfilled):
            return (
                (outcome, result.version, result.published)
                if outcome == "PUBLISHED"
                else (outcome, result.published)
            )
        if hasattr(result, "replaced_version"):
            self.check_upserted(result)
            if result.at_ms is None:
                return (outcome, result.version)
            state = next(letter for letter, state in STATES.items() if state == result.state)
            answer: tuple[Any, ...] = (outcome, result.version, result.at_ms, state)
            return (
                answer if outcome != "REPLACED" else (*answer, result.replaced_version, result.replaced_at_ms)
            )
        if outcome in ("TRIGGERED", "DUPLICATE", "PUBLISHED"):
            return (outcome, result.version, result.event_id)
        if outcome in ("VERSION_MISMATCH",):
            return (outcome, result.version)
        return (outcome,) if outcome == "NOT_PENDING" else (outcome, result.version, result.at_ms)

    def check_upserted(self, result: Any) -> None:
        if result.at_ms is None:
            assert result.schedule is None
        elif isinstance(result, Handle):
            schedule = result.schedule
            assert schedule is not None
            assert (schedule.version, schedule.at_ms, schedule.state) == (
                result.version,
                result.at_ms,
                result.state,
            )

    # ------------------------------------------------------------------------------------------- verbs

    @action(6, wish=wishes())
    def upsert(self, wish: dict[str, Any]) -> None:
        self.do_upsert(*self.wanted(wish))

    @action(4, wish=wishes(kind="e"))
    def upsert_interval(self, wish: dict[str, Any]) -> None:
        self.do_upsert(*self.wanted(wish))

    @action(5, wish=wishes(kind="c"))
    def upsert_calendar(self, wish: dict[str, Any]) -> None:
        self.do_upsert(*self.wanted(wish), wish["behind"], wish["following"])

    @action(
        4,
        which=st.integers(0, 5),
        paused=st.sampled_from([None, None, True, False]),
        restart=rarely,
        reset=rarely,
        anew=st.booleans(),
    )
    def upsert_again(self, which: int, paused: bool | None, restart: bool, reset: bool, anew: bool) -> None:
        """The very definition of before, perhaps in another way."""
        if not self.past:
            return
        wanted, words, incarnation = self.past[-1 - which % len(self.past)]
        if anew:
            changes: dict[str, Any] = {"paused": paused, "if_version": None}
            if wanted.definition.kind != "o":
                changes |= {"restart": restart, "reset": reset}
            wanted = replace(wanted, token=None, **changes)
            words = words._replace(idempotency_key=None, **changes)
        self.do_upsert(wanted, words, incarnation)

    def do_upsert(
        self,
        wanted: Wanted,
        words: Upsert,
        incarnation: int | None,
        behind: int = 0,
        following: str | None = None,
    ) -> None:
        queue = self.queues[wanted.id[0]]
        if not wanted.is_computed:
            behind, following = 0, None
        if incarnation is None and behind == 0 and following is None:
            given = {name: getattr(words, name) for name in WORDS}
            real = self.answer(lambda: queue.upsert(words.key, words.event, **given))
        else:
            real = self.answer(
                lambda: queue._link.run(
                    one(queue._open(), self.item(wanted, words, incarnation, behind, following))
                )
            )
        expected = self.expect_upsert(wanted, self.now - behind, following)
        assert real == expected
        self.past.append((wanted, words, incarnation))

    def expect_upsert(self, wanted: Wanted, believed: int, following: str | None) -> tuple[Any, ...]:
        """What becomes of it where the client takes it for `believed`."""
        while True:
            timed = self.timed(wanted, believed)
            if following is not None:
                timed = replace(timed, following=None if following == "-" else 0)
            (answer,) = self.place(wanted.id).upsert(self.now, [timed])
            self.note_begin(wanted, answer)
            if answer[0] != "LATE":
                return answer
            believed, following = self.now, None

    def timed(self, wanted: Wanted, believed: int) -> Wanted:
        """With its first instants, where the client computes them."""
        if not wanted.is_computed:
            return wanted
        at, following = wanted.definition.first(believed)
        return replace(wanted, at=at, following=following)

    def note_begin(self, wanted: Wanted, answer: tuple[Any, ...]) -> None:
        made = wanted.definition
        if answer[0] in ("CREATED", "REPLACED"):
            self.begun[id_bytes(wanted.id), answer[1]] = answer[2], made
            if made.kind != "o":
                self.focus = wanted.id

    @action(
        1,
        tenant=st.sampled_from(TENANTS),
        many=st.lists(wishes(), min_size=1, max_size=6),
        bad=st.sampled_from([None, 0, 2]),
    )
    def upsert_many(self, tenant: str, many: list[dict[str, Any]], bad: int | None) -> None:
        wanted: list[Wanted] = []
        items = []
        for wish in many:
            mine = {**wish, "id": (tenant, *self.id(wish["who"])[1:]), "incarnation": None}
            want, words, _ = self.wanted(mine)
            wanted.append(self.timed(want, self.now))
            items.append(words)
        if bad is not None:
            items.insert(bad, Upsert("", EVENTS[0], delay=1))
        results = self.queues[tenant].upsert_many(items)
        real = [self.tell(result) for result in results]
        if bad is not None:
            assert real.pop(min(bad, len(real) - 1)) == ("INVALID", "key")
        expected = self.spread(wanted, lambda want: want.id, lambda place, some: place.upsert(self.now, some))
        assert real == expected
        for want, answer in zip(wanted, expected, strict=True):
            self.note_begin(want, answer)

    def spread(
        self, things: list[Any], id_of: Callable[[Any], Id], act: Callable[[Any, list[Any]], Any]
    ) -> list[Any]:
        """Answers in order of what each partition makes of its share."""
        answers: list[Any] = [None] * len(things)
        shares: dict[int, list[int]] = {}
        for position, thing in enumerate(things):
            shares.setdefault(self.place(id_of(thing)).number, []).append(position)
        for number, positions in shares.items():
            said = act(self.model[number], [things[position] for position in positions])
            for position, answer in zip(positions, said, strict=True):
                answers[position] = answer
        return answers

    @action(2, who=who, fence=fences, by=callers)
    def cancel(self, who: int, fence: str | None, by: str | None) -> None:
        id = self.id(who)
        version = self.version(id, fence)
        given: dict[str, Any] = {"owner": id[2] or None, "if_version": version, "by": by}
        real = self.answer(lambda: self.queues[id[0]].cancel(id[1], **given))
        (expected,) = self.place(id).cancel(self.now, [(id, version)], by or "")
        assert real == expected

    @action(
        1,
        tenant=st.sampled_from(TENANTS),
        owner=st.sampled_from(OWNERS),
        names=st.lists(st.sampled_from(KEYS), max_size=4),
    )
    def cancel_many(self, tenant: str, owner: str, names: list[str]) -> None:
        real = [self.tell(change) for change in self.queues[tenant].cancel_many(names, owner=owner or None)]
        pairs = [((tenant, name, owner), None) for name in names]
        assert real == self.spread(
            pairs, lambda pair: pair[0], lambda place, some: place.cancel(self.now, some)
        )

    @action(
        1,
        tenant=st.sampled_from(TENANTS),
        prefix=st.sampled_from(["", "a", "a*", "é"]),
        owner=st.sampled_from(OWNERS),
    )
    def cancel_prefix(self, tenant: str, prefix: str, owner: str) -> None:
        real = self.queues[tenant].cancel_prefix(prefix, owner=owner or None)
        assert real == sum(place.sweep(self.now, tenant, prefix, owner or None) for place in self.model)

    @action(1, tenant=st.sampled_from(TENANTS), owner=st.sampled_from(["o", "o1"]))
    def cancel_owner(self, tenant: str, owner: str) -> None:
        real = self.queues[tenant].cancel_owner(owner)
        assert real == sum(place.sweep(self.now, tenant, "", owner) for place in self.model)

    @action(
        6,
        who=who,
        verb=st.sampled_from(["pause"] * 3 + ["resume"] * 2 + ["go on"] * 3 + ["trigger"] * 2 + ["consume"]),
        fence=fences,
        by=callers,
        note=st.sampled_from([None, None, "why", "ü"]),
        then=st.sampled_from([None, "trigger", "consume"]),
    )
    def edit(
        self, who: int, verb: str, fence: str | None, by: str | None, note: str | None, then: str | None
    ) -> None:
        id = self.id(who, states="p" if verb in ("resume", "go on") else "ach")
        again = then is not None and verb in ("trigger", "consume")
        if again and (one_shots := self.such(lambda r: r.kind == "o")):
            id = one_shots[who % len(one_shots)]
        self.change(verb, id, self.version(id, fence), by, note)
        if again:
            self.change(str(then), id)

    def change(
        self, verb: str, id: Id, version: int | None = None, by: str | None = None, note: str | None = None
    ) -> None:
        queue = self.queues[id[0]]
        given: dict[str, Any] = {"owner": id[2] or None, "if_version": version, "by": by}
        if verb == "pause":
            given["note"] = note
        elif verb == "consume":
            given["consume"] = True
        elif verb == "go on":
            given["from_now"] = True
        method: Any = getattr(queue, {"consume": "trigger", "go on": "resume"}.get(verb, verb))
        real = self.answer(lambda: method(id[1], **given))
        said = Edit("resume" if verb == "go on" else verb, id, version, by or "", given.get("note") or "")
        assert real == self.expect_edit(said, from_now=verb == "go on")

    @action(
        4,
        which=st.integers(0, 31),
        how=st.sampled_from(["pause", "resume", "go on", "restart", "restart", "restart"]),
        steps=st.lists(st.sampled_from([0, 1, 250, 1000]), max_size=3),
    )
    def meddle_while_an_event_runs(self, which: int, how: str, steps: Sequence[int]) -> None:
        """Its schedule is paused (and resumed) or upserted, and then its next occurrence may be due."""
        running = self.such(lambda r: r.running is not None and r.running.deadline > self.now)
        waited_for = self.such(lambda r: r.running is not None and r.running.waited_for)
        found = waited_for or running if which % 2 else running
        if not found:
            return
        id = found[which % len(found)]
        if how == "restart":
            self.upsert_as_it_is(id, restart=True)
        else:
            self.change("pause", id)
        for step in steps:
            self.time_passes_and_what_is_due_fires(step, 200, 0, 0, 1, hold=False)
        if how in ("resume", "go on"):
            self.change(how, id)
            self.time_passes_and_what_is_due_fires(0, 200, 0, 0, 1, hold=False)

    @action(2, which=st.integers(0, 31), how=st.sampled_from(["upsert", "resume", "go on"]))
    def let_go_on(self, which: int, how: str) -> None:
        """One that is paused, rather after failures."""
        found = self.such(lambda r: r.state == "p" and r.failures > 0) or self.such(lambda r: r.state == "p")
        if found and how == "upsert":
            self.upsert_as_it_is(found[which % len(found)], restart=False)
        elif found:
            self.change(how, found[which % len(found)])

    def such(self, wanted: Callable[[Record], bool]) -> Sequence[Id]:
        """The schedules that are like this."""
        found = [id for place in self.model for id, r in place.records.items() if wanted(r)]
        return sorted(found, key=id_bytes)

    def upsert_as_it_is(self, id: Id, restart: bool) -> None:
        """The last definition that was said of it once more, and it is to go on."""
        if said := [past for past in self.past if past[0].id == id and past[0].definition.kind != "o"]:
            wanted, words, incarnation = said[-1]
            anew: dict[str, Any] = {
                "restart": restart,
                "if_version": None,
                "paused": False,
                "mode": "replace",
            }
            wanted = replace(wanted, token=None, **anew)
            self.do_upsert(wanted, words._replace(idempotency_key=None, **anew), incarnation)

    def expect_edit(self, said: Edit, from_now: bool) -> tuple[Any, ...]:
        place = self.place(said.id)
        r = place.records.get(said.id)
        right = r is not None and said.if_version in (None, r.version)
        if from_now and r is not None and right and r.kind != "o" and r.state == "p" and r.at <= self.now:
            going = self.going(r)
            if going is None:
                return ("INVALID", "from_now")
            said = said._replace(going=going)
        (answer,) = place.edit(self.now, [said])
        return answer

    def going(self, r: Record) -> Going | None:
        """Where one goes on that leaves out what is overdue; None where nothing is left."""
        if r.ways.fixed_delay:
            at = self.now + r.every
            return Going(at, None, 0) if at <= r.until else None
        overdue = len(range(r.at, min(self.now, r.until) + 1, r.every))
        at = r.at + overdue * r.every
        if at > r.until:
            return None
        following = at + r.every if at + r.every <= r.until else 0
        return Going(at, following if r.kind == "c" else None, overdue)

    @action(
        5,
        which=st.sampled_from([0, 0, 0, 1, 2, 3]),
        error=st.sampled_from([None, None, "boom", "ü"]),
        stranger=rarely,
        twice=rarely,
        unknown=rarely,
    )
    def done(self, which: int, error: str | None, stranger: bool, twice: bool, unknown: bool) -> None:
        """A consumer says what became of an event that somebody waits for."""
        waiting = [(place, event_id, id[0]) for place in self.model for event_id, id in place.run.items()]
        if not waiting or unknown:
            place, event_id, tenant = self.model[0], "0-1-1", "A"
        else:
            place, event_id, tenant = waiting[-1 - which % len(waiting)]
        if stranger:
            tenant = TENANTS[1 - TENANTS.index(tenant)]
        queue = self.queues[tenant]
        for _ in range(1 + twice):
            real = self.answer(lambda: queue.done(event_id, error=error))
            expected = place.done(self.now, tenant, event_id, error)
            assert real == expected
            if real[0] in ("DONE", "PAUSED"):
                self.handled[event_id] = self.now

    @action(1, who=who, slots=st.integers(0, 3), end=offsets.map(lambda n: -abs(n)), by=callers)
    def backfill(self, who: int, slots: int, end: int, by: str | None) -> None:
        id = self.id(who)
        place = self.place(id)
        last = self.now + end
        first = last - slots * (place.records[id].every if id in place.records else 0)
        queue = self.queues[id[0]]
        real = self.answer(lambda: queue.backfill(id[1], first, last, owner=id[2] or None, by=by))
        assert real == place.backfill(self.now, id, first, last, by or "")

    @action(1, who=who, event=events)
    def publish(self, who: int, event: Event) -> None:
        id = self.id(who)
        real = self.answer(lambda: self.queues[id[0]].publish(event, key=id[1], owner=id[2] or None))
        (expected,) = self.place(id).publish(self.now, [(id, event)])
        assert real == expected

    # ------------------------------------------------------------------------------------------- dispatchers

    @action(
        10,
        step=st.sampled_from([0, 1, 10, 249, 250, 500, 1000, 2000, 5000, 40_000]),
        batch=st.sampled_from([1, 2, 3, 5, 200, 200]),
        lag=st.sampled_from([0, 0, 0, 100]),
        which=st.integers(0, 6),
        answers=st.integers(0, 2),
        hold=rarely,
    )
    def time_passes_and_what_is_due_fires(
        self, step: int, batch: int, lag: int, which: int, answers: int, hold: bool
    ) -> None:
        self.now += step
        places = self.model
        if batch < 200:
            due = self.due_places() or places
            places = [due[which % len(due)]]
        for place in places:
            self.fire(place, batch, lag, answers, hold)

    def due_places(self) -> Sequence[ModelPartition]:
        return [place for place in self.model if (head := place.head()) is not None and head <= self.now]

    def fire(self, place: ModelPartition, batch: int, lag: int, answers: int, hold: bool = False) -> None:
        self.wire.ran.clear()
        (fired,) = self.queues["A"]._link.send([fire(self.namespace, place.number, batch=batch, lag_ms=lag)])
        for _ in range(self.wire.ran.count("fire")):  # what a lost reply handed over is lost with it
            expected = place.fire(self.now, batch, lag)
        *counts, handed = expected
        assert [fired.published, fired.held, fired.dropped, fired.wait_us] == counts
        assert [self.told(handover) for handover in fired.handovers] == [
            (h.word, h.id, h.version, h.n, h.at, h.definition.calendar, window_of(h.definition))
            for h in handed
        ]
        given = [Given(place.number, *pair, self.now) for pair in zip(fired.handovers, handed, strict=True)]
        self.handed += given
        for turn in range(answers if given else 0):  # calendars answer at once, perhaps twice, and otherwise
            self.ask_calendars(place.number, given, hold and turn == 0)

    @action(
        3,
        step=st.sampled_from([1, 250, 1000, 1000, 2000, 5000]),
        turns=st.integers(2, 14),
        handled=st.sampled_from(["not", "at once", "later"]),
    )
    def a_while_passes(self, step: int, turns: int, handled: str) -> None:
        """All works as it should: what is due fires, calendars answer, perhaps consumers too."""
        for turn in range(turns):
            self.now += step
            if handled == "later":
                self.handle(turn)
            for _ in range(2):  # what calendars have spoken of is due
                for place in self.due_places():
                    self.fire(place, 200, 0, 1)
            if handled == "at once":
                self.handle(turn)

    def handle(self, which: int) -> None:
        """A consumer does what it should, where there is something to do."""
        if any(place.run for place in self.model):
            self.done(which, None, stranger=False, twice=False, unknown=False)

    def told(self, h: Handover) -> tuple[Any, ...]:
        return (
            *(h.word, keys.split_identity(h.id), int(h.version), int(h.n)),
            *(h.at_ms, h.definition, h.window),
        )

    @action(
        5,
        choose=st.lists(st.integers(0, 30), min_size=1, max_size=4),
        hold=rarely,
        end=rarely,
        late=st.booleans(),
        forget=st.booleans(),
    )
    def advance(self, choose: list[int], hold: bool, end: bool, late: bool, forget: bool) -> None:
        """Calendars answer: what was just handed over, or what is stale, once or many times."""
        if not self.handed:
            return
        chosen = [self.handed[-1 - n % len(self.handed)] for n in choose]
        for number in sorted({given.number for given in chosen}):
            self.ask_calendars(number, [given for given in chosen if given.number == number], hold, end, late)
        if forget:
            del self.handed[:-5]

    def ask_calendars(
        self,
        number: int,
        given: Sequence[Given],
        hold: bool = False,
        end: bool = False,
        late: bool = False,
    ) -> None:
        """What a dispatcher does with what fire hands over; `late` ones were asked when that was."""
        steps, model_steps = [], []
        for _, handover, handed, since in given:
            now = since if late else self.now
            step = ask(plan, handover, now)
            told = handed.plan(now)
            if hold:
                step = Advance(handover, handover.at_ms, 0, hold="no such zone")
            elif end:
                told = (0, 0, 0, 0) if handed.word == "claimed" else (handed.at, 0, 0, 0)
                step = Advance(handover, *told)
            else:
                assert (step.at_ms, step.following_ms, step.missed, step.skipped) == told
            steps.append(step)
            model_steps.append((handed, told, step.hold))
        self.wire.ran.clear()
        (answers,) = self.queues["A"]._link.send([advance(self.namespace, number, steps)])
        for _ in range(self.wire.ran.count("advance")):
            expected = self.model[number].advance(self.now, model_steps)
        assert answers == expected

    # ------------------------------------------------------------------------------------------- the world

    @action(1, step=st.sampled_from([1, 250, 5000, -1, -1000]))
    def time_steps(self, step: int) -> None:
        self.now += step

    @action(3, count=st.integers(1, 3))
    def lose_replies(self, count: int) -> None:
        self.wire.lose = count

    @action(1, which=st.integers(0, 50))
    def an_old_request_arrives(self, which: int) -> None:
        if not self.wire.writes:
            return
        words = self.wire.writes[-1 - which % len(self.wire.writes)]
        first, now = self.wire.send_again(words)
        assert now in (first, [b"OLD_REQUEST"])

    @action(1)
    def forget_scripts(self) -> None:
        self.redis.script_flush()

    @action(2, which=st.integers(0, 6), name=st.sampled_from(["bad", "bad", "bad", "errors"]))
    def break_or_mend_a_stream(self, which: int, name: str) -> None:
        place = self.model[which % self.partitions]
        key = keys.stream(self.namespace.tags[place.number], name.encode())
        self.redis.delete(key)
        place.streams.pop(name, None)
        if name in place.broken:
            place.broken.remove(name)
        else:
            self.redis.set(key, "broken")
            place.broken.add(name)

    @action(1, who=who)
    def spoil(self, who: int) -> None:
        id = self.id(who)
        place = self.place(id)
        if id in place.records:
            self.redis.hset(keys.record(self.namespace.tags[place.number], id_bytes(id)), "j", "1")
            place.records[id].spoilt = True

    @action(1, who=who, back=st.integers(0, 2))
    def an_owner_dies(self, who: int, back: int) -> None:
        tenant, _, owner = id = self.id(who)
        place = self.place(id)
        if owner and place.last is not None:
            floor = place.last - back
            key = keys.owner_floor(self.namespace.tags[place.number], tenant.encode(), owner.encode())
            self.redis.set(key, floor)
            place.floors[(tenant, owner)] = floor

    # ------------------------------------------------------------------------------------------- reading

    def expect(self, id: Id) -> dict[str, Any]:
        r = self.place(id).records[id]
        fired, missed, skipped = r.totals or (0, 0, 0)
        until, limit, start, initial = r.window
        timing = Timing("once", at_ms=r.at)
        if r.kind != "o":
            timing = replace(timing, kind="every", at_ms=None, every_ms=r.every, start_ms=start)
            timing = replace(timing, initial_delay_ms=initial, until_ms=until, limit=limit, rule=r.rule)
            timing = replace(timing, policy=r.policy)
            if r.is_cron:
                timing = replace(timing, kind="cron", every_ms=None)
        by, note, paused = r.paused_by or ("", "", "")
        return {
            "key": id[1], "tenant": id[0], "owner": id[2] or None, "event": r.event, "at_ms": r.at, "n": r.n,
            "version": r.version, "state": STATES[r.state], "fired_total": fired, "missed_total": missed,
            "skipped_total": skipped, "timing": timing, "by": r.by, "failures": r.failures,
            "paused_by": by or None, "paused_note": note or None, "paused_ms": int(paused) if paused else None,
            "running": r.running and r.running.event_id, "running_until_ms": r.running and r.running.deadline,
        }  # fmt: skip

    def check_schedule(self, schedule: Any, id: Id) -> None:
        for name, value in self.expect(id).items():
            if name == "event":
                mine, theirs = getattr(schedule, name), value
                assert (mine.type, mine.payload, mine.stream, mine.codec) == (
                    theirs.type, theirs.payload, theirs.stream, theirs.codec,
                )  # fmt: skip
                assert (mine.correlation or {}) == (theirs.correlation or {})
            else:
                assert getattr(schedule, name) == value, name
        record = self.place(id).records[id]
        assert (schedule.held is not None) == record.held
        assert set(schedule.fires) == {Fire(*fire) for fire in record.fires.values()}
        assert len(schedule.fires) == min(10, schedule.fired_total)

    @action(1, who=who)
    def get(self, who: int) -> None:
        id = self.id(who)
        found = self.queues[id[0]].get(id[1], owner=id[2] or None)
        if id in self.place(id).records:
            self.check_schedule(found, id)
        else:
            assert found is None

    @action(1, who=who, n=st.sampled_from([1, 2, 5]))
    def next(self, who: int, n: int) -> None:
        id = self.id(who)
        r = self.place(id).records.get(id)
        instants = []
        if r is not None:
            only = r.kind == "o" or r.ways.fixed_delay
            instants = [r.at] if only else [*range(r.at, r.until + 1, r.every)[:n]]
            if r.window[1] is not None:
                instants = instants[: r.window[1] - (r.totals or (0,))[0]]
        found = self.queues[id[0]].next(id[1], n, owner=id[2] or None)
        assert found == [to_datetime(at) for at in instants]

    @action(
        1,
        tenant=st.sampled_from(TENANTS),
        prefix=st.sampled_from(["", "", "a", "a*", "é"]),
        owner=st.sampled_from(OWNERS),
        limit=st.sampled_from([1, 2, 200]),
    )  # fmt: skip
    def list(self, tenant: str, prefix: str, owner: str, limit: int) -> None:
        queue, by = self.queues[tenant], owner or None
        expected = sorted(
            (id for place in self.model for id in place.select(tenant, prefix, by)), key=id_bytes
        )
        found = [*queue.list(prefix, owner=by)]
        assert [(s.tenant, s.key, s.owner or "") for s in found] == expected
        for schedule, id in zip(found, expected, strict=True):
            self.check_schedule(schedule, id)
        assert queue.count(prefix, owner=by) == len(expected)
        paged, cursor = [], None
        while True:
            page = queue.list_page(prefix, owner=by, after=cursor, limit=limit)
            paged += page.items
            if (cursor := page.cursor) is None:
                break
            assert len(page.items) == limit
        assert paged == found

    @action(1, tenant=st.sampled_from(TENANTS), first=offsets, span=offsets.map(abs))
    def list_due(self, tenant: str, first: int, span: int) -> None:
        low, high = self.now + first, self.now + first + span
        waiting = sorted(
            (score, id_bytes(id), id)
            for place in self.model
            for id, score in place.scores.items()
            if id[0] == tenant and low <= score <= high
        )
        found = [
            (s.tenant, s.key, s.owner or "") for s in self.queues[tenant].list(due_from=low, due_to=high)
        ]
        assert found == [id for _, _, id in waiting]

    @action(1, tenant=st.sampled_from(TENANTS))
    def stats(self, tenant: str) -> None:
        stats = self.queues[tenant].stats()
        mine = [place.select(tenant) for place in self.model]
        waiting = [score for place in self.model for id, score in place.scores.items() if id[0] == tenant]
        total: Callable[[str], int] = lambda name: sum(place.counters.get(name, 0) for place in self.model)  # noqa: E731
        lengths: dict[str, int] = {}
        for place in self.model:
            for name in place.stream_seen:
                lengths[name] = lengths.get(name, 0) + len(place.streams.get(name, ()))
        assert (stats.tenant, stats.partitions, stats.dispatchers) == (tenant, self.partitions, [])
        assert (stats.schedules, stats.armed) == (sum(map(len, mine)), len(waiting))
        assert stats.paused == stats.schedules - stats.armed
        assert stats.due == sum(score <= self.now for score in waiting)
        assert stats.lag_ms == max(0, self.now - min(waiting, default=self.now))
        assert stats.all_schedules == sum(len(place.records) for place in self.model)
        assert stats.held == sum(len(place.held) for place in self.model)
        assert (stats.fired, stats.missed, stats.skipped, stats.dropped, stats.orphans) == (
            total("fired"), total("missed"), total("skipped"), total("dropped"), 0,
        )  # fmt: skip
        assert stats.streams == lengths

    # ------------------------------------------------------------------------------------------- after each step

    def the_whole_state_is_the_models(self) -> None:
        state = dump(self.redis)
        check_structure(state, self.namespace.tags)
        for place, tag, meta in zip(self.model, self.namespace.tags, self.metas, strict=True):
            real = parts(state, tag)
            assert real.pop(b"meta") == meta | place.meta()
            log = [entry for _, entry in real.pop(b"log", [])]
            assert len(log) == len(place.log)
            for entry, expected in zip(log, place.log, strict=True):
                names = (b"what", b"id", b"version", b"at_ms", b"note", b"by")
                what, id, version, at, note, by = (entry.pop(name) for name in names)
                assert not entry
                told = (what.decode(), id, int(version), int(at), note.decode(), by.decode())
                assert told == (expected if expected[4] != "*" else (*expected[:4], told[4], expected[5]))
            wake = real.pop(b"wake", [])
            assert [entry[b"at"] for _, entry in wake] == (
                [] if place.woken_at is None else [b"%d" % place.woken_at]
            )
            for name in list_of(real):
                if name.startswith(b"req:"):
                    del real[name]
                elif name.startswith(b"once:"):
                    assert len(real[name].pop(b"digest")) == 32
                elif name.startswith(b"sch:"):
                    tenant, key, owner = keys.split_identity(name[4:])
                    record = place.records.get((tenant, key, owner))
                    assert record is not None, f"{name!r} should not be there"
                    assert (real[name].pop(b"e", None) is not None) == record.held, name
                elif name.startswith(b"s:") and isinstance(real[name], list):
                    real[name] = [entry for _, entry in real[name]]
            place.learn_floors(real)
            expected_keys = place.keys()
            for entry, wanted in zip(
                real.get(b"s:errors", ()), expected_keys.get(b"s:errors", ()), strict=False
            ):
                if isinstance(wanted, dict) and wanted[b"payload"] == b"*":  # the server's words
                    assert json.loads(entry[b"payload"])["reason"]
                    wanted[b"payload"] = entry[b"payload"]
            assert real == expected_keys
        front = {
            name for name in state if not name.startswith(tuple(tag + b":" for tag in self.namespace.tags))
        }
        assert front == {keys.namespace_meta("ns")}
        self.every_tick_is_told_once()

    def every_tick_is_told_once(self) -> None:
        """Event ids never come twice, and none comes early; no occurrence of a grid is published twice, or neither
        published nor counted; what has to wait for the handling of an event has waited.
        """
        seen: set[str] = set()
        told: dict[tuple[bytes, int], int] = {}
        for place in self.model:
            last: dict[tuple[bytes, int], tuple[int, int, str, int]] = {}
            for stream, events in place.streams.items():
                for event in events:
                    words = {name: word for name, word in event.items() if isinstance(word, str)}
                    event_id = words["id"]
                    mark = event_id.split("-")[2]
                    if stream == "errors" or mark[0] == "b":
                        continue
                    assert event_id not in seen, f"{event_id!r} twice"
                    seen.add(event_id)
                    of = id_bytes((words["tenant"], words["key"], words["owner"])), int(words["version"])
                    if stream == "bad" or mark[0] == "t" or of not in self.begun:
                        continue  # that stream forgets what it held; what was published by hand is no occurrence
                    begun, made = self.begun[of]
                    at, n, fired = int(words["at"]), int(words["n"]), int(words["fired_ms"])
                    stands_for = 1 + int(words["missed"])
                    last_n, end, last_id, last_fired = last.get(of, (0, begun, "", 0))
                    assert n == last_n + 1
                    assert end <= at <= fired
                    if last_id:
                        assert fired >= self.earliest(made, last_id, last_fired)
                    end = (
                        0 if made.ways.fixed_delay else at + stands_for * made.every
                    )  # the clock may step back
                    last[of] = n, end, event_id, fired
                    told[of] = told.get(of, 0) + stands_for
            for what, id, version, _, note, _ in place.log:
                if what == "skipped":
                    told[id, version] = told.get((id, version), 0) + int(note.split(" ")[0])
            for name, r in place.records.items():
                of = id_bytes(name), r.version
                if of in self.begun and r.event.stream != "bad" and not r.ways.fixed_delay:
                    assert r.at == self.begun[of][0] + told.get(of, 0) * r.every

    def earliest(self, made: Definition, last_id: str, last_fired: int) -> int:
        """When the event behind this one may be published."""
        handled = last_fired + made.ways.running_timeout_ms
        if last_id in self.handled:
            handled = min(handled, self.handled[last_id])
        if made.ways.fixed_delay:
            return made.every + (handled if made.waits_for_handling else last_fired)
        return handled if made.ways.overlap != "allow" else 0


class Given(NamedTuple):
    """What a dispatcher of one partition was handed, as it is and as the model has it, and when."""

    number: int
    handover: Handover
    handed: Handed
    since: int


def window_of(definition: Definition) -> str:
    return definition.fields().get("w", b"").decode()


def list_of(names: dict[bytes, Any]) -> list[bytes]:  # `list` is a rule above
    return [*names]


SETTINGS = settings(
    max_examples=100,
    stateful_step_count=10,
    deadline=None,
    print_blob=True,
    phases=[Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


# A failure is made small before it is shown, which takes up to five minutes.
pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("partitions", [1, 7])
def test_any_history_is_the_models_on_fakeredis(partitions: int) -> None:
    machine = type("OnFakeredis", (Machine,), {
        "partitions": partitions,
        "client": staticmethod(lambda: fakeredis.FakeRedis(server=fakeredis.FakeServer(version=(7,)))),
    })  # fmt: skip
    run_state_machine_as_test(
        machine, settings=settings(SETTINGS, max_examples=60 if partitions == 1 else 30)
    )


@pytest.mark.parametrize("partitions", [1, 7])
def test_any_history_is_the_models(redis_server: EmbeddedRedis, partitions: int) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        machine = type(
            "OnRedis", (Machine,), {"partitions": partitions, "client": staticmethod(lambda: client)}
        )
        run_state_machine_as_test(machine, settings=SETTINGS)


@pytest.mark.slow
@pytest.mark.one_server
@pytest.mark.parametrize("partitions", [1, 7])
def test_long_histories_are_the_models(redis_server: EmbeddedRedis, partitions: int) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        machine = type(
            "OnRedis", (Machine,), {"partitions": partitions, "client": staticmethod(lambda: client)}
        )
        run_state_machine_as_test(
            machine, settings=settings(SETTINGS, max_examples=50, stateful_step_count=30)
        )
