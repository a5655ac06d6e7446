"""dead list, show, replay, discard: what a group's handlers have given up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from timerq.cli import show
from timerq.cli.ask import confirm
from timerq.cli.bar import bar
from timerq.cli.base import F, QueueCommand, Target, Verbs, json_option, pass_target
from timerq.cli.describe import say_lines
from timerq.cli.letters import (
    absent_letter,
    group_of,
    hints_for,
    letter_lines,
    letter_row,
    nothing_there,
    told_which,
    which_of,
)
from timerq.cli.values import age_or_instant, number
from timerq.client import TimerQueue
from timerq.commands.command import Steps
from timerq.commands.dead import dead_discard, dead_replay
from timerq.commands.letters import Which
from timerq.commands.read import MAX_PAGE
from timerq.errors import InvalidSchedule, TimerqError


@click.group(cls=Verbs)
def dead() -> None:
    """Dead letters: the events that a group of consumers has given up.

    \b
    Examples:
      timerq dead list
      timerq dead show 0-1796045445210355-1
      timerq dead replay --type order.reminder --dry-run
      timerq dead discard --older 30d
    """


def _group_options(command: F) -> F:
    for option in (
        click.option("--group", metavar="NAME", help="Which group gave them up [the only one that has any]."),
        click.option("--stream", metavar="NAME", default="events", show_default=True),
    ):
        command = option(command)
    return command


def _which_options(command: F) -> F:
    for option in (
        click.option(
            "--older", metavar="AGE", type=age_or_instant, help='Failed last so long ago ("7d"), or before.'
        ),
        click.option(
            "--since",
            metavar="AGE",
            type=age_or_instant,
            help='Failed last within that time ("2h"), or since an instant.',
        ),
        click.option("--type", metavar="TYPE", help="Only events of this type."),
        click.option("--prefix", metavar="TEXT", help="Only those whose key begins so; never a pattern."),
        click.option(
            "--id", metavar="EVENT", help="Only those of this event, or at the place that list shows."
        ),
    ):
        command = option(command)
    return command


@dead.command("list", cls=QueueCommand)
@_which_options
@_group_options
@click.option("--limit", type=number, help="So many at the most.")
@click.option("--after", metavar="CURSOR", help="Behind the place where a list with --limit ended.")
@json_option
@pass_target
def list_(
    target: Target,
    /,
    stream: str,
    group: str | None,
    limit: int | None,
    after: str | None,
    as_json: bool,
    **words: Any,
) -> None:
    """List dead letters, each partition's oldest first: which event, how often tried, when it failed last, and why.

    An event without an id that can be read is named by its place, as in 0/1796045445210-0. With --limit, the place to
    go on from is said on stderr; with --json it is a last line {"cursor": …}.

    \b
    Examples:
      timerq dead list
      timerq dead list --group billing --since 1h
      timerq dead list --prefix order: --older 7d --json
    """
    if limit == 0:
        raise click.BadParameter("want 1 or more", param_hint="--limit")
    rows = show.Rows(
        "event", "type", "key", "owner", "attempts", "failed last", "error",
        right=("attempts",), whole=("event", "failed last"), optional=("owner",), cut=("error",),
    )  # fmt: skip
    cursor = after
    count, more = 0, True
    with target.open() as queue:
        which = which_of(queue, target, **words)
        found = group_of(queue, stream, group)
        if found is None:
            show.note(nothing_there(queue, stream, None))
            return
        while more and (limit is None or count < limit):
            size = MAX_PAGE if limit is None else min(MAX_PAGE, limit - count)
            page = queue.dead_list_page(found, which, stream=stream, after=cursor, limit=size)
            count += len(page.letters)
            cursor = page.after
            more = cursor is not None
            if as_json:
                for letter in page.letters:
                    show.say_json(show.letter_words(letter))
            else:
                rows.add(map(letter_row, page.letters))
        if not count:
            show.note(nothing_there(queue, stream, found))
    if more and as_json:
        show.say_json({"cursor": cursor})
    elif more:
        show.note(f"There is more behind: --after {cursor}")


@dead.command("show", cls=QueueCommand)
@click.argument("event_id", metavar="EVENT")
@_group_options
@json_option
@pass_target
def show_(target: Target, /, event_id: str, stream: str, group: str | None, as_json: bool) -> None:
    """Show the latest dead letter of EVENT: why it was given up, its payload, and what can be done.

    EVENT is the event's id, or the place that list shows for one without.

    \b
    Example:
      timerq dead show 0-1796045445210355-1 --group billing
    """
    with target.open() as queue:
        group = group_of(queue, stream, group)
        letter = None if group is None else queue.dead_show(group, event_id, stream=stream)
        if letter is None:
            raise absent_letter(event_id, stream, group)
    if as_json:
        show.say_json(show.letter_words(letter))
        return
    say_lines(letter_lines(letter))
    if letter.traceback:
        show.say("")
        for line in letter.traceback.rstrip().splitlines():
            show.say(show.clean(line))
    for hint in hints_for(letter, target):
        show.note(hint)


def _settling(command: F) -> F:
    """The options of what settles dead letters, one or many."""
    for option in (
        json_option,
        click.option("--dry-run", is_flag=True, help="Say how many there are, and change nothing."),
        click.option("--yes", "-y", is_flag=True, help="Do not ask."),
        click.option("--limit", type=number, help="So many at the most, each partition's oldest first."),
        _group_options,
        click.option("--all", "everything", is_flag=True, help="All that the group has."),
        _which_options,
    ):
        command = option(command)
    return command


@dead.command(cls=QueueCommand)
@_settling
@pass_target
def replay(target: Target, /, **options: Any) -> None:
    """Publish dead letters again, for their group alone: their attempts begin anew.

    They go to the end of their stream, with their ids. What dies meanwhile is not replayed again. How many there are is
    shown first, and asked about unless --yes; with --id it is just done.

    \b
    Examples:
      timerq dead replay --id 0-1796045445210355-1
      timerq dead replay --type order.reminder --since 2h
      timerq dead replay --all --limit 10 --group billing
    """
    _settle(target, "replay", "replayed", dead_replay, **options)


@dead.command(cls=QueueCommand)
@_settling
@pass_target
def discard(target: Target, /, **options: Any) -> None:
    """Throw dead letters away, for good.

    How many there are is shown first, and asked about unless --yes; with --id it is just done.

    \b
    Examples:
      timerq dead discard --id 0-1796045445210355-1
      timerq dead discard --older 30d --yes
      timerq dead discard --all --dry-run
    """
    _settle(target, "discard", "discarded", dead_discard, **options)


def _settle(
    target: Target,
    verb: str,
    done: str,
    steps: Callable[..., Steps[int]],
    *,
    stream: str,
    group: str | None,
    everything: bool,
    limit: int | None,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    **words: Any,
) -> None:
    if limit == 0:
        raise click.BadParameter("want 1 or more", param_hint="--limit")
    if everything == any(value is not None for value in words.values()):
        raise click.UsageError("want either --all, or some of --id, --prefix, --type, --since and --older")
    count: int | None = None  # not known
    settled = 0
    with target.open() as queue:
        which = which_of(queue, target, **words)
        group = group_of(queue, stream, group)
        if group is None:
            count = 0
        elif dry_run or not (yes or which.id):
            count = queue.dead_count(group, which, stream=stream)
            count = count if limit is None else min(count, limit)
            if count and not dry_run:
                what = told_which(count, group, words)
                confirm(f"{verb.capitalize()} {what}?", f"{verb} {what}", f"nothing was {done}")
        if group is not None and count != 0 and not dry_run:
            settled = _run(queue, target, steps, done, stream, group, which, limit, count)
        if not (count if dry_run else settled):
            if which.id:
                raise absent_letter(which.id, stream, group)
            show.note(nothing_there(queue, stream, group))
    if as_json:
        show.say_json({f"would_{verb}": count} if dry_run else {done: settled})
    else:
        show.say(f"{count:,} would be {done}" if dry_run else f"{settled:,} {done}")


def _run(
    queue: TimerQueue,
    target: Target,
    steps: Callable[..., Steps[int]],
    done: str,
    stream: str,
    group: str,
    which: Which,
    limit: int | None,
    total: int | None,
) -> int:
    """Settles them, piece by piece under a bar; where that is cut short, says how far it came."""
    settled = 0
    with bar(done, total) as progress:

        def told(count: int) -> None:
            nonlocal settled
            settled += count
            progress.advance(count)

        try:
            return queue.run(steps(target.scope(queue), stream, group, which, limit=limit, told=told))
        except InvalidSchedule:
            raise  # nothing was begun
        except (TimerqError, KeyboardInterrupt):
            show.note(f"{settled:,} {done} before that; call it again for the others")
            raise
