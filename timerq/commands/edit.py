"""pause, resume, trigger; and publish, which needs no schedule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from timerq import codec, keys
from timerq.commands.cancel import locate, read_change
from timerq.commands.command import Scope
from timerq.commands.items import Item
from timerq.commands.options import check_version
from timerq.commands.record import payload_fields
from timerq.errors import BacklogFull, InvalidSchedule
from timerq.lua import Word
from timerq.model import Change, Event, Outcome, check_text

Verb = Literal["pause", "resume", "skip", "trigger", "consume"]
_MAX_NOTE_BYTES = 1000


class Going(NamedTuple):
    """Where a paused schedule goes on: its next occurrence and the one after it, and how many are left out.

    ``paused_at_ms`` is the occurrence it stood at, which fences it (all in epoch ms).
    """

    paused_at_ms: int
    at_ms: int
    following_ms: int | None
    skipped: int


def item(
    scope: Scope,
    verb: Verb,
    key: str,
    owner: str | None = None,
    if_version: int | None = None,
    *,
    by: str | None = None,
    note: str | None = None,
    going: Going | None = None,
    incarnation: int | None = None,
) -> Item[Change]:
    """The command's part for one change of a schedule in place; raises `InvalidSchedule`.

    ``by`` and ``note`` say who does it and why; ``going`` belongs to "skip", a resume that leaves out what was missed.
    ``incarnation`` is an owner handle's (a version).
    """
    partition, tag, id, owner_bytes = locate(scope, key, owner)
    check_version(if_version)
    item_keys: tuple[Word, ...] = (keys.record(tag, id),)
    if owner_bytes:
        tenant = scope.tenant_bytes
        item_keys += (keys.owner_index(tag, tenant, owner_bytes), keys.owner_floor(tag, tenant, owner_bytes))
    where: tuple[Word, ...] = ("", "", "", "")
    if going is not None:
        where = (going.paused_at_ms, going.at_ms, _or_unknown(going.following_ms), going.skipped)
    args: tuple[Word, ...] = (
        verb,
        "" if if_version is None else str(if_version),
        b"" if by is None else check_text("by", by),
        _note_bytes(note),
        *map(str, where),
        "" if incarnation is None else str(incarnation),
    )
    plain = read_change(key, owner)

    def read(words: list[str], rest: Iterator[bytes], durable: str) -> Change:
        if words[0] == "INVALID":
            raise InvalidSchedule("consume", True, "want consume=True only for a one-shot")
        if words[0] == "FULL":
            raise BacklogFull(" ".join(words[1:]))
        if words[0] in ("TRIGGERED", "DUPLICATE", "DROPPED"):
            return Change(Outcome(words[0]), key, owner, int(words[1]), None, words[2], durable)
        return plain(words, rest, durable)

    return Item("edit", partition, item_keys, args, len(id) + 100, read)


def _or_unknown(following_ms: int | None) -> str:
    return "-" if following_ms is None else str(following_ms)


def _note_bytes(note: str | None) -> bytes:
    if note is None:
        return b""
    encoded = note.encode("utf-8", "replace") if isinstance(note, str) else b"\x00"
    if len(encoded) > _MAX_NOTE_BYTES or b"\x00" in encoded:
        raise InvalidSchedule("note", note, f"want a text of at most {_MAX_NOTE_BYTES} bytes without NUL")
    return encoded


def publish_item(
    scope: Scope, event: Event, key: str, owner: str | None = None, incarnation: int | None = None
) -> Item[Change]:
    """The command's part for one event straight onto the stream of its lane; raises `InvalidSchedule`.

    ``incarnation`` is an owner handle's (a version).
    """
    if not isinstance(event, Event):
        raise InvalidSchedule("event", event, "want an Event")
    key_bytes = check_text("key", key)
    owner_bytes = b"" if owner is None else check_text("owner", owner)
    content, data = payload_fields(event, scope.payload_limit)
    correlation = codec.encode_correlation({} if event.correlation is None else event.correlation)
    namespace = scope.namespace
    partition = namespace.partition_of(scope.tenant_bytes, owner_bytes or key_bytes)
    tag = namespace.tags[partition]
    item_keys: tuple[Word, ...] = (keys.stream(tag, event.stream.encode()),)
    if incarnation is not None:
        item_keys += (keys.owner_floor(tag, scope.tenant_bytes, owner_bytes),)
    args: tuple[Word, ...] = (
        *(key_bytes, owner_bytes, event.stream, content, event.type, correlation, data),
        "" if incarnation is None else str(incarnation),
    )

    def read(words: list[str], rest: Iterator[bytes], durable: str) -> Change:
        if words[0] == "OWNER_GONE":
            return Change(Outcome.OWNER_GONE, key, owner, int(words[1]), None, None, durable)
        if words[0] == "FULL":
            raise BacklogFull(" ".join(words[1:]))
        return Change(Outcome(words[0]), key, owner, int(words[1]), None, words[2], durable)

    size = len(key_bytes) + len(owner_bytes) + len(data) + len(correlation) + 300
    return Item("publish", partition, item_keys, args, size, read)
