"""What must hold after each step of the model test."""

from __future__ import annotations

import json
from typing import Any

from tests.support.model_rules_world import World
from tests.support.model_store import place_of
from tests.support.model_words import Definition, id_bytes
from tests.support.state import check_structure, dump, parts
from timerq import keys


class Checked(World):
    """The whole state of Redis is the model's, and its events are told once."""

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
                elif name.startswith(b"sharers:"):  # by the server's time
                    stream, group = name[8:].decode().split("\0")
                    assert {who.decode() for who in real.pop(name)} == place.group(stream, group).sharers
                elif name.startswith(b"once:"):
                    assert len(real[name].pop(b"digest")) == 32
                elif name.startswith(b"sch:"):
                    tenant, key, owner = keys.split_identity(name[4:])
                    record = place.records.get((tenant, key, owner))
                    assert record is not None, f"{name!r} should not be there"
                    assert (real[name].pop(b"e", None) is not None) == record.held, name
                elif name.startswith((b"s:", b"dead:")) and isinstance(real[name], list):
                    real[name] = [entry for _, entry in real[name]]
            place.learn_floors(real)
            expected_keys = place.keys()
            for name in list_of(expected_keys):
                if name == b"s:errors" or name.startswith(b"dead:errors"):
                    use_the_servers_words(real.get(name, ()), expected_keys[name])
            assert real == expected_keys
        front = {
            name for name in state if not name.startswith(tuple(tag + b":" for tag in self.namespace.tags))
        }
        assert front == {keys.namespace_meta("ns")}
        self.every_event_is_in_one_place()
        self.every_tick_is_told_once()

    def every_event_is_in_one_place(self) -> None:
        """For each group each event is unread, held, waiting, or done with in one way; and what Redis itself has as
        pending is what somebody holds or what waits.
        """
        found = [
            (place, of[0], of[1], group)
            for place in self.model
            for of, group in place.groups.items()
            if group.exists
        ]
        with self.redis.pipeline(transaction=False) as pipeline:
            for place, stream, name, _ in found:
                key = keys.stream(self.namespace.tags[place.number], stream.encode())
                pipeline.xpending_range(key, name, "-", "+", 1000)
            answers = pipeline.execute()
        for (place, stream, _, group), answer in zip(found, answers, strict=True):
            self.learn_entries(place)
            there = {event.entry for event in place.streams[stream]}
            real = {each["message_id"]: each["consumer"].decode() for each in answer}
            # (some servers no longer count what was trimmed)
            assert {entry: who for entry, who in real.items() if entry in there} == {
                entry: who for entry, who in group.pending.items() if entry in there
            }
            assert real.keys() <= group.pending.keys()
            assert group.holds.keys() == group.pending.keys()
            assert sorted([*group.leases, *group.retries]) == sorted(group.pending)
            for entry in there:
                is_unread = place_of(entry) > place_of(group.read)
                assert is_unread + (entry in group.pending) + (entry in group.fates) == 1

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
                    if stream == "errors" or mark[0] == "b" or "only" in words:
                        continue  # reports, and what was asked for again
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
                        assert fired >= self.earliest(made, last_id, last_fired, place.handled)
                    # the clock may step back
                    end = 0 if made.ways.fixed_delay else at + stands_for * made.every
                    last[of] = n, end, event_id, fired
                    told[of] = told.get(of, 0) + stands_for
            for what, id, version, _, note, _ in place.log:
                if what == "skipped":
                    told[id, version] = told.get((id, version), 0) + int(note.split(" ")[0])
            for name, r in place.records.items():
                of = id_bytes(name), r.version
                if of in self.begun and r.event.stream != "bad" and not r.ways.fixed_delay:
                    assert r.at == self.begun[of][0] + told.get(of, 0) * r.every

    def earliest(self, made: Definition, last_id: str, last_fired: int, done: dict[str, int]) -> int:
        """When the event behind this one may be published."""
        handled = last_fired + made.ways.running_timeout_ms
        if last_id in done:
            handled = min(handled, done[last_id])
        if made.ways.fixed_delay:
            return made.every + (handled if made.waits_for_handling else last_fired)
        return handled if made.ways.overlap != "allow" else 0


def use_the_servers_words(found: Any, expected: Any) -> None:
    """Why one is held only the server knows: any text will do."""
    for entry, wanted in zip(found, expected if isinstance(expected, list) else (), strict=False):
        if wanted[b"payload"] == b"*":
            assert json.loads(entry[b"payload"])["reason"]
            wanted[b"payload"] = entry[b"payload"]


def list_of(names: dict[bytes, Any]) -> list[bytes]:  # `list` is a rule above
    return [*names]
