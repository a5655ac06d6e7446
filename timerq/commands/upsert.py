"""upsert: create or replace a schedule."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar, overload

from timerq import keys
from timerq.commands.arming import Upsert, Upserted, timing_of
from timerq.commands.command import Scope
from timerq.commands.items import Item, Later
from timerq.commands.record import STATES, decode, definition_fields, recurring_fields, size_of, take
from timerq.errors import ContractBroken, InvalidSchedule
from timerq.keys import identity_of
from timerq.lua import Word
from timerq.model import Event, Outcome, Timing, check_text
from timerq.timing import first_instants, is_asked, resolve_duration, resolve_instant, resolve_wait

U = TypeVar("U", bound="Upserted")
_MODES = ("replace", "keep", "earliest", "latest")

Now = Callable[[], int]
"""Tells Redis's time as far as it is known (epoch ms); a calendar's first instant is counted from it."""


class Membership(NamedTuple):
    """The declared set that a schedule belongs to, and the number of the `apply` that says so."""

    label: str
    generation: int


@overload
def item(
    scope: Scope,
    upsert: Upsert | Mapping[str, Any],
    *,
    incarnation: int | None = None,
    now: Now | None = None,
    member: Membership | None = None,
) -> Item[Upserted]: ...


@overload
def item(
    scope: Scope,
    upsert: Upsert | Mapping[str, Any],
    make: type[U],
    incarnation: int | None = None,
    now: Now | None = None,
    member: Membership | None = None,
) -> Item[U]: ...


def item(
    scope: Scope,
    upsert: Upsert | Mapping[str, Any],
    make: type[Any] = Upserted,
    incarnation: int | None = None,
    now: Now | None = None,
    member: Membership | None = None,
) -> Item[Any]:
    """The command's part for one upsert; it reads as a ``make``, a client's kind of `Upserted`.

    ``incarnation`` is an owner handle's (a version). ``now`` is needed for calendars; without it the script says what
    time it is and is asked again. Raises `InvalidSchedule`.
    """
    wanted = upsert if type(upsert) is Upsert else Upsert.of(upsert)
    event = wanted.event
    if type(event) is not Event:
        raise InvalidSchedule("event", event, "want an Event")
    # a plain one-shot goes straight through: a bulk load makes 100,000 a second
    if incarnation is None and member is None and wanted.every is None and wanted[_RARE:] == _NONE_RARE:
        if wanted.delay is None and wanted.at is not None:
            when = f"@{resolve_instant(wanted.at)}"
        elif wanted.at is None and wanted.delay is not None:
            when = f"+{resolve_wait(wanted.delay, 'delay')}"
        else:
            timing_of(wanted)  # refuses it
        return _assemble(scope, wanted, when, "", definition_fields(event, "o", scope.payload_limit), make)
    timing = timing_of(wanted)
    kind = "o" if timing.kind == "once" else "c" if is_asked(timing) else f"e{timing.every_ms}"
    definition = definition_fields(event, kind, scope.payload_limit)
    if kind != "o":
        definition += recurring_fields(timing)
    if wanted.by is not None:
        definition += ("b", check_text("by", wanted.by))
    if member is not None:
        definition += ("y", member.label.encode())
    if kind == "c" and not _waits(timing):
        return _calendar(scope, wanted, timing, definition, make, incarnation, now, member)
    options = _options(wanted, timing, incarnation, None, member)
    return _assemble(scope, wanted, _when(timing), options, definition, make, member)


def _waits(timing: Timing) -> bool:
    """Whether the first instant of a recurring one is counted from the script's own time."""
    return timing.kind == "every" and timing.start_ms is None and timing.rule is None


def _when(timing: Timing) -> str:
    """When the first occurrence is, as the script takes it."""
    if timing.kind == "once":
        return f"@{timing.at_ms}" if timing.delay_ms is None else f"+{timing.delay_ms}"
    if timing.rule is not None and timing.rule.anchor_ms is not None:
        every_ms, start_ms = timing.every_ms or 1, timing.start_ms or 0
        return f"@{start_ms + (timing.rule.anchor_ms - start_ms) % every_ms}"
    if timing.start_ms is not None:
        return f"@{timing.start_ms}"
    return f"+{timing.every_ms if timing.initial_delay_ms is None else timing.initial_delay_ms}"


