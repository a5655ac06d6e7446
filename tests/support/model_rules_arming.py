"""Rules of the model test: schedules are made and cancelled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st

from tests.support.model_machine import Base
from tests.support.model_wishes import (
    EVENTS,
    KEYS,
    OWNERS,
    TENANTS,
    WORDS,
    action,
    callers,
    definition,
    fences,
    rarely,
    who,
    wishes,
)
from tests.support.model_words import Definition, Id, Wanted, id_bytes
from timerq import Upsert
from timerq.commands import cancel as cancelling
from timerq.commands import upsert as upserting
from timerq.commands.items import one


class Arming(Base):
    """upsert, cancel."""

    def wanted(self, wish: dict[str, Any]) -> tuple[Wanted, Upsert, int | None]:
        """A wish of now, for the model and for the queue."""
        id, kind, now = wish.get("id") or self.id(wish["who"], any_below=44), wish["kind"], self.now
        common: dict[str, Any] = {
            "mode": wish["mode"],
            "paused": wish["paused"],
            "if_version": self.version(id, wish["fence"]),
            "by": wish["by"],
        }
        incarnation = None
        if wish["incarnation"] and id[2]:
            floor = self.place(id).floors.get((id[0], id[2]), 5)
            incarnation = floor if wish["incarnation"] == "old" else floor + 1
            if wish["incarnation"] == "handle":
                incarnation = self.incarnation(id)
        when: dict[str, Any] = {}
        named: dict[str, Any]
        if kind == "o":
            common["max_wait"] = wish["max_wait"]
            when = {"at": now + wish["at"]} if "at" in wish else {"delay": wish["delay"]}
            made, named = Definition(wish["event"]), {**when}
        else:
            common |= {"restart": wish["restart"], "reset": wish["reset"]}
            made, named = definition(wish, now)
            _, _, start, initial = made.window
            if made.kind == "e" and made.rule is not None:
                assert made.rule.anchor_ms is not None
                when = {"at": (start or 0) + (made.rule.anchor_ms - (start or 0)) % made.every}
            elif made.kind == "e" and start is not None:
                when = {"at": start}
            elif not made.is_cron and made.rule is None and start is None:
                when = {"delay": made.every if initial is None else initial}
        token = wish["token"]
        wanted = Wanted(id, made, token=token, incarnation=incarnation, **common, **when)
        words = Upsert(id[1], wish["event"], owner=id[2] or None, idempotency_key=token, **common, **named)
        return wanted, words, incarnation

    def item(
        self, wanted: Wanted, words: Upsert, incarnation: int | None, behind: int, following: str | None
    ) -> Any:
        scope = self.queues[wanted.id[0]]._open()
        believed = self.now - behind
        item = upserting.item(scope, words, incarnation=incarnation, now=lambda: believed)
        if following is not None:
            when, options, *rest = item.args
            told = str(options).split(" ")
            told[7] = following
            item.args = (when, " ".join(told), *rest)
        return item

    @action(6, wish=wishes())
    def upsert(self, wish: dict[str, Any]) -> None:
        self.do_upsert(*self.wanted(wish))

    @action(4, wish=wishes(kind="e"))
    def upsert_interval(self, wish: dict[str, Any]) -> None:
        self.do_upsert(*self.wanted(wish))

    @action(5, wish=wishes(kind="c"))
    def upsert_calendar(self, wish: dict[str, Any]) -> None:
        self.do_upsert(*self.wanted(wish), wish["behind"], wish["following"])

    @action(
        4,
        which=st.integers(0, 5),
        paused=st.sampled_from([None, None, True, False]),
        restart=rarely,
        reset=rarely,
        anew=st.booleans(),
    )
    def upsert_again(self, which: int, paused: bool | None, restart: bool, reset: bool, anew: bool) -> None:
        """The very definition of before, perhaps in another way."""
        if not self.past:
            return
        wanted, words, incarnation = self.past[-1 - which % len(self.past)]
        if anew:
            changes: dict[str, Any] = {"paused": paused, "if_version": None}
            if wanted.definition.kind != "o":
                changes |= {"restart": restart, "reset": reset}
            wanted = replace(wanted, token=None, **changes)
            words = words._replace(idempotency_key=None, **changes)
        self.do_upsert(wanted, words, incarnation)

    def do_upsert(
        self,
        wanted: Wanted,
        words: Upsert,
        incarnation: int | None,
        behind: int = 0,
        following: str | None = None,
    ) -> None:
        queue = self.queues[wanted.id[0]]
        if not wanted.is_computed:
            behind, following = 0, None
        if incarnation is None and behind == 0 and following is None:
            given = {name: getattr(words, name) for name in WORDS}
            real = self.answer(lambda: queue.upsert(words.key, words.event, **given))
        else:
            real = self.answer(
                lambda: queue._link.run(
                    one(queue._open(), self.item(wanted, words, incarnation, behind, following))
                )
            )
        expected = self.expect_upsert(wanted, self.now - behind, following)
        assert real == expected
        self.past.append((wanted, words, incarnation))

    def expect_upsert(self, wanted: Wanted, believed: int, following: str | None) -> tuple[Any, ...]:
        """What becomes of it where the client takes it for `believed`."""
        while True:
            timed = self.timed(wanted, believed)
            if following is not None:
                timed = replace(timed, following=None if following == "-" else 0)
            (answer,) = self.place(wanted.id).upsert(self.now, [timed])
            self.note_begin(wanted, answer)
            if answer[0] != "LATE":
                return answer
            believed, following = self.now, None

    def timed(self, wanted: Wanted, believed: int) -> Wanted:
        """With its first instants, where the client computes them."""
        if not wanted.is_computed:
            return wanted
        at, following = wanted.definition.first(believed)
        return replace(wanted, at=at, following=following)

    def note_begin(self, wanted: Wanted, answer: tuple[Any, ...]) -> None:
        made = wanted.definition
        if answer[0] in ("CREATED", "REPLACED"):
            self.begun[id_bytes(wanted.id), answer[1]] = answer[2], made
            if made.kind != "o":
                self.focus = wanted.id

    @action(
        1,
        tenant=st.sampled_from(TENANTS),
        many=st.lists(wishes(), min_size=1, max_size=6),
        bad=st.sampled_from([None, 0, 2]),
    )
    def upsert_many(self, tenant: str, many: list[dict[str, Any]], bad: int | None) -> None:
        wanted: list[Wanted] = []
        items = []
        for wish in many:
            mine = {**wish, "id": (tenant, *self.id(wish["who"])[1:]), "incarnation": None}
            want, words, _ = self.wanted(mine)
            wanted.append(self.timed(want, self.now))
            items.append(words)
        if bad is not None:
            items.insert(bad, Upsert("", EVENTS[0], delay=1))
        results = self.queues[tenant].upsert_many(items)
        real = [self.tell(result) for result in results]
        if bad is not None:
            assert real.pop(min(bad, len(real) - 1)) == ("INVALID", "key")
        expected = self.spread(wanted, lambda want: want.id, lambda place, some: place.upsert(self.now, some))
        assert real == expected
        for want, answer in zip(wanted, expected, strict=True):
            self.note_begin(want, answer)

    @action(2, who=who, fence=fences, by=callers, handle=st.booleans())
    def cancel(self, who: int, fence: str | None, by: str | None, handle: bool) -> None:
        id = self.id(who)
        queue, version = self.queues[id[0]], self.version(id, fence)
        incarnation = self.incarnation(id) if handle else None
        if incarnation is None:
            given: dict[str, Any] = {"owner": id[2] or None, "if_version": version, "by": by}
            real = self.answer(lambda: queue.cancel(id[1], **given))
        else:
            item = cancelling.item(queue._open(), id[1], id[2], version, by, incarnation)
            real = self.answer(lambda: queue._link.run(one(queue._open(), item)))
        (expected,) = self.place(id).cancel(self.now, [(id, version)], by or "", incarnation)
        assert real == expected

    @action(
        1,
        tenant=st.sampled_from(TENANTS),
        owner=st.sampled_from(OWNERS),
        names=st.lists(st.sampled_from(KEYS), max_size=4),
    )
    def cancel_many(self, tenant: str, owner: str, names: list[str]) -> None:
        real = [self.tell(change) for change in self.queues[tenant].cancel_many(names, owner=owner or None)]
        pairs = [((tenant, name, owner), None) for name in names]
        assert real == self.spread(
            pairs, lambda pair: pair[0], lambda place, some: place.cancel(self.now, some)
        )

    @action(
        1,
        tenant=st.sampled_from(TENANTS),
        prefix=st.sampled_from(["", "a", "a*", "é"]),
        owner=st.sampled_from(OWNERS),
    )
    def cancel_prefix(self, tenant: str, prefix: str, owner: str) -> None:
        real = self.queues[tenant].cancel_prefix(prefix, owner=owner or None)
        assert real == sum(place.sweep(self.now, tenant, prefix, owner or None) for place in self.model)

    @action(1, tenant=st.sampled_from(TENANTS), owner=st.sampled_from(["o", "o1"]))
    def cancel_owner(self, tenant: str, owner: str) -> None:
        real = self.queues[tenant].cancel_owner(owner)
        assert real == sum(place.sweep(self.now, tenant, "", owner) for place in self.model)

    def upsert_as_it_is(self, id: Id, restart: bool) -> None:
        """The last definition that was said of it once more, and it is to go on."""
        if said := [past for past in self.past if past[0].id == id and past[0].definition.kind != "o"]:
            wanted, words, incarnation = said[-1]
            anew: dict[str, Any] = {
                "restart": restart,
                "if_version": None,
                "paused": False,
                "mode": "replace",
            }
            wanted = replace(wanted, token=None, **anew)
            self.do_upsert(wanted, words._replace(idempotency_key=None, **anew), incarnation)
