"""What becomes of an event that was handled: pure."""

from __future__ import annotations

import os
import traceback
from dataclasses import dataclass
from typing import Any, Literal

from timerq.commands.consume import MAX_ERROR, MAX_OUTCOME
from timerq.consumer.handlers import Handler
from timerq.errors import Incomplete, InvalidPayload

MAX_TRACEBACK_BYTES = 6_000
"""What is told of a traceback, its end; less than the scripts would keep, so that many settlements go in one call."""

_HERE = os.path.join(os.path.dirname(__file__), "")


@dataclass(slots=True)
class Verdict:
    """``verb`` is what to tell Redis; a ``retry`` waits for ``wait_ms`` first. The texts are bounded."""

    verb: Literal["ack", "retry", "reject"]
    wait_ms: int = 0
    error: str = ""
    traceback: str = ""
    outcome: str = ""


DONE = Verdict("ack")
"""The handler has returned, and there is nothing to keep of it."""


def succeeded(result: Any) -> Verdict:
    """The handler returned ``result``, of which a short text is kept (None: nothing)."""
    return DONE if result is None else Verdict("ack", outcome=bounded(_text(result), MAX_OUTCOME))


def failed(handler: Handler, attempt: int, error: BaseException, luck: float) -> Verdict:
    """Handling number ``attempt`` ended with ``error``; ``luck`` is a random number from 0 to 1."""
    _leave_out_ours(error)
    told = bounded(describe(error), MAX_ERROR)
    trace = "" if isinstance(error, Incomplete) and error.__traceback__ is None else _traceback(error)
    if attempt < handler.attempts and is_worth_it(handler, error):
        return Verdict("retry", handler.backoff.wait_ms(attempt, luck), told, trace)
    return Verdict("reject", error=told, traceback=trace)


def is_worth_it(handler: Handler, error: BaseException) -> bool:
    """Whether an error is one of those that are tried again."""
    if isinstance(error, (InvalidPayload, *handler.give_up_on)):
        return False
    return isinstance(error, (Incomplete, *handler.retry_on))


def describe(error: BaseException) -> str:
    """The class and the text of an error, in one line."""
    if isinstance(error, Incomplete):
        return f"Incomplete: {_text(error)}"
    text = _text(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def bounded(text: str, most_bytes: int, *, keep_end: bool = False) -> str:
    """``text`` within so many bytes of UTF-8, cut at a character; what cannot be written is replaced."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most_bytes:
        return data.decode()
    room = most_bytes - len("…".encode())
    kept = data[len(data) - room :] if keep_end else data[:room]
    short = kept.decode("utf-8", "ignore")
    return f"…{short}" if keep_end else f"{short}…"


def _text(thing: Any) -> str:
    try:
        return thing if isinstance(thing, str) else str(thing)
    except Exception:  # a broken __str__ must not hide what failed
        return f"a {type(thing).__name__}"


def _leave_out_ours(error: BaseException) -> None:
    """Takes the way from the consumer to the handler off its traceback: nobody looks there for what failed."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_HERE):
        trace = trace.tb_next
    if trace is not None or isinstance(error, InvalidPayload):
        error.__traceback__ = trace


def _traceback(error: BaseException) -> str:
    try:
        lines = traceback.format_exception(error, limit=-20)
    except Exception:
        return ""
    return bounded("".join(lines), MAX_TRACEBACK_BYTES, keep_end=True)
