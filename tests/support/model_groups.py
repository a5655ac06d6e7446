"""What groups of consumers are handed, what they say of it, and their dead letters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tests.support.model_firing import Firing
from tests.support.model_store import Group, Hold, Published, place_of
from tests.support.model_words import Id
from timerq.commands.consume import Settlement

NOBODY = "(waiting)"
NOTES = 8  # fields that a dead letter has besides its event's
OCCURRENCE = re.compile(r"-[1-9]\d*$")
MADE_BY_HAND = re.compile(r"-[tb]\d+$")


class Asked(NamedTuple):
    """What a consumer asks for; with `after` a page of what it holds already, with `epoch` as a group's only reader."""

    stream: str
    group: str
    consumer: str
    limit: int = 100
    lease_ms: int = 5000
    after: bytes | None = None
    epoch: int | None = None
    drop_superseded: bool = False


class Given(NamedTuple):
    """An event that is handed out or, where it waits, told."""

    event: Published
    delivery: int
    attempt: str
    waits_until: int = 0


@dataclass
class Got:
    """What a consumer is told."""

    word: str = "RECEIVED"
    given: list[Given] = field(default_factory=list)
    stale: int = 0
    gone: int = 0
    wait_us: int | None = None
    more: bytes | None = None
    end: bytes | None = None
    cleared: list[bytes] = field(default_factory=list)
    looked: int = 0


