"""Rules of the model test: faults, a stepping clock, and what readers are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st

from tests.support.model_rules_firing import Firing
from tests.support.model_wishes import OWNERS, STATES, TENANTS, action, offsets, who
from tests.support.model_words import Id, id_bytes
from timerq import keys
from timerq.model import Fire, GroupStats, Timing, to_datetime


class World(Firing):
    """What goes wrong, and who looks."""

    @action(1, step=st.sampled_from([1, 250, 5000, -1, -1000]))
    def time_steps(self, step: int) -> None:
        self.now += step

    @action(3, count=st.integers(1, 3))
    def lose_replies(self, count: int) -> None:
        self.wire.lose = count

    @action(1, which=st.integers(0, 50))
    def an_old_request_arrives(self, which: int) -> None:
        if not self.wire.writes:
            return
        words = self.wire.writes[-1 - which % len(self.wire.writes)]
        first, now = self.wire.send_again(words)
        assert now in (first, [b"OLD_REQUEST"])

    @action(1)
    def forget_scripts(self) -> None:
        self.redis.script_flush()

    @action(2, which=st.integers(0, 6), name=st.sampled_from(["bad", "bad", "bad", "errors"]))
    def break_or_mend_a_stream(self, which: int, name: str) -> None:
        place = self.model[which % self.partitions]
        key = keys.stream(self.namespace.tags[place.number], name.encode())
        self.redis.delete(key)
        place.streams.pop(name, None)
        for (stream, _), group in place.groups.items():
            if stream == name:
                group.lost()
        if name in place.broken:
            place.broken.remove(name)
        else:
            self.redis.set(key, "broken")
            place.broken.add(name)

    @action(1, who=who)
    def spoil(self, who: int) -> None:
        id = self.id(who)
        place = self.place(id)
        if id in place.records:
            self.redis.hset(keys.record(self.namespace.tags[place.number], id_bytes(id)), "j", "1")
            place.records[id].spoilt = True

    # ------------------------------------------------------------------------------------------- reading

    def expect(self, id: Id) -> dict[str, Any]:
        r = self.place(id).records[id]
        fired, missed, skipped = r.totals or (0, 0, 0)
        until, limit, start, initial = r.window
        timing = Timing("once", at_ms=r.at)
        if r.kind != "o":
            timing = replace(timing, kind="every", at_ms=None, every_ms=r.every, start_ms=start)
            timing = replace(timing, initial_delay_ms=initial, until_ms=until, limit=limit, rule=r.rule)
            timing = replace(timing, policy=r.policy)
            if r.is_cron:
                timing = replace(timing, kind="cron", every_ms=None)
        by, note, paused = r.paused_by or ("", "", "")
        return {
            "key": id[1], "tenant": id[0], "owner": id[2] or None, "event": r.event, "at_ms": r.at, "n": r.n,
            "version": r.version, "state": STATES[r.state], "fired_total": fired, "missed_total": missed,
            "skipped_total": skipped, "timing": timing, "by": r.by, "failures": r.failures,
            "paused_by": by or None, "paused_note": note or None, "paused_ms": int(paused) if paused else None,
            "running": r.running and r.running.event_id, "running_until_ms": r.running and r.running.deadline,
        }  # fmt: skip

    def check_schedule(self, schedule: Any, id: Id) -> None:
        for name, value in self.expect(id).items():
            if name == "event":
                mine, theirs = getattr(schedule, name), value
                assert (mine.type, mine.payload, mine.stream, mine.codec) == (
                    theirs.type, theirs.payload, theirs.stream, theirs.codec,
                )  # fmt: skip
                assert (mine.correlation or {}) == (theirs.correlation or {})
            else:
                assert getattr(schedule, name) == value, name
        record = self.place(id).records[id]
        assert (schedule.held is not None) == record.held
        expected = set()
        for slot, fire in record.fires.items():
            at, outcome, attempt, summary = (*record.results.get(slot, "").split(" ", 3), "", "", "")[:4]
            result = (outcome, int(attempt), summary) if at == str(fire[0]) else ()
            expected.add(Fire(*fire, *result))
        assert set(schedule.fires) == expected
        assert len(schedule.fires) == min(10, schedule.fired_total)

    @action(1, who=who)
    def get(self, who: int) -> None:
        id = self.id(who)
        found = self.queues[id[0]].get(id[1], owner=id[2] or None)
        if id in self.place(id).records:
            self.check_schedule(found, id)
        else:
            assert found is None

    @action(1, who=who, n=st.sampled_from([1, 2, 5]))
    def next(self, who: int, n: int) -> None:
        id = self.id(who)
        r = self.place(id).records.get(id)
        instants = []
        if r is not None:
            only = r.kind == "o" or r.ways.fixed_delay
            instants = [r.at] if only else [*range(r.at, r.until + 1, r.every)[:n]]
            if r.window[1] is not None:
                instants = instants[: r.window[1] - (r.totals or (0,))[0]]
        found = self.queues[id[0]].next(id[1], n, owner=id[2] or None)
        assert found == [to_datetime(at) for at in instants]

    @action(
        1,
        tenant=st.sampled_from(TENANTS),
        prefix=st.sampled_from(["", "", "a", "a*", "é"]),
        owner=st.sampled_from(OWNERS),
        limit=st.sampled_from([1, 2, 200]),
    )  # fmt: skip
    def list(self, tenant: str, prefix: str, owner: str, limit: int) -> None:
        queue, by = self.queues[tenant], owner or None
        expected = sorted(
            (id for place in self.model for id in place.select(tenant, prefix, by)), key=id_bytes
        )
        found = [*queue.list(prefix, owner=by)]
        assert [(s.tenant, s.key, s.owner or "") for s in found] == expected
        for schedule, id in zip(found, expected, strict=True):
            self.check_schedule(schedule, id)
        assert queue.count(prefix, owner=by) == len(expected)
        paged, cursor = [], None
        while True:
            page = queue.list_page(prefix, owner=by, after=cursor, limit=limit)
            paged += page.items
            if (cursor := page.cursor) is None:
                break
            assert len(page.items) == limit
        assert paged == found

    @action(1, tenant=st.sampled_from(TENANTS), first=offsets, span=offsets.map(abs))
    def list_due(self, tenant: str, first: int, span: int) -> None:
        low, high = self.now + first, self.now + first + span
        waiting = sorted(
            (score, id_bytes(id), id)
            for place in self.model
            for id, score in place.scores.items()
            if id[0] == tenant and low <= score <= high
        )
        found = [
            (s.tenant, s.key, s.owner or "") for s in self.queues[tenant].list(due_from=low, due_to=high)
        ]
        assert found == [id for _, _, id in waiting]

    @action(1, tenant=st.sampled_from(TENANTS))
    def stats(self, tenant: str) -> None:
        stats = self.queues[tenant].stats()
        mine = [place.select(tenant) for place in self.model]
        waiting = [score for place in self.model for id, score in place.scores.items() if id[0] == tenant]
        total: Callable[[str], int] = lambda name: sum(place.counters.get(name, 0) for place in self.model)  # noqa: E731
        lengths: dict[str, int] = {}
        for place in self.model:
            for name in place.stream_seen:
                lengths[name] = lengths.get(name, 0) + len(place.streams.get(name, ()))
        assert (stats.tenant, stats.partitions, stats.dispatchers) == (tenant, self.partitions, [])
        assert (stats.schedules, stats.armed) == (sum(map(len, mine)), len(waiting))
        assert stats.paused == stats.schedules - stats.armed
        assert stats.due == sum(score <= self.now for score in waiting)
        assert stats.lag_ms == max(0, self.now - min(waiting, default=self.now))
        assert stats.all_schedules == sum(len(place.records) for place in self.model)
        assert stats.held == sum(len(place.held) for place in self.model)
        assert (stats.fired, stats.missed, stats.skipped, stats.dropped, stats.orphans) == (
            total("fired"), total("missed"), total("skipped"), total("dropped"), 0,
        )  # fmt: skip
        assert stats.streams == lengths
        groups: dict[tuple[str, str], GroupStats] = {}
        for place in self.model:
            for of, group in place.groups.items():
                if group.seen is not None:
                    so_far = groups.get(of, GroupStats(*of, 0, 0, 0))
                    retrying, dead = so_far.retrying + len(group.retries), so_far.dead + len(group.dead or ())
                    groups[of] = GroupStats(*of, so_far.pending + len(group.pending), retrying, dead)
        real = [g for g in stats.groups if g.stream != "bad"]  # some servers no longer count what was trimmed
        assert real == [groups[of] for of in sorted(groups) if of[0] != "bad"]
