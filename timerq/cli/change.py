"""cancel, trigger, pause, resume, publish: one schedule changed, or many cancelled."""

from __future__ import annotations

from typing import Any

import click

from timerq.cli import show
from timerq.cli.absent import absent
from timerq.cli.ask import confirm
from timerq.cli.base import (
    NotFound,
    QueueCommand,
    Target,
    durable_option,
    json_option,
    owner_option,
    pass_target,
    who,
)
from timerq.cli.options import by_option, event_of, event_options, type_option
from timerq.cli.values import number
from timerq.client import TimerQueue
from timerq.model import Change, Outcome

_version_option = click.option("--if-version", type=number, help="Only where this version is stored.")


def _tell(queue: TimerQueue, change: Change, as_json: bool) -> None:
    """Prints a change; one that found nothing or lost a race ends with its exit code."""
    name = show.name_of(change.key, change.owner)
    if as_json:
        show.say_json(show.change_words(change))
    elif change:
        words = [change.outcome, name]
        if change.at_ms is not None:
            words.append(f"due {show.when(change.at_ms)}")
        if change.event_id is not None:
            words.append(f"event {change.event_id}")
        if change.durable != "accepted":
            words.append(change.durable)
        show.say("  ".join(words))
    if change.outcome is Outcome.NOT_PENDING:
        raise absent(queue, change.key, change.owner, "NOT_PENDING")
    if change.outcome is Outcome.DROPPED:
        raise NotFound(f"{name}: DROPPED: the stream is full, and its bound drops the newest")
    if change.outcome is Outcome.VERSION_MISMATCH:
        stored = f"version {change.version} is stored" if change.version else "nothing is stored"
        raise NotFound(f"{name}: VERSION_MISMATCH: {stored}")


@click.command(cls=QueueCommand)
@click.argument("key", required=False)
@owner_option
@click.option("--prefix", metavar="TEXT", help="Cancel all whose key begins so; never a pattern.")
@click.option("--all", "everything", is_flag=True, help="With --owner: cancel all that belong to it.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@_version_option
@durable_option
@json_option
@pass_target
def cancel(
    target: Target,
    /,
    key: str | None,
    owner: str | None,
    prefix: str | None,
    everything: bool,
    yes: bool,
    if_version: int | None,
    durable: str | None,
    as_json: bool,
) -> None:
    """Cancel the schedule of KEY: once that is said, it never fires.

    Or many: all of a --prefix, all of an owner (--owner O --all), or both. How many there are is shown first, and
    asked about unless --yes.

    \b
    Examples:
      timerq cancel reminder:order-42
      timerq cancel session-timeout --owner session-7
      timerq cancel --prefix reminder: --yes
      timerq cancel --owner session-7 --all
    """
    many = prefix is not None or everything
    if (key is None) != many:
        raise click.UsageError("want either KEY, or --prefix, or --owner with --all")
    if everything and owner is None:
        raise click.UsageError('--all needs --owner; for every schedule there is, say --prefix ""')
    if many and if_version is not None:
        raise click.UsageError("--if-version goes with a KEY only")
    with target.open() as queue:
        if key is not None:
            _tell(queue, queue.cancel(key, owner=owner, if_version=if_version, durable=durable), as_json)
            return
        if not yes:
            _ask(queue.count(prefix or "", owner=owner), prefix, owner)
        count = queue.cancel_prefix(prefix or "", owner=owner, durable=durable)
    if as_json:
        show.say_json({"cancelled": count})
    else:
        show.say(f"{count:,} cancelled")


def _ask(count: int, prefix: str | None, owner: str | None) -> None:
    what = f"{count:,} schedule{'' if count == 1 else 's'}"
    if prefix:
        what += f" whose key begins with {show.clean(prefix)!r}"
    if owner is not None:
        what += f" of owner {show.clean(owner)!r}"
    confirm(f"Cancel {what}?", f"cancel {what}", "nothing was cancelled")


@click.command(cls=QueueCommand)
@click.argument("key")
@owner_option
@click.option("--consume", is_flag=True, help="Take a one-shot out: it does not fire again when it is due.")
@by_option
@_version_option
@durable_option
@json_option
@pass_target
def trigger(target: Target, /, key: str, by: str | None, as_json: bool, **options: Any) -> None:
    """Publish the event of KEY now; its timing stays as it is.

    Twice within one second is once: DUPLICATE tells the event of the first.

    \b
    Examples:
      timerq trigger reminder:order-42
      timerq trigger reminder:order-42 --consume
    """
    with target.open() as queue:
        _tell(queue, queue.trigger(key, by=by or who(), **options), as_json)


@click.command(cls=QueueCommand)
@click.argument("key")
@owner_option
@click.option("--note", metavar="TEXT", help="Why; get and why show it.")
@by_option
@_version_option
@durable_option
@json_option
@pass_target
def pause(target: Target, /, key: str, by: str | None, as_json: bool, **options: Any) -> None:
    """Keep the schedule of KEY from firing until it is resumed.

    \b
    Examples:
      timerq pause heartbeat --owner session-7
      timerq pause digest --note "closed until the 7th"
    """
    with target.open() as queue:
        _tell(queue, queue.pause(key, by=by or who(), **options), as_json)


@click.command(cls=QueueCommand)
@click.argument("key")
@owner_option
@click.option("--from-now", is_flag=True, help="Leave out what was missed, and go on with the next one.")
@by_option
@_version_option
@durable_option
@json_option
@pass_target
def resume(target: Target, /, key: str, by: str | None, as_json: bool, **options: Any) -> None:
    """Arm a paused schedule again.

    An overdue one-shot fires now. Of a recurring one, what was missed meanwhile follows its --misfire, or is left out
    with --from-now.

    \b
    Examples:
      timerq resume heartbeat --owner session-7
      timerq resume digest --from-now
    """
    with target.open() as queue:
        _tell(queue, queue.resume(key, by=by or who(), **options), as_json)


@click.command(cls=QueueCommand)
@type_option(required=True)
@click.option(
    "--key", metavar="KEY", required=True, help="What it is about; chooses the lane, as --owner does."
)
@event_options
@owner_option
@durable_option
@json_option
@pass_target
def publish(
    target: Target,
    /,
    event_type: str,
    key: str,
    payload: str | None,
    payload_file: str | None,
    stream: str,
    correlation: tuple[str, ...],
    codec: Any,
    as_json: bool,
    **options: Any,
) -> None:
    """Put an event straight onto its stream, without a timer.

    \b
    Example:
      timerq publish --type order.paid --key order-42 --payload '{"cents": 1999}'
    """
    event = event_of(event_type, payload, payload_file, stream, correlation, codec)
    with target.open() as queue:
        _tell(queue, queue.publish(event, key=key, **options), as_json)