def _calendar(
    scope: Scope,
    wanted: Upsert,
    timing: Timing,
    definition: list[Word],
    make: type[U],
    incarnation: int | None,
    now: Now | None,
    member: Membership | None,
) -> Item[U]:
    """The item of one whose instants are computed here; built anew where the first has passed on its way."""
    id = keys.identity(
        scope.tenant_bytes,
        check_text("key", wanted.key),
        b"" if wanted.owner is None else check_text("owner", wanted.owner),
    )

    def build(now_ms: int) -> Item[U]:
        first_ms, then_ms = first_instants(timing, id, now_ms)
        when = f"@{first_ms}"
        options = _options(wanted, timing, incarnation, then_ms, member)
        return _assemble(scope, wanted, when, options, definition, make, member)

    built = build(0 if now is None else now())
    assert isinstance(built, _UpsertItem)
    built.rebuild = build
    return built


_COUNTS = tuple(map(str, range(80)))
"""Numbers as texts, see `Command.call`."""

_RARE = Upsert._fields.index("initial_delay")
_NONE_RARE = Upsert("", Event("-"))[_RARE:]
"""The words that most upserts leave out stand last."""


def _assemble(
    scope: Scope,
    wanted: Upsert,
    when: str,
    options: str,
    definition: list[Word],
    make: type[U],
    member: Membership | None = None,
) -> Item[U]:
    key = check_text("key", wanted.key)
    owner = b"" if wanted.owner is None else check_text("owner", wanted.owner)
    namespace = scope.namespace
    tenant = scope.tenant_bytes
    id = keys.identity(tenant, key, owner)
    partition = namespace.partition_of(tenant, owner or key)
    tag = namespace.tags[partition]
    item_keys: tuple[Word, ...] = (keys.record(tag, id),)
    if owner:
        item_keys += (keys.owner_index(tag, tenant, owner), keys.owner_floor(tag, tenant, owner))
    if wanted.idempotency_key is not None:
        token = check_text("idempotency_key", wanted.idempotency_key)
        item_keys += (keys.once(tag, tenant, key, owner, token),)
        options += _digest(id, *_repeated(when, options, definition), definition)
    elif options:
        options += "-"
    if member is not None:
        item_keys += (keys.declared_set(tag, tenant, member.label.encode()),)
    args = (when, options, _COUNTS[len(definition)], *definition)
    size = 300 + len(id) + size_of(definition)
    return _UpsertItem(partition, item_keys, args, size, scope.tenant, wanted, make)


def _options(
    wanted: Upsert,
    timing: Timing,
    incarnation: int | None,
    following: int | None,
    member: Membership | None,
) -> str:
    """The words that most calls do not need; empty, or twelve of them and a blank for the digest."""
    mode, paused, if_version, max_wait = wanted.mode, wanted.paused, wanted.if_version, wanted.max_wait
    if (
        mode == "replace"
        and paused is None
        and if_version is None
        and max_wait is None
        and timing.until_ms is None
        and timing.limit is None
        and not wanted.restart
        and not wanted.reset
        and incarnation is None
        and following is None
        and member is None
        and wanted.by is None
        and wanted.idempotency_key is None
    ):
        return ""
    if mode not in _MODES:
        raise InvalidSchedule("mode", mode, f"want one of {', '.join(_MODES)}")
    once = timing.kind == "once"
    if mode in ("earliest", "latest") and not once:
        raise InvalidSchedule("mode", mode, "want earliest and latest only for one-shots (at= or delay=)")
    if max_wait is not None and not once:
        raise InvalidSchedule("max_wait", max_wait, "want max_wait= only for one-shots (at= or delay=)")
    for name, flag in (("restart", wanted.restart), ("reset", wanted.reset), ("paused", paused)):
        if not (isinstance(flag, bool) or (name == "paused" and flag is None)):
            raise InvalidSchedule(name, flag, "want True or False")
    check_version(if_version)
    words = (
        mode,
        "-" if paused is None else int(paused),
        int(wanted.restart),
        int(wanted.reset),
        "-" if if_version is None else if_version,
        "-" if max_wait is None else resolve_duration(max_wait, field="max_wait"),
        "-" if incarnation is None else incarnation,
        "-" if following is None else following,
        "-" if timing.until_ms is None else timing.until_ms,
        "-" if timing.limit is None else timing.limit,
        "-" if member is None else member.generation,
        "-" if wanted.by is None else 1,
        "",
    )
    return " ".join(map(str, words))


