"""consume: a consumer as a process."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from timerq.cli import show
from timerq.cli.base import QueueCommand, Target, import_from_here, pass_target
from timerq.cli.run import log_to_stderr
from timerq.cli.values import number
from timerq.topology import redact

if TYPE_CHECKING:
    from timerq.consumer import Consumer


@click.command(cls=QueueCommand)
@click.argument("app", metavar="MODULE:APP")
@click.option("--name", metavar="NAME", help="What it is called in its group [host and process id].")
@click.option("--concurrency", type=number, help="How many handlings run at once [as the app says].")
@pass_target
def consume(target: Target, /, app: str, name: str | None, concurrency: int | None) -> None:
    """Run handlers: read events for a group until SIGTERM or Ctrl-C.

    MODULE:APP names a timerq.Consumer. Run as many as you like: they share the work, and take over from one that dies.
    Stopping one reads no more, waits for what it has in hand as long as its drain= says, and hands the rest back.
    Where the app does not say where its queue is, --redis and --namespace do; where it does, another place is refused.

    \b
    Example:
      timerq consume shop.handlers:app --namespace prod
    """
    from timerq.consumer.load import load_consumer  # here, so that the other commands start faster

    import_from_here()
    settings = target.resolve()
    consumer = load_consumer(app)
    _refuse_another_place(target, consumer)
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


def _refuse_another_place(target: Target, consumer: Consumer) -> None:
    """What the command line says in vain would read and acknowledge another queue's events than was meant."""
    if not consumer.is_placed:
        return
    place = consumer.place
    for option, said, own in (
        ("--redis", target.redis, place.url),
        ("--namespace", target.namespace, place.namespace),
    ):
        if said is not None and said != own:
            raise click.UsageError(
                f"the app says itself where its queue is, {place.namespace} at {redact(place.url)}: "
                f"leave {option} out, or the queue out of its Consumer(…)"
            )
