"""Rules of the model test: consumers of several groups are handed events, settle them, and look after dead letters."""

from __future__ import annotations

from typing import Any, NamedTuple

import hypothesis.strategies as st
import pytest

from tests.support.model import ModelPartition
from tests.support.model_groups import Asked, Got
from tests.support.model_machine import Taken
from tests.support.model_rules_editing import Editing
from tests.support.model_wishes import TENANTS, action, rarely
from timerq import QueueUnavailable, keys
from timerq.commands.consume import RawDelivery, Received, Settlement, receive, settle
from timerq.commands.lead import lead_partition
from timerq.commands.letters import Which

VERBS = ["ack"] * 4 + ["retry"] * 2 + ["reject"] * 2 + ["extend", "begin", "begin", "back"]
LEAD_MS = 600_000
"""A reader's lease runs by the server's clock, not by the manual one: it lasts longer than the test."""


class Spot(NamedTuple):
    """A group of a stream; an ordered one has one reader at a time."""

    stream: str
    group: str
    is_ordered: bool = False


SPOTS = [
    Spot("events", "g"),
    Spot("events", "g"),
    Spot("events", "h"),
    Spot("events", "o", is_ordered=True),
    Spot("bad", "g"),
    Spot("errors", "ops"),
]
consumers = st.sampled_from(["c1", "c1", "c2"])


