"""The options that say what is published, when, and under which policy; `upsert` has them all, others some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import click

from timerq.cli.base import F
from timerq.cli.values import duration, instant, number, parse_correlation, parse_json
from timerq.commands.arming import Mode
from timerq.model import Codec, DstGap, DstOverlap, Event, Misfire, Overlap

FILE = click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True)
"""A file, or - for stdin."""

_WHAT, _WHEN = "What is published", "When"
_CALENDAR, _LATE = "Calendars and grids", "When things are late or not handled"
_STORED = "Where one waits already"


class _Option(click.Option):
    """An option with a place in the help."""

    def __init__(self, *args: Any, section: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section


def _option(section: str, *names: str, **words: Any) -> Callable[[F], F]:
    return click.option(*names, cls=_Option, section=section, **words)


def _add(command: F, *options: Callable[[F], F]) -> F:
    for option in reversed(options):
        command = option(command)
    return command


def _given(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...] | None:
    return values or None


def event_options(command: F) -> F:
    """--payload, --payload-file, --stream, --correlation, --codec."""
    return _add(
        command,
        _option(_WHAT, "--payload", metavar="JSON", help="The payload, as JSON; without one it is null."),
        _option(_WHAT, "--payload-file", type=FILE, help="A file with the payload as JSON; - for stdin."),
        _option(
            _WHAT, "--stream", metavar="NAME", default="events", show_default=True, help="Where it goes."
        ),
        _option(
            _WHAT,
            "--correlation",
            metavar="NAME=TEXT",
            multiple=True,
            help="Carried unchanged; may be repeated.",
        ),
        _option(_WHAT, "--codec", type=click.Choice(get_args(Codec)), default="msgpack", show_default=True),
    )


def type_option(**words: Any) -> Callable[[F], F]:
    """--type."""
    return _option(_WHAT, "--type", "event_type", metavar="TYPE", help="The event's type.", **words)


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


def when_options(command: F) -> F:
    """--at, --delay, --every, --cron, --initial-delay, --start, --until, --limit."""
    return _add(
        command,
        _option(_WHEN, "--at", type=instant, help='"2030-01-31T09:00:00+01:00", or epoch milliseconds.'),
        _option(_WHEN, "--delay", type=duration, help='How long from now: "90s", "1h30m", "PT1H30M".'),
        every_option,
        _option(
            _WHEN,
            "--cron",
            metavar="EXPRESSION",
            multiple=True,
            callback=_given,
            help='At which times: "0 9 * * MON-FRI"; may be repeated.',
        ),
        _option(
            _WHEN,
            "--initial-delay",
            type=duration,
            help="With --every: until the first one; 0s fires at once.",
        ),
        window_options,
    )


def every_option(command: F) -> F:
    """--every."""
    return _add(command, _option(_WHEN, "--every", type=duration, help='How often: "5s".'))


def window_options(command: F) -> F:
    """--start, --until, --limit."""
    return _add(
        command,
        _option(
            _WHEN,
            "--start",
            type=instant,
            help="None is due before this; with --every it is also the first one, and the grid of the others.",
        ),
        _option(_WHEN, "--until", type=instant, help="None is due after this."),
        _option(_WHEN, "--limit", type=number, help="So many at the most."),
    )


def calendar_options(command: F) -> F:
    """--timezone, --dst-gap, --dst-overlap, --exclude, --anchor, --jitter."""
    return _add(
        command,
        _option(
            _CALENDAR,
            "--timezone",
            metavar="NAME",
            help='With --cron: whose clock it is read by, as "Europe/Paris" [UTC].',
        ),
        _option(
            _CALENDAR,
            "--dst-gap",
            type=click.Choice(get_args(DstGap)),
            help="A time that a clock change skips: run right after it, or not at all [shift].",
        ),
        _option(
            _CALENDAR,
            "--dst-overlap",
            type=click.Choice(get_args(DstOverlap)),
            help="A time that comes twice: on which pass it runs [first].",
        ),
        _option(
            _CALENDAR,
            "--exclude",
            metavar="WHAT",
            multiple=True,
            callback=_given,
            help='Left out: "2026-12-25", "2026-12-24/2026-12-26", or an expression; may be repeated.',
        ),
        _option(
            _CALENDAR,
            "--anchor",
            metavar="INSTANT",
            type=instant,
            help='With --every: an instant of its grid, or "clock" for on the hour, on the minute.',
        ),
        _option(
            _CALENDAR,
            "--jitter",
            type=duration,
            help="Each is put off by up to this; the same for each, every time.",
        ),
    )


def policy_options(command: F) -> F:
    """--misfire, --grace, --max-catch-up, --overlap, --ack-group, --running-timeout, --fixed-delay, --pause-after."""
    return _add(
        command,
        _option(
            _LATE,
            "--misfire",
            type=click.Choice(get_args(Misfire)),
            help="Nobody was there to fire them: one late event for all, none, or each one [fire_once].",
        ),
        _option(
            _LATE,
            "--grace",
            type=duration,
            help="With --misfire skip: so late is still in time [10s].",
        ),
        _option(
            _LATE, "--max-catch-up", type=number, help="With --misfire catch_up: so many at the most [100]."
        ),
        _option(
            _LATE,
            "--overlap",
            type=click.Choice(get_args(Overlap)),
            help="One is due while the event before it is not handled (see done): publish, leave out, wait [allow].",
        ),
        _option(
            _LATE,
            "--ack-group",
            metavar="NAME",
            help="The group whose consumers handle the events, and say so with done (see there) [anyone's].",
        ),
        _option(
            _LATE,
            "--running-timeout",
            type=duration,
            help="An event that is so old without a word from done counts as handled [1h].",
        ),
        _option(
            _LATE,
            "--fixed-delay",
            is_flag=True,
            default=None,
            help="With --every: the next is due so long after the last one was fired, or with --ack-group handled.",
        ),
        _option(_LATE, "--pause-after", type=number, help="So many failures in a row pause it."),
    )


def stored_options(command: F) -> F:
    """--mode, --max-wait, --restart, --paused, --reset, --if-version, --idempotency-key."""
    return _add(
        command,
        _option(_STORED, "--mode", type=click.Choice(get_args(Mode)), default="replace", show_default=True),
        _option(
            _STORED,
            "--max-wait",
            type=duration,
            help="Pushed again and again, fire no later than this after the first time.",
        ),
        _option(
            _STORED,
            "--restart/--no-restart",
            default=False,
            help="Start an unchanged recurring one anew.",
        ),
        _option(
            _STORED,
            "--paused/--not-paused",
            default=None,
            help="Store it paused, or armed though it was paused.",
        ),
        _option(
            _STORED,
            "--reset",
            is_flag=True,
            help="Begin anew: what --limit counts, the totals, the last fires.",
        ),
        _option(
            _STORED,
            "--if-version",
            type=number,
            help="Only where this version is stored; 0: only where there is none.",
        ),
        _option(_STORED, "--idempotency-key", metavar="TEXT", help="A second call with it changes nothing."),
    )


def by_option(command: F) -> F:
    """--by."""
    return click.option("--by", metavar="WHO", help="Who does it; get and why show it [USER@HOST].")(command)
