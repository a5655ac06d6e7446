"""plan, apply, crontab: schedules that are declared in files and modules."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import click

from timerq.cli import show
from timerq.cli.base import (
    BadInput,
    F,
    NotFound,
    QueueCommand,
    Target,
    Unavailable,
    durable_option,
    failure_of,
    import_from_here,
    json_option,
    pass_target,
    who,
)
from timerq.cli.options import by_option
from timerq.cli.plans import NOTHING, changes_of, note_others, note_surplus, show_items, show_plan
from timerq.client import Handle, TimerQueue
from timerq.commands.durable import least
from timerq.commands.planned import Applied, Planned, SetPlan
from timerq.declare import DeclaredSet, load
from timerq.declare.apply import apply as apply_to
from timerq.declare.apply import plan as plan_for
from timerq.declare.crontab import load_crontab
from timerq.declare.documents import MAX_FILE_BYTES
from timerq.errors import TimerqError
from timerq.model import Change, Outcome

_HINT = "--set"


def _set_option(command: F) -> F:
    return click.option(
        "--set",
        "label",
        metavar="NAME",
        help="The set's name, instead of the one declared or the file's own.",
    )(command)


def _dry_run_option(command: F) -> F:
    return click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")(
        command
    )


def _apply_options(command: F) -> F:
    for option in (
        click.option(
            "--prune", is_flag=True, help="Cancel what the set declared before, and no longer does."
        ),
        click.option("--take-over", is_flag=True, help="Take schedules that another set declares from it."),
        by_option,
        durable_option,
        json_option,
    ):
        command = option(command)
    return command


@click.command(cls=QueueCommand)
@click.argument("path")
@_set_option
@json_option
@pass_target
def plan(target: Target, /, path: str, label: str | None, as_json: bool) -> None:
    """Show what `apply` would change, and change nothing.

    PATH is a YAML or TOML file of schedules, a folder of such files, or a module with functions under @schedule:
    app.jobs, or app.jobs:attribute.

    \b
    Examples:
      timerq plan schedules.yaml
      timerq plan schedules/ --json
      timerq plan app.jobs
    """
    declared = _load(path, label)
    with target.open() as queue:
        planned = plan_for(queue, declared)
    show_plan(planned, as_json)


@click.command(cls=QueueCommand)
@click.argument("path")
@_set_option
@_dry_run_option
@_apply_options
@pass_target
def apply(target: Target, /, path: str, label: str | None, dry_run: bool, as_json: bool, **how: Any) -> None:
    """Store the schedules of PATH, each atomically; those that have not changed are not touched.

    They carry the name of their set. With --prune, what the set declared before and no longer does is cancelled, and
    never anything of another set or of none. PATH is what it is for `plan`.

    \b
    Examples:
      timerq apply schedules.yaml
      timerq apply schedules/ --prune --set web
      timerq apply app.jobs --prune
    """
    declared = _load(path, label)
    with target.open() as queue:
        _do(queue, declared, target, dry_run, as_json, **how)


@click.command(cls=QueueCommand)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True))
@click.option("--system", is_flag=True, help="A user stands before each command, as in /etc/crontab.")
@click.option(
    "--type", "event_type", metavar="TYPE", default="crontab", show_default=True, help="The events' type."
)
@click.option("--prefix", metavar="TEXT", default="", help="Goes before the names cron-1, cron-2, …")
@_set_option
@_dry_run_option
@_apply_options
@pass_target
def crontab(
    target: Target,
    /,
    file: str,
    system: bool,
    event_type: str,
    prefix: str,
    label: str | None,
    dry_run: bool,
    as_json: bool,
    **how: Any,
) -> None:
    """Store the lines of a crontab as schedules, as `apply` does; - is stdin.

    Each event's payload holds the command, and what else cron would give it: stdin, environment, user. CRON_TZ (or TZ)
    sets the zone of the lines below it. Whoever reads the events runs the commands.

    \b
    Examples:
      timerq crontab jobs.crontab --dry-run
      timerq crontab /etc/crontab --system --prune
      crontab -l | timerq crontab - --set alice --prefix alice-
    """
    with click.open_file(file, "rb") as source:
        data = source.read(MAX_FILE_BYTES + 1)
    name = "stdin" if file == "-" else file
    if label is None:
        label = "crontab" if file == "-" else Path(file).name
    declared = load_crontab(
        data, name, label, system=system, event_type=event_type, prefix=prefix, hint=_HINT
    )
    for one in declared.schedules:
        if one.upsert.exclude is not None:
            show.note(
                f"{one.where}: {show.clean(one.name)}: a day must fit both day fields, as for cron: the weekdays that "
                "do not are left out by exclude."
            )
    with target.open() as queue:
        _do(queue, declared, target, dry_run, as_json, **how)


def _load(path: str, label: str | None) -> DeclaredSet:
    if not os.path.exists(path):
        import_from_here()
    return load(path, label, _HINT)


def _do(
    queue: TimerQueue, declared: DeclaredSet, target: Target, dry_run: bool, as_json: bool, **how: Any
) -> None:
    if dry_run:
        show_plan(plan_for(queue, declared), as_json, how["prune"], how["take_over"])
    else:
        _apply(queue, declared, target, as_json, **how)


def _apply(
    queue: TimerQueue,
    declared: DeclaredSet,
    target: Target,
    as_json: bool,
    prune: bool,
    take_over: bool,
    by: str | None,
    durable: str | None,
) -> None:
    planned = plan_for(queue, declared)
    if not as_json:
        show_items(planned)
        if not take_over:
            note_others(planned)
        note_surplus(planned, prune)
    applied = apply_to(queue, declared, prune=prune, take_over=take_over, by=by or who(), durable=durable)
    if as_json:
        _show_applied(planned, applied)
    failures = _failures(declared, applied)
    for where, error in failures:
        show.note(f"{where}: {error}")
    if not as_json:
        show.say(_summary(planned, applied, len(failures)))
    if applied.outcome is Outcome.SUPERSEDED:
        raise NotFound(
            f"set {applied.label}: SUPERSEDED: a later apply of it has begun; the rest was left to that one"
        )
    if failures:
        kind = type(failure_of(failures[-1][1], target))
        raise (Unavailable if kind is Unavailable else BadInput)(
            f"set {applied.label}: {len(failures)} could not be stored or removed; applying it again is safe"
        )


def _failures(declared: DeclaredSet, applied: Applied[Handle]) -> list[tuple[str, TimerqError]]:
    """Where and why something could not be done."""
    found = [
        (f"{one.where}: {show.clean(one.name)}", item)
        for one, item in zip(declared.schedules, applied.items, strict=False)
        if isinstance(item, TimerqError)
    ]
    return found + [
        (show.clean(change[0]), change[1]) for change in applied.removed if not isinstance(change, Change)
    ]


def _outcome(planned: Planned, handle: Handle) -> Outcome:
    """What became of one: an upsert says UNCHANGED too where it only paused or resumed it."""
    for change in planned.differences:
        if change.word == "paused" and handle.outcome is Outcome.UNCHANGED:
            return Outcome.PAUSED if change.new else Outcome.RESUMED
    return handle.outcome


def _summary(planned: SetPlan, applied: Applied[Handle], failed: int) -> str:
    done = Counter(
        _outcome(one, item).lower()
        for one, item in zip(planned.items, applied.items, strict=False)
        if isinstance(item, Handle)
    )
    done["removed"] = sum(isinstance(change, Change) for change in applied.removed)
    done["ended"] = sum(item is None for item in applied.items)
    done["failed"] = failed
    counts = ", ".join(f"{count:,} {word}" for word, count in done.items() if count)
    nothing = "nothing was changed" if planned.items else NOTHING
    level = least(
        {one.durable for one in (*applied.items, *applied.removed) if isinstance(one, (Handle, Change))}
        or {"accepted"}
    )
    return f"set {applied.label}: {counts or nothing}" + (f"  {level}" if level != "accepted" else "")


def _show_applied(planned: SetPlan, applied: Applied[Handle]) -> None:
    """An object for each schedule: what was done with it, and which words had changed."""
    for one, item in zip(planned.items, applied.items, strict=False):
        changes = changes_of(one)
        if isinstance(item, Handle):
            words = {**show.handle_words(item), "outcome": _outcome(one, item)}
            show.say_json({"set": applied.label, **words, "changes": changes})
        elif item is None:
            show.say_json({"set": applied.label, "outcome": "ENDED", "key": one.key, "changes": changes})
        else:
            show.say_json({"set": applied.label, "outcome": "FAILED", "key": one.key, "error": str(item)})
    for change in applied.removed:
        if isinstance(change, Change):
            show.say_json({"set": applied.label, **show.change_words(change)})
        else:
            show.say_json(
                {"set": applied.label, "outcome": "FAILED", "key": change[0], "error": str(change[1])}
            )
