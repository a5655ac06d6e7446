"""What every script owes: its status words, its refusals, one effect and one answer per request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from tests.support.partition import EVENT, NOW, Partition
from timerq import BacklogFull, Event, NamespaceMismatch, QueueUnavailable, Upsert, keys
from timerq.commands import backlog, cancel, dead, edit, members, owner, read, recurring, upsert
from timerq.commands.command import Command
from timerq.commands.consume import Settlement, once, receive, settle
from timerq.commands.dispatch import Advance, Handover, advance, beat, fire, trim
from timerq.commands.history import history
from timerq.commands.items import gather
from timerq.commands.lead import lead_partition, leave
from timerq.commands.namespace import open_namespace
from timerq.commands.options import Membership
from timerq.commands.ranges import key_range
from timerq.lua import SCRIPTS

JOBS = Membership("jobs", 1)
OWNED = owner.Owned(b"acme", b"o", 0)
HANDOVER = Handover("claimed", b"acme\0k\0", "1", "0", NOW, "{}", "")


def _upsert(p: Partition) -> Command[Any]:
    return gather(
        p.scope, [upsert.item(p.scope, Upsert("k", EVENT, delay=5, owner="o", idempotency_key="x"))]
    )


def _sweep(p: Partition) -> Command[Any]:
    (made,) = next(cancel.sweep(p.scope, "", None))
    return made


def _receive(p: Partition, **words: Any) -> Command[Any]:
    given: dict[str, Any] = {"consumer": "c", "count": 10, "lease_ms": 5000, **words}
    return receive(p.namespace, 0, "events", "g", **given)


def _settle(p: Partition, *items: Settlement) -> Command[Any]:
    return settle(p.namespace, 0, "events", "g", "c", items or [Settlement(b"1-1", 1, "ack")])


def _first(steps: Any) -> Command[Any]:
    made: Command[Any] = next(steps)[0]
    return made


SAMPLES: dict[str, Callable[[Partition], Command[Any]]] = {
    "advance": lambda p: advance(p.namespace, 0, [Advance(HANDOVER, NOW, NOW + 5)]),
    "agenda": lambda p: _first(read.due_page(p.scope, None, None, None, 5)),
    "cancel": lambda p: gather(p.scope, [cancel.item(p.scope, "k", "o")]),
    "count": lambda p: _first(read.count(p.scope)),
    "edit": lambda p: gather(p.scope, [edit.item(p.scope, "trigger", "k", "o")]),
    "fire": lambda p: fire(p.namespace, 0),
    "history": lambda p: _first(history(p.scope, "k")),
    "page": lambda p: _first(read.list_page(p.scope)),
    "publish": lambda p: gather(p.scope, [edit.publish_item(p.scope, EVENT, "k")]),
    "read": lambda p: _first(read.get(p.scope, "k")),
    "stats": lambda p: _first(read.stats(p.scope)),
    "sweep": _sweep,
    "trim": lambda p: trim(p.namespace, 0, every_ms=0),
    "upsert": _upsert,
    "backfill": lambda p: recurring._backfill_command(p.scope, "l", None, 1, b"", [NOW - 10, NOW]),
    "beat": lambda p: beat(p.namespace, "d"),
    "bound": lambda p: _first(backlog.bound(p.scope, "events", "g", 5, 2, "hold")),
    "tend": lambda p: backlog.tend(p.namespace, 0),
    "destroy": lambda p: owner.destroy_piece(p.namespace, OWNED),
    "hear": lambda p: owner.hear(p.namespace, 0, [(OWNED._replace(incarnation=5), 60_000)]),
    "live": lambda p: owner.live(p.namespace, OWNED, 60_000),
    "silent": lambda p: owner.find_silent(p.namespace, 0),
    "done": lambda p: _first(recurring.done(p.scope, "0-1-1", None)),
    "enlist": lambda p: members._enlist_command(p.scope, "jobs", 0, "", None),
    "members": lambda p: members._members_command(p.scope, "jobs", 0, 0),
    "dead": lambda p: _first(dead.dead_list(p.scope, "events", "g")),
    "revive": lambda p: dead._revive(p.scope, 0, "events", "g", "replay", ["1-1"]),
    "lead": lambda p: lead_partition(p.namespace, 0, "events", "g", "c", 5000),
    "leave": lambda p: leave(p.namespace, 0, "events", "g", "c"),
    "once": lambda p: _first(once(p.scope, "token", 5000)),
    "receive": _receive,
    "settle": _settle,
    "prune": lambda p: members._prune_command(p.scope, JOBS, 0, [b"acme\0k\0"], None),
}
SAMPLES_AND_MAKE = sorted(SCRIPTS)
WRITERS = sorted(name for name, script in SCRIPTS.items() if script.writes)


def test_every_script_has_a_sample() -> None:
    assert set(SAMPLES) == set(SCRIPTS) - {"make"}
    assert WRITERS == [
        "backfill", "bound", "cancel", "destroy", "done", "edit", "enlist", "once", "prune", "publish", "receive",
        "revive", "settle", "sweep", "upsert",
    ]  # fmt: skip


def test_only_those_heard_lately_live_and_asking_changes_nothing(partition: Partition) -> None:
    workers = keys.workers("ns")
    partition.ask(beat(partition.namespace, "d"))
    heard = int(partition.client.zscore(workers, "d"))
    # one that was heard before the server's clock stepped back by an hour, and one that fell silent
    partition.client.zadd(workers, {"ahead": heard + 3_600_000, "silent": heard - 3_600_000})
    before = partition.state()
    assert partition.ask(beat(partition.namespace, "")) == ["d"]
    assert partition.state() == before
    assert partition.ask(beat(partition.namespace, "d")) == ["d"]
    assert partition.client.zscore(workers, "silent") is None
    assert sorted(partition.ask(beat(partition.namespace, "ahead"))) == ["ahead", "d"]


@pytest.mark.parametrize("name", SAMPLES_AND_MAKE)
def test_no_word_that_is_sent_is_a_number(partition: Partition, name: str) -> None:
    make = _first(open_namespace("other", partitions=3, retention=5)) if name == "make" else None
    for clock in (None, NOW):
        command = make or SAMPLES[name](partition)
        command.stamp(b"session", 7, clock)
        call = command.call("EVALSHA")
        assert not [word for word in call if not isinstance(word, (bytes, str))]
        assert call[:3] == ["EVALSHA", command.script.sha, str(command.words[0])]
        assert [str(word) for word in call[3:]] == [str(word) for word in command.words[1:]]
        assert command.call("EVAL")[1] == command.script.text


@pytest.fixture
def busy(partition: Partition) -> Partition:
    """Something of everything, some of it due."""
    partition.upsert("k", owner="o", delay=0)
    partition.upsert("l", every=10)
    partition.upsert("later", delay=1000)
    partition.calendar("c", at=NOW, following=None)
    partition.now += 5
    return partition


def meta_of(p: Partition, name: str) -> bytes:
    return keys.namespace_meta("ns") if name == "beat" else p.key("meta")


@pytest.mark.parametrize("name", sorted(SAMPLES))
@pytest.mark.parametrize("field", ["layout", "schema"])
def test_another_layout_or_schema_is_refused_and_nothing_is_written(
    busy: Partition, name: str, field: str
) -> None:
    busy.client.hset(meta_of(busy, name), field, "7")
    before = busy.state()
    command = SAMPLES[name](busy)
    reply = busy.raw(command)
    assert reply == [b"WRONG_LAYOUT 7 1" if field == "layout" else b"WRONG_LAYOUT 1 7"]
    assert busy.state() == before
    with pytest.raises(NamespaceMismatch):
        command.read(reply)


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_partition_without_a_meta_is_refused_and_nothing_is_written(busy: Partition, name: str) -> None:
    busy.client.delete(meta_of(busy, name))
    before = busy.state()
    assert busy.raw(SAMPLES[name](busy)) == [b"WRONG_LAYOUT - -"]
    assert busy.state() == before


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_another_clock_is_refused_and_nothing_is_written(busy: Partition, name: str) -> None:
    before = busy.state()
    busy.manual = False
    assert busy.raw(SAMPLES[name](busy)) == [b"WRONG_CLOCK manual"]
    assert busy.state() == before


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_callers_time_is_refused_where_redis_tells_it(client: Any, name: str) -> None:
    partition = Partition(client, manual=False)
    partition.upsert("k", owner="o", delay=0)
    before = partition.state()
    partition.manual = True
    assert partition.raw(SAMPLES[name](partition)) == [b"WRONG_CLOCK redis"]
    assert partition.state() == before


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "receive"])  # whose answer is too large
def test_a_request_sent_again_changes_nothing_and_has_the_same_answer(busy: Partition, name: str) -> None:
    command = SAMPLES[name](busy)
    before = busy.state()
    first = busy.raw(command)
    after = busy.state()
    assert after != before
    busy.client.pexpire(busy.key("req:test"), 5_000)
    for _ in range(2):
        busy.now += 1  # not even time matters
        assert busy.evaluate(command) == first
        assert busy.state() == after
    # it writes, so that a WAIT behind it means something
    assert busy.client.pttl(busy.key("req:test")) > 590_000


@pytest.mark.parametrize("name", WRITERS)
def test_an_overtaken_request_is_refused(busy: Partition, name: str) -> None:
    old = SAMPLES[name](busy)
    busy.seq += 1
    old.stamp(busy.session, busy.seq, busy.now)
    busy.upsert("other", delay=5)
    before = busy.state()
    reply = busy.evaluate(old)
    assert reply == [b"OLD_REQUEST"]
    assert busy.state() == before
    with pytest.raises(QueueUnavailable):
        old.read(reply)


@pytest.mark.parametrize("name", WRITERS)
def test_sessions_do_not_hear_each_others_answers(busy: Partition, name: str) -> None:
    busy.raw(SAMPLES[name](busy))
    command = SAMPLES[name](busy)
    command.stamp(b"another", 1, busy.now)
    assert busy.evaluate(command)[0].startswith(b"OK ")
    assert busy.client.exists(busy.key("req:another"))


def test_an_answer_of_many_parts_is_remembered_whole(partition: Partition) -> None:
    for i in range(200):
        partition.upsert(f"k{i}", Event("t", "x" * 1200), delay=1000)
    items = [upsert.item(partition.scope, Upsert(f"k{i}", EVENT, delay=1, mode="keep")) for i in range(200)]
    command = gather(partition.scope, items)
    first = partition.raw(command)
    assert len(first) == 1 + 200 * 6
    assert partition.evaluate(command) == first


# ------------------------------------------------------------------------------------------------ status words


def produce_advance(p: Partition) -> None:
    p.calendar("a", at=NOW, following=None)
    (handover,) = p.fire().handovers
    step = Advance(handover, NOW, NOW + 10)
    assert p.advance(step, step) == ["ADVANCED", "STALE"]
    p.client.delete(p.record_key("a"))
    p.client.rpush(p.record_key("a"), "not a record")
    assert p.advance(step)[0].startswith("BROKEN WRONGTYPE")


def produce_agenda(p: Partition) -> None:
    p.upsert(delay=5)
    p.ask(SAMPLES["agenda"](p))


def produce_backfill(p: Partition) -> None:
    version = p.upsert("l", every=10).version
    make = recurring._backfill_command
    assert p.ask(make(p.scope, "l", None, version, b"", [NOW - 10, NOW])) == ["BACKFILLED", "2", "0"]
    assert p.ask(make(p.scope, "l", None, version + 1, b"", [NOW])) == ["VERSION_MISMATCH", str(version)]
    p.run(backlog.bound(p.scope, "events", "g", 3, None, "hold"))
    assert p.ask(make(p.scope, "l", None, version, b"", [NOW - 10, NOW]))[:2] == ["FULL", "1"]
    p.run(backlog.unbound(p.scope, "events"))
    p.client.delete(p.key("s:events"))
    p.client.set(p.key("s:events"), "not a stream")
    assert p.ask(make(p.scope, "l", None, version, b"", [NOW]))[:2] == ["BROKEN", "0"]


def produce_beat(p: Partition) -> None:
    assert p.ask(beat(p.namespace, "d")) == ["d"]


def produce_bound(p: Partition) -> None:
    for i in range(backlog.MOST_BOUNDS):
        p.ask(_first(backlog.bound(p.scope, f"s{i}", "g", 5, None, "hold")))
    p.ask(_first(backlog.bound(p.scope, "s0", "g", 5, None, "hold")))
    p.ask(_first(backlog.bound(p.scope, "more", "g", 5, None, "hold")))
    p.ask(_first(backlog.unbound(p.scope, "s0")))


def produce_tend(p: Partition) -> None:
    p.ask(SAMPLES["tend"](p))
    p.run(backlog.bound(p.scope, "events", "g", 5, None, "hold"))
    p.ask(SAMPLES["tend"](p))
    p.client.set(p.key("s:bad"), "not a stream")
    with pytest.raises(QueueUnavailable, match="WRONGTYPE"):
        p.run(backlog.bound(p.scope, "bad", "g", 5, None, "hold"))


def produce_cancel(p: Partition) -> None:
    p.upsert(delay=5)
    assert p.cancel(if_version=5).outcome == "VERSION_MISMATCH"
    assert p.cancel().outcome == "CANCELLED"
    assert p.cancel().outcome == "NOT_PENDING"
    p.client.set(p.key("floor:acme\0o"), 7)
    assert p.do(cancel.item(p.scope, "k", "o", incarnation=7)).outcome == "OWNER_GONE"
    p.client.rpush(p.record_key(), "not a record")
    with pytest.raises(QueueUnavailable, match="WRONGTYPE"):
        p.cancel()


def produce_count(p: Partition) -> None:
    assert p.run(read.count(p.scope)) == 0


def produce_destroy(p: Partition) -> None:
    first = p.run(owner.begin(p.scope, OWNED))
    p.upsert("k", owner="o", delay=5)
    assert p.ask(owner.destroy_piece(p.namespace, OWNED, silent=True)).word == "ALIVE"
    assert p.ask(owner.destroy_piece(p.namespace, OWNED)).swept == 1
    assert p.ask(owner.destroy_piece(p.namespace, OWNED._replace(incarnation=first))).word == "OWNER_GONE"


def produce_live(p: Partition) -> None:
    first = p.run(owner.begin(p.scope, OWNED))
    assert p.ask(owner.live(p.namespace, OWNED._replace(incarnation=first))).incarnation == first
    p.run(owner.destroy(p.scope, OWNED))
    assert p.ask(owner.live(p.namespace, OWNED._replace(incarnation=first))).floor >= first


def produce_hear(p: Partition) -> None:
    first = p.run(owner.begin(p.scope, OWNED))
    beats = [(OWNED._replace(incarnation=first), 60_000)]
    assert p.ask(owner.hear(p.namespace, 0, beats)) == [None]
    p.run(owner.destroy(p.scope, OWNED))
    assert p.ask(owner.hear(p.namespace, 0, beats))[0] >= first
    p.client.delete(p.key("floor:acme\0o"))
    p.client.rpush(p.key("floor:acme\0o"), "not a floor")
    (broken,) = p.ask(owner.hear(p.namespace, 0, beats))
    assert "WRONGTYPE" in str(broken)


def produce_silent(p: Partition) -> None:
    p.client.zadd(p.key("owners"), {"acme\0o": 5, "acme\0o\0": -7})
    assert p.ask(owner.find_silent(p.namespace, 0)) == [(OWNED, 0, 7), (OWNED, 5, 0)]


def produce_done(p: Partition) -> None:
    p.calendar(at=NOW, following=NOW + 1000, o="a 1000 0 1 - -")  # a failure pauses it
    p.fire()
    p.now += 1000
    p.drain()
    first, second = (event["id"] for event in p.events())
    assert p.done(first).outcome == "DONE"
    assert p.done(first).outcome == "NOT_PENDING"
    assert p.done(second, "no").outcome == "PAUSED"


def produce_edit(p: Partition) -> None:
    large = Event("t", "x" * 65_000)
    for i in range(6):
        p.upsert(f"k{i}", large, delay=5)
    assert p.edit("pause", "k0").outcome == "PAUSED"
    assert p.edit("pause", "k0").outcome == "UNCHANGED"
    assert p.edit("resume", "k0").outcome == "RESUMED"
    assert p.edit("pause", "none").outcome == "NOT_PENDING"
    assert p.edit("pause", "k0", if_version=5).outcome == "VERSION_MISMATCH"
    results = p.all([edit.item(p.scope, "trigger", f"k{i}") for i in range(6)])
    assert [type(result).__name__ for result in results] == ["Change"] * 5 + ["Later"]
    p.client.set(p.key("floor:acme\0o"), 7)
    assert p.edit("trigger", "k", "o", incarnation=7).outcome == "OWNER_GONE"
    p.upsert("e", every=5)
    with pytest.raises(ValueError, match="consume"):
        p.edit("consume", "e")
    assert p.edit("trigger", "k0").outcome == "DUPLICATE"
    p.run(backlog.bound(p.scope, "events", "g", 1, None, "hold"))
    with pytest.raises(BacklogFull):
        p.edit("trigger", "e")
    p.run(backlog.bound(p.scope, "events", "g", 1, None, "drop_newest"))
    assert p.edit("trigger", "e").outcome == "DROPPED"
    p.run(backlog.unbound(p.scope, "events"))
    p.client.set(p.key("s:events"), "not a stream")
    with pytest.raises(QueueUnavailable, match="WRONGTYPE"):
        p.edit("trigger", "e")


def produce_enlist(p: Partition) -> None:
    first = p.run(members.enlist(p.scope, "jobs"))
    second = p.run(members.enlist(p.scope, "jobs"))
    assert first.first
    assert second.generation > first.generation
    assert not p.ask(members._enlist_command(p.scope, "jobs", 0, first.generation, None)).first


def produce_members(p: Partition) -> None:
    generation = p.run(members.enlist(p.scope, "jobs")).generation
    member = Membership("jobs", generation)
    for i in range(201):
        p.do(upsert.item(p.scope, Upsert(f"k{i}", EVENT, every=5), member=member))
    p.client.hset(p.record_key("k7"), "y", "others")
    found = p.run(members.list_members(p.scope, "jobs"))
    assert len(found.places) == 200
    assert found.stale == [(0, b"acme\0k7\0")]


def produce_prune(p: Partition) -> None:
    generation = p.run(members.enlist(p.scope, "jobs")).generation
    member = Membership("jobs", generation)
    p.do(upsert.item(p.scope, Upsert("ours", EVENT, every=5), member=member))
    p.upsert("theirs", every=5)
    p.client.rpush(p.record_key("bad"), "not a record")
    places = [members.Place(0, b"acme\0%b\0" % key) for key in (b"ours", b"theirs", b"none", b"bad")]
    done: list[Any] = []
    assert p.run(members.prune(p.scope, member, places, done))
    change, (key, error) = done
    assert (change.outcome, change.key, key) == ("CANCELLED", "ours", "bad")
    assert "WRONGTYPE" in str(error)
    p.run(members.enlist(p.scope, "jobs"))
    assert not p.run(members.prune(p.scope, member, places, done))


def produce_fire(p: Partition) -> None:
    p.calendar("a", at=NOW, following=NOW + 10)
    p.calendar("b", at=NOW, following=None)
    assert sorted(handover.word for handover in p.fire().handovers) == ["claimed", "refill"]


def produce_history(p: Partition) -> None:
    p.upsert("k", delay=5)
    for _ in range(501):
        p.client.xadd(p.key("log"), {"what": "held", "id": b"acme\0k\0"})
    assert len(p.run(history(p.scope, "k")).entries) == 501
    p.client.delete(p.record_key())
    p.client.rpush(p.record_key(), "not a record")
    assert "WRONGTYPE" in p.run(history(p.scope, "k")).unreadable


def die(p: Partition, count: int = 1, **words: Any) -> None:
    """As many dead letters of group g."""
    for _ in range(count):
        p.do(edit.publish_item(p.scope, Event("t", **words), "k"))
    while given := p.ask(_receive(p, count=200)).deliveries:
        p.ask(_settle(p, *[Settlement(each.entry, each.delivery, "reject", error="no") for each in given]))


def produce_dead(p: Partition) -> None:
    die(p, 2)
    page = p.run(dead.dead_list(p.scope, "events", "g", limit=1))
    assert len(page.letters) == 1
    assert p.run(dead.dead_list(p.scope, "events", "g", after=page.after)).after is None
    p.client.set(p.key("dead:events\0h"), "not a stream")
    with pytest.raises(QueueUnavailable, match="WRONGTYPE"):
        p.run(dead.dead_list(p.scope, "events", "h"))


def produce_revive(p: Partition) -> None:
    die(p, 6, payload="x" * 65_000)
    entries = [entry.decode() for entry, _ in p.client.xrange(p.key("dead:events\0g"))]
    words = p.ask(dead._revive(p.scope, 0, "events", "g", "replay", entries))
    assert [word.split(" ")[0] for word in words] == ["REPLAYED"] * 5 + ["LATER"]
    assert p.ask(SAMPLES["revive"](p)) == ["NOT_FOUND"]
    p.client.delete(p.key("s:events"))
    p.client.set(p.key("s:events"), "not a stream")
    with pytest.raises(QueueUnavailable, match="WRONGTYPE"):
        p.run(dead.dead_replay(p.scope, "events", "g"))
    assert p.run(dead.dead_discard(p.scope, "events", "g")) == 1


def produce_lead(p: Partition) -> None:
    assert p.ask(SAMPLES["lead"](p)).epoch > 0
    follower = p.ask(lead_partition(p.namespace, 0, "events", "g", "d", 5000))
    assert (follower.epoch, follower.count) == (0, 2)
    p.client.zadd(p.key("sharers:events\0g"), {f"e{n}": NOW * 2 for n in range(198)})
    assert p.ask(lead_partition(p.namespace, 0, "events", "g", "f", 5000)).count == 0


def produce_leave(p: Partition) -> None:
    assert p.ask(SAMPLES["leave"](p)) == 0


def produce_once(p: Partition) -> None:
    assert p.run(once(p.scope, "token", 5000))
    assert not p.run(once(p.scope, "token", 5000))


def produce_receive(p: Partition) -> None:
    p.do(edit.publish_item(p.scope, EVENT, "k"))
    command = _receive(p)
    assert len(p.ask(command).deliveries) == 1
    assert command.read(p.evaluate(command)).again
    assert not p.ask(_receive(p, epoch=5)).leads
    p.client.delete(p.key("s:events"))
    p.client.set(p.key("s:events"), "not a stream")
    with pytest.raises(QueueUnavailable, match="Redis refused: "):
        p.ask(_receive(p))


def produce_settle(p: Partition) -> None:
    p.do(edit.publish_item(p.scope, EVENT, "k"))
    (delivery,) = p.ask(_receive(p)).deliveries
    item = Settlement(delivery.entry, delivery.delivery, "ack")
    p.client.set(p.key("dead:events\0g"), "not a stream")
    (said,) = p.ask(_settle(p, Settlement(item.entry, item.delivery, "reject")))
    assert said.startswith("BROKEN WRONGTYPE")
    assert p.ask(_settle(p, item)) == ["SETTLED"]
    assert p.ask(_settle(p, item)) == ["NOT_HELD"]
    p.upsert("l", delay=0)
    p.drain()
    (delivery,) = p.ask(_receive(p)).deliveries
    p.cancel("l")
    assert p.ask(_settle(p, Settlement(delivery.entry, delivery.delivery, "begin"))) == ["STALE"]


def produce_page(p: Partition) -> None:
    p.upsert("a", delay=5)
    p.upsert("b", delay=5)
    span = key_range(p.scope)
    for records in (True, False):
        p.ask(read._page_command(p.scope, span, 0, span.first, 1, records=records))
    p.client.delete(p.record_key("a"))
    p.client.rpush(p.record_key("a"), "not a record")
    found, more = p.ask(read._page_command(p.scope, span, 0, span.first, 5, records=True))
    assert not more
    assert isinstance(found[0][1], QueueUnavailable)
    assert found[1][1].key == "b"


def produce_publish(p: Partition) -> None:
    items = [edit.publish_item(p.scope, Event("t", stream=stream), "k") for stream in ("bad", "events")]
    p.client.set(p.key("s:bad"), "not a stream")
    p.client.set(p.key("floor:acme\0o"), 7)
    gone = edit.publish_item(p.scope, EVENT, "k", "o", incarnation=7)
    alive = edit.publish_item(p.scope, EVENT, "k", "o", incarnation=8)
    bad, good, *owned = p.all([*items, gone, alive])
    assert isinstance(bad, QueueUnavailable)
    assert good.outcome == "PUBLISHED"
    assert [(change.outcome, bool(change)) for change in owned] == [
        ("OWNER_GONE", False),
        ("PUBLISHED", True),
    ]
    p.run(backlog.bound(p.scope, "events", "g", 1, None, "hold"))
    with pytest.raises(BacklogFull):
        p.do(alive)
    p.run(backlog.bound(p.scope, "events", "g", 1, None, "drop_newest"))
    assert p.do(alive).outcome == "DROPPED"


def produce_read(p: Partition) -> None:
    for i in range(6):
        p.upsert(f"k{i}", Event("t", "x" * 65_000), delay=5)
    p.client.rpush(p.record_key("bad"), "not a record")
    ids = [b"acme\0bad\0", b"acme\0none\0", *[b"acme\0k%d\0" % i for i in range(6)]]
    bad, none, *found = p.ask(read._read_command(p.scope, 0, ids))
    assert isinstance(bad, QueueUnavailable)
    assert none is None
    assert [schedule.key for schedule in found] == ["k0", "k1", "k2", "k3", "k4"]  # and then: LATER


def produce_stats(p: Partition) -> None:
    p.do(edit.publish_item(p.scope, EVENT, "k"))
    p.ask(_receive(p))
    p.run(backlog.bound(p.scope, "events", "g", 3, None, "hold"))
    (group,) = p.run(read.stats(p.scope)).groups
    assert (group.stream, group.group, group.pending, group.retrying, group.dead) == ("events", "g", 1, 0, 0)


def produce_sweep(p: Partition) -> None:
    assert p.run(cancel.sweep(p.scope, "", None)) == 0


def produce_trim(p: Partition) -> None:
    assert p.ask(trim(p.namespace, 0, every_ms=0)).stream is None
    p.do(edit.publish_item(p.scope, EVENT, "k"))
    assert p.ask(trim(p.namespace, 0, every_ms=0)).stream == "events"
    p.now += 1
    p.client.delete(p.key("s:events"))
    p.client.set(p.key("s:events"), "not a stream")
    assert "WRONGTYPE" in p.ask(trim(p.namespace, 0, every_ms=0)).broken


def produce_upsert(p: Partition) -> None:
    first = p.upsert("k", owner="o", delay=5, idempotency_key="x")
    assert first.outcome == "CREATED"
    assert p.upsert("k", owner="o", delay=5, idempotency_key="x").outcome == "DUPLICATE"
    assert p.upsert("k", owner="o", delay=5).outcome == "REPLACED"
    assert p.upsert("k", owner="o", delay=5, mode="keep").outcome == "KEPT"
    assert p.upsert("k", owner="o", delay=5, if_version=0).outcome == "VERSION_MISMATCH"
    p.upsert("e", every=5)
    assert p.upsert("e", every=5).outcome == "UNCHANGED"
    with pytest.raises(ValueError, match="idempotency_key"):
        p.upsert("k", owner="o", delay=6, idempotency_key="x")
    p.client.set(p.key("floor:acme\0o"), first.version)
    assert p.upsert("k", owner="o", delay=5, incarnation=first.version).outcome == "OWNER_GONE"
    p.client.rpush(p.record_key("bad"), "not a record")
    with pytest.raises(QueueUnavailable, match="WRONGTYPE"):
        p.upsert("bad", delay=5)
    for i in range(6):
        p.upsert(f"large{i}", Event("t", "x" * 65_000), delay=5)
    late = upsert.item(p.scope, Upsert("c", EVENT, cron="* * * * *"))
    assert [type(result).__name__ for result in p.all([late])] == ["Later"]
    p.client.zadd(p.key("set:acme\0jobs"), {"": 2})
    assert p.upsert("c", cron="* * * * *", member=JOBS).outcome == "SUPERSEDED"
    keep = [upsert.item(p.scope, Upsert(f"large{i}", EVENT, delay=5, mode="keep")) for i in range(6)]
    assert [type(result).__name__ for result in p.all(keep)] == ["Upserted"] * 5 + ["Later"]


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_law_3_every_status_word_is_produced_and_no_other(partition: Partition, name: str) -> None:
    produce = globals()[f"produce_{name}"]
    produce(partition)
    assert partition.seen[name] == SCRIPTS[name].statuses


# ------------------------------------------------------------------------------------------------ make


def test_the_first_to_make_a_namespace_decides(client: Any) -> None:
    first = Partition(client, partitions=3, retention="1h")
    before = first.state()
    again = Partition(client, partitions=3)
    assert again.namespace == first.namespace
    assert first.state() == before
    with pytest.raises(NamespaceMismatch):
        Partition(client, partitions=4)
    with pytest.raises(NamespaceMismatch):
        Partition(client, manual=False, partitions=3)
    assert first.state() == before


def test_settings_change_in_every_partition(client: Any) -> None:
    Partition(client, partitions=3)
    made = Partition(client, partitions=3, retention="2h", max_age="7d", max_length=5)
    for tag in (b"{ns}", *made.namespace.tags):
        stored = client.hmget(tag + b":meta", "retention_ms", "max_age_ms", "max_length")
        assert stored == [b"7200000", b"604800000", b"5"]
    Partition(client, partitions=3, max_age=0, max_length=0)
    assert client.hmget(made.key("meta"), "retention_ms", "max_age_ms", "max_length") == [
        b"7200000",
        b"",
        b"",
    ]


def test_a_lost_partition_meta_is_made_again_without_touching_the_others(client: Any) -> None:
    made = Partition(client, partitions=3, retention="1h")
    kept = made.state()
    client.delete(made.namespace.tags[1] + b":meta")
    Partition(client, partitions=3)
    assert made.state() == kept


# ------------------------------------------------------------------------------------------------ versions


def test_versions_do_not_repeat_when_the_last_one_is_forgotten(client: Any) -> None:
    partition = Partition(client, manual=False)
    seen = []
    for _ in range(20):
        seen.append(partition.upsert("k", delay=1000).version)
        client.hdel(partition.key("meta"), "last")  # what a failover forgets
    assert sorted(set(seen)) == seen


def test_versions_grow_although_time_stands_still_or_goes_back(partition: Partition) -> None:
    seen = []
    for step in (0, 0, -1000, 0, 5, -5):
        partition.now += step
        seen.append(partition.upsert("k", delay=1000).version)
        many = partition.all(
            [upsert.item(partition.scope, Upsert(f"m{i}", EVENT, delay=9)) for i in range(3)]
        )
        seen += [result.version for result in many]
        partition.edit("trigger")
    assert sorted(set(seen)) == seen
    assert seen[0] == NOW * 1000


def test_numbers_are_never_written_with_an_exponent(partition: Partition) -> None:
    last = 253_402_300_799_999
    partition.upsert("far", at=last)
    partition.upsert("far-start", every=10_000_000_000_000, start=last - 5, until=last, limit=2**53 - 1)
    partition.client.hset(partition.key("meta"), "last", str(2**52))
    partition.upsert("old", delay=0)
    partition.upsert("tick", every=7, initial_delay=0)
    partition.calendar("cal", at=partition.now, following=last)
    partition.now += 10**12
    partition.fire()
    partition.edit("trigger", "far")
    partition.cancel("far-start")
    partition.check()
    assert partition.client.hget(partition.key("meta"), "last") > b"4503599627370496"
    texts = [
        repr(value)
        for name, value in partition.state().items()
        if b":heads" not in name and b":due" not in name
    ]
    assert not [text for text in texts if "e+" in text]
    assert {len(event["version"]) for event in partition.events()} == {16}


def test_redis_tells_the_time_where_no_manual_clock_does(client: Any) -> None:
    partition = Partition(client, manual=False)
    seconds, micros = client.time()
    made = partition.upsert("k", delay=60_000)
    assert 0 <= made.at_ms - (seconds * 1000 + micros // 1000) - 60_000 < 5_000
    assert abs(made.version - (seconds * 1_000_000 + micros)) < 5_000_000


def test_a_script_that_redis_forgot_is_loaded_again(partition: Partition) -> None:
    for name in sorted(SAMPLES):
        try:
            partition.client.script_flush()
        except redis.ResponseError as error:  # pragma: no cover
            pytest.fail(str(error))
        assert partition.raw(SAMPLES[name](partition))[0].startswith(b"OK ")
