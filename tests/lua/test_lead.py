"""lead.lua, and receive.lua for ordered groups: one reader at a time, which sees all that is pending in order."""

from __future__ import annotations

import time

import pytest

from tests.support.group import LEASE_MS, Group, keys_of
from tests.support.partition import NOW, Partition
from timerq.commands.consume import once
from timerq.commands.lead import Lead


@pytest.fixture
def group(partition: Partition) -> Group:
    return Group(partition)


def test_one_leads_until_it_gives_up_and_each_lead_has_a_greater_epoch(group: Group) -> None:
    first = group.lead("c1")
    assert group.lead("c1") == first  # lengthened
    assert group.lead("c2") == 0
    assert group.lead("c2", "leave") == 0  # who does not lead cannot end it
    assert group.lead("c1") == first
    assert group.lead("c1", "leave") == 0
    second = group.lead("c2")
    assert second > first
    group.lead("c2", "leave")
    assert group.lead("c1") > second


def test_a_lead_runs_out_by_the_servers_time(real_client: object, group: Group) -> None:
    group.lead("c1", lease_ms=60_000)
    ttl_ms = group.partition.client.pttl(group.key("reader"))
    assert 50_000 < ttl_ms <= 60_000
    group.partition.client.pexpire(group.key("reader"), 0)
    assert group.lead("c2") > 0


def test_who_asks_is_counted_and_told_its_place_among_them(group: Group) -> None:
    assert group.share("b") == Lead(group.lead("b"), 0, 1, 0)
    follower = group.share("c")
    assert (follower.epoch, follower.count, follower.rank) == (0, 2, 1)
    assert 0 < follower.wait_ms <= 60_000
    assert (group.share("a", "stay").rank, group.share("b").rank, group.share("b").count) == (0, 1, 3)
    assert group.share("c", "leave").count == 2
    assert group.share("b").count == 2


def test_who_gives_up_a_lead_is_still_counted_and_another_one_has_it_at_once(group: Group) -> None:
    epoch = group.lead("a")
    assert group.lead("b") == 0
    assert group.share("a", "stay") == Lead(0, 0, 2, 0)
    assert group.lead("b") > epoch
    assert group.share("a", "stay").wait_ms > 0  # another one's lead it cannot end
    assert group.lead("b") > 0


def test_who_was_not_heard_of_for_a_lease_is_not_counted(group: Group) -> None:
    group.lead("dead", lease_ms=60_000)
    assert group.share("b").count == 2
    group.partition.client.zadd(group.key("sharers"), {"dead": time.time() * 1000 - 1})
    assert group.share("b").count == 1
    assert 0 < group.partition.client.pttl(group.key("sharers")) <= 60_000
    group.share("b", lease_ms=1_000)  # one with a short lease does not end what is known of others
    assert group.partition.client.pttl(group.key("sharers")) > 1_000


def test_more_than_enough_are_spare_and_never_lead(group: Group) -> None:
    epoch = group.lead("c0")
    for n in range(1, 200):
        group.share(f"c{n}")
    spare = group.share("spare")
    assert (spare.epoch, spare.count, spare.rank) == (0, 0, 0)
    assert spare.wait_ms > 0
    assert group.lead("c0") == epoch
    group.share("c0", "leave")
    group.share("c0", "stay")
    assert group.lead("spare") == 0  # free, but not for one who is not counted
    group.share("c7", "leave")
    assert group.lead("spare") > epoch
    assert group.share("spare").count == 200


def test_groups_and_streams_have_readers_of_their_own(group: Group) -> None:
    assert group.lead("c1") > 0
    assert Group(group.partition, "h").lead("c2") > 0
    assert Group(group.partition, "g", "other").lead("c3") > 0


def test_only_the_reader_of_that_epoch_is_handed_anything(group: Group) -> None:
    group.publish("a")
    old = group.lead("c1")
    group.lead("c1", "leave")
    new = group.lead("c2")
    before = group.partition.state()
    for consumer, epoch in (("c1", old), ("c1", new), ("c2", old), ("c3", 0)):
        for mine in (False, True):
            received = group.read(consumer, epoch=epoch, mine=mine)
            assert (received.leads, received.deliveries) == (False, [])
    after = group.partition.state()
    for state in (before, after):
        state.pop(group.partition.key("req:test"), None)
    assert after == before
    assert keys_of(group.get("c2", epoch=new)) == ["a"]


