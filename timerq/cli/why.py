"""why: what happened to a key, and what will happen next."""

from __future__ import annotations

from typing import Any

import click

from timerq.cli import show
from timerq.cli.base import NotFound, QueueCommand, Target, json_option, owner_option, pass_target
from timerq.cli.values import number
from timerq.commands.history import History, LogEntry
from timerq.explain import sentences

_LAST = 30
"""How many things are told where nobody says."""


@click.command(cls=QueueCommand)
@click.argument("key")
@owner_option
@click.option(
    "-n",
    "--last",
    type=number,
    help="Tell so many of the last things that happened, also of before the key was set anew [30, since then]; 0 for "
    "what comes next alone.",
)
@json_option
@pass_target
def why(target: Target, /, key: str, owner: str | None, last: int | None, as_json: bool) -> None:
    """Tell what happened to KEY and what will happen next, in plain sentences.

    It reads what is stored and the log, which is shared by all keys and bounded: where its memory begins is said.

    \b
    Examples:
      timerq why reminder:order-42
      timerq why heartbeat --owner session-7 -n 100
      timerq why digest --json
    """
    with target.open() as queue:
        found = queue.why(key, owner=owner)
    most = _LAST if last is None else last
    said = sentences(found, when=show.local, last=most, earlier_lives=last is not None)
    if as_json:
        show.say_json(_words(found, said))
    else:
        for sentence in said:
            show.say(show.clean(sentence))
        if last is None and len(sentences(found, when=show.local)) > len(said):
            show.note("There is more to tell of the time before: -n 1000")
    if found.schedule is None and not found.entries and found.unreadable is None:
        hint = "" if owner is not None else "If the key belongs to an owner, name that with --owner. "
        raise NotFound(f"{hint}See what waits with: timerq list")


def _words(found: History, said: list[str]) -> dict[str, Any]:
    """A history as JSON."""
    return {
        "key": found.key,
        "owner": found.owner,
        "schedule": None if found.schedule is None else show.schedule_words(found.schedule),
        "unreadable": found.unreadable,
        "entries": [_entry_words(entry) for entry in found.entries],
        **show.instant_words("since", found.since_ms),
        "whole": found.whole,
        **show.instant_words("asked", found.asked_ms),
        "dispatchers": found.dispatchers,
        "sentences": said,
    }


def _entry_words(entry: LogEntry) -> dict[str, Any]:
    return {
        **show.instant_words("at", entry.at_ms),
        "what": entry.what,
        "version": entry.version,
        "note": entry.note,
        "by": entry.by,
    }
