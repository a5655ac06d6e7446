"""owner destroy: the end of a session, an actor, an object, told from outside."""

from __future__ import annotations

import click

from timerq.cli import show
from timerq.cli.ask import confirm
from timerq.cli.bar import bar
from timerq.cli.base import QueueCommand, Target, Verbs, durable_option, json_option, pass_target


@click.group(cls=Verbs)
def owner() -> None:
    """Owners: sessions, actors, objects that timers belong to and die with.

    What one has: timerq list --owner NAME. To cancel that and let it live: timerq cancel --owner NAME --all.

    \b
    Example:
      timerq owner destroy session-7
    """


@owner.command("destroy", cls=QueueCommand)
@click.argument("name")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say how many timers there are, and change nothing.")
@durable_option
@json_option
@pass_target
def destroy_(
    target: Target, /, name: str, yes: bool, dry_run: bool, durable: str | None, as_json: bool
) -> None:
    """Destroy the owner NAME: its timers go, and nothing that was armed before is fired or handled any more.

    Every handle of it in a running process is gone too, and told so: OWNER_GONE. Its name may be used again. How many
    timers it has is shown first, and asked about unless --yes.

    \b
    Examples:
      timerq owner destroy session-7
      timerq owner destroy session-7 --dry-run
    """
    count = 0
    with target.open() as queue:
        timers = queue.owner(name)  # a bad name is refused here
        if dry_run or not yes:
            count = queue.count(owner=name)
        what = f"owner {show.clean(name)!r} with its {count:,} timer{'' if count == 1 else 's'}"
        if not dry_run:
            if not yes:
                confirm(f"Destroy {what}?", f"destroy {what}", "nothing was destroyed")
            with bar("destroying"):
                swept = timers.destroy(durable=durable)
    if as_json:
        done = {"would_destroy": count} if dry_run else {"destroyed": swept, "durable": swept.durable}
        show.say_json({"owner": name, **done})
    elif dry_run:
        show.say(f"would destroy {what}")
    else:
        level = "" if swept.durable == "accepted" else f"  {swept.durable}"
        show.say(f"{swept:,} destroyed{level}")
