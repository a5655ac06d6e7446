"""What an upsert says besides its definition, as upsert.lua takes it, and the digest of a body that may come twice."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from timerq.commands.arming import Upsert
from timerq.errors import InvalidSchedule
from timerq.lua import Word
from timerq.model import Timing
from timerq.timing import resolve_duration

_MODES = ("replace", "keep", "earliest", "latest")


class Membership(NamedTuple):
    """The declared set that a schedule belongs to, and the number of the `apply` that says so."""

    label: str
    generation: int


def options_of(
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
    """What is the same when a call is made again: by another handle of the owner; and of a calendar, all but the
    instants, which the time tells.
    """
    words = options.split(" ")
    if not bytes(definition[1]).startswith(b"c "):  # type: ignore[arg-type]
        return when, " ".join((*words[:6], *words[7:]))
    return "", " ".join((*words[:6], *words[8:]))


def digest_of(id: bytes, when: str, options: str, definition: list[Word]) -> str:
    """Tells bodies of calls with an idempotency key apart."""
    when, options = _repeated(when, options, definition)
    digest = hashlib.blake2b(digest_size=16)
    for part in (id, when, options, *definition):
        data = part if isinstance(part, bytes) else str(part).encode()
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()
