"""dead.lua and revive.lua: dead letters are found, read, tried again by their own group, or thrown away."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.group import Group, keys_of
from tests.support.partition import NOW, Partition
from timerq import ContractBroken, InvalidSchedule
from timerq.commands import owner
from timerq.commands.dead import dead_count, dead_discard, dead_list, dead_replay, dead_show
from timerq.commands.letters import DeadLetter, FailedAttempt, Which


@pytest.fixture
def group(partition: Partition) -> Group:
    return Group(partition)


def die(group: Group, *keys: str, **words: Any) -> None:
    """Events of these keys, given up a second after the ones before."""
    group.partition.now += 1000
    group.publish(*keys, **words)
    while given := group.get():
        for raw in given:
            group.settle(raw, "reject", error=f"no {raw.fields.get(b'key', b'').decode()}", traceback="tb")


def letters(group: Group, tenant: str = "acme", **which: Any) -> list[DeadLetter]:
    found: list[DeadLetter] = []
    after = None
    while True:
        scope = group.partition.of(tenant)
        page = group.partition.run(
            dead_list(scope, group.stream, group.name, Which(**which), after=after, limit=2)
        )
        assert len(page.letters) <= 2
        found += page.letters
        if page.after is None:
            return found
        after = page.after


def keys(found: list[DeadLetter]) -> list[str]:
    return [letter.key for letter in found]


def test_a_letter_says_what_it_was_and_why(group: Group) -> None:
    die(group, "a", owner="o", payload={"n": 5}, correlation={"x": "y"})
    (letter,) = letters(group)
    assert (letter.type, letter.key, letter.tenant, letter.owner, letter.payload) == (
        "t", "a", "acme", "o", {"n": 5},
    )  # fmt: skip
    assert (letter.stream, letter.group, letter.partition, letter.attempts) == ("events", "g", 0, 1)
    assert (letter.error, letter.traceback) == ("no a", "tb")
    assert letter.first_failed_ms == letter.last_failed_ms == NOW + 1000
    ((entry, fields),) = group.partition.client.xrange(group.stream_key)
    assert (letter.source_entry.encode(), letter.fields) == (entry, fields)
    assert repr(letter) == f"<DeadLetter {letter.id!r} of group 'g': 't' 'a', 'no a'>"
    assert group.partition.run(dead_show(group.partition.scope, "events", "g", letter.id)) == letter
    assert group.partition.run(dead_show(group.partition.scope, "events", "g", "0-1-1")) is None


def tried(group: Group, errors: list[str], verb: str) -> None:
    """One event, which fails so often, a second apart, and then has what the verb says."""
    group.publish("a")
    for error in errors:
        (raw,) = group.get()
        group.partition.now += 1000
        group.settle(raw, "retry", at_ms=group.partition.now, error=error)
    (raw,) = group.get()
    group.settle(raw, verb, error="the last")
    group.check()


def test_a_letter_tells_the_failures_before(group: Group) -> None:
    tried(group, ["first\n\tline", "", "third"], "reject")
    (letter,) = letters(group)
    assert (letter.error, letter.attempts) == ("the last", 4)
    assert letter.history == (
        FailedAttempt(1, NOW + 1000, "first line"),
        FailedAttempt(2, NOW + 2000, ""),
        FailedAttempt(3, NOW + 3000, "third"),
    )
    assert letter.first_failed_ms == letter.history[0].failed_ms
    assert group.partition.client.exists(group.key("hold")) == 0
    # and begins anew where it is tried once more
    group.partition.run(dead_replay(group.partition.scope, "events", "g", Which()))
    (raw,) = group.get()
    assert b"history" not in raw.fields
    group.settle(raw, "reject", error="again")
    assert [(letter.error, letter.history) for letter in letters(group)] == [("again", ())]


def test_of_many_failures_the_last_ones_are_told_and_each_within_bounds(group: Group) -> None:
    tried(group, [*(str(n) for n in range(1, 30)), "é" * 500], "reject")
    (letter,) = letters(group)
    assert [past.attempt for past in letter.history] == [*range(22, 31)]
    assert [past.error for past in letter.history[:-1]] == [str(n) for n in range(22, 30)]
    assert letter.history[-1].error == "é" * 98 + "…"


@pytest.mark.parametrize("end", ["ack", "destroy", "trim"])
def test_no_other_end_leaves_failures_behind(group: Group, end: str) -> None:
    group.publish("a", owner="o")
    (raw,) = group.get()
    group.settle(raw, "retry", at_ms=NOW, error="no")
    if end == "ack":
        (raw,) = group.get()
        group.settle(raw, "ack")
    elif end == "trim":
        group.partition.client.xtrim(group.stream_key, maxlen=0)
        assert group.read().gone == 1
    else:
        scope = group.partition.scope
        group.partition.run(owner.destroy(scope, owner.Owned(scope.tenant_bytes, b"o", 0)))
        assert group.read().stale == 1
    assert group.partition.client.exists(group.key("hold")) == 0


def test_they_are_found_by_prefix_type_age_and_event(group: Group) -> None:
    die(group, "a:1", "a:2", "b:1")
    die(group, "a:3")
    found = letters(group)
    assert keys(found) == ["a:1", "a:2", "b:1", "a:3"]
    assert keys(letters(group, prefix="a:")) == ["a:1", "a:2", "a:3"]
    assert keys(letters(group, id=found[1].id)) == ["a:2"]
    assert letters(group, type="other") == []
    assert keys(letters(group, type="t")) == keys(found)
    assert keys(letters(group, since=NOW + 2000)) == ["a:3"]
    assert keys(letters(group, before=NOW + 2000, prefix="a")) == ["a:1", "a:2"]


def test_other_groups_and_tenants_have_letters_of_their_own(group: Group) -> None:
    die(group, "a")
    assert letters(Group(group.partition, "other")) == []
    assert letters(group, tenant="other") == []
    scope = group.partition.of("other")
    assert group.partition.run(dead_discard(scope, "events", "g")) == 0
    assert group.partition.run(dead_replay(scope, "events", "g")) == 0
    assert keys(letters(group)) == ["a"]


def test_what_cannot_be_read_is_shown_as_far_as_it_goes(group: Group) -> None:
    group.partition.client.xadd(group.stream_key, {"hello": b"\xff"})
    die(group)
    group.partition.client.xadd(group.key("dead"), {"by": "hand"})
    first, second = letters(group)
    assert (first.id, first.key, first.owner, first.fields) == ("", "", None, {b"hello": b"\xff"})
    assert (second.error, second.attempts, second.last_failed_ms) == ("", 0, 0)
    with pytest.raises(ContractBroken):
        _ = first.payload
    assert keys(letters(group, tenant="other")) == ["", ""]


def test_a_replay_is_for_its_group_alone_and_begins_anew(group: Group) -> None:
    other = Group(group.partition, "other")
    die(group, "a", "b")
    assert keys_of(other.get()) == ["a", "b"]
    (old,) = letters(group, prefix="a")
    assert group.partition.run(dead_replay(group.partition.scope, "events", "g", Which(prefix="a"))) == 1
    assert keys(letters(group)) == ["b"]
    received = other.read()
    assert (received.deliveries, received.stale) == ([], 0)
    other.check()
    (raw,) = group.get()
    assert raw.fields == {**old.fields, b"only": b"g"}
    assert (raw.delivery, raw.attempt) == (1, 1)
    group.settle(raw, "reject", error="again")
    again = letters(group, prefix="a")[0]
    assert (again.id, again.error) == (old.id, "again")
    assert group.partition.run(dead_replay(group.partition.scope, "events", "g")) == 2
    assert sorted(keys_of(group.get())) == ["a", "b"]
    late = Group(group.partition, "late")
    assert sorted(keys_of(late.get())) == ["a", "b"]  # the first time, not the replays
    group.check()
    late.check()


def test_a_replay_of_what_cannot_be_read_is_for_its_group_alone_too(group: Group) -> None:
    group.partition.client.xadd(group.stream_key, {b"x": b"1"})
    other = Group(group.partition, "other")
    assert group.settle(group.get()[0], "reject", error="unreadable") == "SETTLED"
    assert group.partition.run(dead_replay(group.partition.scope, "events", "g")) == 1
    assert [raw.fields for raw in other.get()] == [{b"x": b"1"}]
    assert [raw.fields for raw in group.get()] == [{b"x": b"1", b"only": b"g"}]
    other.check()


def test_letters_are_thrown_away(group: Group) -> None:
    die(group, "a", "b")
    assert group.partition.run(dead_discard(group.partition.scope, "events", "g", Which(prefix="a"))) == 1
    assert keys(letters(group)) == ["b"]
    assert group.get() == []


def test_what_dies_while_one_looks_is_not_of_that_look(group: Group) -> None:
    die(group, *[f"k{i}" for i in range(3)])
    page = group.partition.run(dead_list(group.partition.scope, "events", "g", limit=2))
    die(group, "late")
    rest = group.partition.run(dead_list(group.partition.scope, "events", "g", after=page.after))
    assert keys(page.letters + rest.letters) == ["k0", "k1", "k2"]


def test_a_look_is_bounded_and_many_are_settled_all_the_same(group: Group) -> None:
    for _ in range(3):
        die(group, *[f"k{i}" for i in range(100)])
    die(group, *[f"large{i}" for i in range(12)], payload="x" * 60_000)
    pages, after = [], None
    while True:
        page = group.partition.run(
            dead_list(group.partition.scope, "events", "g", Which(prefix="large"), after=after, limit=200)
        )
        pages.append(len(page.letters))
        if page.after is None:
            break
        after = page.after
    assert sum(pages) == 12
    assert group.partition.run(dead_replay(group.partition.scope, "events", "g")) == 312
    assert letters(group) == []


def test_all_partitions_are_looked_through(client: Any) -> None:
    p = Partition(client, partitions=3)
    for i in range(9):
        group = Group(p)
        group.publish(f"k{i}")
    for number, tag in enumerate(p.namespace.tags):
        for j in range(2):
            client.xadd(tag + b":dead:events\0g", {"id": f"{number}-5-{j}", "tenant": "acme", "key": "k"})
    found = letters(Group(p))
    assert [letter.partition for letter in found] == [0, 0, 1, 1, 2, 2]
    one = p.run(dead_show(p.scope, "events", "g", "2-5-1"))
    assert (one.partition, one.id) == (2, "2-5-1")


def test_they_are_counted_without_being_read(group: Group) -> None:
    die(group, *[f"k{i}" for i in range(205)])
    die(group, *[f"large{i}" for i in range(9)], payload="x" * 60_000)
    assert group.partition.run(dead_count(group.partition.scope, "events", "g")) == 214
    assert group.partition.run(dead_count(group.partition.scope, "events", "g", Which(prefix="large"))) == 9
    assert group.partition.run(dead_count(group.partition.of("other"), "events", "g")) == 0


@pytest.mark.parametrize("verb", [dead_replay, dead_discard])
def test_large_ones_are_settled_a_few_at_a_time(group: Group, verb: Any) -> None:
    die(group, *[f"k{i}" for i in range(12)], payload="x" * 60_000)
    pieces: list[int] = []
    assert group.partition.run(verb(group.partition.scope, "events", "g", told=pieces.append)) == 12
    assert max(pieces) * 60_000 < 262_144 + 60_000


@pytest.mark.parametrize("verb", [dead_replay, dead_discard])
def test_the_oldest_few_first_and_each_piece_is_told(group: Group, verb: Any) -> None:
    die(group, *[f"k{i:03}" for i in range(300)])
    pieces: list[int] = []
    few = verb(group.partition.scope, "events", "g", Which(prefix="k"), limit=250, told=pieces.append)
    assert group.partition.run(few) == sum(pieces) == 250
    assert len(pieces) > 1
    assert keys(letters(group)) == [f"k{i:03}" for i in range(250, 300)]
    for wrong in (0, True, "2"):
        with pytest.raises(InvalidSchedule) as caught:
            next(verb(group.partition.scope, "events", "g", limit=wrong))
        assert caught.value.field == "limit"


def test_a_place_names_a_letter_also_one_without_an_id(group: Group) -> None:
    group.partition.client.xadd(group.stream_key, {"hello": "x"})
    die(group)
    die(group, "a")
    unreadable, readable = letters(group)
    scope = group.partition.scope
    assert letters(group, id=unreadable.place) == [unreadable]
    assert group.partition.run(dead_show(scope, "events", "g", readable.place)) == readable
    for place in ("0/1-1", "1/1-1", f"9999/{readable.entry}"):
        assert letters(group, id=place) == []
    assert group.partition.run(dead_discard(scope, "events", "g", Which(id=unreadable.place))) == 1
    assert letters(group) == [readable]


@pytest.mark.parametrize("after", ["", "x", "MCAtICs=x", 5, "OSAtICs=", "MCAnICs=", "LTEgLSAr"])
def test_a_cursor_that_is_none_is_refused(partition: Partition, after: Any) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        next(dead_list(partition.scope, "events", "g", after=after))
    assert caught.value.field == "after"


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("limit", {"limit": 0}),
        ("limit", {"limit": 201}),
        ("limit", {"limit": True}),
        ("stream", {"stream": "a b"}),
        ("group", {"group": ""}),
        ("id", {"which": Which(id="")}),
        ("type", {"which": Which(type="a\0b")}),
        ("since", {"which": Which(since="yesterday")}),
        ("before", {"which": Which(before=-1)}),
    ],
)
def test_bad_words_are_refused(partition: Partition, field: str, words: dict[str, Any]) -> None:
    given: dict[str, Any] = {"stream": "events", "group": "g", **words}
    with pytest.raises(InvalidSchedule) as caught:
        next(dead_list(partition.scope, **given))
    assert caught.value.field == field
