"""Declared sets: what differs from what is stored, and making it so.

Two applies of one set may race. Each takes a generation, a version of partition 0, and announces it in every partition
before it writes anything; where a later one is announced, the scripts refuse what an earlier one still sends. So all
that the earlier one writes in a partition is there before the later one writes its first schedule, and the later one,
which writes all of its own and prunes all else, leaves its own state. An apply that is cut short anywhere is healed by
the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from timerq import keys
from timerq.commands.arming import Upsert, Upserted, timing_of
from timerq.commands.cancel import locate
from timerq.commands.command import Durability, Scope, Steps
from timerq.commands.items import many
from timerq.commands.members import Place, Pruned, enlist, list_members, prune
from timerq.commands.options import Membership
from timerq.commands.planned import Applied, Planned, SetPlan
from timerq.commands.read import read_all, server_time
from timerq.commands.upsert import item
from timerq.commands.wording import Difference, differences, words_of
from timerq.errors import InvalidSchedule
from timerq.model import Outcome, Schedule, State, check_plain_name, check_text
from timerq.timing import first_instants, is_asked

U = TypeVar("U", bound=Upserted)

_NOT_DECLARED = ("at", "delay", "owner", "max_wait", "if_version", "idempotency_key")


def plan_set(
    scope: Scope, label: str, declared: Iterable[Upsert | Mapping[str, Any]], now_ms: int
) -> Steps[SetPlan]:
    """What `apply_set` would do; nothing is written. Raises `InvalidSchedule` as it does.

    ``now_ms`` is the time (epoch ms) where there is no namespace to ask for Redis's.
    """
    wanted = _check(scope, label, declared)
    if not scope.namespace.layout:
        _check_due(scope, wanted.values(), now_ms)
        return SetPlan(
            label, tuple(_plan_one(scope, upsert, None, label, now_ms) for upsert in wanted.values())
        )
    members = yield from list_members(scope, label)
    _check_due(scope, wanted.values(), members.now_ms)
    others = sorted(place for place in members.places if place not in wanted)
    stored = yield from _read(scope, [*wanted, *others])
    items = [
        _plan_one(scope, upsert, stored.get(place), label, members.now_ms) for place, upsert in wanted.items()
    ]
    for place in others:
        schedule = stored.get(place)
        if schedule is not None and schedule.label == label:
            items.append(Planned(schedule.key, "remove", words_of(schedule.event, schedule.timing)))
    return SetPlan(label, tuple(items))


def apply_set(
    scope: Scope,
    label: str,
    declared: Iterable[Upsert | Mapping[str, Any]],
    make: type[U],
    *,
    prune_others: bool = False,
    take_over: bool = False,
    by: str | None = None,
    durable: Durability | None = None,
) -> Steps[Applied[U]]:
    """Makes the set ``label`` what is declared, each schedule atomically; one that is so already is not touched.

    A schedule is a recurring `Upsert` (or its words) without an owner; its key is its name. ``prune_others`` cancels
    what carries the label and is not declared. A schedule that another set declares is refused unless ``take_over``.
    ``by`` is who does so; a schedule may name another who sets it.

    Raises `InvalidSchedule` for a bad label or schedule, with nothing written.
    """
    if by is not None:
        check_text("by", by)
    wanted = {
        place: upsert._replace(by=upsert.by or by) for place, upsert in _check(scope, label, declared).items()
    }
    if any(is_asked(timing_of(upsert)) for upsert in wanted.values()):
        (now_ms,) = yield [server_time(scope.namespace)]
        _check_due(scope, wanted.values(), now_ms)
    if not take_over:
        _refuse_others(label, (yield from _read(scope, wanted)))
    generation, now_ms, is_latest = yield from enlist(scope, label, durable)
    if not is_latest:
        return Applied(label, Outcome.SUPERSEDED, generation)
    member = Membership(label, generation)

    def make_item(upsert: Upsert) -> Any:
        return item(scope, upsert, make, now=lambda: now_ms, member=member)

    results: list[Any] = yield from many(scope, make_item, wanted.values(), durable)
    ended = {
        place: upsert
        for (place, upsert), result in zip(wanted.items(), results, strict=True)
        if isinstance(result, InvalidSchedule) and result.field == "until"
    }
    items = tuple(None if place in ended else result for place, result in zip(wanted, results, strict=True))
    if any(isinstance(one, Upserted) and one.outcome is Outcome.SUPERSEDED for one in items):
        return Applied(label, Outcome.SUPERSEDED, generation, items)

    surplus = [
        place
        for place, schedule in (yield from _read(scope, ended)).items()
        if schedule.label == label and _changes(ended[place], schedule)
    ]
    if prune_others:
        members = yield from list_members(scope, label)
        surplus += [place for place in (*members.places, *members.stale) if place not in wanted]
    done: list[Pruned] = []
    is_latest = yield from prune(scope, member, surplus, done, durable, by or "")
    return Applied(label, Outcome.DONE if is_latest else Outcome.SUPERSEDED, generation, items, tuple(done))


def _check(scope: Scope, label: str, declared: Iterable[Upsert | Mapping[str, Any]]) -> dict[Place, Upsert]:
    """The schedules by their places, each of them checked as far as it can be without Redis."""
    check_plain_name("set", label)
    wanted: dict[Place, Upsert] = {}
    for thing in declared:
        upsert = Upsert.of(thing).settled()
        try:
            _check_one(upsert)
            item(scope, upsert)
            partition, _, id, _ = locate(scope, upsert.key, None)
        except InvalidSchedule as error:
            raise InvalidSchedule(f"{upsert.key}.{error.field}", error.got, error.want) from None
        place = Place(partition, id)
        if place in wanted:
            raise InvalidSchedule("name", upsert.key, "want each name once in a set")
        wanted[place] = upsert
    return wanted


def _check_due(scope: Scope, wanted: Iterable[Upsert], now_ms: int) -> None:
    """Refuses what would never fire again from ``now_ms`` on, before anything is written; what has ended is fine."""
    for upsert in wanted:
        timing = timing_of(upsert)
        if not is_asked(timing):
            continue
        try:
            first_instants(timing, locate(scope, upsert.key, None)[2], now_ms)
        except InvalidSchedule as error:
            if error.field != "until":
                raise InvalidSchedule(f"{upsert.key}.{error.field}", error.got, error.want) from None


def _check_one(upsert: Upsert) -> None:
    for name in _NOT_DECLARED:
        if (value := getattr(upsert, name)) is not None:
            raise InvalidSchedule(
                name, value, "want a recurring schedule, by cron= or every=, without an owner"
            )
    if upsert.mode != "replace" or upsert.restart or upsert.reset:
        raise InvalidSchedule(
            "mode", upsert.mode, "want neither mode=, restart= nor reset= in a declared set"
        )


def _plan_one(scope: Scope, upsert: Upsert, stored: Schedule | None, label: str, now_ms: int) -> Planned:
    words = words_of(upsert.event, timing_of(upsert))
    is_ours = stored is not None and stored.label == label
    if upsert.paused:
        words["paused"] = True
    if not is_ours and _has_ended(scope, upsert, now_ms):
        return Planned(upsert.key, "ended", words)
    if stored is None:
        return Planned(upsert.key, "create", words)
    changes = _changes(upsert, stored)
    paused = stored.state is State.PAUSED
    if upsert.paused is not None and upsert.paused != paused:
        changes += (Difference("paused", paused, upsert.paused),)
    if not is_ours:
        changes += (Difference("set", stored.label, label),)
    if not changes:
        return Planned(upsert.key, "unchanged", words)
    return Planned(upsert.key, "change", words, changes, None if is_ours else stored.label)


def _changes(upsert: Upsert, stored: Schedule) -> tuple[Difference, ...]:
    return differences(words_of(stored.event, stored.timing), words_of(upsert.event, timing_of(upsert)))


def _has_ended(scope: Scope, upsert: Upsert, now_ms: int) -> bool:
    """Whether it would never fire again, as its `until` has passed (or passes before its first occurrence)."""
    timing = timing_of(upsert)
    if (until_ms := timing.until_ms) is None:
        return False
    if is_asked(timing):
        try:
            first_instants(timing, locate(scope, upsert.key, None)[2], now_ms)
        except InvalidSchedule as error:
            return error.field == "until"
    return until_ms < now_ms


def _read(scope: Scope, places: Iterable[Place]) -> Steps[dict[Place, Schedule]]:
    """The records at these places, as far as they are there and can be read."""
    wanted: Sequence[Place] = [*places]
    found = yield from read_all(scope, [(place.id, place.partition) for place in wanted])
    schedules = {
        keys.identity(scope.tenant_bytes, schedule.key.encode(), (schedule.owner or "").encode()): schedule
        for schedule in found
    }
    return {place: schedules[place.id] for place in wanted if place.id in schedules}


def _refuse_others(label: str, stored: Mapping[Place, Schedule]) -> None:
    """Raises `InvalidSchedule` for a name that another set has declared."""
    for schedule in stored.values():
        if schedule.label not in (None, label):
            raise InvalidSchedule(
                schedule.key,
                f"a schedule of set {schedule.label}",
                "want another name, or take_over=True to take it from that set",
            )
