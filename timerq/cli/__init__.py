"""The command line: a file for each group of commands, and nothing but arguments and printing.

base      where the queue is, how faults end, shared options; bar: progress
values    words → values          show     values → lines; table: tables, words: JSON
lines     JSON lines → upserts    options  what is published, when, under which policy
ask       before what cannot be taken back absent   where there is nothing
arm       upsert                  change   cancel trigger pause resume publish
describe  get, and what a dry run says     recur    preview next backfill done
moments   instants to come                 surprises  timings that may not be what was meant
look      list count stats                 why      why
follow    tail                             dead     dead (with letters: which ones, and how they look)
owner     owner                           backlog  bound unbound
declare   plan apply crontab               plans    what they show
run       init worker dev         demo     demo (with play: what it does, and ledger: the sums)
consume   consume                 develop  the app of dev, begun anew when files change
"""

from __future__ import annotations

import os
import sys

import click

from timerq import __version__
from timerq.cli import (
    arm,
    backlog,
    change,
    consume,
    dead,
    declare,
    demo,
    describe,
    develop,
    follow,
    look,
    owner,
    recur,
    run,
    why,
)
from timerq.cli.base import Commands, where_options


@click.group(
    cls=Commands,
    params=where_options(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="timerq")
def cli() -> None:
    """A distributed timer queue on Redis.

    Keyed timers wait in Redis; when one is due, its event is put onto a Redis Stream, exactly once.

    \b
    Try:
      timerq dev                                                  a Redis and a dispatcher, for a laptop
      timerq upsert hello --type greeting --delay 3s              a timer
      timerq preview '0 9 * * MON-FRI' --timezone Europe/Paris    when that would be
      timerq tail                                                 what fires

    Exit codes: 0, 2 bad input, 3 not found or a race lost, 4 Redis unavailable.
    """


for command in (
    run.init,
    arm.upsert,
    change.cancel,
    describe.get,
    look.list_,
    look.count,
    recur.preview,
    recur.next_,
    why.why,
    change.trigger,
    change.pause,
    change.resume,
    recur.backfill,
    recur.done,
    change.publish,
    declare.plan,
    declare.apply,
    declare.crontab,
    run.worker,
    consume.consume,
    follow.tail,
    dead.dead,
    look.stats,
    backlog.bound,
    backlog.unbound,
    owner.owner,
    run.dev,
    develop.dev_app,
    demo.demo,
):
    cli.add_command(command)


def main() -> None:
    """The program ``timerq``; it ends the process with its exit code."""
    _open_missing()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # a terminal of another encoding is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    cli(prog_name="timerq")


def _open_missing() -> None:
    """A standard stream that is closed (``>&-``), so that Python has none, is open on nothing."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode)  # noqa: SIM115 - as long as the process
            if stream.fileno() == number:  # the lowest that is free
                os.set_inheritable(number, True)
            setattr(sys, name, stream)
