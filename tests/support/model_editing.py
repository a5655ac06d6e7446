"""The verbs that change what is stored or publish it, and what handled events mean for their schedules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tests.support.model_arming import Arming
from tests.support.model_words import Definition, Edit, Id, Record
from timerq import Event


class Editing(Arming):
    """edit (pause, resume, trigger), publish, backfill, done."""

    def edit(self, now: int, items: Sequence[Edit]) -> list[tuple[Any, ...]]:
        before = self.head()
        self._request: int | None = None
        answers: list[tuple[Any, ...]] = []
        for item in items:
            old = self.records.get(item.id)
            if self.is_gone(item.id, item.incarnation):
                answers.append(("OWNER_GONE", self.floor(item.id)))
            elif old and old.version <= self.floor(item.id):
                answers.append(("NOT_PENDING",))
            elif item.if_version is not None and item.if_version != (old.version if old else 0):
                answers.append(("VERSION_MISMATCH", old.version if old else 0))
            elif old is None:
                answers.append(("NOT_PENDING",))
            elif item.verb in ("trigger", "consume"):
                answers.append(self._trigger(now, old, item, len(items)))
            elif (item.verb == "pause") == (old.state == "p") and not (item.verb == "pause" and item.note):
                answers.append(("UNCHANGED", old.version, old.at))
            elif item.verb == "pause":
                self._pause(now, item.id, old, item.note, item.by)
                answers.append(("PAUSED", old.version, old.at))
            else:
                self._let_go_on(old)
                if item.going is not None:
                    old.at, old.following = item.going.at, item.going.following
                    self._skip(now, item.id, old, item.going.skipped, "resumed from now")
                old.state = "a"
                self._score(item.id, old.at)
                self._log(
                    now, "resumed", item.id, old.version, "from now" if item.going else item.note, item.by
                )
                answers.append(("RESUMED", old.version, old.at))
        self._wake(before)
        return answers

    def _trigger(self, now: int, old: Record, item: Edit, of: int) -> tuple[Any, ...]:
        if old.spoilt:
            return ("BROKEN",)
        if item.verb == "consume" and old.kind != "o":
            return ("INVALID", "consume")
        if old.triggered and old.triggered[0] == now // 1000:  # two in one second are one
            event_id, outcome = old.triggered[1], "DUPLICATE"
        else:
            if self._request is None:
                self._reserve(now, 5 + 9 * of)
                self._request = self.first_version - 1
            self._request += 1
            event_id, outcome = f"{self.number}-{old.version}-t{self._request}", "TRIGGERED"
            if not self._emit(now, item.id, old, event_id, now, 0, 0):
                return ("BROKEN",)
            self._log(now, "triggered", item.id, old.version, event_id, item.by)
            if item.verb == "trigger":
                old.triggered = now // 1000, event_id
        if item.verb == "consume":
            self._forget(item.id, fired=True)
        return (outcome, old.version, event_id)

    def _pause(self, now: int, id: Id, r: Record, note: str, by: str) -> None:
        self._set_aside_no_more(id, r)
        r.state = "p"
        r.paused_by = by, note, str(now)
        self._score(id, None)
        self._log(now, "paused", id, r.version, note, by)

    def publish(
        self, now: int, items: Sequence[tuple[Id, Event]], incarnation: int | None = None
    ) -> list[tuple[Any, ...]]:
        self._reserve(now, len(items))
        answers: list[tuple[Any, ...]] = []
        for i, (id, event) in enumerate(items):
            if self.is_gone(id, incarnation):
                answers.append(("OWNER_GONE", self.floor(id)))
                continue
            version = self.first_version + i
            event_id = f"{self.number}-{version}-0"
            record = Record(Definition(event), "a", version, now)
            fine = self._emit(now, id, record, event_id, now, 0, 0)
            answers.append(("PUBLISHED", version, event_id) if fine else ("BROKEN",))
        return answers

    def backfill(self, now: int, id: Id, start: int, end: int, by: str) -> tuple[Any, ...]:
        """Publishes the occurrences from `start` to `end`, both included."""
        r = self.records.get(id)
        if r is None:
            return ("NOT_PENDING", 0)
        if r.kind == "o" or r.ways.fixed_delay:
            return ("INVALID", "key")
        first = max(start, r.window[2] or 0)
        slots = range(first + (r.at - first) % r.every, min(end, r.until) + 1, r.every)
        if not slots:
            return ("PUBLISHED", r.version, 0)
        if r.spoilt:
            return ("BROKEN",)
        if r.version <= self.floor(id):
            return ("VERSION_MISMATCH", 0)
        self.marks["fired_ms"] = now
        for at in slots:
            if not self._emit(now, id, r, f"{self.number}-{r.version}-b{at}", at, 0, 0, mark="backfill"):
                return ("BROKEN",)
            self.fired.add(id)
        self._log(now, "backfilled", id, r.version, f"{len(slots)} from {slots[0]}", by)
        return ("PUBLISHED", r.version, len(slots))

    def done(self, now: int, tenant: str, event_id: str, error: str | None) -> tuple[Any, ...]:
        """An event is handled, or its handling failed."""
        id = self.run.get(event_id)
        if id is None or id[0] != tenant:
            return ("NOT_PENDING",)
        r = self.records.get(id)
        if r and r.spoilt:
            return ("BROKEN",)
        self.marks["done_ms"] = now
        return self._finish(now, id, event_id, error)

    def finish_for(self, now: int, group: str, id: Id, event_id: str, error: str | None = None) -> None:
        """The same for what a group has handled, unless another group's word counts."""
        r = self.records.get(id)
        if event_id not in self.run or (r and (r.spoilt or r.ways.ack_group not in (None, group))):
            return
        self._finish(now, id, event_id, error)

    def _finish(self, now: int, id: Id, event_id: str, error: str | None) -> tuple[Any, ...]:
        r = self.records.get(id)
        before = self.head()
        del self.run[event_id]
        if r is None:
            return ("NOT_PENDING",)
        was = r.running if r.running and r.running.event_id == event_id else None
        if was:
            if was.deadline <= now:
                return ("NOT_PENDING",)
            r.running = None
        elif event_id.split("-")[1] != str(r.version):
            return ("NOT_PENDING",)
        self.handled[event_id] = now
        r.failures = 0 if error is None else r.failures + 1
        if error is not None:
            self._log(now, "failed", id, r.version, f"{event_id} {error}")
        if was and r.waits_for_handling:
            # an event of the version before: this one has its start, still to come unless it was put off
            starts = not r.n and r.at != was.deadline + r.every
            r.at = max(r.at, now + r.every) if starts else now + r.every
            if r.at > r.until:
                self._forget(id, fired=True)
                self._ended(now, id, r, "until")
                return ("DONE", r.version, r.at)
            if r.state != "p":
                self._score(id, r.at)
        elif was and was.waited_for and r.state == "a":
            self._score(id, r.at)
        outcome = "DONE"
        if error is not None and r.failures >= (r.ways.pause_after or math.inf) and r.state != "p":
            outcome = "PAUSED"
            why = f"{r.failures} failure{'' if r.failures == 1 else 's'} in a row: {error}"
            self._pause(now, id, r, why, "timerq")
            self._report(now, "schedule.paused", id, r, f"p{now}", r.at, r.n, why)
        self._wake(before)
        return (outcome, r.version, r.at)