def check_version(if_version: int | None) -> None:
    """Raises `InvalidSchedule` unless it is None or a version: 0 (there is none) or more."""
    if if_version is not None and (
        not isinstance(if_version, int) or isinstance(if_version, bool) or not 0 <= if_version < 2**53
    ):
        raise InvalidSchedule("if_version", if_version, "want the version to replace as an int, 0 for none")


def _repeated(when: str, options: str, definition: list[Word]) -> tuple[str, str]:
    """What is the same when a call is made again: of a calendar, all but the instants, which the time tells."""
    if not bytes(definition[1]).startswith(b"c "):  # type: ignore[arg-type]
        return when, options
    words = options.split(" ")
    return "", " ".join((*words[:7], *words[8:]))


def _digest(id: bytes, when: str, options: str, definition: list[Word]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in (id, when, options, *definition):
        data = part if isinstance(part, bytes) else str(part).encode()
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()


_WANT = {
    "delay": "want a delay that ends before the year 10000",
    "every": "want a first occurrence before the year 10000",
    "initial_delay": "want a first occurrence before the year 10000",
    "until": "want until= at or after the first occurrence: nothing would ever fire",
    "limit": "want a limit above the number of occurrences it has already had, or reset=True",
    "mode": "want earliest and latest only where the stored schedule is a one-shot too",
    "idempotency_key": "want a new key: this one was used with another body",
}


_OUTCOMES = {outcome.value: outcome for outcome in Outcome}


class _UpsertItem(Item[U]):
    """Reads one upsert's line, and a KEPT one's record behind it."""

    __slots__ = ("make", "rebuild", "tenant", "wanted")

    def __init__(
        self,
        partition: int,
        keys: tuple[Word, ...],
        args: tuple[Word, ...],
        size: int,
        tenant: str,
        wanted: Upsert,
        make: type[U],
    ) -> None:
        self.script = "upsert"
        self.partition = partition
        self.keys = keys
        self.args = args
        self.size = size
        self.position = 0
        self.tenant = tenant
        self.wanted = wanted
        self.make = make
        self.rebuild: Callable[[int], Item[Any]] | None = None

    def read(self, words: list[str], rest: Iterator[bytes], durable: str) -> U:
        status, wanted, tenant = words[0], self.wanted, self.tenant
        if len(words) > 3 and status != "KEPT":  # CREATED, REPLACED, UNCHANGED, DUPLICATE
            more = words if len(words) > 4 else None
            version, at_ms, state = int(words[1]), int(words[2]), STATES[words[3]]
            return self.make(wanted, tenant, _OUTCOMES[status], version, at_ms, state, durable, more)
        if status == "KEPT":
            record = self.keys[0]
            assert isinstance(record, bytes)
            stored = decode(identity_of(record), take(words[4], rest))
            return self.make(
                *(wanted, tenant, Outcome.KEPT, stored.version, stored.at_ms, stored.state, durable),
                schedule=stored,
            )
        if status == "LATE" and self.rebuild is not None:
            self.args = self.rebuild(int(words[1])).args
            raise Later
        if status in ("VERSION_MISMATCH", "OWNER_GONE", "SUPERSEDED"):
            return self.make(wanted, tenant, _OUTCOMES[status], int(words[1]), None, None, durable)
        if status == "INVALID":
            field = words[1]
            if field == "delay" and wanted.delay is None:  # the script has one word for what starts too late
                field = "every" if wanted.initial_delay is None else "initial_delay"
            raise InvalidSchedule(field, getattr(wanted, field), _WANT[field])
        raise ContractBroken(f"unexpected answer {status!r}")