class Handling(Firing):
    """receive, settle, lead, and what becomes of dead letters."""

    def group(self, stream: str, name: str) -> Group:
        return self.groups.setdefault((stream, name), Group())

    def lead(self, now: int, stream: str, name: str, consumer: str, what: str) -> tuple[int, int, int]:
        """The epoch (0: it does not read), how many share the leads, and how many of these come before it."""
        group = self.group(stream, name)
        group.sharers.discard(consumer)
        if what != "leave":
            group.sharers.add(consumer)
        if what == "take" and group.reader is None:
            self._reserve(now, 1)
            group.reader = consumer, self.first_version
        elif what != "take" and group.reader is not None and group.reader[0] == consumer:
            group.reader = None
        leads = group.reader is not None and group.reader[0] == consumer
        epoch = group.reader[1] if leads and group.reader is not None else 0
        return epoch, len(group.sharers), sum(each < consumer for each in group.sharers)

    # ------------------------------------------------------------------------------------------- receive

    def receive(self, now: int, asked: Asked) -> Got:
        group = self.group(asked.stream, asked.group)
        if asked.epoch is not None and group.reader != (asked.consumer, asked.epoch):
            return Got("NOT_LEADING")
        if asked.stream in self.broken:
            return Got("BROKEN")
        group.seen = now
        if not group.exists:
            group.begins()
            if asked.stream not in self.streams:
                return Got(end=b"0-0")
            group.exists = True
        got = Got()
        if asked.after is not None:
            self._page(now, asked, group, got)
        else:
            if asked.epoch is not None:
                self._end_dead_waits(now, asked, group)
            for waiting in (group.retries, group.leases):
                due = sorted((until, entry) for entry, until in waiting.items() if until <= now)
                entries = [entry for _, entry in due[: asked.limit - got.looked]]
                if asked.epoch is not None:
                    entries.sort(key=place_of)
                self._take(now, asked, group, got, entries)
            unread = [e for e in self.streams[asked.stream] if place_of(e.entry) > place_of(group.read)]
            for event in unread[: asked.limit - got.looked]:
                group.read = event.entry
                group.pending[event.entry] = asked.consumer
                got.looked += 1
                self._hand_out(now, asked, group, got, event)
            if got.looked < asked.limit:
                got.end = self.streams[asked.stream][-1].entry if self.streams[asked.stream] else b"0-0"
        if got.more is not None or (got.looked >= asked.limit and len(got.given) < asked.limit):
            got.wait_us = 0
        elif group.leases or group.retries:
            got.wait_us = max(0, min([*group.leases.values(), *group.retries.values()]) - now) * 1000
        if asked.epoch is None:
            got.cleared.clear()
        return got

    def _end_dead_waits(self, now: int, asked: Asked, group: Group) -> None:
        """What holds up its lane until it is tried again, and is dead or was trimmed, waits no longer."""
        there = self.streams[asked.stream]
        for entry, until in group.retries.items():
            hold, event = group.holds.get(entry), self._find(asked.stream, entry)
            if until > now and (not there or place_of(entry) < place_of(there[0].entry)):
                group.retries[entry] = now
            if until <= now or hold is None or not hold.id or event is None:
                continue
            id = id_of(event)
            if self._is_dead(asked.stream, id, event.word("id"), event.word("version")) or (
                asked.drop_superseded and asked.stream != "errors" and self._is_superseded(id, event)
            ):
                group.retries[entry] = now

    def _page(self, now: int, asked: Asked, group: Group, got: Got) -> None:
        """What this consumer holds already; for the reader of an ordered group, all that is pending."""
        behind = place_of(asked.after or b"0-0")
        entries = sorted(
            (
                entry
                for entry, consumer in group.pending.items()
                if place_of(entry) > behind and (asked.epoch is not None or consumer == asked.consumer)
            ),
            key=place_of,
        )[: asked.limit]
        for entry in entries:
            until = group.retries.get(entry, 0)
            if until > now:
                got.looked += 1
                hold = group.holds[entry]
                got.given.append(Given(self._find(asked.stream, entry), hold.delivery, hold.attempt, until))
            else:
                self._take(now, asked, group, got, [entry])
        if entries and len(entries) == asked.limit:
            got.more = entries[-1]

    def _take(self, now: int, asked: Asked, group: Group, got: Got, entries: Sequence[bytes]) -> None:
        """Makes pending ones this consumer's; what was trimmed from the stream nobody can handle any more."""
        found = []
        for entry in entries:
            got.looked += 1
            group.retries.pop(entry, None)
            event = self._find(asked.stream, entry)
            if event is None:
                group.settled(entry, "gone")
                got.cleared.append(entry)
                got.gone += 1
            else:
                group.pending[entry] = asked.consumer
                found.append(event)
        self._count("gone", len(entries) - len(found))
        for event in found:
            self._hand_out(now, asked, group, got, event)

    def _hand_out(self, now: int, asked: Asked, group: Group, got: Got, event: Published) -> None:
        entry, id = event.entry, id_of(event)
        only = event.word("only")
        if only and only != asked.group:
            group.settled(entry, "another's")
            got.cleared.append(entry)
            return
        if self._is_dead(asked.stream, id, event.word("id"), event.word("version")) or (
            asked.drop_superseded and self._is_superseded(id, event)
        ):
            group.settled(entry, "stale")
            got.cleared.append(entry)
            got.stale += 1
            self._count("stale", 1)
            assert id is not None
            self.finish_for(now, asked.group, id, event.word("id"))
            return
        hold = group.holds.get(entry)
        if hold is None:
            hold = Hold(asked.consumer, 1, "1")
            if id is not None:
                hold = replace(hold, event=event.word("id"), at=event.word("at"), id="\0".join(id))
        elif asked.after is None or hold.consumer != asked.consumer:
            attempt = hold.attempt
            if not hold.is_suspect:  # one that had a holder may not have begun
                attempt = f"{'' if hold.consumer == NOBODY else '0'}{int(attempt) + 1}"
            hold = replace(hold, consumer=asked.consumer, delivery=hold.delivery + 1, attempt=attempt)
        group.holds[entry] = hold
        group.leases[entry] = now + asked.lease_ms
        got.given.append(Given(event, hold.delivery, hold.attempt))

    def _find(self, stream: str, entry: bytes) -> Published | None:
        return next((event for event in self.streams.get(stream, ()) if event.entry == entry), None)

    def _is_dead(self, stream: str, id: Id | None, event_id: str, version: str) -> bool:
        """Whether it was cancelled after it fired, or its owner has gone."""
        if id is None or stream == "errors":
            return False
        floors = [self.floor(id)]
        if not event_id.endswith("-0"):  # what was published without a schedule does not go with its key
            floors.append(self.floors.get(id, -1))
        return int(version) <= max(floors)

    def _is_superseded(self, id: Id | None, event: Published) -> bool:
        r = self.records.get(id) if id is not None else None
        if r is None:
            return False
        by_hand = MADE_BY_HAND.search(event.word("id"))
        return r.version > int(event.word("version")) or (r.state == "p" and not by_hand)

    # ------------------------------------------------------------------------------------------- settle

    def settle(
        self, now: int, stream: str, name: str, consumer: str, items: Sequence[Settlement]
    ) -> list[str]:
        """The first word of each answer."""
        self.marks["settled_ms"] = now
        group = self.group(stream, name)
        stored, holds = set(self.records), {**group.holds}
        settled: set[bytes] = set()
        answers = []
        for item in items:
            hold = holds.get(item.entry)
            if (
                hold is None
                or (hold.consumer, hold.delivery) != (consumer, item.delivery)
                or item.entry in settled
            ):
                answers.append("NOT_HELD")
            else:
                answers.append(self._settle(now, stream, name, group, hold, item, stored))
                if item.verb not in ("extend", "begin") or answers[-1] == "STALE":
                    settled.add(item.entry)
        return answers

    def _settle(
        self, now: int, stream: str, name: str, group: Group, hold: Hold, item: Settlement, stored: set[Id]
    ) -> str:
        entry, attempt = item.entry, int(hold.attempt)
        failed = hold.failed or now
        if item.verb == "extend":
            group.leases[entry] = now + item.lease_ms
            return "SETTLED"
        if stream in self.broken:
            return "BROKEN"
        if entry not in group.pending:
            group.put_away(entry)
            return "NOT_HELD"
        id = parse_id(hold.id)
        if item.verb == "begin":
            if self._is_dead(stream, id, hold.event, hold.event.split("-")[1]):
                assert id is not None
                group.settled(entry, "stale")
                self._count("stale", 1)
                self.finish_for(now, name, id, hold.event)
                return "STALE"
            group.holds[entry] = replace(hold, attempt=str(attempt))
            return "SETTLED"
        told: tuple[str, str] | None = None
        if item.verb == "ack":
            group.settled(entry, "acked")
            told = "ok", item.outcome
        elif item.verb == "reject":
            attempt -= not item.begun
            event = self._find(stream, entry)
            fields = (
                {b"id": hold.event.encode(), b"at": hold.at.encode()} if event is None else event.fields()
            )
            if group.dead is None:
                group.dead = []
            group.dead.append(fields | {
                b"error": item.error.encode(), b"traceback": item.traceback.encode(),
                b"history": "\n".join(hold.past).encode(), b"attempts": b"%d" % attempt,
                b"first_failed_ms": b"%d" % failed, b"last_failed_ms": b"%d" % now, b"group": name.encode(),
                b"entry": entry,
            })  # fmt: skip
            group.settled(entry, "dead")
            self._count("dead", 1)
            told = "failed", item.outcome or item.error
        else:
            group.pending[entry] = NOBODY
            group.leases.pop(entry, None)
            if item.verb == "back" and item.at_ms == 0:
                group.leases[entry] = 0
            else:
                group.retries[entry] = item.at_ms
            if item.verb == "retry":
                past = (*hold.past, f"{attempt} {now} {item.error}")[-9:]
                group.holds[entry] = replace(
                    hold, consumer=NOBODY, attempt=str(attempt), failed=failed, past=past
                )
                told = "retry", item.error
            else:
                back = f"0{attempt}" if hold.is_suspect else str(max(0, attempt - 1))
                group.holds[entry] = replace(hold, consumer=NOBODY, attempt=back)
        if told is not None and id in stored:
            assert id is not None
            if item.verb != "retry":
                error = item.error if item.verb == "reject" else None
                self.finish_for(now, name, id, hold.event, error)
            r = self.records.get(id)
            if r is not None and OCCURRENCE.search(hold.event):
                for slot, (at, *_) in r.fires.items():
                    if str(at) == hold.at:
                        r.results[slot] = f"{at} {told[0]} {attempt} {told[1]}"
        return "SETTLED"

    # ------------------------------------------------------------------------------------------- dead letters

    def letters(self, tenant: str, stream: str, name: str, prefix: str = "") -> list[dict[bytes, bytes]]:
        """Those that a tenant sees: its own, and what cannot be read."""
        return [
            letter
            for letter in self.group(stream, name).dead or ()
            if letter.get(b"tenant", tenant.encode()) == tenant.encode()
            and letter.get(b"key", b"").startswith(prefix.encode())
        ]

    def revive(self, now: int, tenant: str, stream: str, name: str, prefix: str, verb: str) -> int | None:
        """Replays or discards them; how many, None where the stream refuses."""
        chosen = self.letters(tenant, stream, name, prefix)
        group = self.group(stream, name)
        if not chosen or group.dead is None:
            return 0
        self.marks["revived_ms"] = now
        if verb == "replay" and stream in self.broken:
            return None
        group.dead = [letter for letter in group.dead if not any(letter is one for one in chosen)]
        for letter in chosen if verb == "replay" else ():
            fields = dict([*letter.items()][:-NOTES])
            fields.pop(b"only", None)
            event = {key.decode(): read_field(key, value) for key, value in fields.items()}
            self.streams.setdefault(stream, []).append(Published({**event, "only": name}))
        return len(chosen)


def read_field(key: bytes, value: bytes) -> str | bytes:
    return value if key in (b"payload", b"correlation") else value.decode()


def id_of(event: Published) -> Id | None:
    """Whose it is; None where it cannot be told."""
    return (event.word("tenant"), event.word("key"), event.word("owner")) if "version" in event else None


def parse_id(text: str) -> Id | None:
    tenant, key, owner = text.split("\0") if text else ("", "", "")
    return (tenant, key, owner) if text else None