def test_a_new_reader_takes_all_that_is_pending_in_stream_order_and_is_told_what_waits(group: Group) -> None:
    group.publish("a", "b", "c", "d", "e")
    old_epoch = group.lead("c1")
    a, b, c, d = group.get("c1", epoch=old_epoch, count=4)
    group.settle(b, "retry", at_ms=NOW + 9_000, error="no")
    group.settle(c, "back")
    group.settle(d, "retry", at_ms=NOW, error="no")  # due by now
    group.lead("c1", "leave")
    epoch = group.lead("c2")
    told, after = [], b"0-0"
    while True:
        page = group.read("c2", mine=True, epoch=epoch, after=after, count=3)
        assert page.leads
        told += page.deliveries
        if page.more is None:
            break
        after = page.more
    assert keys_of(told) == ["a", "b", "c", "d"]
    assert [(raw.delivery, raw.attempt, raw.waits_until_ms) for raw in told] == [
        (2, 2, 0),
        (1, 1, NOW + 9_000),
        (2, 1, 0),
        (2, 2, 0),
    ]
    assert group.settle(a, "ack", "c1") == "NOT_HELD"  # who read before is fenced
    assert group.settle(told[1], "ack", "c2") == "NOT_HELD"  # told, not handed out
    assert group.retries() == {b.entry: NOW + 9_000}
    assert keys_of(group.get("c2", epoch=epoch)) == ["e"]
    group.partition.now += 9_000
    group.settle(told[0], "extend", "c2", lease_ms=60_000)
    assert "b" in keys_of(group.get("c2", epoch=epoch))
    group.check()


def test_a_reader_that_reads_again_finds_its_own_deliveries_as_they_are(group: Group) -> None:
    group.publish("a", "b")
    epoch = group.lead("c1")
    given = group.get("c1", epoch=epoch)
    group.lead("c1", "leave")
    again = group.lead("c1")
    assert group.get("c1", mine=True, epoch=again) == given
    assert group.settle(given[0], "ack") == "SETTLED"


def test_what_is_due_again_comes_in_stream_order(group: Group) -> None:
    group.publish("a", "b", "c")
    epoch = group.lead("c1")
    a, b, c = group.get("c1", epoch=epoch)
    group.settle(a, "retry", at_ms=NOW + 3)
    group.settle(b, "retry", at_ms=NOW + 2)
    group.settle(c, "retry", at_ms=NOW + 1)
    group.partition.now += LEASE_MS
    assert keys_of(group.get("c1", epoch=epoch)) == ["a", "b", "c"]


def test_trimmed_ones_that_wait_are_cleared_where_the_reader_is_told_of_them(group: Group) -> None:
    group.publish("a", "b")
    epoch = group.lead("c1")
    a, b = group.get("c1", epoch=epoch)
    for raw in (a, b):
        group.settle(raw, "retry", at_ms=NOW + 9_000)
    group.partition.client.xdel(group.stream_key, a.entry)
    page = group.read("c1", mine=True, epoch=epoch)
    assert (keys_of(page.deliveries), page.gone) == (["b"], 1)
    group.check()


@pytest.mark.parametrize("mine", [False, True])
def test_a_reader_may_be_there_before_its_stream(group: Group, mine: bool) -> None:
    epoch = group.lead("c1")
    for _ in range(2):
        received = group.read("c1", epoch=epoch, mine=mine)
        assert (received.deliveries, received.more, received.leads) == ([], None, True)
    group.publish("a", "b")
    assert group.get("c1", epoch=epoch, mine=True) == []
    assert keys_of(group.get("c1", epoch=epoch)) == ["a", "b"]
    group.check()


@pytest.mark.parametrize("gone", ["group", "stream"])
def test_the_reader_is_told_that_what_it_knows_of_is_void_where_the_group_begins_anew(
    group: Group, gone: str
) -> None:
    epoch = group.lead("c1")
    group.publish("a", "b")
    first, _ = group.get("c1", epoch=epoch)
    assert group.settle(first, "retry", at_ms=NOW + 9_000, error="no") == "SETTLED"
    if gone == "group":
        group.partition.client.xgroup_destroy(group.stream_key, "g")
    else:
        group.partition.client.delete(group.stream_key)
        received = group.read("c1", epoch=epoch)
        assert (received.deliveries, received.void, received.end) == ([], True, b"0-0")
        group.publish("a", "b")
    received = group.read("c1", epoch=epoch)
    assert (keys_of(received.deliveries), received.void, received.cleared) == (["a", "b"], True, ())
    assert {raw.delivery for raw in received.deliveries} == {1}
    assert not group.read("c1", epoch=epoch).void
    assert not Group(group.partition, "unordered").read("c2").void  # who keeps no lanes need not know
    group.check()


# ------------------------------------------------------------------------------------------------ once


def test_a_mark_holds_for_its_window_and_for_its_tenant(partition: Partition) -> None:
    def mark(token: str = "token", tenant: str = "acme") -> bool:
        first: bool = partition.run(once(partition.of(tenant), token, 5_000))
        return first

    assert mark()
    assert not mark()
    assert mark("another")
    assert mark(tenant="other")
    partition.now += 4_999
    assert not mark()
    partition.now += 1
    assert mark()
    assert 0 < partition.client.pttl(partition.key("mark:acme\0token")) <= 5_000
