"""get, and what a dry run says: one schedule, with what has been and what is to come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import click

from timerq.cli import show
from timerq.cli.base import NotFound, QueueCommand, Target, json_option, owner_option, pass_target
from timerq.commands.recurring import upcoming
from timerq.commands.rehearsal import NEXT, Rehearsed
from timerq.commands.wording import told, words_of
from timerq.errors import InvalidSchedule
from timerq.model import Outcome, Schedule, State
from timerq.preview import Moment, moments

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


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
        raise missing(key, owner)
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
        rows = show.Rows("last due", "fired", "lag", "missed", right=("lag", "missed"))
        rows.add(
            [
                show.local(fire.at_ms),
                show.local(fire.fired_ms),
                show.length(max(0, fire.lag_ms)),
                f"{fire.missed:,}",
            ]
            for fire in schedule.fires
        )
    if following:
        show.say("")
        say_moments(following, "next")


def missing(key: str, owner: str | None) -> NotFound:
    """There is no such schedule."""
    hint = "If it belongs to an owner, name that with --owner. See what waits with: timerq list"
    return NotFound(f"{show.name_of(key, owner)}: nothing waits under this key", hint)


def _lines(schedule: Schedule) -> Iterator[tuple[str, str | None]]:
    """What there is to say of a schedule; None where there is nothing."""
    event, timing = schedule.event, schedule.timing
    yield "key", show.clean(schedule.key)
    yield "owner", _clean(schedule.owner)
    yield "state", show.state_text(schedule)
    if schedule.state is State.PAUSED:
        yield "paused by", _clean(schedule.paused_by)
        yield "because", _clean(schedule.paused_note)
    yield "due", show.when(schedule.at_ms)
    yield "timing", show.timing_text(timing)
    yield from _definition(schedule)
    if timing.kind != "once":
        missed, skipped = schedule.missed_total, schedule.skipped_total
        yield "fired", f"{schedule.fired_total:,} ({missed:,} missed, {skipped:,} skipped)"
    yield "running", _clean(schedule.running)
    yield "failures", f"{schedule.failures:,} in a row" if schedule.failures else None
    yield "set by", _clean(schedule.by)
    yield "declared in", _clean(schedule.label)
    yield "version", str(schedule.version)
    yield "type", show.clean(event.type)
    yield "stream", event.stream
    yield "payload", show.payload_text(event.payload)
    yield "correlation", show.payload_text(dict(event.correlation)) if event.correlation else None


def _definition(schedule: Schedule) -> Iterator[tuple[str, str]]:
    """The words that are not as usual; what the line of the timing says is left out."""
    timing = schedule.timing
    for word, value in told(words_of(schedule.event, timing)).items():
        if word in ("at", "delay", "every", "fixed_delay") or word.startswith("event."):
            continue
        if word == "cron" and isinstance(value, str):
            continue
        name = word.replace("_", " ")
        if word in ("start", "until"):
            at_ms = timing.start_ms if word == "start" else timing.until_ms
            yield name, show.when(at_ms or 0)
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


# ------------------------------------------------------------------------------------------------ instants


def moment_words(moment: Moment) -> dict[str, Any]:
    """An instant to come as JSON."""
    return {
        **show.instant_words("at", moment.at_ms),
        "local": moment.local.isoformat(timespec="milliseconds"),
        "mark": moment.mark,
    }


def say_moments(found: Iterable[Moment], title: str = "local") -> None:
    """A table of instants: on the clock of their zone, its offset, in UTC, and what a clock change did."""
    rows = show.Rows(title, "offset", "utc", "clock change", whole=(title, "utc"))
    rows.add(map(_moment_row, found))


def _moment_row(moment: Moment) -> list[str]:
    local = moment.local
    parts = "milliseconds" if moment.at_ms % 1000 else "seconds"
    wall = local.replace(tzinfo=None).isoformat(" ", parts)
    offset = local.isoformat(" ", parts).removeprefix(wall)
    utc = moment.at.isoformat(" ", parts).replace("+00:00", "Z")
    return [f"{_DAYS[local.weekday()]} {wall}", offset, utc, moment.mark or ""]


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
    paused = "  paused" if found.state is State.PAUSED else ""
    show.say(f"would be {found.outcome}  {name}  {stored}{paused}")
    if found.outcome is Outcome.CREATED:
        say_lines((f"  {_name(word)}", value_text(value)) for word, value in told(found.words).items())
    say_lines(
        (f"  {_name(word)}", f"{value_text(old)} → {value_text(new)}") for word, old, new in found.differences
    )
    if following:
        show.say("")
        say_moments(following, "next")


def _name(word: str) -> str:
    return word.removeprefix("event.").replace("_", " ")


def value_text(value: Any) -> str:
    """A word's value."""
    if value is None:
        return "none"
    return show.clean(value) if isinstance(value, str) else show.payload_text(value)
