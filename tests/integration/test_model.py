"""Random verbs of two tenants against a plain model: after each step the whole state of Redis is the model's.

Time is a manual clock; any reply may be lost and its command sent again; old requests arrive late; streams break and
records are spoilt; calendars answer late, twice, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import fakeredis
import hypothesis.strategies as st
import pytest
import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.support.connections import Wire
from tests.support.model import Handed, Id, ModelPartition, Wanted, correlation, encode, id_bytes
from tests.support.state import check_structure, dump, parts
from timerq import Event, Handle, InvalidSchedule, QueueUnavailable, TimerQueue, Upsert, keys
from timerq.commands import upsert as upserting
from timerq.commands.dispatch import Advance, Handover, advance, fire
from timerq.commands.items import one
from timerq.embedded import EmbeddedRedis
from timerq.model import State, Timing

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

who = st.integers(0, 63)  # see Machine.id
events = st.sampled_from(EVENTS)
rarely = st.integers(0, 7).map(lambda n: n == 7)
offsets = st.sampled_from([-5000, -1, 0, 1, 2, 10, 250, 1000, 5000, 40_000])
intervals = st.sampled_from([1, 7, 250, 1000, 5000])
fences = st.sampled_from([None] * 9 + ["current", "current", "none", "stale"])


@st.composite
def wishes(draw: Any, kind: str | None = None) -> dict[str, Any]:
    """The words of an upsert; instants as offsets from now."""
    kind = kind or draw(st.sampled_from("ooe"))
    wish: dict[str, Any] = {"who": draw(who), "event": draw(events), "kind": kind, "fence": draw(fences)}
    wish["paused"] = draw(st.sampled_from([None] * 4 + [True, False]))
    wish["token"] = draw(st.sampled_from([None] * 8 + ["x", "y"]))
    wish["incarnation"] = draw(st.sampled_from([None] * 6 + ["old", "new"]))
    wish["mode"] = draw(st.sampled_from(["replace"] * 4 + ["keep"]))
    if kind == "o":
        if draw(st.booleans()):
            wish["at"] = draw(offsets)
        else:
            wish["delay"] = draw(offsets.map(abs))
        wish["mode"] = draw(st.sampled_from(["replace"] * 3 + ["keep", "earliest", "latest"]))
        wish["max_wait"] = draw(st.sampled_from([None] * 3 + [0, 300, 2000]))
        return wish
    wish["restart"], wish["reset"] = draw(rarely), draw(rarely)
    if kind == "e":
        wish["every"] = draw(intervals)
        start = draw(st.sampled_from(["", "", "start", "initial"]))
        if start == "start":
            wish["start"] = draw(offsets)
        elif start == "initial":
            wish["initial"] = draw(offsets.map(abs))
        wish["until"] = draw(st.sampled_from([None] * 4 + [0, 500, 3000]))
        wish["limit"] = draw(st.sampled_from([None] * 4 + [1, 2, 5]))
    else:
        wish["every"] = draw(st.sampled_from([250, 1000, 5000]))
        wish["known"] = draw(st.sampled_from(["", "next", "last"]))
    return wish


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
        self.handed: list[tuple[int, Handover]] = []
        self.past: list[tuple[Wanted, Upsert, int | None]] = []
        self.periods: dict[tuple[str, ...], int] = {}

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

    def id(self, who: int) -> Id:
        """A schedule: more often one that exists than any."""
        existing = sorted((id for place in self.model for id in place.records), key=id_bytes)
        return existing[who % len(existing)] if existing and who >= 16 else POOL[who % len(POOL)]

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
        id, kind, now = wish.get("id") or self.id(wish["who"]), wish["kind"], self.now
        common: dict[str, Any] = {
            "mode": wish["mode"],
            "paused": wish["paused"],
            "if_version": self.version(id, wish["fence"]),
        }
        incarnation = None
        if wish["incarnation"] and id[2]:
            floor = self.place(id).floors.get((id[0], id[2]), 5)
            incarnation = floor if wish["incarnation"] == "old" else floor + 1
        named: dict[str, Any] = {}
        resolved: dict[str, Any] = {}
        if kind == "o":
            common["max_wait"] = wish["max_wait"]
            if "at" in wish:
                named["at"] = resolved["at"] = now + wish["at"]
            else:
                named["delay"] = resolved["delay"] = wish["delay"]
        else:
            common |= {"restart": wish["restart"], "reset": wish["reset"]}
            every, until, limit = wish["every"], wish.get("until"), wish.get("limit")
            start, initial = wish.get("start"), wish.get("initial")
            start = None if start is None else now + start
            until = None if until is None else max(now + until, start or 0)
            resolved = {"every": every, "window": (until, limit, start, initial)}
            if kind == "e":
                named = {
                    "every": every,
                    "until": until,
                    "limit": limit,
                    "start": start,
                    "initial_delay": initial,
                }
                resolved |= (
                    {"at": start} if start is not None else {"delay": every if initial is None else initial}
                )
            else:
                first = now - now % every + every
                known = {"": None, "next": first + every, "last": 0}[wish["known"]]
                resolved = {"x": str(every), "at": first, "following": known}
        token = wish["token"]
        wanted = Wanted(id, wish["event"], kind, token=token, incarnation=incarnation, **common, **resolved)
        words = Upsert(id[1], wish["event"], owner=id[2] or None, idempotency_key=token, **common, **named)
        return wanted, words, incarnation

    def item(self, wanted: Wanted, words: Upsert, incarnation: int | None) -> Any:
        scope = self.queues[wanted.id[0]]._open()
        if wanted.kind != "c":
            return upserting.item(scope, words, incarnation=incarnation)
        content, data = encode(wanted.event)
        assert wanted.x is not None
        definition: list[Any] = ["d", f"c {wanted.event.stream} {content} {wanted.event.type}"]
        definition += ("p", data) if len(data) <= 64 or len(data) > 256 else ()
        if len(definition) == 2:
            for i in range(0, len(data), 64):
                definition += ("p" if i == 0 else f"p{i // 64}", data[i : i + 64])
        if wanted.event.correlation:
            definition += ("c", correlation(wanted.event))
        definition += ("x", wanted.x)
        timing, following = Timing("cron"), wanted.following
        return upserting.build(scope, words, timing, f"@{wanted.at}", definition, incarnation, following)

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
            assert "Redis refused" in str(result)
            return ("BROKEN",)
        outcome = str(result.outcome)
        if hasattr(result, "replaced_version"):
            self.check_upserted(result)
            if result.at_ms is None:
                return (outcome, result.version)
            state = next(letter for letter, state in STATES.items() if state == result.state)
            answer: tuple[Any, ...] = (outcome, result.version, result.at_ms, state)
            return (
                answer if outcome != "REPLACED" else (*answer, result.replaced_version, result.replaced_at_ms)
            )
        if outcome in ("TRIGGERED", "PUBLISHED"):
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

    @action(8, wish=wishes())
    def upsert(self, wish: dict[str, Any]) -> None:
        self.do_upsert(*self.wanted(wish))

    @action(4, wish=wishes(kind="c"))
    def upsert_calendar(self, wish: dict[str, Any]) -> None:
        self.do_upsert(*self.wanted(wish))

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
            if wanted.kind != "o":
                changes |= {"restart": restart, "reset": reset}
            wanted = replace(wanted, token=None, **changes)
            words = words._replace(idempotency_key=None, **changes)
        self.do_upsert(wanted, words, incarnation)

    def do_upsert(self, wanted: Wanted, words: Upsert, incarnation: int | None) -> None:
        queue = self.queues[wanted.id[0]]
        if incarnation is None and wanted.kind != "c":
            given = {name: getattr(words, name) for name in WORDS}
            real = self.answer(lambda: queue.upsert(words.key, words.event, **given))
        else:
            item = self.item(wanted, words, incarnation)
            real = self.answer(lambda: queue._link.run(one(queue._open(), item)))
        (expected,) = self.place(wanted.id).upsert(self.now, [wanted])
        assert real == expected
        self.past.append((wanted, words, incarnation))
        self.note_period(wanted, expected)

    def note_period(self, wanted: Wanted, answer: tuple[Any, ...]) -> None:
        if answer[0] in ("CREATED", "REPLACED"):
            self.periods[(*wanted.id, str(answer[1]))] = int(wanted.x or wanted.every)

    @action(
        1,
        tenant=st.sampled_from(TENANTS),
        many=st.lists(wishes(), min_size=1, max_size=6),
        bad=st.sampled_from([None, 0, 2]),
    )
    def upsert_many(self, tenant: str, many: list[dict[str, Any]], bad: int | None) -> None:
        wanted, items = [], []
        for wish in many:
            mine = {**wish, "id": (tenant, *self.id(wish["who"])[1:]), "incarnation": None}
            want, words, _ = self.wanted(mine)
            wanted.append(want)
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
            self.note_period(want, answer)

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

    @action(2, who=who, fence=fences)
    def cancel(self, who: int, fence: str | None) -> None:
        id = self.id(who)
        version = self.version(id, fence)
        real = self.answer(lambda: self.queues[id[0]].cancel(id[1], owner=id[2] or None, if_version=version))
        (expected,) = self.place(id).cancel([(id, version)])
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
        assert real == self.spread(pairs, lambda pair: pair[0], lambda place, some: place.cancel(some))

    @action(
        1,
        tenant=st.sampled_from(TENANTS),
        prefix=st.sampled_from(["", "a", "a*", "é"]),
        owner=st.sampled_from(OWNERS),
    )
    def cancel_prefix(self, tenant: str, prefix: str, owner: str) -> None:
        real = self.queues[tenant].cancel_prefix(prefix, owner=owner or None)
        assert real == sum(place.sweep(tenant, prefix, owner or None) for place in self.model)

    @action(1, tenant=st.sampled_from(TENANTS), owner=st.sampled_from(["o", "o1"]))
    def cancel_owner(self, tenant: str, owner: str) -> None:
        real = self.queues[tenant].cancel_owner(owner)
        assert real == sum(place.sweep(tenant, "", owner) for place in self.model)

    @action(
        5, who=who, verb=st.sampled_from(["pause", "resume", "resume", "trigger", "consume"]), fence=fences
    )
    def edit(self, who: int, verb: str, fence: str | None) -> None:
        id = self.id(who)
        version = self.version(id, fence)
        queue = self.queues[id[0]]
        given: dict[str, Any] = {"owner": id[2] or None, "if_version": version}
        method = queue.trigger if verb == "consume" else getattr(queue, verb)
        if verb == "consume":
            given["consume"] = True
        real = self.answer(lambda: method(id[1], **given))
        (expected,) = self.place(id).edit(self.now, [(verb, id, version)])
        assert real == expected

    @action(1, who=who, event=events)
    def publish(self, who: int, event: Event) -> None:
        id = self.id(who)
        real = self.answer(lambda: self.queues[id[0]].publish(event, key=id[1], owner=id[2] or None))
        (expected,) = self.place(id).publish(self.now, [(id, event)])
        assert real == expected

    # ------------------------------------------------------------------------------------------- dispatchers

    @action(
        10,
        step=st.sampled_from([0, 1, 10, 249, 250, 1000, 5000, 40_000]),
        batch=st.sampled_from([1, 2, 3, 5, 200, 200]),
        lag=st.sampled_from([0, 0, 0, 100]),
        which=st.integers(0, 6),
        answers=st.integers(0, 2),
    )
    def time_passes_and_what_is_due_fires(
        self, step: int, batch: int, lag: int, which: int, answers: int
    ) -> None:
        self.now += step
        places = self.model
        if batch < 200:
            due = [
                place for place in places if (head := place.head()) is not None and head <= self.now
            ] or places
            places = [due[which % len(due)]]
        for place in places:
            self.wire.ran.clear()
            (fired,) = self.queues["A"]._link.send(
                [fire(self.namespace, place.number, batch=batch, lag_ms=lag)]
            )
            for _ in range(
                self.wire.ran.count("fire")
            ):  # a reply that was lost: what it handed over is lost with it
                expected = place.fire(self.now, batch, lag)
            published, held, dropped, wait_us, handed = expected
            assert (fired.published, fired.held, fired.dropped, fired.wait_us) == (
                published,
                held,
                dropped,
                wait_us,
            )
            assert [self.handed_of(handover) for handover in fired.handovers] == handed
            self.handed += [(place.number, handover) for handover in fired.handovers]
            for _ in range(answers if handed else 0):  # calendars answer at once, perhaps twice
                self.ask_calendars(place.number, fired.handovers)

    def handed_of(self, h: Handover) -> Handed:
        tenant, key, owner = keys.split_identity(h.id)
        assert h.definition["d"].startswith("c ")
        return Handed(h.word, (tenant, key, owner), h.version, h.n, h.at_ms, h.definition["x"])

    @action(
        5,
        choose=st.lists(st.integers(0, 30), min_size=1, max_size=4),
        hold=rarely,
        end=rarely,
        forget=st.booleans(),
    )
    def advance(self, choose: list[int], hold: bool, end: bool, forget: bool) -> None:
        """Calendars answer: what was just handed over, or what is stale, once or many times."""
        if not self.handed:
            return
        chosen = [self.handed[-1 - n % len(self.handed)] for n in choose]
        for number in sorted({number for number, _ in chosen}):
            self.ask_calendars(number, [handover for n, handover in chosen if n == number], hold, end)
        if forget:
            del self.handed[:-5]

    def ask_calendars(
        self, number: int, handovers: Sequence[Handover], hold: bool = False, end: bool = False
    ) -> None:
        """What a dispatcher does with what fire hands over; each calendar is a grid of `x` ms."""
        steps, model_steps = [], []
        for handover in handovers:
            every = int(handover.definition["x"])
            since = self.now if handover.word == "claimed" else handover.at_ms
            missed = max(0, (since - handover.at_ms) // every)
            following = 0 if end else handover.at_ms + (missed + 1) * every
            why = "no such zone" if hold else None
            steps.append(Advance(handover, handover.at_ms, following, missed, why))
            model_steps.append((self.handed_of(handover), following, missed, why))
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

    @action(2, which=st.integers(0, 6))
    def break_or_mend_a_stream(self, which: int) -> None:
        place = self.model[which % self.partitions]
        key = keys.stream(self.namespace.tags[place.number], b"bad")
        self.redis.delete(key)
        place.streams.pop("bad", None)
        if "bad" in place.broken:
            place.broken.remove("bad")
        else:
            self.redis.set(key, "broken")
            place.broken.add("bad")

    @action(1, who=who)
    def spoil(self, who: int) -> None:
        id = self.id(who)
        place = self.place(id)
        if id in place.records:
            self.redis.hset(keys.record(self.namespace.tags[place.number], id_bytes(id)), "z", "1")
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
        fired, missed = r.totals or (0, 0)
        until, limit, start, initial = r.window
        timing = {
            "o": Timing("once", at_ms=r.at),
            "e": Timing("every", None, None, r.every, start, initial, until, limit),
            "c": Timing("cron"),
        }[r.kind]
        return {
            "key": id[1], "tenant": id[0], "owner": id[2] or None, "event": r.event, "at_ms": r.at, "n": r.n,
            "version": r.version, "state": STATES[r.state], "fired_total": fired, "missed_total": missed,
            "timing": timing,
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
        assert (schedule.held is not None) == self.place(id).records[id].held

    @action(1, who=who)
    def get(self, who: int) -> None:
        id = self.id(who)
        found = self.queues[id[0]].get(id[1], owner=id[2] or None)
        if id in self.place(id).records:
            self.check_schedule(found, id)
        else:
            assert found is None

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
        assert (stats.fired, stats.missed, stats.dropped, stats.orphans) == (
            total("fired"), total("missed"), total("dropped"), 0,
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
            for entry, (what, id, version, note) in zip(log, place.log, strict=True):
                assert (entry[b"what"].decode(), entry[b"id"], entry[b"version"]) == (
                    what,
                    id,
                    b"%d" % version,
                )
                assert note == "*" or entry[b"note"].decode() == note
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
            assert real == place.keys()
        front = {
            name for name in state if not name.startswith(tuple(tag + b":" for tag in self.namespace.tags))
        }
        assert front == {keys.namespace_meta("ns")}
        self.every_tick_is_told_once()

    def every_tick_is_told_once(self) -> None:
        """Event ids never come twice, and each occurrence begins where the one before it ended."""
        seen: set[str] = set()
        for place in self.model:
            for stream, events in place.streams.items():
                ends: dict[tuple[str, ...], tuple[int, int]] = {}
                for event in events:
                    words = {name: word for name, word in event.items() if isinstance(word, str)}
                    assert words["id"] not in seen, f"{words['id']!r} twice"
                    seen.add(words["id"])
                    if stream == "bad" or "t" in words["id"].split("-")[2] or words["n"] == "0":
                        continue  # that stream forgets what it held; what was published by hand is no occurrence
                    of = words["tenant"], words["key"], words["owner"], words["version"]
                    n, at = ends.get(of, (0, int(words["at"])))
                    assert (int(words["n"]), int(words["at"])) == (n + 1, at)
                    ends[of] = n + 1, at + (int(words["missed"]) + 1) * self.periods.get(of, 0)


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
