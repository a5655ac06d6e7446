"""durable=: how safe a write must be before its call returns."""

from __future__ import annotations

import re
from collections.abc import Iterable

from timerq.commands.command import Durability
from timerq.errors import InvalidSchedule
from timerq.timing import resolve_duration

DEFAULT_REPLICAS_MS = 1000
DEFAULT_FSYNC_MS = 3000
"""A server with ``appendfsync everysec`` may take two seconds."""

MAX_TIMEOUT_MS = 4000
"""A longer wait would outlast the socket's own time-out."""

_WORDS = re.compile(r"(?:replicas=([1-9][0-9]?)|fsync)(?:,timeout=([0-9a-z.]+))?")
_WANT = 'want "replicas=N", "fsync", or either with a time-out up to 4s, as in "replicas=1,timeout=500ms"'


def parse_durable(durable: str | None) -> Durability | None:
    """``"replicas=2"``, ``"fsync"`` or either with ``,timeout=500ms`` (by default 1 s, for fsync 3 s).

    None and "accepted" are no wait.

    Raises `InvalidSchedule` naming ``durable``.
    """
    if durable is None or durable == "accepted":
        return None
    match = _WORDS.fullmatch(durable) if isinstance(durable, str) else None
    if match is None:
        raise InvalidSchedule("durable", durable, _WANT)
    fsync = match[1] is None
    if match[2] is None:
        timeout_ms = DEFAULT_FSYNC_MS if fsync else DEFAULT_REPLICAS_MS
    else:
        timeout_ms = resolve_duration(match[2], field="durable")
    if not 1 <= timeout_ms <= MAX_TIMEOUT_MS:
        raise InvalidSchedule("durable", durable, _WANT)
    return Durability(replicas=int(match[1] or 0), fsync=fsync, timeout_ms=timeout_ms)


def wait_words(durability: Durability) -> tuple[str, ...]:
    """The command that waits, sent behind the write on its connection."""
    if durability.fsync:
        return ("WAITAOF", "1", "0", str(durability.timeout_ms))
    return ("WAIT", str(durability.replicas), str(durability.timeout_ms))


def reached(durability: Durability, answer: int | list[int]) -> str:
    """What the waiting command's answer says was reached."""
    if durability.fsync:
        return "fsync" if isinstance(answer, list) and answer[0] >= 1 else "accepted"
    return f"replicas={answer}" if answer else "accepted"


def least(levels: Iterable[str]) -> str:
    """The least of the levels that several writes reached."""

    def order(level: str) -> int:
        return 0 if level == "accepted" else int(level.partition("=")[2] or 100)

    return min(levels, key=order)
