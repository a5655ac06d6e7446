"""upsert: one schedule from the command line, or many from a file."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any, BinaryIO, cast

import click

from timerq.cli import describe, show
from timerq.cli.bar import bar
from timerq.cli.base import (
    BAD_INPUT,
    NOT_FOUND,
    Failure,
    QueueCommand,
    Target,
    durable_option,
    failure_of,
    json_option,
    owner_option,
    pass_target,
    who,
)
from timerq.cli.lines import LONGEST_LINE, Result, size_of, upsert_pieces
from timerq.cli.options import (
    FILE,
    by_option,
    calendar_options,
    event_of,
    event_options,
    policy_options,
    stored_options,
    type_option,
    when_options,
)
from timerq.cli.surprises import note_surprises
from timerq.client import Handle
from timerq.commands.arming import Upsert, timing_of
from timerq.commands.rehearsal import rehearse
from timerq.errors import QueueUnavailable
from timerq.model import Outcome

_LOST = (Outcome.VERSION_MISMATCH, Outcome.OWNER_GONE)


@click.command(cls=QueueCommand)
@click.argument("key", required=False)
@type_option()
@event_options
@when_options
@calendar_options
@policy_options
@stored_options
@owner_option
@by_option
@durable_option
@click.option("--dry-run", is_flag=True, help="Say what would change, and the next five; write nothing.")
@click.option("--file", "file", type=FILE, help="Many, from a file of JSON lines; - for stdin.")
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
    by: str | None,
    durable: str | None,
    dry_run: bool,
    file: str | None,
    as_json: bool,
    **timing: Any,
) -> None:
    """Create the schedule of KEY, or replace the one that waits under it.

    Give exactly one of --at, --delay, --every and --cron. A key that begins with - goes last, behind --. With --file,
    each line is a JSON object with the same words: {"key": …, "event": {"type": …, "payload": …}, "delay": "90s"}; a
    bad line is reported with its number and the rest goes on.

    \b
    Examples:
      timerq upsert reminder:order-42 --type order.reminder --payload '{"order_id": 42}' --delay 30m
      timerq upsert digest --type digest.due --cron '0 9 * * MON-FRI' --timezone Europe/Paris --dry-run
      timerq upsert heartbeat --type tick --every 5s --owner session-7
      timerq upsert report --type report.due --at 2030-01-31T09:00:00+01:00 --if-version 0
      timerq upsert --file timers.jsonl
    """
    if file is not None:
        given = [
            parameter.opts[0]
            for parameter in ctx.command.params
            if parameter.name not in ("file", "as_json", "durable", "by", None)
            and ctx.get_parameter_source(str(parameter.name)) is click.core.ParameterSource.COMMANDLINE
            and parameter.expose_value
        ]
        if given:
            raise click.UsageError(f"--file says what to upsert: leave {', '.join(given)} out")
        _upsert_file(target, file, by or who(), durable, as_json)
        return
    if key is None or event_type is None:
        raise click.UsageError("want KEY and --type, or --file")
    event = event_of(event_type, payload, payload_file, stream, correlation, codec)
    if by is None and (timing["every"] is not None or timing["cron"] is not None):
        by = who()
    if timing["anchor"] is not None or timing["cron"] is not None:
        note_surprises(timing_of(Upsert(key, event, by=by, **timing)))
    with target.open() as queue:
        if dry_run:
            scope = target.scope(queue)
            found = queue.run(rehearse(scope, Upsert(key, event, by=by, **timing), show.now_ms()))
            describe.say_rehearsed(found, as_json)
            if not found:
                ctx.exit(NOT_FOUND)
            return
        handle = queue.upsert(key, event, by=by, durable=durable, **timing)
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


def _upsert_file(target: Target, /, file: str, by: str, durable: str | None, as_json: bool) -> None:
    name = "stdin" if file == "-" else file
    done: Counter[str] = Counter()
    worst: Failure | None = None
    longest = max(LONGEST_LINE, 8 * target.resolve().max_payload_bytes)
    with target.open() as queue, click.open_file(file, "rb") as opened:
        source = cast(BinaryIO, opened)
        with bar(name, size_of(source), shown=not (as_json and sys.stdout.isatty())) as read:
            try:
                for result in upsert_pieces(
                    queue, source, longest=longest, by=by, durable=durable, read=read.advance
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
