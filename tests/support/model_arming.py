"""The verbs that make schedules and take them away."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tests.support.model_store import Store
from tests.support.model_words import Id, Record, Wanted, id_bytes


class Arming(Store):
    """upsert, cancel, sweep, live, destroy."""

    def upsert(self, now: int, items: Sequence[Wanted]) -> list[tuple[Any, ...]]:
        before = self.head()
        self._reserve(now, len(items))
        version = self.first_version - 1
        answers = []
        for wanted in items:
            answer, version = self._upsert(now, wanted, version)
            if wanted.token is not None and answer[0] in ("CREATED", "REPLACED", "UNCHANGED", "KEPT"):
                key = (wanted.id[0], wanted.lane, wanted.token)
                self.once[key] = wanted, f"{answer[1]} {answer[2]} {answer[3]}"
            answers.append(answer)
        self._wake(before)
        return answers

    def _upsert(self, now: int, w: Wanted, version: int) -> tuple[tuple[Any, ...], int]:
        old = self.records.get(w.id)
        floor = self.floor(w.id)
        if floor >= 0 and w.incarnation is not None and w.incarnation <= floor:
            return ("OWNER_GONE", floor), version
        if old and old.version <= floor:
            del self.records[w.id]
            self._score(w.id, None)
            self.held.pop(w.id, None)
            old = None
        used = self.once.get((w.id[0], w.lane, w.token)) if w.token is not None else None
        if used and int(used[1].split(" ")[0]) > floor:
            if used[0].body != w.body:
                return ("INVALID", "idempotency_key"), version
            first_version, first_at, first_state = used[1].split(" ")
            return ("DUPLICATE", int(first_version), int(first_at), first_state), version
        if w.if_version is not None and w.if_version != (old.version if old else 0):
            return ("VERSION_MISMATCH", old.version if old else 0), version
        if w.mode == "keep" and old:
            return ("KEPT", old.version, old.at, old.state), version
        kind = w.definition.kind
        due = now + w.delay if w.delay is not None else w.at
        assert due is not None
        record = Record(w.definition, "a", 0, 0, w.following, by=w.by)
        if kind == "o":
            if old and w.mode in ("earliest", "latest") and old.kind != "o":
                return ("INVALID", "mode"), version
            if w.max_wait is not None:
                record.first = now
                if old and old.first is not None:
                    record.first = old.first
                elif old and old.kind == "o":  # armed without max_wait: its version tells when
                    record.first = old.version // 1000
                due = min(due, record.first + w.max_wait)
            if old and ((w.mode == "earliest" and due >= old.at) or (w.mode == "latest" and due <= old.at)):
                return ("KEPT", old.version, old.at, old.state), version
        else:
            if kind == "e" and due < now:
                due += math.ceil((now - due) / record.every) * record.every
            same = old and old.definition == w.definition and not old.spoilt
            if old and same and not w.restart and not w.reset:
                want = old.state
                if w.paused:
                    want = "p"
                elif w.paused is False and old.state == "p":
                    want = "a"
                if want != old.state:
                    if want == "p":
                        self._set_aside_no_more(w.id, old)
                    else:
                        self._let_go_on(old)
                    old.state = want
                    self._score(w.id, old.at if want == "a" else None)
                    self._log(now, "paused" if want == "p" else "resumed", w.id, old.version)
                return ("UNCHANGED", old.version, old.at, want), version
            if kind == "e" and due == now and w.delay is None and not w.reset and old and old.at > now:
                last = old.fires.get((old.totals[0] - 1) % 10) if old.totals else None
                if last and last[1] == now:
                    due += record.every
            if due > record.until:
                return ("INVALID", "until"), version
            limit = record.window[1]
            goes_on = old is not None and old.kind != "o"
            if old and goes_on and not w.reset:
                if limit is not None and old.totals and old.totals[0] >= limit:
                    return ("INVALID", "limit"), version
                record.totals, record.fires, record.results = old.totals, old.fires, old.results
            if w.is_computed and due < now:
                return ("LATE", now), version
            if old and goes_on:
                record.running, record.triggered, record.failures = old.running, old.triggered, old.failures
        if old and ((old.totals and not record.totals) or (old.triggered and not record.triggered)):
            self.fired.add(w.id)
        version += 1
        record.version, record.at = version, due
        record.state = "p" if w.paused or (old and old.state == "p" and w.paused is not False) else "a"
        self.records[w.id] = record
        self._score(w.id, due if record.state == "a" else None)
        if not old:
            return ("CREATED", version, due, record.state), version
        if record.state == "p":
            record.paused_by = old.paused_by
        elif old.state == "p":
            record.failures = 0
        self.held.pop(w.id, None)
        setter = f" {old.by}" if old.by and "o" not in (old.kind, record.kind) else ""
        self._log(now, "replaced", w.id, version, f"{old.version}{setter}", w.by or "")
        return ("REPLACED", version, due, record.state, old.version, old.at), version

    def cancel(
        self, now: int, ids: Sequence[tuple[Id, int | None]], by: str = "", incarnation: int | None = None
    ) -> list[tuple[Any, ...]]:
        answers: list[tuple[Any, ...]] = []
        for id, if_version in ids:
            old = self.records.get(id)
            if self.is_gone(id, incarnation):
                answers.append(("OWNER_GONE", self.floor(id)))
            elif if_version is not None and if_version != (old.version if old else 0):
                answers.append(("VERSION_MISMATCH", old.version if old else 0))
            elif old is None:
                self.floors[id] = self.last or 0
                answers.append(("NOT_PENDING",))
            else:
                self._cancel(now, id, old, by)
                answers.append(("CANCELLED", old.version, old.at))
        return answers

    def _cancel(self, now: int, id: Id, old: Record, by: str = "") -> None:
        if old.n or old.totals or old.triggered or id in self.fired:
            self.floors[id] = old.version
        else:
            self.perhaps[id] = old.version
        self._log(now, "cancelled", id, old.version, by=by)
        self._forget(id)

    def sweep(self, now: int, tenant: str, prefix: str, owner: str | None) -> int:
        found = self.select(tenant, prefix, owner)
        for id in found:
            self._cancel(now, id, self.records[id])
        return len(found)

    def select(self, tenant: str, prefix: str = "", owner: str | None = None) -> list[Id]:
        """Ids in key order."""
        found = [
            id
            for id in self.records
            if id[0] == tenant and id[1].startswith(prefix) and owner in (None, id[2])
        ]
        return sorted(found, key=id_bytes)

    # ------------------------------------------------------------------------------------------- owners

    def floor(self, id: Id) -> int:
        """The version up to which everything of its owner is dead; -1 for none."""
        return self.floors.get((id[0], id[2]), -1) if id[2] else -1

    def is_gone(self, id: Id, incarnation: int | None) -> bool:
        """Whether the owner's handle that asks is of an incarnation that was destroyed."""
        return incarnation is not None and incarnation <= self.floor(id)

    def live(self, now: int, owner: Id, incarnation: int | None) -> tuple[int, int, int | None]:
        """incarnation, the last version there is, and the floor where it has gone"""
        if self.is_gone(owner, incarnation):
            return 0, 0, self.floor(owner)
        last = self.last or 0
        if incarnation is None:
            self._reserve(now, 1)
            incarnation = last = self.first_version
        return incarnation, last, None

    def destroy(
        self, now: int, owner: Id, incarnation: int | None, begun: tuple[int, bytes] | None, limit: int
    ) -> tuple[str, int, int, bytes | None]:
        """One piece of a sweep (`begun`: its ceiling, and behind which id it goes on): word, swept, ceiling, after."""
        name = owner[0], owner[2]
        word = "DESTROYED"
        if begun is not None:
            ceiling = begun[0]
        elif self.is_gone(owner, incarnation):
            word, ceiling = "OWNER_GONE", self.floors[name]
        else:
            ceiling = self.floors[name] = self.last or 0
        ids = [id for id in self.select(owner[0], "", owner[2]) if begun is None or id_bytes(id) > begun[1]]
        more = len(ids) >= limit
        ids = ids[:limit]
        if begun is None and word == "DESTROYED" and ids:
            self._log(now, "destroyed", (owner[0], "", owner[2]), 0)
        dead = [id for id in ids if self.records[id].version <= ceiling]
        for id in dead:
            self._forget(id)
        if more and begun is None:
            self.unswept[name] = ceiling
        elif not more and self.unswept.get(name, ceiling + 1) <= ceiling:
            del self.unswept[name]
        return word, len(dead), ceiling, id_bytes(ids[-1]) if more else None

    # ------------------------------------------------------------------------------------------- parts

    def _let_go_on(self, r: Record) -> None:
        """What a paused one forgets when it is resumed: who paused it, its failures, what a calendar said of `at`."""
        if r.missed is not None:
            r.missed = r.following = None
        r.paused_by, r.failures = None, 0

    def _set_aside_no_more(self, id: Id, r: Record) -> None:
        self.held.pop(id, None)
        r.held = False
