"""history.lua and the verb that reads with it: one key's entries out of a log that all keys share."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tests.support.partition import EVENT, NOW, Partition
from timerq import Upsert
from timerq.commands import history as looking
from timerq.commands import upsert
from timerq.commands.history import History, LogEntry, history
from timerq.commands.items import many
from timerq.keys import NUL


def look(p: Partition, key: str = "k", owner: str | None = None) -> History:
    found: History = p.run(history(p.scope, key, owner))
    return found


def words(found: History) -> list[tuple[str, str]]:
    return [(entry.what, entry.note) for entry in found.entries]


def log(p: Partition, *what: str, key: str = "k", owner: str = "", tenant: str = "acme", **more: Any) -> None:
    """Entries as the scripts write them."""
    id = NUL.join(part.encode() for part in (tenant, key, owner))
    pipeline = p.client.pipeline()
    for word in what:
        fields = {"what": word, "id": id, "version": 5, "at_ms": p.now, "note": "", **more}
        pipeline.xadd(p.key("log"), fields)
    pipeline.execute()


def test_what_happened_to_a_key_is_read_back_oldest_first(partition: Partition) -> None:
    first = partition.upsert("k", every=1000).version
    partition.now += 10
    second = partition.upsert("k", every=2000).version
    partition.now += 10
    partition.edit("pause", "k")
    partition.now += 10
    partition.edit("resume", "k")
    partition.now += 10_000
    partition.fire()
    found = look(partition)
    assert found.entries == (
        LogEntry(NOW + 10, "replaced", second, str(first)),
        LogEntry(NOW + 20, "paused", second),
        LogEntry(NOW + 30, "resumed", second),
        LogEntry(NOW + 10_030, "missed", second, "4"),
    )
    assert (found.since_ms, found.whole, found.asked_ms) == (NOW + 10, True, NOW + 10_030)
    assert (found.schedule.version, found.schedule.n) == (second, 1)
    partition.cancel("k")
    found = look(partition)
    assert found.schedule is None
    assert words(found)[-1] == ("cancelled", "")


def test_only_the_entries_of_that_key_and_owner_and_tenant_are_read(partition: Partition) -> None:
    for key, owner, tenant in (
        ("k", "", "acme"),
        ("k", "o", "acme"),
        ("k", "", "other"),
        ("ko", "", "acme"),
        ("o", "k", "acme"),
    ):
        log(partition, "held", key=key, owner=owner, tenant=tenant, note=f"{tenant}/{key}/{owner}")
    assert words(look(partition)) == [("held", "acme/k/")]
    assert words(look(partition, owner="o")) == [("held", "acme/k/o")]
    assert words(look(partition, key="none")) == []


def test_who_did_it_is_read_where_it_was_said(partition: Partition) -> None:
    log(partition, "paused", by="bob", note="deploy")
    log(partition, "resumed", by="")
    log(partition, "held")
    assert [entry.by for entry in look(partition).entries] == ["bob", None, None]


def test_nothing_is_written_by_looking(partition: Partition) -> None:
    partition.upsert("k", delay=5)
    log(partition, "held", "held")
    before = partition.state()
    look(partition)
    look(partition, key="none", owner="o")
    assert partition.state() == before


@pytest.mark.parametrize("others", [0, 1, 6])
def test_a_long_log_is_read_in_bounded_pieces(
    partition: Partition, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    monkeypatch.setattr(looking, "LOOK", 7)
    for i in range(35):
        log(partition, "held", note=str(i))
        log(partition, *["held"] * others, key="other")
    steps = history(partition.scope, "k")
    commands = next(steps)
    calls = 0
    try:
        while True:
            calls += 1
            replies = [partition.raw(command) for command in commands]
            assert sum(line.startswith(b"ENTRY") for line in replies[0][0].split(b"\n")) <= 7
            commands = steps.send(
                [command.read(reply) for command, reply in zip(commands, replies, strict=True)]
            )
    except StopIteration as done:
        found = done.value
    assert words(found) == [("held", str(i)) for i in range(35)]
    assert calls == 35 * (others + 1) // 7 + 1


def test_a_piece_ends_early_when_it_is_large(partition: Partition) -> None:
    for i in range(9):
        log(partition, "held", note=f"{i}" + "x" * 100_000)
    log(partition, "held", key="other")
    piece = partition.ask(next(history(partition.scope, "k"))[0])
    assert len(piece.entries) == 3
    assert piece.following is not None
    assert [entry.note[0] for entry in look(partition).entries] == list("012345678")


def test_the_record_is_read_once_and_with_the_newest_entries(partition: Partition) -> None:
    partition.upsert("k", delay=5)
    log(partition, *["held"] * looking.LOOK)
    log(partition, "paused")
    steps = history(partition.scope, "k")
    first = partition.raw(next(steps)[0])
    second = partition.raw(steps.send([next(history(partition.scope, "k"))[0].read(first)])[0])
    assert b"RECORD" in first[0]
    assert b"RECORD" not in second[0]
    with pytest.raises(StopIteration):
        steps.send([looking._look(partition.scope, 0, partition.tag, b"acme\0k\0", b"+").read(second)])


def rest(steps: Any, answer: Any) -> Any:
    """The steps that follow a first answer."""
    commands = steps.send([answer])
    while True:
        answers = yield commands
        try:
            commands = steps.send(answers)
        except StopIteration as done:
            return done.value


def test_what_happens_while_the_log_is_read_changes_nothing_of_the_answer(partition: Partition) -> None:
    version = partition.upsert("k", delay=5000).version
    log(partition, *["held"] * (looking.LOOK + 3), version=version)
    steps = history(partition.scope, "k")
    answer = partition.ask(next(steps)[0])
    partition.cancel("k")
    log(partition, *["held"] * 20, note="late")
    found = partition.run(rest(steps, answer))
    assert found.schedule.version == version
    assert words(found) == [("held", "")] * (looking.LOOK + 3)


def test_where_the_memory_of_the_log_begins(partition: Partition) -> None:
    found = look(partition)
    assert (found.since_ms, found.whole, found.entries) == (None, True, ())
    log(partition, "held", key="other")
    partition.now += 1000
    log(partition, "held")
    assert (look(partition).since_ms, look(partition).whole) == (NOW, True)
    partition.client.xadd(partition.key("log"), {"odd": "entry"})
    assert words(look(partition)) == [("held", "")]


def test_a_log_that_was_trimmed_says_so(partition: Partition) -> None:
    log(partition, "replaced", note="the first")
    items = [Upsert(f"k{i}", EVENT, delay=1000) for i in range(200)]
    for turn in range(52):  # all but the first replace, and the log keeps 10,000 and a little more
        partition.now = NOW + turn
        partition.run(many(partition.scope, lambda thing: upsert.item(partition.scope, thing), items))
    found = look(partition)
    assert found.entries == ()
    assert not found.whole
    assert NOW < found.since_ms < NOW + 51
    assert len(look(partition, key="k7").entries) == pytest.approx(50, abs=1)
    entries = partition.client.xrange(partition.key("log"), count=1)
    assert found.since_ms == int(entries[0][1][b"at_ms"])


def test_an_entry_of_any_shape_can_be_read(partition: Partition) -> None:
    id = b"acme\0k\0"
    for fields in (
        {"id": id},
        {"id": id, "what": b"\xff", "version": "-5", "at_ms": "soon", "note": b"\xfe", "by": b"\xfd"},
        {"id": id, "what": "held", "version": "9" * 30, "at_ms": "9" * 16},
    ):
        partition.client.xadd(partition.key("log"), fields)
    assert look(partition).entries == (
        LogEntry(0, "", 0),
        LogEntry(0, "\ufffd", 0, "\ufffd", "\ufffd"),
        LogEntry(253_402_300_799_999, "held", 0),
    )


def test_what_cannot_be_read_is_told_beside_the_entries(partition: Partition) -> None:
    version = partition.upsert("k", delay=5).version
    partition.upsert("k", delay=6)
    partition.client.hset(partition.record_key(), "d", "nonsense")
    found = look(partition)
    assert found.schedule is None
    assert "unreadable record" in found.unreadable
    assert words(found) == [("replaced", str(version))]
    partition.client.delete(partition.record_key())
    partition.client.rpush(partition.record_key(), "not a record")
    assert "WRONGTYPE" in look(partition).unreadable


def test_a_log_that_is_none_is_a_fault_of_redis(partition: Partition) -> None:
    partition.client.set(partition.key("log"), "not a stream")
    with pytest.raises(redis.ResponseError):
        look(partition)


def test_the_live_dispatchers_are_counted_where_they_fire(client: Any) -> None:
    assert look(Partition(client)).dispatchers is None
    client.flushall()
    real = Partition(client, manual=False)
    assert look(real).dispatchers == 0
    client.zadd(b"{ns}:workers", {"d": real.client.time()[0] * 1000})
    assert look(real).dispatchers == 1


def test_a_recurring_schedule_that_was_late_and_ends_is_logged(partition: Partition) -> None:
    version = partition.upsert("k", every=1000, limit=2).version
    partition.now += 5500
    partition.fire()
    partition.now += 1000
    partition.fire()
    assert partition.events()[0]["missed"] == "4"
    assert [(e.what, e.version, e.note, e.at_ms) for e in look(partition).entries] == [
        ("missed", version, "4", NOW + 5500),
        ("ended", version, "limit 2", NOW + 6500),
    ]


def test_one_that_cannot_be_fired_is_logged_with_the_reason(partition: Partition) -> None:
    partition.upsert("k", every=1000)
    partition.client.set(partition.key("s:events"), "not a stream")
    partition.now += 1000
    partition.fire()
    (entry,) = look(partition).entries
    assert entry.what == "held"
    assert "WRONGTYPE" in entry.note
    assert look(partition).schedule.state == "held"
