"""get, and what a dry run says: one schedule, with what has been and what is to come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from timerq.cli import show
from timerq.cli.absent import absent
from timerq.cli.base import QueueCommand, Target, json_option, owner_option, pass_target
from timerq.cli.moments import moment_words, say_moments
from timerq.commands.recurring import upcoming
from timerq.commands.rehearsal import NEXT, Rehearsed
from timerq.commands.wording import told, words_of
from timerq.errors import InvalidSchedule
from timerq.explain import caveat
from timerq.explain.outlook import on_the_wall
from timerq.model import Fire, Outcome, Schedule, State, Timing
from timerq.previews import Moment, moments
from timerq.timing import resolve_instant


@click.command(cls=QueueCommand)
@click.argument("key")
@owner_option
@json_option
@pass_target
def get(target: Target, /, key: str, owner: str | None, as_json: bool) -> None:
    """Show the schedule of KEY: what it is, its last fires, and the next ones.

    \b
    Examples:
      timerq get reminder:order-42
      timerq get reminder:order-42 --json
    """
    with target.open() as queue:
        schedule = queue.get(key, owner=owner)
        if schedule is None:
            raise absent(queue, key, owner)
    recurs = schedule.timing.kind != "once"
    following: list[Moment] = []
    try:
        if recurs:
            following = moments(schedule.timing, upcoming(schedule, NEXT))
    except InvalidSchedule as error:  # this machine may know fewer zones than the one that set it
        show.note(f"The next ones cannot be told here: {error}")
    if as_json:
        show.say_json(
            {**show.schedule_words(schedule), "next": [moment_words(moment) for moment in following]}
        )
        return
    say_lines(_lines(schedule))
    if schedule.fires:
        show.say("")
        handled = any(fire.outcome for fire in schedule.fires)
        more = ("outcome",) if handled else ()
        rows = show.Rows("last due", "fired", "lag", "missed", *more, right=("lag", "missed"))
        rows.add(
            [
                show.local(fire.at_ms),
                show.local(fire.fired_ms),
                show.length(max(0, fire.lag_ms)),
                f"{fire.missed:,}",
                *([_outcome(fire)] if handled else ()),
            ]
            for fire in schedule.fires
        )
    if following:
        show.say("")
        say_next(following, schedule.timing, schedule.state is State.PAUSED)
    note_caveat(schedule)


def _outcome(fire: Fire) -> str:
    """What became of an occurrence, in a few words."""
    word = fire.outcome or "-"
    if fire.attempt > 1:
        word += f" ({fire.attempt:,})"
    return show.clean(f"{word}: {fire.summary}" if fire.summary else word)


def say_next(following: Sequence[Moment], timing: Timing | None, paused: bool) -> None:
    """A table of the next instants of a schedule."""
    title = "next, once it is resumed" if paused else "next"
    say_moments(following, title, timing=timing, after_ms=show.now_ms())


def note_caveat(schedule: Schedule) -> None:
    """Says where the next occurrence may not be what its instant promises."""
    text = caveat(schedule, show.now_ms(), show.local)
    if text is not None:
        show.note(show.clean(text))


def _lines(schedule: Schedule) -> Iterator[tuple[str, str | None]]:
    """What there is to say of a schedule; None where there is nothing."""
    event, timing = schedule.event, schedule.timing
    yield "key", show.clean(schedule.key)
    yield "owner", _clean(schedule.owner)
    yield "state", show.state_text(schedule)
    if schedule.state is State.PAUSED:
        yield "paused by", _clean(schedule.paused_by)
        yield "paused at", None if schedule.paused_ms is None else show.when(schedule.paused_ms)
        yield "because", _clean(schedule.paused_note)
    unless = ", not until it is resumed" if schedule.state is State.PAUSED else ""
    due = f"{show.when(schedule.at_ms)}{on_the_wall(schedule, show.local)}".replace(") (", "; ")
    yield "due", f"{due}{unless}"
    yield "timing", show.timing_text(timing)
    yield from _definition(schedule)
    if timing.kind != "once":
        missed, skipped = schedule.missed_total, schedule.skipped_total
        yield "fired", f"{schedule.fired_total:,} ({missed:,} missed, {skipped:,} skipped)"
    yield "running", _running(schedule)
    yield "failures", f"{schedule.failures:,} in a row" if schedule.failures else None
    yield "set by", _clean(schedule.by)
    yield "declared in", _clean(schedule.label)
    yield "version", str(schedule.version)
    yield "type", show.clean(event.type)
    yield "stream", event.stream
    yield "payload", show.payload_text(event.payload)
    yield "correlation", show.payload_text(dict(event.correlation)) if event.correlation else None


def _running(schedule: Schedule) -> str | None:
    if schedule.running is None:
        return None
    until = "" if schedule.running_until_ms is None else f", given up {show.when(schedule.running_until_ms)}"
    return f"{show.clean(schedule.running)}{until}"


def _definition(schedule: Schedule) -> Iterator[tuple[str, str]]:
    """The words that are not as usual; what the line of the timing says is left out."""
    timing = schedule.timing
    for word, value in told(words_of(schedule.event, timing)).items():
        if word in ("at", "delay", "every", "fixed_delay") or word.startswith("event."):
            continue
        if word == "timezone" or (word == "cron" and isinstance(value, str)):
            continue
        name = word.replace("_", " ")
        if word in ("start", "until"):
            at_ms = timing.start_ms if word == "start" else timing.until_ms
            yield name, show.when(at_ms or 0)
        elif word == "anchor":
            yield name, _told(word, value)
        elif isinstance(value, list):
            for one in value:
                yield name, value_text(one)
        else:
            yield name, value_text(value)


def say_lines(lines: Iterable[tuple[str, str | None]]) -> None:
    """Names and texts beside each other; those without a text are left out."""
    said = [(name, text) for name, text in lines if text is not None]
    width = max((len(name) for name, _ in said), default=0)
    for name, text in said:
        show.say(f"{name:<{width}}  {text}")


def _clean(text: str | None) -> str | None:
    return None if text is None else show.clean(text)


# ------------------------------------------------------------------------------------------------ dry runs


def say_rehearsed(found: Rehearsed, as_json: bool) -> None:
    """What an upsert would do: its outcome, the words that would change, the next instants."""
    following = [] if found.timing is None else moments(found.timing, found.upcoming)
    if as_json:
        show.say_json(
            {
                "dry_run": True,
                "outcome": found.outcome,
                "key": found.key,
                "owner": found.owner,
                "version": found.version,
                "state": found.state,
                "words": found.words,
                "changes": {word: {"old": old, "new": new} for word, old, new in found.differences},
                "next": [moment_words(moment) for moment in following],
            }
        )
        return
    name = show.name_of(found.key, found.owner)
    stored = f"version {found.version} is stored" if found.version else "nothing is stored"
    paused = found.state is State.PAUSED
    show.say(f"would be {found.outcome}  {name}  {stored}{'  paused' if paused else ''}")
    if found.outcome is Outcome.CREATED:
        say_lines((f"  {_name(word)}", _told(word, value)) for word, value in told(found.words).items())
    say_lines(
        (f"  {_name(word)}", f"{_told(word, old)} → {_told(word, new)}")
        for word, old, new in found.differences
    )
    if following:
        show.say("")
        say_next(following, found.timing, paused)
    if paused:
        show.note("It is paused: none of these fires until it is resumed.")


def _name(word: str) -> str:
    return word.removeprefix("event.").replace("_", " ")


def _told(word: str, value: Any) -> str:
    """A word's value, with instants written as everywhere."""
    if word in ("at", "start", "until", "anchor") and isinstance(value, str) and value != "clock":
        return show.local(resolve_instant(value))
    return value_text(value)


def value_text(value: Any) -> str:
    """A value."""
    if value is None:
        return "none"
    return show.clean(value) if isinstance(value, str) else show.payload_text(value)