class Consuming(Editing):
    """receive, settle, lead, and dead letters."""

    def spot(self, where: int) -> tuple[ModelPartition, Spot]:
        """A group and a partition, rather one that has something to read."""
        everywhere = [(place, spot) for place in self.model for spot in SPOTS]
        busy = [(place, spot) for place, spot in everywhere if place.streams.get(spot.stream)]
        chosen = busy if busy and where % 4 else everywhere
        return chosen[where // 4 % len(chosen)]

    @action(
        9,
        where=st.integers(0, 255),
        consumer=consumers,
        count=st.sampled_from([1, 2, 3, 100, 100]),
        lease=st.sampled_from([300, 2000, 20_000]),
        mine=st.sampled_from([False] * 5 + [True]),
        current=rarely,
        lose=rarely,
    )
    def receive(
        self, where: int, consumer: str, count: int, lease: int, mine: bool, current: bool, lose: bool
    ) -> None:
        """New ones, or page by page what it holds already, which is also what it asks for behind a lost reply."""
        place, spot = self.spot(where)
        if spot.is_ordered and where % 8:
            leads = place.group(*spot[:2]).reader
            consumer = leads[0] if leads is not None else consumer
        epoch = self.epochs.get((place.number, consumer), 1) if spot.is_ordered else None
        asked = Asked(spot.stream, spot.group, consumer, count, lease, None, epoch, current)
        if lose:
            self.wire.lose = max(1, self.wire.lose)
        got = None if mine else self.ask(place, asked)
        after: bytes | None = b"0-0"
        while (got is None or lose) and after is not None:
            got = self.ask(place, asked._replace(after=after))
            lose, after = got.more is not None, got.more

    @action(
        2,
        where=st.integers(0, 255),
        consumer=consumers,
        what=st.sampled_from(["take", "take", "take", "stay", "leave"]),
    )
    def lead(self, where: int, consumer: str, what: Any) -> None:
        """One that may then read for the ordered group, which begins with what is pending."""
        place, spot = self.spot(where)[0], Spot("events", "o", is_ordered=True)
        command = lead_partition(self.namespace, place.number, *spot[:2], consumer, LEAD_MS, what)
        (lead,) = self.queues["A"]._link.send([command])
        expected = place.lead(self.now, *spot[:2], consumer, what)
        assert (lead.epoch, lead.count, lead.rank) == expected
        if lead.epoch:
            self.epochs[place.number, consumer] = lead.epoch
            self.ask(place, Asked(*spot[:2], consumer, after=b"0-0", epoch=lead.epoch))
            self.ask(place, Asked(*spot[:2], consumer, epoch=lead.epoch))

    def ask(self, place: ModelPartition, asked: Asked) -> Got:
        """One call of a consumer; what it is told and what the model says are the same."""
        self.learn_entries(place)
        is_page = asked.after is not None
        command = receive(
            self.namespace,
            place.number,
            asked.stream,
            asked.group,
            asked.consumer,
            count=asked.limit,
            lease_ms=asked.lease_ms,
            mine=is_page,
            after=asked.after or b"",
            epoch=asked.epoch,
            drop_superseded=asked.drop_superseded,
        )
        is_lost = self.wire.lose > 0
        got = place.receive(self.now, asked)
        if got.word == "BROKEN" and not is_lost:
            with pytest.raises(QueueUnavailable, match="Redis refused"):
                self.queues["A"]._link.send([command])
            return got
        (received,) = self.queues["A"]._link.send([command])
        assert received.again == is_lost
        if not is_lost:
            self.check_received(received, got)
            for raw in received.deliveries:
                if not raw.waits_until_ms:
                    self.taken.append(Taken(place.number, asked.stream, asked.group, asked.consumer, raw))
        for given in got.given:
            owner = given.event.word("tenant"), given.event.word("owner")
            if asked.stream != "errors" and not given.waits_until:
                floor = self.destroyed.get(owner, -1)
                assert int(given.event.word("version") or floor + 1) > floor, (
                    "handed out after it was destroyed"
                )
        return got

    def check_received(self, received: Received, got: Got) -> None:
        assert received.leads == (got.word != "NOT_LEADING")
        told = (
            received.stale,
            received.gone,
            received.wait_us,
            received.more,
            received.end,
            [*received.cleared],
        )
        assert told == (got.stale, got.gone, got.wait_us, got.more, got.end, got.cleared)
        assert [
            (raw.entry, raw.delivery, raw.attempt, raw.counts, raw.waits_until_ms)
            for raw in received.deliveries
        ] == [
            (g.event.entry, g.delivery, int(g.attempt), g.attempt[0] != "0", g.waits_until) for g in got.given
        ]
        for raw, given in zip(received.deliveries, got.given, strict=True):
            fields = given.event.fields()
            if fields.get(b"payload") == b"*":  # the server's words
                fields[b"payload"] = raw.fields[b"payload"]
            assert raw.fields == fields

    def learn_entries(self, place: ModelPartition) -> None:
        """Where the events are that were published since the last look."""
        for stream, events in place.streams.items():
            if events and not events[-1].entry:
                found = self.redis.xrange(keys.stream(self.namespace.tags[place.number], stream.encode()))
                for (entry, _), event in zip(found, events, strict=True):
                    event.entry = entry

    @action(
        12,
        chosen=st.lists(
            st.tuples(st.integers(0, 40), st.sampled_from(VERBS), st.sampled_from([0, 1, 300, 5000])),
            min_size=1,
            max_size=3,
        ),
        begun=st.booleans(),
        stranger=rarely,
    )
    def settle(self, chosen: list[tuple[int, str, int]], begun: bool, stranger: bool) -> None:
        """A consumer settles what it holds or once held, several at once, perhaps the same twice."""
        held = [taken for taken in self.taken if self.is_held(taken)]
        picked = []
        for which, verb, ms in chosen:
            of = held if held and which % 8 else self.taken
            if of:
                picked.append((of[-1 - which % len(of)], verb, ms))
        if not picked:
            return
        place, (number, stream, group, consumer, _) = self.model[picked[0][0].number], picked[0][0]
        items = [
            self.settlement(taken.raw, verb, ms, begun)
            for taken, verb, ms in picked
            if taken[:4] == (number, stream, group, consumer)
        ]
        if stranger:
            consumer = "c3"
        command = settle(self.namespace, number, stream, group, consumer, items)
        (words,) = self.queues["A"]._link.send([command])
        expected = place.settle(self.now, stream, group, consumer, items)
        assert [word.split(" ")[0] for word in words] == expected

    def settlement(self, raw: RawDelivery, verb: Any, ms: int, begun: bool) -> Settlement:
        words: dict[str, dict[str, Any]] = {
            "ack": {"outcome": "sent" if ms else ""},
            "retry": {"at_ms": self.now + ms, "error": "boom"},
            "reject": {"error": "boom", "traceback": "t", "outcome": "lost" if ms else "", "begun": begun},
            "extend": {"lease_ms": ms + 1},
            "back": {"at_ms": self.now + ms if ms else 0},
        }
        return Settlement(raw.entry, raw.delivery, verb, **words.get(verb, {}))

    def is_held(self, taken: Taken) -> bool:
        hold = self.model[taken.number].group(taken.stream, taken.group).holds.get(taken.raw.entry)
        return hold is not None and (hold.consumer, hold.delivery) == (taken.consumer, taken.raw.delivery)

    def serve(self) -> None:
        """A consumer handles all there is for its group."""
        for place in self.model:
            if not place.streams.get("events"):
                continue
            got = self.ask(place, Asked("events", "g", "c1", lease_ms=20_000))
            items = [
                Settlement(given.event.entry, given.delivery, "ack", outcome="ok") for given in got.given
            ]
            (words,) = self.queues["A"]._link.send(
                [settle(self.namespace, place.number, "events", "g", "c1", items)]
            )
            assert words == place.settle(self.now, "events", "g", "c1", items)

    @action(
        3,
        where=st.integers(0, 255),
        tenant=st.sampled_from(TENANTS),
        prefix=st.sampled_from(["", "", "a", "é"]),
        verb=st.sampled_from(["list", "replay", "replay", "discard"]),
    )
    def dead_letters(self, where: int, tenant: str, prefix: str, verb: str) -> None:
        queue, which = self.queues[tenant], Which(prefix=prefix)
        spots = [
            (name, of) for place in self.model for (name, of), group in place.groups.items() if group.dead
        ]
        stream, group = spots[where % len(spots)] if spots else ("events", "g")
        if verb == "list":
            found = [letter.fields for letter in queue.dead_list(group, which, stream=stream)]
            for place in self.model:
                for letter in place.letters(tenant, stream, group, prefix):
                    fields = found.pop(0)
                    assert {**letter, b"payload": b""}.items() >= {**fields, b"payload": b""}.items()
            assert not found
            return
        expected: int | None = 0
        for place in self.model:
            count = place.revive(self.now, tenant, stream, group, prefix, verb)
            if expected is not None:
                expected = None if count is None else expected + count
            if expected is None:
                break
        method = queue.dead_replay if verb == "replay" else queue.dead_discard
        if expected is None:
            with pytest.raises(QueueUnavailable, match="Redis refused"):
                method(group, which, stream=stream)
        else:
            assert method(group, which, stream=stream) == expected

    @action(2, where=st.integers(0, 255))
    def an_entry_is_trimmed(self, where: int) -> None:
        """Of the stream that forgets what it held: read or not, rather one that is pending."""
        there = [place for place in self.model if place.streams.get("bad")]
        if not there:
            return
        place = there[where % len(there)]
        self.learn_entries(place)
        events, pending = place.streams["bad"], place.group("bad", "g").pending
        chosen = [event for event in events if event.entry in pending] or events
        event = chosen[where % len(chosen)]
        place.streams["bad"] = [each for each in events if each is not event]
        self.redis.xdel(keys.stream(self.namespace.tags[place.number], b"bad"), event.entry)
