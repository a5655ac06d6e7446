"""upsert: create or replace a schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, overload

from timerq import keys
from timerq.commands.arming import Upsert, Upserted, timing_of
from timerq.commands.command import Scope
from timerq.commands.first import waits, when_of
from timerq.commands.items import Item, Later
from timerq.commands.options import Membership, digest_of, options_of
from timerq.commands.record import STATES, decode, definition_fields, recurring_fields, size_of, take
from timerq.errors import ContractBroken, InvalidSchedule
from timerq.keys import identity_of
from timerq.lua import Word
from timerq.model import Event, Outcome, Timing, check_text
from timerq.timing import first_instants, is_asked, resolve_instant, resolve_wait

U = TypeVar("U", bound="Upserted")

Now = Callable[[], int]
"""Tells Redis's time as far as it is known (epoch ms); a calendar's first instant is counted from it."""


@overload
def item(
    scope: Scope,
    upsert: Upsert | Mapping[str, Any],
    *,
    incarnation: int | None = None,
    now: Now | None = None,
    member: Membership | None = None,
    fold_ms: int | None = None,
) -> Item[Upserted]: ...


@overload
def item(
    scope: Scope,
    upsert: Upsert | Mapping[str, Any],
    make: type[U],
    incarnation: int | None = None,
    now: Now | None = None,
    member: Membership | None = None,
    fold_ms: int | None = None,
) -> Item[U]: ...


def item(
    scope: Scope,
    upsert: Upsert | Mapping[str, Any],
    make: type[Any] = Upserted,
    incarnation: int | None = None,
    now: Now | None = None,
    member: Membership | None = None,
    fold_ms: int | None = None,
) -> Item[Any]:
    """The command's part for one upsert; it reads as a ``make``, a client's kind of `Upserted`.

    ``incarnation`` is an owner handle's (a version). ``now`` is needed for calendars; without it the script says what
    time it is and is asked again. ``fold_ms`` is for what has an idempotency key: it is remembered for so long, and a
    second call is a DUPLICATE whatever its body. Raises `InvalidSchedule`.
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
    wanted = wanted.settled()
    timing = timing_of(wanted)
    kind = "o" if timing.kind == "once" else "c" if is_asked(timing) else f"e{timing.every_ms}"
    definition = definition_fields(event, kind, scope.payload_limit)
    if kind != "o":
        definition += recurring_fields(timing)
    if wanted.by is not None:
        definition += ("b", check_text("by", wanted.by))
    if member is not None:
        definition += ("y", member.label.encode())
    if kind == "c" and not waits(timing):
        return _calendar(scope, wanted, timing, definition, make, incarnation, now, member, fold_ms)
    options = options_of(wanted, timing, incarnation, None, member)
    return _assemble(scope, wanted, when_of(timing), options, definition, make, member, fold_ms)


def _calendar(
    scope: Scope,
    wanted: Upsert,
    timing: Timing,
    definition: list[Word],
    make: type[U],
    incarnation: int | None,
    now: Now | None,
    member: Membership | None,
    fold_ms: int | None,
) -> Item[U]:
    """The item of one whose instants are computed here; built anew where the first has passed on its way."""
    id = keys.identity(
        scope.tenant_bytes,
        check_text("key", wanted.key),
        b"" if wanted.owner is None else check_text("owner", wanted.owner),
    )

    late_ms: int | None = None  # the last time that it came too late

    def build(now_ms: int) -> Item[U]:
        try:
            first_ms, then_ms = first_instants(timing, id, now_ms)
        except InvalidSchedule as error:
            if error.field != "until" or timing.until_ms is None:
                raise
            # Nothing is left: the script refuses it, unless it is stored just so and its last occurrence waits.
            first_ms, then_ms = timing.until_ms + 1, 0
        options = options_of(wanted, timing, incarnation, then_ms, member)
        return _assemble(scope, wanted, f"@{first_ms}", options, definition, make, member, fold_ms)

    def rebuild(now_ms: int) -> Item[U]:
        """Looks ahead by twice as long as the last one took: a period may be shorter than the way to Redis."""
        nonlocal late_ms
        ahead_ms = 0 if late_ms is None else 2 * max(0, now_ms - late_ms)
        late_ms = now_ms
        return build(now_ms + ahead_ms)

    built = build(0 if now is None else now())
    assert isinstance(built, _UpsertItem)
    built.rebuild = rebuild
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
    fold_ms: int | None = None,
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
        options += digest_of(id, when, options, definition) if fold_ms is None else f"={fold_ms}"
    elif options:
        options += "-"
    if member is not None:
        item_keys += (keys.declared_set(tag, tenant, member.label.encode()),)
    args = (when, options, _COUNTS[len(definition)], *definition)
    size = 300 + len(id) + size_of(definition)
    return _UpsertItem(partition, item_keys, args, size, scope.tenant, wanted, make)


WANT = {
    "delay": "want a delay that ends before the year 10000",
    "every": "want a first occurrence before the year 10000",
    "initial_delay": "want a first occurrence before the year 10000",
    "until": "want until= at or after the first occurrence: nothing would ever fire",
    "limit": "want a limit above the number of occurrences it has already had, or reset=True",
    "mode": "want earliest and latest only where the stored schedule is a one-shot too",
    "idempotency_key": "want a new key: this one was used with another body",
}
"""What is said of a word that the script refuses."""


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
            raise InvalidSchedule(field, getattr(wanted, field), WANT[field])
        raise ContractBroken(f"unexpected answer {status!r}")
