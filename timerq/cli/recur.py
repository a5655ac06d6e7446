"""preview, next, backfill, done: what only recurring schedules have."""

from __future__ import annotations

from typing import Any

import click

from timerq.cli import show
from timerq.cli.absent import absent
from timerq.cli.ask import confirm
from timerq.cli.base import (
    BadInput,
    NotFound,
    QueueCommand,
    Target,
    json_option,
    owner_option,
    pass_target,
    who,
)
from timerq.cli.describe import note_caveat, say_next
from timerq.cli.moments import moment_words, say_moments
from timerq.cli.options import by_option, calendar_options, every_option, window_options
from timerq.cli.surprises import note_surprises
from timerq.cli.values import instant, number
from timerq.commands.recurring import upcoming
from timerq.commands.rehearsal import backfill_size
from timerq.errors import InvalidSchedule
from timerq.model import Outcome, State, Timing
from timerq.previews import Moment, instants, moments
from timerq.timing import Words, first_instants, resolve_instant, resolve_timing

_count_option = click.option(
    "-n", "count", type=number, default=10, show_default=True, help="So many of them."
)


@click.command(cls=QueueCommand)
@click.argument("expressions", nargs=-1, metavar="[EXPRESSION]...")
@every_option
@window_options
@calendar_options
@click.option("--after", type=instant, help="Begin behind this instant [now].")
@_count_option
@click.option("--key", metavar="KEY", help="With --jitter: the schedule that it is drawn for.")
@owner_option
@json_option
@pass_target
def preview(
    target: Target,
    /,
    expressions: tuple[str, ...],
    every: str | None,
    start: int | str | None,
    until: int | str | None,
    limit: int | None,
    after: int | str | None,
    count: int,
    key: str | None,
    owner: str | None,
    as_json: bool,
    **words: Any,
) -> None:
    """Print when cron EXPRESSIONs, or --every, would be due. It needs no Redis and saves nothing.

    Each line is the time in the zone, and UTC; "shifted from" marks one that stands for times that a clock change
    skips, "skipped" those that are left out then, "first pass" and "second pass" an hour that comes twice. The jitter
    of a schedule depends on its key (and tenant and owner): without --key it is an example.

    \b
    Examples:
      timerq preview '0 9 * * MON-FRI' --timezone Europe/Paris
      timerq preview '30 2 * * *' --timezone Europe/Paris --after 2026-03-27T12:00:00Z -n 3
      timerq preview '0 9 * * *' '0 12 L * *' --exclude 2026-12-24/2026-12-26
      timerq preview --every 15m --anchor clock --jitter 30s --key digest
    """
    if len(expressions) > 1 and not any(" " in text or text.startswith("@") for text in expressions):
        raise click.UsageError("want each expression in quotes, as in: timerq preview '0 9 * * MON-FRI'")
    timing = resolve_timing(
        every=every, start=start, until=until, limit=limit, words=Words(cron=expressions or None, **words)
    )
    note_surprises(timing)
    tenant = target.resolve().tenant
    after_ms = show.now_ms() if after is None else resolve_instant(after, field="after")
    found = instants(timing, after=after_ms, n=count, key=key, tenant=tenant, owner=owner)
    if not found:
        raise _none(timing, after_ms)
    if as_json:
        _say_json(moments(timing, found))
    else:
        say_moments(moments(timing, found), timing=timing, after_ms=after_ms)


def _none(timing: Timing, after_ms: int) -> Exception:
    """Why there is no instant: the option that leaves nothing, where it is one."""
    try:
        first_instants(timing, b"", after_ms)
    except InvalidSchedule as error:
        if error.field in ("dst_gap", "exclude"):
            return error
    return BadInput("there is none: it would have ended before its first one, or fire after the year 9999")


def _say_json(found: list[Moment]) -> None:
    for moment in found:
        show.say_json(moment_words(moment))


@click.command("next", cls=QueueCommand)
@click.argument("key")
@_count_option
@owner_option
@json_option
@pass_target
def next_(target: Target, /, key: str, count: int, owner: str | None, as_json: bool) -> None:
    """Print when the schedule of KEY is due next: in its zone, and in UTC.

    \b
    Example:
      timerq next digest -n 3
    """
    with target.open() as queue:
        schedule = queue.get(key, owner=owner)
        if schedule is None:
            raise absent(queue, key, owner)
    found = moments(schedule.timing, upcoming(schedule, count))
    if as_json:
        _say_json(found)
    else:
        say_next(found, schedule.timing, schedule.state is State.PAUSED)
    note_caveat(schedule)


@click.command(cls=QueueCommand)
@click.argument("key")
@click.option("--start", type=instant, required=True, help="From this instant on.")
@click.option("--end", type=instant, required=True, help="Up to this instant, which has passed.")
@owner_option
@by_option
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@pass_target
def backfill(
    target: Target,
    /,
    key: str,
    start: int | str,
    end: int | str,
    owner: str | None,
    by: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Publish the occurrences of a past range of KEY, both ends included: 100,000 at the most.

    Each event is marked as a backfill, and done again it has the same id, until the schedule is replaced by another
    version; the schedule itself stays as it is. How many there are is shown first, and asked about unless --yes.

    \b
    Example:
      timerq backfill digest --start 2026-03-01T00:00:00Z --end 2026-03-07T00:00:00Z
    """
    name = show.name_of(key, owner)
    with target.open() as queue:
        if not yes:
            scope = target.scope(queue)
            size = queue.run(backfill_size(scope, key, owner, start, end, show.now_ms()))
            if size is None:
                raise absent(queue, key, owner)
            what = f"{size:,} event{'' if size == 1 else 's'} of {name}"
            if size:
                confirm(f"Publish {what}?", f"publish {what}", "nothing was published")
        found = queue.backfill(key, start, end, owner=owner, by=by or who())
        gone = absent(queue, key, owner) if found.outcome is Outcome.NOT_PENDING else None
    if as_json:
        show.say_json({part: getattr(found, part) for part in found.__dataclass_fields__})
    elif found:
        show.say(f"{found.published:,} published")
    if gone is not None:
        raise gone
    if not found:
        raise NotFound(
            f"{name}: {found.outcome}: replaced meanwhile, after {found.published:,} events; version "
            f"{found.version} is stored"
        )


@click.command(cls=QueueCommand)
@click.argument("event_id")
@click.option("--error", metavar="TEXT", help="Handling it has failed, and this is why.")
@json_option
@pass_target
def done(target: Target, /, event_id: str, error: str | None, as_json: bool) -> None:
    """Say that the event EVENT_ID is handled, for schedules with --overlap, --fixed-delay or --pause-after.

    What waits for it goes on. With --error it counts as a failure: so many in a row as --pause-after says pause the
    schedule. An event that was triggered or backfilled is one beside the schedule: nothing waits for it.

    \b
    Examples:
      timerq done 0-1775210400000000-3
      timerq done 0-1775210400000000-3 --error 'no such account'
    """
    with target.open() as queue:
        change = queue.done(event_id, error=error)
    if as_json:
        show.say_json(show.change_words(change))
    elif change:
        words = [change.outcome, show.name_of(change.key, change.owner), f"event {show.clean(event_id)}"]
        if change.at_ms is not None:
            words.append(f"next due {show.when(change.at_ms)}")
        show.say("  ".join(words))
    if not change:
        raise NotFound(f"{show.clean(event_id)}: {change.outcome}: nobody waits for this event (any more)")
