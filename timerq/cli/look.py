"""list, count, stats: what is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import islice

import click

from timerq.cli import show
from timerq.cli.backlog import backlog_rows
from timerq.cli.base import QueueCommand, Target, json_option, owner_option, pass_target
from timerq.cli.values import instant, number
from timerq.client import TimerQueue
from timerq.commands.read import MAX_PAGE, cursor_of
from timerq.model import GroupStats, Schedule, State

_prefix_option = click.option(
    "--prefix", metavar="TEXT", default="", help="Only those whose key begins so; never a pattern."
)


@click.command("list", cls=QueueCommand)
@_prefix_option
@owner_option
@click.option("--due-from", type=instant, help="Only armed ones due at this instant or later, soonest first.")
@click.option("--due-to", type=instant, help="Only armed ones due at this instant or before, soonest first.")
@click.option(
    "--state",
    "states",
    type=click.Choice([state.value for state in State]),
    multiple=True,
    help="Only those in this state; may be repeated.",
)
@click.option("--set", "label", metavar="NAME", help="Only those that this set declares (see apply).")
@click.option("--limit", type=number, help="So many at the most.")
@click.option("--after", metavar="CURSOR", help="Behind the place where a list with --limit ended.")
@json_option
@pass_target
def list_(
    target: Target,
    /,
    prefix: str,
    owner: str | None,
    due_from: int | str | None,
    due_to: int | str | None,
    states: tuple[str, ...],
    label: str | None,
    limit: int | None,
    after: str | None,
    as_json: bool,
) -> None:
    """List the schedules, by key, or soonest first with --due-from or --due-to.

    With --limit, the place to go on from is said on stderr; with --json it is a last line {"cursor": …}. --state and
    --set look at every schedule of the rest. In the table, "waits" is one that waits for the event before it.

    \b
    Examples:
      timerq list --prefix reminder: --limit 20
      timerq list --owner session-7 --json
      timerq list --state held --state paused
      timerq list --due-to 2030-01-31T09:00:00Z
    """

    def wanted(schedule: Schedule) -> bool:
        return (not states or schedule.state in states) and label in (None, schedule.label)

    by_due = due_from is not None or due_to is not None
    if after is not None and by_due:
        raise click.UsageError("--after goes with lists by key only, not with --due-from and --due-to")
    if limit == 0:
        raise click.BadParameter("want 1 or more", param_hint="--limit")
    rows = show.Rows("key", "owner", "due", "in", "state", "timing", "type", whole=("due", "in", "timing"))
    cursor: str | None = None
    shown = 0
    with target.open() as queue:
        pages: Iterator[tuple[list[Schedule], str | None]]
        if by_due:
            found = queue.list(prefix, owner=owner, due_from=due_from, due_to=due_to)
            pages = _pieces(islice(filter(wanted, found), limit))
        else:
            pages = _pages(
                queue, prefix, owner, after, limit, wanted if states or label is not None else None
            )
        for schedules, place in pages:
            cursor = place
            shown += len(schedules)
            if as_json:
                for schedule in schedules:
                    show.say_json(show.schedule_words(schedule))
            else:
                rows.add(map(_row, schedules))
    if not shown and not as_json:
        where = target.resolve()
        show.note(f"There is none in namespace {where.namespace}, tenant {where.tenant}.")
    if limit is not None and cursor is not None:
        if as_json:
            show.say_json({"cursor": cursor})
        else:
            show.note(f"There is more behind: --after {cursor}")


def _pieces(found: Iterator[Schedule]) -> Iterator[tuple[list[Schedule], str | None]]:
    while page := list(islice(found, MAX_PAGE)):
        yield page, None


def _pages(
    queue: TimerQueue,
    prefix: str,
    owner: str | None,
    after: str | None,
    limit: int | None,
    wanted: Callable[[Schedule], bool] | None,
) -> Iterator[tuple[list[Schedule], str | None]]:
    """Pieces of at most a page, and where to go on. Where not all are ``wanted``, whole pages are looked through."""
    left = limit
    while left is None or left > 0:
        size = MAX_PAGE if left is None or wanted is not None else min(left, MAX_PAGE)
        page = queue.list_page(prefix, owner=owner, after=after, limit=size)
        items, after = page.items, page.cursor
        if wanted is not None:
            items = list(filter(wanted, items))
        if left is not None:
            if len(items) > left:
                items = items[:left]
                after = cursor_of(items[-1])
            left -= len(items)
        yield items, after
        if after is None:
            return


def _row(schedule: Schedule) -> list[str]:
    paused = schedule.state is State.PAUSED
    return [
        show.clean(schedule.key),
        "" if schedule.owner is None else show.clean(schedule.owner),
        show.local(schedule.at_ms // 1000 * 1000),
        "" if paused else show.relative(schedule.at_ms, show.now_ms()),
        show.state_text(schedule, short=True),
        show.timing_text(schedule.timing),
        show.clean(schedule.event.type),
    ]


@click.command(cls=QueueCommand)
@_prefix_option
@owner_option
@json_option
@pass_target
def count(target: Target, /, prefix: str, owner: str | None, as_json: bool) -> None:
    """Say how many schedules there are.

    \b
    Example:
      timerq count --prefix reminder:
    """
    with target.open() as queue:
        found = queue.count(prefix, owner=owner)
    if as_json:
        show.say_json({"count": found})
    else:
        show.say(str(found))


def _group_rows(group: GroupStats) -> list[list[str]]:
    return [
        [f"group {group.group} of stream {group.stream}: not yet acknowledged", f"{group.pending:,}"],
        ["  of these to be tried again", f"{group.retrying:,}"],
        ["  dead letters", f"{group.dead:,}"],
    ]


@click.command(cls=QueueCommand)
@json_option
@pass_target
def stats(target: Target, /, as_json: bool) -> None:
    """Show how much waits, what is overdue, what has fired, and which dispatchers live.

    \b
    Examples:
      timerq stats
      timerq stats --json
    """
    with target.open() as queue:
        found = queue.stats()
    if as_json:
        show.say_json(asdict(found))  # in the order documented
        return
    rows = show.Rows("", "number", right=("number",))
    rows.add(
        [
            [f"schedules of tenant {found.tenant}", f"{found.schedules:,}"],
            ["  armed", f"{found.armed:,}"],
            ["  of these overdue", f"{found.due:,}"],
            *([["  held back: their stream is full", f"{found.held_back:,}"]] if found.held_back else []),
            ["  overdue since", show.length(found.lag_ms) if found.due else "-"],
            ["  paused", f"{found.paused:,}"],
            ["schedules of all tenants", f"{found.all_schedules:,}"],
            ["  held (could not be fired)", f"{found.held:,}"],
            ["fired since the namespace was made", f"{found.fired:,}"],
            ["  missed (folded into others)", f"{found.missed:,}"],
            ["  skipped (left out)", f"{found.skipped:,}"],
            ["  dropped (their owner was gone)", f"{found.dropped:,}"],
            ["  orphans removed", f"{found.orphans:,}"],
            ["partitions", f"{found.partitions:,}"],
            *([f"stream {name}", f"{size:,}"] for name, size in found.streams.items()),
            *(row for group in found.groups for row in _group_rows(group)),
            *(row for each in found.backlogs for row in backlog_rows(each)),
            ["dispatchers", f"{len(found.dispatchers):,}"],
            *([f"  {show.clean(name)}", ""] for name in found.dispatchers),
        ]
    )
    if found.held:
        show.note("Those that are held, and why: timerq list --state held (of one tenant at a time)")
    if any(group.dead for group in found.groups):
        show.note("What is dead, and why: timerq dead list (of one tenant at a time)")
    if not found.dispatchers:
        show.note("No dispatcher lives: nothing fires. Start one with: timerq worker")
