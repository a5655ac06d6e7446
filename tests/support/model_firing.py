"""What becomes of schedules that are due."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tests.support.model_editing import Editing
from tests.support.model_words import HELD_MAX_MS, LEASE_MS, Handed, Id, Record, Running, id_bytes


class Firing(Editing):
    """fire, advance."""

    def fire(self, now: int, batch: int, lag: int) -> tuple[int, int, int, int | None, list[Handed]]:
        """published, held, dropped, wait_us, what is handed over"""
        cutoff = now - lag
        heads = sorted((score, tenant.encode(), tenant) for tenant, score in self.heads().items())
        tenants = [tenant for score, _, tenant in heads if score <= cutoff][:batch]
        if tenants:
            self.marks["fired_ms"] = now
        count = {"published": 0, "held": 0, "dropped": 0}
        handed: list[Handed] = []
        for turn, tenant in enumerate(tenants):
            share = math.ceil(batch / (len(tenants) - turn))
            for id in self.due(tenant, cutoff)[:share]:
                what = self._fire_one(now, id, handed)
                if what:
                    count[what] += 1
                batch -= 1
        self._count("fired", count["published"])
        self._count("dropped", count["dropped"])
        head = self.head()
        wait = None if head is None else max(0, (head + lag - now) * 1000)
        return count["published"], count["held"], count["dropped"], wait, handed

    def due(self, tenant: str, until: int) -> list[Id]:
        """The tenant's waiting ids in the order in which they are looked at."""
        found = [
            (score, id_bytes(id), id)
            for id, score in self.scores.items()
            if id[0] == tenant and score <= until
        ]
        return [id for _, _, id in sorted(found)]

    def _fire_one(self, now: int, id: Id, handed: list[Handed]) -> str | None:
        """What became of one that is to be looked at."""
        r = self.records[id]
        if r.spoilt:
            return self._hold(now, id, r, now, 0)
        if id[2] and r.version <= self.floors.get((id[0], id[2]), -1):
            self._log(now, "dropped", id, r.version, "its owner is gone")
            self._forget(id, fired=True)
            return "dropped"
        if r.kind == "o":
            if not self._emit(now, id, r, f"{self.number}-{r.version}-1", r.at, 1, 0):
                return self._hold(now, id, r, now, 0)
            self._forget(id, fired=True)
            return "published"

        busy = self._running(now, id, r)
        if busy and r.ways.overlap == "queue":
            self._score(id, busy.deadline)
            if not busy.waited_for:
                r.running = busy._replace(waited_for=True)
                self._log(now, "queued", id, r.version, busy.event_id)
            return None
        if busy and r.waits_for_handling:
            r.at = busy.deadline + r.every
            self._score(id, r.at)
            return None
        if self._must_ask(now, r):
            r.state = "c"
            self._score(id, now + LEASE_MS)
            handed.append(Handed("claimed", id, r.version, r.n, r.at, r.definition))
            return None
        if r.waits_for_handling and r.at > r.until:
            self._ended(now, id, r, "until")
            self._forget(id, fired=True)
            return None

        stands_for, following = self._what_follows(now, r)
        ended = "last" if r.window[0] is None else "until"
        if busy:
            why = f"{busy.event_id} is not done"
            self._skip(now, id, r, 1 + stands_for, why)
            self._report(now, "schedule.skipped", id, r, f"s{r.at}", r.at, r.n, why)
        else:
            event_id = f"{self.number}-{r.version}-{r.n + 1}"
            if r.tracks:
                self.run[event_id] = id
            if not self._emit(now, id, r, event_id, r.at, r.n + 1, stands_for):
                return self._hold(now, id, r, now, 0)
            if stands_for:
                self._log(now, "missed", id, r.version, str(stands_for))
                self._count("missed", stands_for)
            if r.tracks:
                r.running = Running(event_id, now + r.ways.running_timeout_ms)
            fired, missed, skipped = r.totals or (0, 0, 0)
            r.fires = {**r.fires, fired % 10: (r.at, now, stands_for)}
            r.totals = fired + 1, missed + stands_for, skipped
            r.n += 1
            if r.window[1] is not None and r.totals[0] >= r.window[1]:
                following, ended = None, "limit"
        if following is None:
            self._ended(now, id, r, ended)
            self._forget(id, fired=True)
        else:
            self._set_aside_no_more(id, r)
            r.at, r.following, r.state, r.missed = following, None, "a", None
            self._score(id, following)
            if r.kind == "c":
                handed.append(Handed("refill", id, r.version, r.n, following, r.definition))
        return None if busy else "published"

    def _running(self, now: int, id: Id, r: Record) -> Running | None:
        """The event that keeps the next occurrence from being published."""
        if r.running is None or not (r.ways.overlap != "allow" or r.waits_for_handling):
            return None
        if r.running.deadline > now:
            return r.running
        self._log(now, "timed_out", id, r.version, r.running.event_id)
        self.run.pop(r.running.event_id, None)
        r.running = None
        return None

    def _must_ask(self, now: int, r: Record) -> bool:
        """Whether a calendar must say what becomes of the occurrence."""
        if r.kind != "c":
            return False
        if r.ways.misfire == "skip" and now - r.at > r.ways.grace_ms:
            return True
        return r.missed is None and (r.following is None or 0 < r.following <= now)

    def _what_follows(self, now: int, r: Record) -> tuple[int, int | None]:
        """How many later occurrences this one stands for, and the next one."""
        if r.kind == "c":
            return r.missed or 0, r.following or None
        # an interval after it is handled, which is now, or when its time is up at the latest
        if r.ways.fixed_delay:
            at_best = now + r.every
            if at_best > r.until:
                return 0, None
            return 0, at_best + (r.ways.running_timeout_ms if r.waits_for_handling else 0)
        overdue = range(r.at + r.every, min(now, r.until) + 1, r.every)
        following = r.at + (len(range(r.at, now + 1, r.every)) or 1) * r.every
        return len(overdue), following if following <= r.until else None

    def _hold(self, now: int, id: Id, r: Record, at: int, n: int) -> str:
        tries = self.held.get(id, 0) + 1
        self.held[id] = tries
        r.state, r.held = "h", True
        self._score(id, now + min(1000 * 2 ** min(tries - 1, 10), HELD_MAX_MS))
        self._log(now, "held", id, r.version, "*")
        if tries == 1:
            self._report(now, "schedule.held", id, r, f"h{now}", at, n, "*")
        return "held"

    def advance(
        self, now: int, steps: Sequence[tuple[Handed, tuple[int, int, int, int], str | None]]
    ) -> list[str]:
        """What calendars said: each step is what was handed over, the plan, and why it is held."""
        before = self.head()
        answers = [self._advance(now, *step) for step in steps]
        self._wake(before)
        return answers

    def _advance(self, now: int, handed: Handed, plan: tuple[int, int, int, int], hold: str | None) -> str:
        r = self.records.get(handed.id)
        if r is None or (r.version, r.n, r.at) != (handed.version, handed.n, handed.at):
            return "STALE"
        at, following, missed, skipped = plan
        if hold is not None:
            if r.state != "c" and not (r.state == "a" and r.following is None):
                return "STALE"
            self._hold(now, handed.id, r, r.at, r.n)
        elif handed.word == "refill":
            if r.following is not None or r.state == "h":
                return "STALE"
            r.following = following
        elif r.state != "c":
            return "STALE"
        else:
            self._skip(
                now,
                handed.id,
                r,
                skipped,
                "over max_catch_up" if r.ways.misfire == "catch_up" else "too late",
            )
            if at == 0:
                self._ended(now, handed.id, r, "last" if r.window[0] is None else "until")
                self._forget(handed.id, fired=True)
                return "ADVANCED"
            r.state, r.at, r.following = "a", at, following
            r.missed = missed if at <= now else None
            self._score(handed.id, at)
            self._set_aside_no_more(handed.id, r)
        return "ADVANCED"
