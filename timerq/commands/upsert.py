"""upsert: create or replace a schedule."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Literal, Self

from timerq import keys
from timerq.commands.command import Item, Scope
from timerq.commands.record import STATES, decode, definition_fields, size_of, take, window_fields
from timerq.errors import ContractBroken, InvalidSchedule
from timerq.lua import Word
from timerq.model import Event, Outcome, Schedule, State, Timing, check_text, to_datetime
from timerq.timing import Duration, Instant, resolve_duration, resolve_instant, resolve_timing, resolve_wait

Mode = Literal["replace", "keep", "earliest", "latest"]
_MODES = ("replace", "keep", "earliest", "latest")
_EVENT_WORDS = frozenset({"type", "payload", "stream", "correlation", "codec"})


@dataclass(frozen=True, slots=True)
class Upsert:
    """One schedule to create or replace; the words are those of `TimerQueue.upsert`, which documents them.

    Nothing is checked here but by `upsert` and `upsert_many`, so that one bad item is reported for itself.
    """

    key: str
    event: Event
    at: Instant | None = None
    delay: Duration | None = None
    every: Duration | None = None
    owner: str | None = None
    initial_delay: Duration | None = None
    start: Instant | None = None
    until: Instant | None = None
    limit: int | None = None
    mode: Mode = "replace"
    max_wait: Duration | None = None
    restart: bool = False
    paused: bool | None = None
    reset: bool = False
    if_version: int | None = None
    idempotency_key: str | None = None

    @classmethod
    def of(cls, thing: Self | Mapping[str, Any]) -> Self:
        """``thing`` itself, or one made of a mapping with the same words.

        A mapping's event is an `Event`, or a mapping with the words ``type``, ``payload``, ``stream``,
        ``correlation``, ``codec``. Raises `InvalidSchedule` naming what is missing or unknown.
        """
        if isinstance(thing, cls):
            return thing
        if not isinstance(thing, Mapping):
            raise InvalidSchedule("item", thing, "want an Upsert or a mapping with key, event and a timing")
        unknown = [name for name in thing if name not in _UPSERT_WORDS]
        if unknown:
            raise InvalidSchedule(
                str(unknown[0]), thing[unknown[0]], f"want only {', '.join(sorted(_UPSERT_WORDS))}"
            )
        for name in ("key", "event"):
            if name not in thing:
                raise InvalidSchedule(name, None, f"want {name} in the item")
        event = thing["event"]
        if isinstance(event, Mapping):
            unknown = [name for name in event if name not in _EVENT_WORDS]
            if unknown:
                raise InvalidSchedule(
                    f"event.{unknown[0]}", event[unknown[0]], f"want only {', '.join(sorted(_EVENT_WORDS))}"
                )
            if "type" not in event:
                raise InvalidSchedule("event.type", None, "want the event's type")
            event = Event(**event)
        return cls(**{**thing, "event": event})


_UPSERT_WORDS = frozenset(field.name for field in fields(Upsert))


class Upserted:
    """What an upsert did.

    ``outcome`` is CREATED, REPLACED, UNCHANGED, KEPT, DUPLICATE, VERSION_MISMATCH or OWNER_GONE. ``version``, ``at_ms``
    (epoch ms) and ``state`` are those now stored; on VERSION_MISMATCH ``version`` is the stored one (0: there is
    none), on OWNER_GONE the version up to which the owner is dead, and there is no ``at_ms``. Where it replaced,
    ``replaced_version`` and ``replaced_at_ms`` are the old ones. ``durable`` says which level was reached.
    """

    __slots__ = (
        *("_schedule", "_tenant", "_upsert", "_words"),
        *("at_ms", "durable", "outcome", "state", "version"),
    )

    def __init__(
        self,
        upsert: Upsert,
        tenant: str,
        outcome: Outcome,
        version: int,
        at_ms: int | None,
        state: State | None,
        durable: str,
        words: list[str] | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        self._upsert = upsert
        self._tenant = tenant
        self._words = words  # the script's line where it says more: read when it is asked for
        self._schedule = schedule
        self.outcome = outcome
        self.version = version
        self.at_ms = at_ms
        self.state = state
        self.durable = durable

    @property
    def replaced_version(self) -> int | None:
        """The version that it replaced."""
        return int(self._words[4]) if self._words and self.outcome is Outcome.REPLACED else None

    @property
    def replaced_at_ms(self) -> int | None:
        """When the replaced one would have been due (epoch ms)."""
        return int(self._words[5]) if self._words and self.outcome is Outcome.REPLACED else None

    @property
    def key(self) -> str:
        """The schedule's key."""
        return self._upsert.key

    @property
    def owner(self) -> str | None:
        """The schedule's owner."""
        return self._upsert.owner

    @property
    def schedule(self) -> Schedule | None:
        """The schedule as it was stored when the call returned; None on VERSION_MISMATCH and OWNER_GONE."""
        if self._schedule is None and self.at_ms is not None and self.state is not None:
            wanted = self._upsert
            timing = _timing_of(wanted)
            if timing.kind == "once":
                timing = Timing("once", at_ms=self.at_ms)
            n, fired_total, missed_total = self._counts()
            self._schedule = Schedule(
                key=wanted.key,
                event=wanted.event,
                timing=timing,
                at_ms=self.at_ms,
                version=self.version,
                state=self.state,
                owner=wanted.owner,
                tenant=self._tenant,
                n=n,
                fired_total=fired_total,
                missed_total=missed_total,
            )
        return self._schedule

    def _counts(self) -> tuple[int, int, int]:
        """Its n, fired_total and missed_total."""
        if self._words is None:
            return 0, 0, 0
        if self.outcome is Outcome.UNCHANGED:
            return int(self._words[4]), int(self._words[5]), int(self._words[6])
        if self.outcome is Outcome.REPLACED:
            return 0, int(self._words[6]), int(self._words[7])
        return 0, 0, 0

    def __repr__(self) -> str:
        due = "" if self.at_ms is None else f" at {to_datetime(self.at_ms).isoformat()}"
        return f"<{self.outcome} {self.key!r} version {self.version}{due}>"


