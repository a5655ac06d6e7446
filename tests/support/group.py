"""Consumers of one group on a `Partition`, one call each."""

from __future__ import annotations

from typing import Any

from tests.support.partition import EVENT, Partition
from timerq import Event
from timerq.commands import edit
from timerq.commands.consume import (
    RawDelivery,
    Received,
    Settlement,
    receive,
    settle,
)
from timerq.commands.lead import Lead, lead_partition

LEASE_MS = 5_000


class Group:
    """What the consumers of a group say; `name` is the group's."""

    def __init__(self, partition: Partition, name: str = "g", stream: str = "events") -> None:
        self.partition = partition
        self.name = name
        self.stream = stream

    def publish(self, *keys: str, **words: Any) -> None:
        """An event of each key straight onto the stream; `owner` and the event's words besides."""
        owner = words.pop("owner", None)
        event = Event("t", words.pop("payload", EVENT.payload), stream=self.stream, **words)
        for key in keys:
            self.partition.do(edit.publish_item(self.partition.scope, event, key, owner))

    def read(self, consumer: str = "c1", **words: Any) -> Received:
        given: dict[str, Any] = {"count": 100, "lease_ms": LEASE_MS, **words}
        command = receive(self.partition.namespace, 0, self.stream, self.name, consumer, **given)
        received: Received = self.partition.ask(command)
        return received

    def get(self, consumer: str = "c1", **words: Any) -> list[RawDelivery]:
        return self.read(consumer, **words).deliveries

    def say(self, consumer: str, *items: Settlement) -> list[str]:
        words: list[str] = self.partition.ask(
            settle(self.partition.namespace, 0, self.stream, self.name, consumer, items)
        )
        return words

    def settle(self, raw: RawDelivery, verb: Any, consumer: str = "c1", **more: Any) -> str:
        """One delivery; returns the status word."""
        (word,) = self.say(consumer, Settlement(raw.entry, raw.delivery, verb, **more))
        return word

    def lead(self, consumer: str = "c1", what: Any = "take", lease_ms: int = 60_000) -> int:
        """The epoch; 0 where it does not lead."""
        return self.share(consumer, what, lease_ms).epoch

    def share(self, consumer: str = "c1", what: Any = "take", lease_ms: int = 60_000) -> Lead:
        lead: Lead = self.partition.ask(
            lead_partition(self.partition.namespace, 0, self.stream, self.name, consumer, lease_ms, what)
        )
        return lead

    # ------------------------------------------------------------------------------------------- looking

    @property
    def stream_key(self) -> bytes:
        return self.partition.key(f"s:{self.stream}")

    def key(self, kind: str) -> bytes:
        return self.partition.key(f"{kind}:{self.stream}\0{self.name}")

    def pending(self) -> dict[bytes, bytes]:
        """Entry -> consumer, as Redis itself has it."""
        found = self.partition.client.xpending_range(self.stream_key, self.name, "-", "+", 1000)
        return {each["message_id"]: each["consumer"] for each in found}

    def leases(self) -> dict[bytes, float]:
        return dict(self.partition.client.zrange(self.key("lease"), 0, -1, withscores=True))

    def retries(self) -> dict[bytes, float]:
        return dict(self.partition.client.zrange(self.key("retry"), 0, -1, withscores=True))

    def letters(self) -> list[dict[bytes, bytes]]:
        return [fields for _, fields in self.partition.client.xrange(self.key("dead"))]

    def check(self) -> None:
        """Each pending entry waits for its time or has a lease, never both, and has a hold; nothing else has."""
        pending = set(self.pending())
        leases, retries = set(self.leases()), set(self.retries())
        assert leases | retries == pending
        assert not leases & retries
        held = set(self.partition.client.hkeys(self.key("hold")))
        assert {name for name in held if name[-1:] != b"!"} == pending
        assert {name[:-1] for name in held if name[-1:] == b"!"} <= pending


def keys_of(deliveries: list[RawDelivery]) -> list[str]:
    return [raw.fields[b"key"].decode() for raw in deliveries]
