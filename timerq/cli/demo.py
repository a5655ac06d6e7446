"""demo: two dispatchers, some thousand timers, a kill in the middle, and the sums."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from timerq.cli import show
from timerq.cli.base import OTHER, BadInput, Target, json_option, pass_target, where_options
from timerq.cli.ledger import Report
from timerq.cli.lines import LONGEST_LINE, read_pieces
from timerq.cli.play import Alteration, check_fit, play
from timerq.cli.values import number
from timerq.errors import TimerqError
from timerq.timing import resolve_duration

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "reminders.jsonl"


@click.command()
@click.option(
    "--file",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The timers, as for `timerq upsert --file`, one-shots on the stream events [examples/reminders.jsonl].",
)
@click.option(
    "--changes",
    "changes",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What is replaced and cancelled meanwhile [NAME-changes.jsonl beside the file].",
)
@click.option(
    "--partitions", type=number, default=8, show_default=True, help="How many parts the namespace has."
)
@json_option
@pass_target
def demo(target: Target, /, file: Path | None, changes: Path | None, partitions: int, as_json: bool) -> None:
    """See it work: a Redis, two dispatchers, some thousand timers, and a kill in the middle.

    Starts a Redis of its own and two dispatchers, loads the timers, replaces and cancels some while they wait, kills a
    dispatcher when half of them have fired, reads the stream to its end, and counts. Exits with 1 if any promise is
    broken.

    \b
    Example:
      timerq demo
    """
    target.refuse_redis("demo")
    file = file or EXAMPLES
    if not file.exists():
        raise click.UsageError(
            "the example timers are part of the source, not of the installed package: name a file with --file"
        )
    if changes is None:
        beside = file.with_name(f"{file.stem}-changes.jsonl")
        changes = beside if beside.exists() else None
    alterations = [] if changes is None else read_alterations(changes)
    report = play(target.resolve().redis_server, file, alterations, partitions)
    if as_json:
        show.say_json(report.words())
    else:
        _print(report)
    if report.broken:
        raise click.exceptions.Exit(OTHER)


demo.params.extend(where_options(hidden=True)[:1])  # --redis, so that it can be refused with a reason


def read_alterations(path: Path) -> list[Alteration]:
    """The file of changes, in the order in which they are made.

    A line is ``{"after": "2s", "upsert": {…}}`` or ``{"after": "2s", "cancel": {"key": …, "owner": …}}``.
    """
    found: list[Alteration] = []
    with open(path, "rb") as source:
        for piece in read_pieces(source, LONGEST_LINE):
            for line in piece.lines:
                wrong = line.wrong
                if wrong is None:
                    try:
                        found.append(_alteration(line.value))
                    except (TimerqError, ValueError) as error:
                        wrong = str(error)
                if wrong is not None:
                    raise BadInput(f"{path}:{line.number}: {wrong}")
    return sorted(found, key=lambda alteration: alteration.after_ms)


def _alteration(value: Mapping[str, Any]) -> Alteration:
    upsert, cancel = value.get("upsert"), value.get("cancel")
    thing = upsert if cancel is None else cancel
    if len(value) != 2 or "after" not in value or not isinstance(thing, dict):
        raise ValueError('want {"after": …, "upsert": {…}} or {"after": …, "cancel": {"key": …}}')
    if upsert is not None:
        check_fit(upsert)
    elif not thing.keys() <= {"key", "owner"} or not isinstance(thing.get("key"), str):
        raise ValueError("cancel: want a key, and an owner where there is one")
    return Alteration(resolve_duration(value["after"], field="after"), upsert, cancel)


def _print(report: Report) -> None:
    def lags(p50_ms: float | None, p99_ms: float | None) -> str:
        return "-" if p50_ms is None or p99_ms is None else f"{p50_ms:.1f} / {p99_ms:.1f} ms"

    rows = show.Rows("", "demo", right=("demo",))
    rows.add(
        [
            ["due", f"{report.due:,}"],
            ["fired", f"{report.fired:,}"],
            ["replaced while waiting", f"{report.replaced:,}"],
            ["cancelled", f"{report.cancelled:,}"],
            ["cancelled too late, so fired", f"{report.cancelled_too_late:,}"],
            ["duplicated", f"{report.duplicated:,}"],
            ["lost", f"{report.lost:,}"],
            ["early", f"{report.early:,}"],
            ["wrong payload", f"{report.wrong_payload:,}"],
            ["fired though cancelled or replaced", f"{report.revived:,}"],
            ["fired though never armed", f"{report.unknown:,}"],
            ["lag p50 / p99, due to published", lags(report.lag_p50_ms, report.lag_p99_ms)],
            ["lag p50 / p99, due to read", lags(report.reader_lag_p50_ms, report.reader_lag_p99_ms)],
            ["  before the kill", lags(report.before_kill_p50_ms, report.before_kill_p99_ms)],
            ["  after it (covering takes 100 ms)", lags(report.after_kill_p50_ms, report.after_kill_p99_ms)],
        ]
    )
    for problem in report.problems:
        show.note(problem)
    show.say("A promise is broken." if report.broken else "Every promise was kept.")
