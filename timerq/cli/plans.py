"""What plan, apply and crontab show of a set before anything is done."""

from __future__ import annotations

from typing import Any

import click

from timerq.cli import show
from timerq.commands.planned import Action, Planned, SetPlan
from timerq.commands.wording import told
from timerq.declare.entries import COUNTED_NAME

_SIGNS: dict[Action, tuple[str, str | None]] = {
    "create": ("+", "green"),
    "change": ("~", "yellow"),
    "remove": ("-", "red"),
    "ended": (".", None),
    "unchanged": ("=", None),
}
_COUNTED: dict[Action, str] = {
    "create": "to create",
    "change": "to change",
    "remove": "to remove",
    "ended": "ended",
    "unchanged": "unchanged",
}
NOTHING = "nothing is declared in it, and nothing of it is stored"
"""What there is to say of an empty set."""


def changes_of(item: Planned) -> dict[str, Any]:
    """The words that change, as JSON."""
    return {change.word: {"old": change.old, "new": change.new} for change in item.differences}


def show_plan(planned: SetPlan, as_json: bool, prunes: bool = False, takes_over: bool = False) -> None:
    """A plan; ``prunes`` and ``takes_over`` say what the one who asks will not need to be told of."""
    if as_json:
        for item in planned.items:
            words = {"set": planned.label, "action": item.action, "key": item.key, "words": item.words}
            show.say_json({**words, "changes": changes_of(item), "taken_from": item.taken_from})
        return
    show_items(planned)
    counts = planned.counts
    told_counts = ", ".join(
        f"{counts[action]:,} {word}" for action, word in _COUNTED.items() if action in counts
    )
    show.say(f"set {planned.label}: {told_counts or NOTHING}")
    note_surplus(planned, prunes)
    if not takes_over:
        note_others(planned)


def show_items(planned: SetPlan) -> None:
    """What would be done with each schedule."""
    width = max((len(show.clean(item.key)) for item in planned.items), default=0)
    for item in planned.items:
        sign, colour = _SIGNS[item.action]
        lines = [f"{change.word} {_text(change.old)} → {_text(change.new)}" for change in item.differences]
        if item.action in ("create", "remove"):
            lines = [_brief(item.words)]
        elif item.action == "ended":
            lines = [f"ended: until {item.words['until']}"]
        head = f"{sign} {show.clean(item.key).ljust(width)}  "
        for line in lines or [""]:
            show.say(click.style(f"{head}{line}".rstrip(), fg=colour))
            head = " " * len(head)


def note_surplus(planned: SetPlan, prunes: bool) -> None:
    """What is declared no more stays without --prune."""
    if "remove" in planned.counts and not prunes:
        show.note("What is to remove stays, unless you apply with --prune.")


def note_others(planned: SetPlan) -> None:
    """Names that another set declares; those which nobody chose may be others as well."""
    taken = [item for item in planned.items if item.taken_from]
    if not taken:
        return
    others = ", ".join(sorted({item.taken_from or "" for item in taken}))
    show.note(f"Some belong to set {others}: --take-over takes them from it.")
    if any(COUNTED_NAME.fullmatch(item.key) for item in taken):
        show.note(
            "Names like cron-1 are counted, in each set anew: give the lines of a crontab another beginning with "
            "--prefix, and the entries of a file a name of their own (name:)."
        )


def _brief(words: dict[str, Any]) -> str:
    """A schedule in the words that are not the usual ones."""
    return ", ".join(f"{word.removeprefix('event.')} {_text(value)}" for word, value in told(words).items())


def _text(value: Any) -> str:
    if value is None:
        return "none"
    return show.clean(value) if isinstance(value, str) else show.payload_text(value)
