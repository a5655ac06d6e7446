"""bound, unbound: how much a stream may have before its group."""

from __future__ import annotations

from dataclasses import asdict
from typing import get_args

import click

from timerq.cli import show
from timerq.cli.base import NotFound, QueueCommand, Target, json_option, pass_target
from timerq.cli.values import number
from timerq.model import Backlog, Bound, BoundRule

_RULES = {"hold": "hold back firing", "drop_newest": "drop the newest", "drop_oldest": "drop the oldest"}


def bound_text(bound: Bound) -> str:
    """What a bound allows, and what becomes of more."""
    if bound.rule is None:
        return "bound no more, letting go what was held back"
    limits = [] if bound.limit is None else [f"{bound.limit:,} in all"]
    limits += [] if bound.lane_limit is None else [f"{bound.lane_limit:,} in each lane"]
    return f"{' and '.join(limits)}, then {_RULES[bound.rule]}"


def backlog_rows(backlog: Backlog) -> list[list[str]]:
    """What `stats` shows of a bounded stream."""
    bound = backlog.bound
    waiting = "not counted yet" if backlog.waiting is None else f"{backlog.waiting:,}"
    return [
        [f"backlog of stream {bound.stream} for group {bound.group}", waiting],
        [f"  bound: {bound_text(bound)}", ""],
        ["  schedules held back", f"{backlog.held_back:,}"],
        ["  events dropped", f"{backlog.dropped:,}"],
    ]


@click.command(cls=QueueCommand)
@click.argument("stream")
@click.option("--group", metavar="NAME", required=True, help="Whose backlog it is.")
@click.option("--limit", metavar="COUNT", type=number, help="So many events in all may wait for the group.")
@click.option("--lane-limit", metavar="COUNT", type=number, help="So many of each lane (owner, or key).")
@click.option(
    "--rule",
    type=click.Choice([rule.replace("_", "-") for rule in get_args(BoundRule)]),
    default="hold",
    show_default=True,
    help="What becomes of more.",
)
@json_option
@pass_target
def bound(
    target: Target,
    /,
    stream: str,
    group: str,
    limit: int | None,
    lane_limit: int | None,
    rule: str,
    as_json: bool,
) -> None:
    """Bound how many events of STREAM may wait for a group; another bound takes the place of the first.

    The events of a group's backlog are those that it has not acknowledged. When the bound is reached, hold keeps due
    schedules from firing until there is room, and refuses what is published; drop-newest drops what comes; drop-oldest
    drops what waits for longest. timerq stats shows how full it is.

    \b
    Examples:
      timerq bound events --group billing --limit 10000
      timerq bound events --group billing --lane-limit 100 --rule drop-oldest
    """
    chosen: BoundRule = rule.replace("-", "_")  # type: ignore[assignment]
    with target.open() as queue:
        made = queue.bound(stream, group=group, limit=limit, lane_limit=lane_limit, rule=chosen)
    if as_json:
        show.say_json(asdict(made))
    else:
        show.say(f"BOUND  {made.stream} for group {made.group}: {bound_text(made)}")


@click.command(cls=QueueCommand)
@click.argument("stream")
@json_option
@pass_target
def unbound(target: Target, /, stream: str, as_json: bool) -> None:
    """End the bound of STREAM; what was held back fires.

    \b
    Example:
      timerq unbound events
    """
    with target.open() as queue:
        ended = queue.unbound(stream)
    if as_json:
        show.say_json({"stream": stream, "ended": ended})
    elif ended:
        show.say(f"UNBOUND  {stream}")
    if not ended:
        raise NotFound(f"stream {show.clean(stream)} has no bound", "Those that have one: timerq stats")
