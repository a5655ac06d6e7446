"""A history in plain sentences: what happened to a key, and what will happen next.

story       the log's entries, and what the log does not hold, in one order
definition  what the schedule is          phrases   a sentence for each thing that happened
outlook     what is to come               mending   what to do where it is held
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from timerq.commands.history import History
from timerq.explain.definition import When, describe, times, timing_text
from timerq.explain.outlook import caveat, nothing, outlook, standing
from timerq.explain.phrases import sentence
from timerq.explain.story import Line, folded, last_life, story
from timerq.model import instant_text as utc

__all__ = ["When", "caveat", "sentences", "timing_text", "utc"]


def sentences(
    history: History,
    now_ms: int | None = None,
    *,
    when: When = utc,
    last: int | None = None,
    earlier_lives: bool = True,
) -> list[str]:
    """What is known of a key in plain English, oldest first, and then what will happen next.

    ``now_ms`` is the time to tell it from (epoch ms; by default the queue's own when it was asked), ``when`` writes the
    instants. Only the ``last`` so many of what happened are told where that is given, and of what was under this key
    before it was set anew one sentence alone, unless ``earlier_lives``. What cannot be known is said too: what the log
    has forgotten, and what leaves no trace in it.
    """
    if now_ms is None:
        now_ms = history.asked_ms or 0
    schedule = history.schedule
    said = [] if schedule is None else list(describe(schedule, when))
    if not history.whole and history.since_ms is not None:
        said.append(
            f"The log's memory begins at {when(history.since_ms)}: what happened before that is not known, "
            "but for what the schedule itself carries."
        )
    lines, left = story(history)
    if not earlier_lives and (start := last_life(lines)) > 1:
        said += _earlier(lines[:start], when)
        lines = lines[start:]
    lines = folded(lines)
    if last is not None and len(lines) > last:
        count = len(lines) - last
        said.append(f"{count:,} earlier {'entry is' if count == 1 else 'entries are'} left out here.")
        lines = lines[count:]
    said += [sentence(line, when) for line in lines]
    if schedule is not None:
        said += standing(schedule, when)
        said += outlook(history, schedule, now_ms, when)
    elif history.unreadable is not None:
        said.append(f"What is stored under this key cannot be read: {history.unreadable.rstrip('.')}.")
        said.append("It does not fire until an upsert of this key replaces it.")
    else:
        said += nothing(history, left, when)
    return said


def _earlier(lines: list[Line], when: When) -> Iterator[str]:
    """What was under this key before, in one sentence."""
    ends = sorted(line.what for line in lines if line.what in ("cancelled", "destroyed", "ended", "dropped"))
    parts = [f"{len(list(run)):,} {what}" for what, run in groupby(ends)]
    sets = sum(line.what == "set" for line in lines)
    ways = f" ({', '.join(parts)})" if parts else ""
    yield (
        f"Earlier, from {when(lines[0].at_ms)} to {when(lines[-1].at_ms)}, this key was set {times(sets)}{ways}."
    )