class UpsertView:
    """What both clients' handles show of an `Upserted`; its words are documented there."""

    __slots__ = ("is_cancelled", "result")

    def __init__(self, result: Upserted) -> None:
        self.result = result
        self.is_cancelled = False

    @property
    def outcome(self) -> Outcome:
        """CREATED, REPLACED, UNCHANGED, KEPT, DUPLICATE, VERSION_MISMATCH or OWNER_GONE."""
        return self.result.outcome

    @property
    def key(self) -> str:
        """The schedule's key."""
        return self.result.key

    @property
    def owner(self) -> str | None:
        """The schedule's owner."""
        return self.result.owner

    @property
    def version(self) -> int:
        """The stored version."""
        return self.result.version

    @property
    def at_ms(self) -> int | None:
        """The next occurrence (epoch ms)."""
        return self.result.at_ms

    @property
    def state(self) -> State | None:
        """Where the stored schedule stands."""
        return self.result.state

    @property
    def schedule(self) -> Schedule | None:
        """The schedule as it was stored when the call returned."""
        return self.result.schedule

    @property
    def replaced_version(self) -> int | None:
        """The version that it replaced."""
        return self.result.replaced_version

    @property
    def replaced_at_ms(self) -> int | None:
        """When the replaced one would have been due (epoch ms)."""
        return self.result.replaced_at_ms

    @property
    def durable(self) -> str:
        """The durability that was reached."""
        return self.result.durable

    def __repr__(self) -> str:
        return repr(self.result)


def _timing_of(upsert: Upsert) -> Timing:
    return resolve_timing(
        at=upsert.at,
        delay=upsert.delay,
        every=upsert.every,
        initial_delay=upsert.initial_delay,
        start=upsert.start,
        until=upsert.until,
        limit=upsert.limit,
    )


def item(scope: Scope, upsert: Upsert | Mapping[str, Any], incarnation: int | None = None) -> Item[Upserted]:
    """The command's part for one upsert; ``incarnation`` is an owner handle's (a version). Raises `InvalidSchedule`."""
    wanted = upsert if type(upsert) is Upsert else Upsert.of(upsert)
    event = wanted.event
    if type(event) is not Event:
        raise InvalidSchedule("event", event, "want an Event")
    if (
        incarnation is None and _rare(wanted) == _NONE_RARE
    ):  # a plain one-shot: a bulk load makes 100,000 a second
        if wanted.delay is None and wanted.at is not None:
            when = f"@{resolve_instant(wanted.at)}"
        elif wanted.at is None and wanted.delay is not None:
            when = f"+{resolve_wait(wanted.delay, 'delay')}"
        else:
            _timing_of(wanted)  # refuses it
        return _assemble(scope, wanted, when, "", definition_fields(event, "o", scope.payload_limit))
    timing = _timing_of(wanted)
    if timing.kind == "once":
        kind = "o"
        when = f"@{timing.at_ms}" if timing.delay_ms is None else f"+{timing.delay_ms}"
    else:
        kind = f"e{timing.every_ms}"
        if timing.start_ms is not None:
            when = f"@{timing.start_ms}"
        else:
            when = f"+{timing.every_ms if timing.initial_delay_ms is None else timing.initial_delay_ms}"
    definition = definition_fields(event, kind, scope.payload_limit) + window_fields(timing)
    return build(scope, wanted, timing, when, definition, incarnation)


