"""consume: a consumer as a process."""

from __future__ import annotations

import os
import sys

import click

from timerq.cli import show
from timerq.cli.base import QueueCommand, Target, pass_target
from timerq.cli.run import log_to_stderr
from timerq.cli.values import number
from timerq.topology import redact


@click.command(cls=QueueCommand)
@click.argument("app", metavar="MODULE:APP")
@click.option("--name", metavar="NAME", help="What it is called in its group [host and process id].")
@click.option("--concurrency", type=number, help="How many handlings run at once [as the app says].")
@pass_target
def consume(target: Target, /, app: str, name: str | None, concurrency: int | None) -> None:
    """Run handlers: read events for a group until SIGTERM or Ctrl-C.

    MODULE:APP names a timerq.Consumer. Run as many as you like: they share the work, and take over from one that dies.
    Stopping one reads no more, waits for what it has in hand as long as its drain= says, and hands the rest back.
    Where the app does not say where its queue is, --redis and --namespace do.

    \b
    Example:
      timerq consume shop.handlers:app --namespace prod
    """
    from timerq.consumer.load import load_consumer  # here, so that the other commands start faster

    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)  # as python -m does
    settings = target.resolve()
    consumer = load_consumer(app)
    consumer.configure(
        url=settings.redis_url, namespace=settings.namespace, name=name, concurrency=concurrency
    )
    log_to_stderr()

    def say() -> None:
        place = consumer.place
        show.say(
            f"{app} handles {consumer.stream} of {place.namespace} at {redact(place.url)} "
            f"for group {consumer.group}"
        )
        sys.stdout.flush()

    consumer.run(say)
