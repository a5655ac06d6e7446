"""Rules of the model test: schedules are changed in place, events published, and their handling told."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st

from tests.support.model_rules_arming import Arming
from tests.support.model_wishes import TENANTS, action, callers, events, fences, offsets, rarely, who
from tests.support.model_words import Edit, Going, Id, Record
from timerq import Event
from timerq.commands import edit as editing
from timerq.commands.items import one


class Editing(Arming):
    """pause, resume, trigger, done, backfill, publish."""

    @action(
        6,
        who=who,
        verb=st.sampled_from(["pause"] * 3 + ["resume"] * 2 + ["go on"] * 3 + ["trigger"] * 2 + ["consume"]),
        fence=fences,
        by=callers,
        note=st.sampled_from([None, None, "why", "ü"]),
        then=st.sampled_from([None, "trigger", "consume"]),
    )
    def edit(
        self, who: int, verb: str, fence: str | None, by: str | None, note: str | None, then: str | None
    ) -> None:
        id = self.id(who, states="p" if verb in ("resume", "go on") else "ach")
        again = then is not None and verb in ("trigger", "consume")
        if again and (one_shots := self.such(lambda r: r.kind == "o")):
            id = one_shots[who % len(one_shots)]
        self.change(verb, id, self.version(id, fence), by, note)
        if again:
            self.change(str(then), id)

    def change(
        self, verb: str, id: Id, version: int | None = None, by: str | None = None, note: str | None = None
    ) -> None:
        queue = self.queues[id[0]]
        given: dict[str, Any] = {"owner": id[2] or None, "if_version": version, "by": by}
        if verb == "pause":
            given["note"] = note
        elif verb == "consume":
            given["consume"] = True
        elif verb == "go on":
            given["from_now"] = True
        method: Any = getattr(queue, {"consume": "trigger", "go on": "resume"}.get(verb, verb))
        real = self.answer(lambda: method(id[1], **given))
        said = Edit("resume" if verb == "go on" else verb, id, version, by or "", given.get("note") or "")
        assert real == self.expect_edit(said, from_now=verb == "go on")

    @action(2, which=st.integers(0, 31), how=st.sampled_from(["upsert", "resume", "go on"]))
    def let_go_on(self, which: int, how: str) -> None:
        """One that is paused, rather after failures."""
        found = self.such(lambda r: r.state == "p" and r.failures > 0) or self.such(lambda r: r.state == "p")
        if found and how == "upsert":
            self.upsert_as_it_is(found[which % len(found)], restart=False)
        elif found:
            self.change(how, found[which % len(found)])

    def expect_edit(self, said: Edit, from_now: bool) -> tuple[Any, ...]:
        place = self.place(said.id)
        r = place.records.get(said.id)
        right = r is not None and said.if_version in (None, r.version)
        if from_now and r is not None and right and r.kind != "o" and r.state == "p" and r.at <= self.now:
            going = self.going(r)
            if going is None:
                return ("INVALID", "from_now")
            said = said._replace(going=going)
        (answer,) = place.edit(self.now, [said])
        return answer

    def going(self, r: Record) -> Going | None:
        """Where one goes on that leaves out what is overdue; None where nothing is left."""
        if r.ways.fixed_delay:
            at = self.now + r.every
            return Going(at, None, 0) if at <= r.until else None
        overdue = len(range(r.at, min(self.now, r.until) + 1, r.every))
        at = r.at + overdue * r.every
        if at > r.until:
            return None
        following = at + r.every if at + r.every <= r.until else 0
        return Going(at, following if r.kind == "c" else None, overdue)

    @action(
        5,
        which=st.sampled_from([0, 0, 0, 1, 2, 3]),
        error=st.sampled_from([None, None, "boom", "ü"]),
        stranger=rarely,
        twice=rarely,
        unknown=rarely,
    )
    def done(self, which: int, error: str | None, stranger: bool, twice: bool, unknown: bool) -> None:
        """A consumer says what became of an event that somebody waits for."""
        waiting = [(place, event_id, id[0]) for place in self.model for event_id, id in place.run.items()]
        if not waiting or unknown:
            place, event_id, tenant = self.model[0], "0-1-1", "A"
        else:
            place, event_id, tenant = waiting[-1 - which % len(waiting)]
        if stranger:
            tenant = TENANTS[1 - TENANTS.index(tenant)]
        queue = self.queues[tenant]
        for _ in range(1 + twice):
            real = self.answer(lambda: queue.done(event_id, error=error))
            expected = place.done(self.now, tenant, event_id, error)
            assert real == expected

    @action(1, who=who, slots=st.integers(0, 3), end=offsets.map(lambda n: -abs(n)), by=callers)
    def backfill(self, who: int, slots: int, end: int, by: str | None) -> None:
        id = self.id(who)
        place = self.place(id)
        last = self.now + end
        first = last - slots * (place.records[id].every if id in place.records else 0)
        queue = self.queues[id[0]]
        real = self.answer(lambda: queue.backfill(id[1], first, last, owner=id[2] or None, by=by))
        assert real == place.backfill(self.now, id, first, last, by or "")

    @action(3, who=who, event=events, handle=st.booleans())
    def publish(self, who: int, event: Event, handle: bool) -> None:
        id = self.id(who)
        queue, owner = self.queues[id[0]], id[2] or None
        incarnation = self.incarnation(id) if handle else None
        if incarnation is None:
            real = self.answer(lambda: queue.publish(event, key=id[1], owner=owner))
        else:
            item = editing.publish_item(queue._open(), event, id[1], owner, incarnation)
            real = self.answer(lambda: queue._link.run(one(queue._open(), item)))
        (expected,) = self.place(id).publish(self.now, [(id, event)], incarnation)
        assert real == expected