_rare = attrgetter(
    *("every", "initial_delay", "start", "until", "limit", "mode", "max_wait", "restart", "paused", "reset"),
    *("if_version", "idempotency_key"),
)
_NONE_RARE = (None, None, None, None, None, "replace", None, False, None, False, None, None)


def build(
    scope: Scope,
    wanted: Upsert,
    timing: Timing,
    when: str,
    definition: list[Word],
    incarnation: int | None = None,
    following: int | None = None,
) -> Item[Upserted]:
    """The item of a resolved definition; ``following`` (epoch ms) is a calendar's instant after the first."""
    options = _options(wanted, timing, incarnation, following)
    return _assemble(scope, wanted, when, options, definition)


def _assemble(
    scope: Scope, wanted: Upsert, when: str, options: str, definition: list[Word]
) -> Item[Upserted]:
    key = check_text("key", wanted.key)
    owner = b"" if wanted.owner is None else check_text("owner", wanted.owner)
    namespace = scope.namespace
    tenant = scope.tenant_bytes
    partition = namespace.partition_of(tenant, owner or key)
    tag = namespace.tags[partition]
    id = keys.identity(tenant, key, owner)
    item_keys: list[Word] = [keys.record(tag, id)]
    if owner:
        item_keys += (keys.owner_index(tag, tenant, owner), keys.owner_floor(tag, tenant, owner))
    if wanted.idempotency_key is not None:
        token = check_text("idempotency_key", wanted.idempotency_key)
        item_keys.append(keys.once(tag, tenant, owner or key, token))
        options += _digest(id, when, options, definition)
    elif options:
        options += "-"
    args = [when, options, len(definition), *definition]
    return Item(
        "upsert", partition, item_keys, args, 300 + len(id) + size_of(definition), _Reader(scope, wanted, id)
    )


def _options(wanted: Upsert, timing: Timing, incarnation: int | None, following: int | None) -> str:
    """The words that most calls do not need; empty, or ten of them and a blank for the digest."""
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
        "",
    )
    return " ".join(map(str, words))


def check_version(if_version: int | None) -> None:
    """Raises `InvalidSchedule` unless it is None or a version: 0 (there is none) or more."""
    if if_version is not None and (
        not isinstance(if_version, int) or isinstance(if_version, bool) or not 0 <= if_version < 2**53
    ):
        raise InvalidSchedule("if_version", if_version, "want the version to replace as an int, 0 for none")


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


class _Reader:
    """Reads one upsert's line, and a KEPT one's record behind it."""

    __slots__ = ("id", "scope", "wanted")

    def __init__(self, scope: Scope, wanted: Upsert, id: bytes) -> None:
        self.scope = scope
        self.wanted = wanted
        self.id = id

    def __call__(self, words: list[str], rest: Iterator[bytes], durable: str) -> Upserted:
        status, wanted, tenant = words[0], self.wanted, self.scope.tenant
        if len(words) > 3 and status != "KEPT":
            # CREATED, REPLACED, UNCHANGED, DUPLICATE
            return Upserted(
                wanted,
                tenant,
                _OUTCOMES[status],
                int(words[1]),
                int(words[2]),
                STATES[words[3]],
                durable,
                words,
            )
        if status == "KEPT":
            stored = decode(self.id, take(words[4], rest))
            return Upserted(
                *(wanted, tenant, Outcome.KEPT, stored.version, stored.at_ms, stored.state, durable),
                schedule=stored,
            )
        if status in ("VERSION_MISMATCH", "OWNER_GONE"):
            return Upserted(wanted, tenant, _OUTCOMES[status], int(words[1]), None, None, durable)
        if status == "INVALID":
            field = words[1]
            if field == "delay" and wanted.delay is None:  # the script has one word for what starts too late
                field = "every" if wanted.initial_delay is None else "initial_delay"
            raise InvalidSchedule(field, getattr(wanted, field), _WANT[field])
        raise ContractBroken(f"unexpected answer {status!r}")
