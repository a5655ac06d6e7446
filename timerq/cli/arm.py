"""upsert: one schedule from the command line, or many from a file."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any, BinaryIO, cast, get_args

import click

from timerq.cli import show
from timerq.cli.bar import bar
from timerq.cli.base import (
    BAD_INPUT,
    NOT_FOUND,
    F,
    Failure,
    QueueCommand,
    Target,
    durable_option,
    failure_of,
    json_option,
    owner_option,
    pass_target,
)
from timerq.cli.lines import LONGEST_LINE, Result, size_of, upsert_pieces
from timerq.cli.values import duration, instant, number, parse_correlation, parse_json
from timerq.client import Handle
from timerq.commands.arming import Mode
from timerq.errors import QueueUnavailable
from timerq.model import Codec, Event, Outcome

_LOST = (Outcome.VERSION_MISMATCH, Outcome.OWNER_GONE)
_FILE = click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True)


def event_options(command: F) -> F:
    """What is published: --payload, --payload-file, --stream, --correlation, --codec."""
    for option in (
        click.option("--codec", type=click.Choice(get_args(Codec)), default="msgpack", show_default=True),
        click.option(
            "--correlation", metavar="NAME=TEXT", multiple=True, help="Carried unchanged; may be repeated."
        ),
        click.option("--stream", metavar="NAME", default="events", show_default=True, help="Where it goes."),
        click.option("--payload-file", type=_FILE, help="A file with the payload as JSON; - for stdin."),
        click.option("--payload", metavar="JSON", help="The payload, as JSON; without one it is null."),
    ):
        command = option(command)
    return command


def event_of(
    event_type: str,
    payload: str | None,
    payload_file: str | None,
    stream: str,
    correlation: tuple[str, ...],
    codec: Any,
) -> Event:
    """The event that the options describe. Raises `click.UsageError`, and `InvalidSchedule` as `Event` does."""
    if payload is not None and payload_file is not None:
        raise click.UsageError("want --payload or --payload-file, not both")
    hint, value = "--payload", None
    try:
        if payload_file is not None:
            hint = "--payload-file"
            with click.open_file(payload_file, "rb") as source:
                payload = source.read().decode("utf-8-sig")
        if payload is not None:
            value = parse_json(payload)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=hint) from error
    return Event(event_type, value, stream=stream, correlation=parse_correlation(correlation), codec=codec)


@click.command(cls=QueueCommand)
@click.argument("key", required=False)
@click.option("--type", "event_type", metavar="TYPE", help="The event's type.")
@event_options
@click.option("--at", type=instant, help='When: "2030-01-31T09:00:00+01:00", or epoch milliseconds.')
@click.option("--delay", type=duration, help='How long from now: "90s", "1h30m", "PT1H30M".')
@click.option("--every", type=duration, help='How often: "5s".')
@owner_option
@click.option("--initial-delay", type=duration, help="With --every: until the first one; 0s fires at once.")
@click.option("--start", type=instant, help="With --every: the first one, and the grid of the others.")
@click.option("--until", type=instant, help="With --every: none is due after this.")
@click.option("--limit", type=number, help="With --every: so many at the most.")
@click.option(
    "--mode",
    type=click.Choice(get_args(Mode)),
    default="replace",
    show_default=True,
    help="What to do with one that waits already.",
)
@click.option(
    "--max-wait", type=duration, help="Pushed again and again, fire no later than this after the first time."
)
@click.option("--restart/--no-restart", default=False, help="Start an unchanged recurring one anew.")
@click.option("--paused/--not-paused", default=None, help="Store it paused, or armed though it was paused.")
@click.option("--reset", is_flag=True, help="Count for --limit from the beginning.")
@click.option(
    "--if-version", type=number, help="Only where this version is stored; 0: only where there is none."
)
@click.option("--idempotency-key", metavar="TEXT", help="A second call with it changes nothing.")
@durable_option
@click.option("--file", "file", type=_FILE, help="Many, from a file of JSON lines; - for stdin.")
@json_option
@pass_target
@click.pass_context
def upsert(
    ctx: click.Context,
    target: Target,
    /,
    key: str | None,
    event_type: str | None,
    payload: str | None,
    payload_file: str | None,
    stream: str,
    correlation: tuple[str, ...],
    codec: Any,
    durable: str | None,
    file: str | None,
    as_json: bool,
    **timing: Any,
) -> None:
    """Create the schedule of KEY, or replace the one that waits under it.

    Give exactly one of --at, --delay and --every. With --file, each line is a JSON object with the same words:
    {"key": …, "event": {"type": …, "payload": …}, "delay": "90s"}; a bad line is reported with its number and the rest
    goes on.

    \b
    Examples:
      timerq upsert reminder:order-42 --type order.reminder --payload '{"order_id": 42}' --delay 30m
      timerq upsert heartbeat --type tick --every 5s --owner session-7
      timerq upsert report --type report.due --at 2030-01-31T09:00:00+01:00 --if-version 0
      timerq upsert --file timers.jsonl
    """
    if file is not None:
        given = [
            parameter.opts[0]
            for parameter in ctx.command.params
            if parameter.name not in ("file", "as_json", "durable", None)
            and ctx.get_parameter_source(str(parameter.name)) is click.core.ParameterSource.COMMANDLINE
            and parameter.expose_value
        ]
        if given:
            raise click.UsageError(f"--file says what to upsert: leave {', '.join(given)} out")
        _upsert_file(target, file, durable, as_json)
        return
    if key is None or event_type is None:
        raise click.UsageError("want KEY and --type, or --file")
    event = event_of(event_type, payload, payload_file, stream, correlation, codec)
    with target.open() as queue:
        handle = queue.upsert(key, event, durable=durable, **timing)
    if as_json:
        show.say_json(show.handle_words(handle))
    else:
        show.say(_sentence(handle))
    if handle.outcome in _LOST:
        ctx.exit(NOT_FOUND)


def _sentence(handle: Handle) -> str:
    words = [handle.outcome, show.name_of(handle.key, handle.owner), f"version {handle.version}"]
    if handle.at_ms is not None:
        words.append(f"due {show.when(handle.at_ms)}")
    if handle.state == "paused":
        words.append("paused")
    if handle.durable != "accepted":
        words.append(handle.durable)
    return "  ".join(words)


def _upsert_file(target: Target, /, file: str, durable: str | None, as_json: bool) -> None:
    name = "stdin" if file == "-" else file
    done: Counter[str] = Counter()
    worst: Failure | None = None
    longest = max(LONGEST_LINE, 8 * target.resolve().max_payload_bytes)
    with target.open() as queue, click.open_file(file, "rb") as opened:
        source = cast(BinaryIO, opened)
        with bar(name, size_of(source), shown=not (as_json and sys.stdout.isatty())) as read:
            try:
                for result in upsert_pieces(
                    queue, source, longest=longest, durable=durable, read=read.advance
                ):
                    _tell(result, name, as_json, done)
                    if result.fault is not None:
                        worst = failure_of(result.fault, target)
            except QueueUnavailable as error:
                worst = failure_of(error, target)
                done["stopped"] = 1
    summary = _summary(name, done)
    if as_json:
        show.note(summary)
    else:
        show.say(summary)
    if worst is not None:
        raise worst
    if done["bad"]:
        raise click.exceptions.Exit(BAD_INPUT)
    if any(done[outcome] for outcome in _LOST):
        raise click.exceptions.Exit(NOT_FOUND)


def _tell(result: Result, name: str, as_json: bool, done: Counter[str]) -> None:
    done["lines"] = result.number
    if result.handle is not None:
        done[result.handle.outcome] += 1
        if as_json:
            show.say_json({"line": result.number, **show.handle_words(result.handle)})
        elif result.handle.outcome in _LOST:
            show.note(f"{name}:{result.number}: {_sentence(result.handle)}")
    else:
        done["bad" if result.wrong is not None else "failed"] += 1
        show.note(f"{name}:{result.number}: {result.wrong or result.fault}")


def _summary(name: str, done: Counter[str]) -> str:
    counts = [
        f"{done[outcome]:,} {outcome.replace('_', ' ').lower()}" for outcome in Outcome if done[outcome]
    ]
    counts += [f"{done[word]:,} {word}" for word in ("bad", "failed") if done[word]]
    text = f"{name}: {', '.join(counts) or 'nothing to do'}"
    if done["stopped"]:
        text += f"; stopped behind line {done['lines']:,}: running it again is safe"
    return text
