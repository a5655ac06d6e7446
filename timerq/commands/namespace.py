"""A namespace: made once, read by every process that opens it."""

from __future__ import annotations

from collections.abc import Mapping

from timerq import keys
from timerq.commands.command import SCHEMA, Command, Namespace, Reply, Steps
from timerq.errors import ContractBroken, InvalidSchedule, NamespaceMismatch
from timerq.lua import SCRIPTS, Word
from timerq.model import check_plain_name
from timerq.timing import Duration, resolve_duration

LAYOUT = "1"
MAX_PARTITIONS = 1024
DEFAULT_RETENTION_MS = 86_400_000
_SETTINGS = ("retention_ms", "max_age_ms", "max_length")


def open_namespace(
    name: str,
    *,
    partitions: int | None = None,
    clock: str | None = None,
    retention: Duration | None = None,
    max_age: Duration | None = None,
    max_length: int | None = None,
) -> Steps[Namespace]:
    """Reads the namespace, making it where there is none, and changing the settings that are given.

    ``partitions`` (1 to 1,024; 1 where not given) and ``clock`` ("redis" or "manual") are chosen for good when it is
    made: another value later raises `NamespaceMismatch`. ``retention`` (24 h) is how long stream entries stay at
    least; ``max_age`` and ``max_length`` bound unread ones, 0 for no bound.

    Safe against a crash or a race at any point: the namespace's meta decides, and whoever opens it makes what is
    missing of the partitions.
    """
    check_plain_name("namespace", name)
    if partitions is not None and (type(partitions) is not int or not 1 <= partitions <= MAX_PARTITIONS):
        raise InvalidSchedule("partitions", partitions, f"want a number from 1 to {MAX_PARTITIONS}")
    if clock not in (None, "redis", "manual"):
        raise InvalidSchedule("clock", clock, 'want "redis" or "manual"')
    settings = _settings(retention, max_age, max_length)
    wanted = partitions or 1
    tags = keys.choose_tags(name, wanted)
    fixed = {"clock": clock or "redis", "partitions": str(wanted), "tags": " ".join(tags)}
    defaults = {"retention_ms": str(DEFAULT_RETENTION_MS), "max_age_ms": "", "max_length": ""}
    (stored,) = yield [
        _make(keys.namespace_meta(name), settings, {**defaults, **settings, **_contract(), **fixed})
    ]
    namespace = parse_namespace(name, stored)
    if partitions is not None and namespace.partitions != partitions:
        raise NamespaceMismatch(
            f"namespace {name!r} has {namespace.partitions} partitions, not {partitions}: chosen when it was made"
        )
    if clock is not None and namespace.manual_clock != (clock == "manual"):
        raise NamespaceMismatch(f"namespace {name!r} was made with another clock than {clock!r}")
    yield from make_partitions(namespace, settings)
    return namespace


def find_namespace(name: str) -> Steps[Namespace]:
    """Reads the namespace and makes nothing: one that is not there has no ``layout``, and reads as empty.

    (Looking must not choose the number of partitions, which is chosen for good.)
    """
    (stored,) = yield [_make(keys.namespace_meta(name), {}, {})]
    if stored:
        return parse_namespace(name, stored)
    return Namespace(name, "", 1, tuple(b"{%b}" % tag.encode() for tag in keys.choose_tags(name, 1)), False)


def make_partitions(namespace: Namespace, settings: Mapping[str, str] | None = None) -> Steps[None]:
    """Makes the metas of partitions that have none; harmless where they are there."""
    clock = "manual" if namespace.manual_clock else "redis"
    yield [
        _make(
            keys.meta(tag),
            settings or {},
            {**namespace.settings, **_contract(), "clock": clock, "partition": str(partition)},
        )
        for partition, tag in enumerate(namespace.tags)
    ]


def reopen_namespace(namespace: Namespace) -> Steps[None]:
    """Makes anew what has gone from Redis (an emptied server); raises `NamespaceMismatch` where it is another."""
    settings = namespace.settings
    found = yield from open_namespace(
        namespace.name,
        partitions=namespace.partitions,
        clock="manual" if namespace.manual_clock else "redis",
        retention=int(settings["retention_ms"]),
        max_age=int(settings["max_age_ms"] or 0),
        max_length=int(settings["max_length"] or 0),
    )
    if found.tags != namespace.tags:
        raise NamespaceMismatch(
            f"namespace {namespace.name!r} was made anew with other partitions; start again"
        )


def parse_namespace(name: str, stored: Mapping[str, str]) -> Namespace:
    """The namespace that a meta hash describes; raises `NamespaceMismatch` for another layout or schema."""
    if stored.get("layout") != LAYOUT or stored.get("schema") != SCHEMA:
        raise NamespaceMismatch(
            f"namespace {name!r} has layout {stored.get('layout')} and schema {stored.get('schema')}, "
            f"this client knows layout {LAYOUT} and schema {SCHEMA}"
        )
    try:
        tags = tuple(b"{%b}" % tag.encode() for tag in stored["tags"].split(" "))
        return Namespace(
            name,
            LAYOUT,
            int(stored["partitions"]),
            tags,
            stored["clock"] == "manual",
            {name: stored[name] for name in _SETTINGS},
        )
    except (KeyError, ValueError) as error:
        raise ContractBroken(f"unreadable meta of namespace {name!r}: {error!r}") from error


def _settings(retention: Duration | None, max_age: Duration | None, max_length: int | None) -> dict[str, str]:
    settings = {}
    if retention is not None:
        retention_ms = resolve_duration(retention, field="retention")
        if retention_ms < 1:
            raise InvalidSchedule("retention", retention, "want a duration above 0")
        settings["retention_ms"] = str(retention_ms)
    if max_age is not None:
        settings["max_age_ms"] = str(resolve_duration(max_age, field="max_age") or "")
    if max_length is not None:
        if type(max_length) is not int or not 0 <= max_length < 2**53:
            raise InvalidSchedule("max_length", max_length, "want a number of entries, 0 for no bound")
        settings["max_length"] = str(max_length or "")
    return settings


def _contract() -> dict[str, str]:
    return {"layout": LAYOUT, "schema": SCHEMA}


def _make(meta: bytes, settings: Mapping[str, str], fields: Mapping[str, str]) -> Command[dict[str, str]]:
    """The settings come first: they are written over those of an existing meta too."""
    script = SCRIPTS["make"]
    pairs = [*settings.items(), *((name, value) for name, value in fields.items() if name not in settings)]
    item_args: list[Word] = [word for pair in pairs for word in pair]

    def read(reply: Reply) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in zip(reply[::2], reply[1::2], strict=True)}

    tag = meta[: meta.index(b"}") + 1]
    return Command(
        script, script.order({"meta": meta}, {"settings": len(settings)}, (), item_args), read, tag
    )
