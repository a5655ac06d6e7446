"""enlist.lua, members.lua, prune.lua, and what they make of plan and apply: races, cuts, labels."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.support.partition import EVENT, NOW, Partition
from timerq import Event, InvalidSchedule, Outcome, Upsert
from timerq.commands import members
from timerq.commands.arming import Upserted, timing_of
from timerq.commands.command import Command, Steps
from timerq.commands.history import history
from timerq.commands.options import Membership
from timerq.commands.planned import Applied, SetPlan
from timerq.commands.read import get, list_page
from timerq.commands.sets import apply_set, plan_set
from timerq.commands.wording import words_of

Declared = Mapping[str, Upsert]


def declare(**words: dict[str, Any]) -> Declared:
    """A set: name → the words of its schedule."""
    return {name: Upsert(name, Event(name), **more) for name, more in words.items()}


def apply(partition: Partition, declared: Declared, label: str = "jobs", **how: Any) -> Applied[Upserted]:
    applied: Applied[Upserted] = partition.run(
        apply_set(partition.scope, label, declared.values(), Upserted, **how)
    )
    return applied


def plan(partition: Partition, declared: Declared, label: str = "jobs") -> SetPlan:
    planned: SetPlan = partition.run(plan_set(partition.scope, label, declared.values(), partition.now))
    return planned


def actions(planned: SetPlan) -> dict[str, str]:
    return {item.key: item.action for item in planned.items}


def outcomes(applied: Applied[Upserted]) -> list[str]:
    return [str(getattr(item, "outcome", item)) for item in applied.items]


def removed(applied: Applied[Upserted]) -> list[str]:
    return sorted(change.key for change in applied.removed)  # type: ignore[union-attr]


def stored(partition: Partition, label: str | None = "jobs") -> dict[str, Any]:
    """What carries a label: name → its words."""
    items = partition.run(list_page(partition.scope, limit=200)).items
    return {s.key: words_of(s.event, s.timing) for s in items if s.label == label}


def wanted(declared: Declared) -> dict[str, Any]:
    return {name: words_of(one.event, timing_of(one)) for name, one in declared.items()}


def set_key(partition: Partition, label: str = "jobs", number: int = 0) -> bytes:
    return partition.namespace.tags[number] + b":set:acme\0" + label.encode()


def generations(partition: Partition, label: str = "jobs", number: int = 0) -> dict[str, int]:
    found = partition.client.zrange(set_key(partition, label, number), 0, -1, withscores=True)
    return {id.decode(): int(score) for id, score in found}


# ------------------------------------------------------------------------------------------------ the scripts


def test_generations_only_grow_and_are_announced_everywhere(client: Any) -> None:
    partition = Partition(client, partitions=3)
    first, second = (partition.run(members.enlist(partition.scope, "jobs")) for _ in range(2))
    assert first.generation == NOW * 1000
    assert second.generation > first.generation
    for number in range(3):
        assert generations(partition, number=number) == {"": second.generation}
    other = partition.run(members.enlist(partition.scope, "other"))
    assert other.first
    assert generations(partition) == {"": second.generation}


def test_a_generation_grows_although_the_last_version_was_forgotten(partition: Partition) -> None:
    first = partition.run(members.enlist(partition.scope, "jobs"))
    partition.now -= 5_000
    partition.client.hdel(partition.key("meta"), "last")
    second = partition.run(members.enlist(partition.scope, "jobs"))
    assert second.generation == first.generation + 1
    assert partition.upsert(every=5).version > second.generation


def test_one_that_comes_late_is_told_and_announces_nothing(client: Any) -> None:
    partition = Partition(client, partitions=2)
    slow = members.enlist(partition.scope, "jobs")
    taken = [partition.ask(command) for command in next(slow)]
    fast = partition.run(members.enlist(partition.scope, "jobs"))
    commands = slow.send(taken)
    before = partition.state()
    answers = [partition.ask(command) for command in commands]
    del before[partition.namespace.tags[1] + b":req:test"]
    assert {name: value for name, value in partition.state().items() if b":req:" not in name} == {
        name: value for name, value in before.items() if b":req:" not in name
    }
    with pytest.raises(StopIteration) as done:
        slow.send(answers)
    assert (done.value.value.first, fast.first) == (False, True)
    assert generations(partition, number=1) == {"": fast.generation}


def test_an_upsert_of_an_earlier_apply_is_refused_and_writes_nothing(partition: Partition) -> None:
    first, second = (
        Membership("jobs", partition.run(members.enlist(partition.scope, "jobs")).generation) for _ in "ab"
    )
    made = partition.upsert(every=5, member=second)
    before = {name: value for name, value in partition.state().items() if b":req:" not in name}
    for every in (5, 6):
        refused = partition.upsert(member=first, every=every)
        assert (refused.outcome, refused.version) == (Outcome.SUPERSEDED, second.generation)
        after = {name: value for name, value in partition.state().items() if b":req:" not in name}
        after[partition.key("meta")][b"last"] = before[partition.key("meta")][b"last"]  # versions are spent
        assert after == before
    assert partition.upsert(every=5, member=second).outcome == "UNCHANGED"
    assert generations(partition)["acme\0k\0"] == second.generation
    assert partition.record()[b"y"] == b"jobs"
    assert made.outcome == "CREATED"


def test_a_prune_takes_only_what_carries_the_label(partition: Partition) -> None:
    generation = partition.run(members.enlist(partition.scope, "jobs")).generation
    member = Membership("jobs", generation)
    partition.upsert("fired", every=10, member=member)
    partition.upsert("paused", every=10, member=member, paused=True)
    partition.upsert("replaced", every=10, member=member)
    partition.upsert("replaced", every=11)  # by hand: it carries no label any more
    partition.upsert("others", every=10, member=Membership("web", generation))
    partition.upsert("hand", every=10)
    version = partition.upsert("fired", every=10, member=member).version
    partition.now += 10
    partition.fire()
    places = [
        members.Place(0, f"acme\0{key}\0".encode())
        for key in ("fired", "paused", "replaced", "others", "hand", "none")
    ]
    done: list[Any] = []
    assert partition.run(members.prune(partition.scope, member, places, done))
    assert [(change.key, str(change.outcome)) for change in done] == [
        ("fired", "CANCELLED"),
        ("paused", "CANCELLED"),
    ]
    assert set(stored(partition, None)) == {"hand", "replaced"}
    assert set(stored(partition, "web")) == {"others"}
    assert generations(partition) == {"": generation}
    assert partition.client.get(partition.key("floor:acme\0fired\0")) == str(version).encode()
    assert not partition.client.exists(partition.key("floor:acme\0paused\0"))
    assert [entry for entry in partition.log() if entry[0] == "cancelled"] == [
        ("cancelled", "pruned from jobs")
    ] * 2
    partition.check()


def test_who_applies_a_set_is_told_of_what_it_sets_and_of_what_it_removes(partition: Partition) -> None:
    declared = declare(a={"every": 5}, b={"every": 5, "by": "ann"}, c={"every": 5})
    apply(partition, declared, by="bob")
    assert [s.by for s in partition.run(list_page(partition.scope, limit=200)).items] == ["bob", "ann", "bob"]
    apply(partition, {"a": declared["a"]}, prune_others=True, by="eve")
    told = partition.run(history(partition.scope, "b")).entries[-1]
    assert (told.what, told.note, told.by) == ("cancelled", "pruned from jobs", "eve")
    assert partition.run(get(partition.scope, "a")).by == "bob"
    with pytest.raises(InvalidSchedule, match="by"):
        apply(partition, {}, by="a\0b")


@pytest.mark.parametrize("count", [0, 1, 199, 200, 201, 450])
def test_members_are_listed_and_pruned_in_bounded_pieces(partition: Partition, count: int) -> None:
    declared = declare(**{f"k{i}": {"every": 5 + i} for i in range(count)})
    apply(partition, declared)
    before = partition.seq
    found = partition.run(members.list_members(partition.scope, "jobs"))
    assert partition.seq - before == (count + 1) // 200 + 1
    assert {place.id.split(b"\0")[1].decode() for place in found.places} == set(declared)
    assert found.stale == []
    before = partition.seq
    assert removed(apply(partition, {}, prune_others=True)) == sorted(declared)
    assert partition.seq - before == 1 + (count + 1) // 200 + 1 + -(-count // 200)
    assert stored(partition) == {}
    partition.check()


def test_an_id_that_is_the_sets_no_more_is_forgotten(partition: Partition) -> None:
    apply(partition, declare(a={"every": 5}, b={"every": 5}, c={"every": 5}))
    partition.cancel("a")
    partition.upsert("b", every=7)
    found = partition.run(members.list_members(partition.scope, "jobs"))
    assert [place.id for place in found.places] == [b"acme\0c\0"]
    assert sorted(place.id for place in found.stale) == [b"acme\0a\0", b"acme\0b\0"]
    assert removed(apply(partition, declare(c={"every": 5}), prune_others=True)) == []
    assert set(generations(partition)) == {"", "acme\0c\0"}
    assert set(stored(partition, None)) == {"b"}


# ------------------------------------------------------------------------------------------------ plan and apply

SIX = declare(
    daily={"cron": "@daily"},
    weekly={"cron": "0 9 * * MON", "timezone": "Europe/Paris", "jitter": "30s"},
    beat={"every": "5s"},
    grid={"every": "1h", "anchor": "clock", "misfire": "catch_up"},
    bounded={"every": "5s", "until": "2040-01-01T00:00:00Z", "limit": 9, "start": "2026-01-01T00:00:00Z"},
    quiet={"cron": ["0 9 * * *", "0 18 * * *"], "exclude": ["2026-12-25"], "paused": True},
)


@pytest.mark.parametrize("partitions", [1, 3])
def test_what_is_applied_is_as_declared_and_then_untouched(client: Any, partitions: int) -> None:
    partition = Partition(client, partitions=partitions)
    assert set(actions(plan(partition, SIX)).values()) == {"create"}
    applied = apply(partition, SIX)
    assert applied
    assert (applied.outcome, outcomes(applied)) == (Outcome.DONE, ["CREATED"] * 6)
    assert stored(partition) == wanted(SIX)
    records = {
        name: value for name, value in partition.state().items() if b":sch:" in name or b":due:" in name
    }
    partition.now += 2_000
    assert set(actions(plan(partition, SIX)).values()) == {"unchanged"}
    again = apply(partition, SIX, prune_others=True)
    assert (outcomes(again), again.removed) == (["UNCHANGED"] * 6, ())
    assert again.generation > applied.generation
    assert records == {
        name: value for name, value in partition.state().items() if b":sch:" in name or b":due:" in name
    }
    partition.check()


def test_a_plan_writes_nothing(partition: Partition) -> None:
    apply(partition, SIX)
    before = partition.state()
    plan(partition, declare(beat={"every": "6s"}, new={"every": "1s"}))
    assert partition.state() == before


def test_a_change_tells_old_and_new_words(partition: Partition) -> None:
    apply(partition, declare(a={"cron": "0 9 * * *", "timezone": "Europe/Paris"}, b={"every": "5s"}))
    partition.edit("pause", "b")
    new = {
        "a": Upsert(
            "a", Event("other", [1], stream="s"), cron=["0 8 * * *", "0 9 * * *"], misfire="skip", limit=3
        ),
        "b": Upsert("b", Event("b", True), cron="@daily", paused=False),
    }
    a, b = plan(partition, new).items
    assert [tuple(change) for change in a.differences] == [
        ("cron", "0 9 * * *", ["0 8 * * *", "0 9 * * *"]),
        ("timezone", "Europe/Paris", "UTC"),
        ("limit", None, 3),
        ("misfire", "fire_once", "skip"),
        ("grace", None, "10s"),
        ("event.type", "a", "other"),
        ("event.payload", None, [1]),
        ("event.stream", "events", "s"),
    ]
    assert [tuple(change) for change in b.differences] == [
        ("cron", None, "@daily"),
        ("event.payload", None, True),
        ("every", "5s", None),
        ("paused", True, False),
    ]
    assert outcomes(apply(partition, new)) == ["REPLACED", "REPLACED"]
    assert actions(plan(partition, new)) == {"a": "unchanged", "b": "unchanged"}


VARIANTS: list[dict[str, Any]] = [
    {"every": "5s"},
    {"every": 5000},
    {"every": "6s"},
    {"every": "5s", "anchor": "clock"},
    {"every": "5s", "jitter": "1s"},
    {"every": "5s", "initial_delay": 0},
    {"every": "5s", "limit": 5},
    {"every": "5s", "start": NOW},
    {"every": "5s", "until": NOW + 10**9},
    {"every": "5s", "misfire": "skip"},
    {"every": "5s", "misfire": "skip", "grace": "10s"},
    {"every": "5s", "misfire": "catch_up", "max_catch_up": 5},
    {"every": "5s", "overlap": "skip"},
    {"every": "5s", "overlap": "skip", "running_timeout": "1h"},
    {"every": "5s", "overlap": "queue", "ack_group": "g"},
    {"every": "5s", "fixed_delay": True},
    {"every": "5s", "pause_after": 3},
    {"cron": "@daily"},
    {"cron": "0 0 * * *"},
    {"cron": ["@daily"], "timezone": "UTC"},
    {"cron": "@daily", "timezone": "Europe/Paris"},
    {"cron": "@daily", "dst_gap": "skip"},
    {"cron": "@daily", "dst_overlap": "both"},
    {"cron": "@daily", "exclude": "2026-12-25"},
    {"cron": "@daily", "jitter": "5m"},
    {"every": "5s", "event": Event("k", 1)},
    {"every": "5s", "event": Event("k", 1.0)},
    {"every": "5s", "event": Event("k", True)},
    {"every": "5s", "event": Event("k", 1, codec="json")},
    {"every": "5s", "event": Event("k", {"a": 1, "b": 2})},
    {"every": "5s", "event": Event("k", {"b": 2, "a": 1})},
    {"every": "5s", "event": Event("k", (1, 2))},
    {"every": "5s", "event": Event("k", [1, 2])},
    {"every": "5s", "event": Event("k", correlation={})},
    {"every": "5s", "event": Event("k", correlation={"a": "b"})},
    {"every": "5s", "event": Event("k", stream="s")},
    {"every": "5s", "event": Event("k", "x" * 200)},
]


def test_a_plan_says_what_an_apply_then_does(real_client: Any) -> None:
    partition = Partition(real_client)
    for i, (old, new) in enumerate(itertools.product(VARIANTS, repeat=2)):
        before, after = (
            {
                "k": Upsert(
                    "k", words.get("event", Event("k")), **{w: v for w, v in words.items() if w != "event"}
                )
            }
            for words in (old, new)
        )
        apply(partition, before)
        planned = plan(partition, after).items[0]
        (outcome,) = outcomes(apply(partition, after))
        assert outcome == {"unchanged": "UNCHANGED", "change": "REPLACED"}[planned.action], (
            i,
            old,
            new,
            planned,
        )
        assert plan(partition, after).counts == {"unchanged": 1}, (old, new)
    assert stored(partition) == wanted(after)


def test_a_set_prunes_what_it_declared_and_never_anothers(partition: Partition) -> None:
    apply(partition, declare(a={"every": 5}, b={"every": 5}))
    apply(partition, declare(c={"every": 5}), "web")
    partition.upsert("d", every=5)
    left = declare(b={"every": 5})
    assert actions(plan(partition, left)) == {"b": "unchanged", "a": "remove"}
    assert removed(apply(partition, left)) == []  # not asked to
    assert removed(apply(partition, left, prune_others=True)) == ["a"]
    assert set(stored(partition)) == {"b"}
    assert set(stored(partition, "web")) == {"c"}
    assert set(stored(partition, None)) == {"d"}
    assert removed(apply(partition, {}, prune_others=True)) == ["b"]
    partition.check()


def test_what_was_armed_by_hand_is_taken_into_the_set(partition: Partition) -> None:
    partition.upsert("a", Event("a"), every=5)
    (item,) = plan(partition, declare(a={"every": 5})).items
    assert (item.action, item.differences, item.taken_from) == ("change", (("set", None, "jobs"),), None)
    assert apply(partition, declare(a={"every": 5}))
    assert set(stored(partition)) == {"a"}


def test_a_schedule_of_another_set_is_taken_only_when_that_is_said(partition: Partition) -> None:
    apply(partition, declare(a={"every": 5}), "web")
    (item,) = plan(partition, declare(a={"every": 5})).items
    assert (item.action, item.differences, item.taken_from) == ("change", (("set", "web", "jobs"),), "web")
    before = partition.state()
    with pytest.raises(InvalidSchedule, match="a schedule of set web"):
        apply(partition, declare(a={"every": 5}, b={"every": 5}))
    assert partition.state() == before
    assert apply(partition, declare(a={"every": 5}), take_over=True)
    assert set(stored(partition)) == {"a"}
    assert removed(apply(partition, {}, "web", prune_others=True)) == []
    assert set(stored(partition)) == {"a"}


def test_tenants_have_sets_of_their_own(partition: Partition) -> None:
    other = partition.of("other")
    apply(partition, declare(a={"every": 5}))
    applied = partition.run(
        apply_set(other, "jobs", declare(b={"every": 5}).values(), Upserted, prune_others=True)
    )
    assert applied.removed == ()
    assert set(stored(partition)) == {"a"}


def test_one_whose_time_is_over_is_left_alone_or_ended(partition: Partition) -> None:
    soon = declare(a={"every": 1000, "until": NOW + 1500}, cal={"cron": "* * * * * *", "until": NOW + 1500})
    assert outcomes(apply(partition, soon)) == ["CREATED", "CREATED"]
    partition.now += 1200  # one is due by now, and nobody has fired it yet
    late = apply(partition, soon, prune_others=True)
    assert late
    assert late.removed == ()
    assert set(stored(partition)) == {"a", "cal"}, "what is still to fire stays"
    partition.now += 1000
    for key in soon:  # as if they had fired for the last time
        partition.cancel(key)
    assert actions(plan(partition, soon)) == {"a": "ended", "cal": "ended"}
    applied = apply(partition, soon, prune_others=True)
    assert (bool(applied), applied.items, applied.removed) == (True, (None, None), ())
    assert stored(partition) == {}


def test_an_until_that_is_moved_into_the_past_ends_what_is_stored(partition: Partition) -> None:
    apply(partition, declare(a={"every": 5, "until": NOW + 10**9}, b={"cron": "@daily"}))
    partition.upsert("c", Event("c"), every=5)
    over = declare(
        a={"every": 5, "until": NOW - 1},
        b={"cron": "@daily", "until": NOW - 1},
        c={"every": 5, "until": NOW - 1},
    )
    assert actions(plan(partition, over)) == {"a": "change", "b": "change", "c": "ended"}
    applied = apply(partition, over)
    assert (applied.items, removed(applied)) == ((None, None, None), ["a", "b"])
    assert stored(partition) == {}
    assert set(stored(partition, None)) == {"c"}, "not ours to end"


def test_what_cannot_be_stored_is_told_and_the_rest_is(partition: Partition) -> None:
    partition.client.rpush(partition.record_key("bad"), "not a record")
    applied = apply(partition, declare(a={"every": 5}, bad={"every": 5}, b={"every": 5}))
    assert not applied
    assert applied.outcome == Outcome.DONE
    assert outcomes(applied)[::2] == ["CREATED", "CREATED"]
    assert "WRONGTYPE" in str(applied.items[1])


@pytest.mark.parametrize(
    ("thing", "field"),
    [
        (Upsert("a", EVENT, at=NOW), "a.at"),
        (Upsert("a", EVENT, delay=5), "a.delay"),
        (Upsert("a", EVENT, every=5, owner="o"), "a.owner"),
        (Upsert("a", EVENT, every=5, idempotency_key="x"), "a.idempotency_key"),
        (Upsert("a", EVENT, every=5, if_version=0), "a.if_version"),
        (Upsert("a", EVENT, every=5, mode="keep"), "a.mode"),
        (Upsert("a", EVENT, every=5, restart=True), "a.mode"),
        (Upsert("a", Event("t", "x" * 70_000), every=5), "a.payload"),
        (Upsert("a", EVENT, cron="61 * * * *"), "a.cron"),
        (Upsert("", EVENT, every=5), ".key"),
        ({"key": "a", "event": EVENT, "every": 0}, "a.every"),
        ({"key": "a", "event": EVENT, "evry": 5}, "evry"),
        (Upsert("fine", EVENT, every=5), "name"),
    ],
)
def test_a_bad_schedule_stops_everything_before_anything_is_written(
    partition: Partition, thing: Any, field: str
) -> None:
    before = partition.state()
    things = [Upsert("fine", EVENT, every=5), thing]
    for steps in (
        apply_set(partition.scope, "jobs", things, Upserted),
        plan_set(partition.scope, "jobs", things, NOW),
    ):
        with pytest.raises(InvalidSchedule) as caught:
            partition.run(steps)
        assert caught.value.field == field
    with pytest.raises(InvalidSchedule, match="set"):
        partition.run(apply_set(partition.scope, "a b", [], Upserted))
    assert partition.state() == before


# ------------------------------------------------------------------------------------------------ races and cuts

BLUE = declare(
    **{f"both{i}": {"every": 10 + i} for i in range(6)}, **{f"blue{i}": {"cron": "@daily"} for i in range(6)}
)
GREEN = declare(
    **{f"both{i}": {"every": 10 + i % 3 * 7} for i in range(6)},
    **{f"green{i}": {"every": 9} for i in range(6)},
)
RED = declare(both0={"cron": "@weekly"})


class Deploy:
    """An apply that is driven command by command."""

    def __init__(self, partition: Partition, declared: Declared, chance: random.Random) -> None:
        self.declared = declared
        self.result: Applied[Upserted] | None = None
        self._partition = partition
        self._chance = chance
        self._steps: Steps[Applied[Upserted]] = apply_set(
            partition.scope, "jobs", declared.values(), Upserted, prune_others=True
        )
        self._commands: list[Command[Any]] = next(self._steps)
        self._answers: dict[int, Any] = {}

    def step(self) -> bool:
        """One more command, of those that travel at once in any order; False where there is none left."""
        left = [i for i in range(len(self._commands)) if i not in self._answers]
        i = self._chance.choice(left)
        self._answers[i] = self._partition.ask(self._commands[i])
        if len(left) > 1:
            return True
        try:
            self._commands = self._steps.send([self._answers[i] for i in range(len(self._commands))])
        except StopIteration as done:
            self.result = done.value
            return False
        self._answers = {}
        return True


def small_partition(client: Any) -> Partition:
    client.flushall()
    return Partition(client, partitions=3)


@pytest.mark.parametrize("deploys", [2, 3])
def test_racing_deploys_end_in_the_state_of_one(real_client: Any, deploys: int) -> None:
    winners = set()
    for seed in range(120):
        chance = random.Random(seed)
        partition = small_partition(real_client)
        if seed % 2:
            apply(partition, chance.choice([BLUE, GREEN, RED]))
        running = [Deploy(partition, declared, chance) for declared in (BLUE, GREEN, RED)[:deploys]]
        racing = list(running)
        while racing:
            deploy = chance.choice(racing)
            # one may run on for a while, as it does when another's process is not scheduled
            for _ in range(chance.choice([1, 1, 2, 5])):
                if not deploy.step():
                    racing.remove(deploy)
                    break
        results = [deploy.result for deploy in running]
        last = max(running, key=lambda deploy: deploy.result.generation)
        assert last.result.outcome == Outcome.DONE, "nobody supersedes the last one"
        assert stored(partition) == wanted(last.declared), seed
        assert {result.outcome for result in results} <= {Outcome.DONE, Outcome.SUPERSEDED}
        partition.check()
        winners.add((running.index(last), sum(result.outcome == Outcome.DONE for result in results)))
    assert len(winners) >= 2 * deploys - 1, "the races must differ"


def cuts(partition: Partition, declared: Declared) -> Iterator[int]:
    """Each number of commands after which an apply may be cut, until it is not."""
    for count in itertools.count():
        chance = random.Random(count)
        deploy = Deploy(partition, declared, chance)
        for _ in range(count):
            if not deploy.step():
                return
        yield count


def test_an_apply_that_is_cut_anywhere_is_healed_by_the_next(client: Any) -> None:
    partition = small_partition(client)
    apply(partition, GREEN)
    seen = 0
    for count in cuts(partition, BLUE):
        partition.check()
        assert actions(plan(partition, BLUE)).keys() >= BLUE.keys()
        healed = apply(partition, BLUE, prune_others=True)
        assert healed, count
        assert stored(partition) == wanted(BLUE)
        assert plan(partition, BLUE).counts == {"unchanged": len(BLUE)}
        apply(partition, GREEN, prune_others=True)
        assert stored(partition) == wanted(GREEN)
        seen += 1
    assert seen > 9  # enlisting, upserting, listing and pruning in three partitions


def test_a_cut_apply_and_a_whole_one_end_in_the_whole_ones_state(real_client: Any) -> None:
    for seed in range(60):
        chance = random.Random(seed)
        partition = small_partition(real_client)
        cut, whole = Deploy(partition, BLUE, chance), Deploy(partition, GREEN, chance)
        for _ in range(chance.randrange(12)):
            if not cut.step():
                break
        while whole.step():
            pass
        assert whole.result.outcome == Outcome.DONE
        assert stored(partition) == wanted(GREEN)
        # the one that was thought dead wakes up
        while cut.result is None and cut.step():
            pass
        assert stored(partition) == wanted(max((cut, whole), key=lambda d: d.result.generation).declared)


def test_a_request_sent_again_is_one_apply(partition: Partition) -> None:
    steps = apply_set(partition.scope, "jobs", GREEN.values(), Upserted, prune_others=True)
    apply(partition, BLUE)
    commands = next(steps)
    result = None
    while result is None:
        answers = []
        for command in commands:
            first = partition.raw(command)
            if command.script.writes:
                assert partition.evaluate(command) == first
            answers.append(command.read(first))
        try:
            commands = steps.send(answers)
        except StopIteration as done:
            result = done.value
    assert result
    assert stored(partition) == wanted(GREEN)
