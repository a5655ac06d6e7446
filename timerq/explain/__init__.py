"""A history in plain sentences: what happened to a key, and what will happen next.

story     the log's entries, and what the log does not hold, in one order
phrases   a sentence for each of them        outlook   what is to come
"""

from __future__ import annotations

from timerq.commands.history import History
from timerq.explain.outlook import nothing, outlook, standing
from timerq.explain.phrases import When, describe, sentence, utc
from timerq.explain.story import folded, story

__all__ = ["When", "sentences", "utc"]


def sentences(
    history: History, now_ms: int | None = None, *, when: When = utc, last: int | None = None
) -> list[str]:
    """What is known of a key in plain English, oldest first, and then what will happen next.

    ``now_ms`` is the time to tell it from (epoch ms; by default the queue's own when it was asked), ``when`` writes the
    instants. Only the ``last`` so many of what happened are told where that is given. What cannot be known is said too:
    what the log has forgotten, and what leaves no trace in it.
    """
    if now_ms is None:
        now_ms = history.asked_ms or 0
    schedule = history.schedule
    said = [] if schedule is None else [describe(schedule, when)]
    if not history.whole and history.since_ms is not None:
        said.append(
            f"The log's memory begins at {when(history.since_ms)}: what happened before that is not known, "
            "but for what the schedule itself carries."
        )
    lines, left = story(history)
    lines = folded(lines)
    if last is not None and len(lines) > last:
        count = len(lines) - last
        said.append(f"{count:,} earlier {'entry is' if count == 1 else 'entries are'} left out here.")
        lines = lines[count:]
    said += [sentence(line, when) for line in lines]
    if schedule is not None:
        said += standing(schedule)
        said += outlook(history, schedule, now_ms, when)
    elif history.unreadable is not None:
        said.append(f"What is stored under this key cannot be read: {history.unreadable.rstrip('.')}.")
        said.append("It does not fire until an upsert of this key replaces it.")
    else:
        said.append(nothing(history, left))
    return said
