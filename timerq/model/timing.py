"""What was asked for of the timing of a schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DstGap = Literal["shift", "skip"]
"""What becomes of a fixed time that a clock change skips: run at the first instant after the gap, or not at all."""

DstOverlap = Literal["first", "second", "both"]
"""On which pass of a repeated hour a fixed time runs."""

Misfire = Literal["fire_once", "skip", "catch_up"]
"""What becomes of occurrences that nobody was there to fire: one late event for all, none, or each one."""

Overlap = Literal["allow", "skip", "queue"]
"""What becomes of an occurrence that is due while the one before it is still being handled."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Which instants a calendar names.

    ``cron`` are its expressions (none: a grid of ``every_ms``), read in the IANA zone ``timezone``; ``exclude`` are
    dates, ranges of dates (``2026-12-24/2026-12-26``) and expressions whose times are left out. ``jitter_ms`` is the
    most by which an occurrence is put off; ``anchor_ms`` is an instant of the grid (epoch ms).
    """

    cron: tuple[str, ...] = ()
    timezone: str = "UTC"
    dst_gap: DstGap = "shift"
    dst_overlap: DstOverlap = "first"
    exclude: tuple[str, ...] = ()
    jitter_ms: int = 0
    anchor_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """What a recurring schedule does when things are late or not handled; all durations in milliseconds.

    ``misfire``: what becomes of missed occurrences; with "skip" those overdue by more than ``grace_ms`` are left out,
    with "catch_up" each one is published, the last ``max_catch_up`` at the most. ``overlap``: what becomes of an
    occurrence that is due while the last one runs, which it does until `done` is told that it is handled
    (``ack_group``: whose part that is; None: anyone's), or until it is ``running_timeout_ms`` old. ``fixed_delay``: the
    next one comes an interval after the last one was fired, or where there is an ``ack_group`` handled.
    ``pause_after``: how many failures in a row pause the schedule.
    """

    misfire: Misfire = "fire_once"
    grace_ms: int = 10_000
    max_catch_up: int = 100
    overlap: Overlap = "allow"
    ack_group: str | None = None
    running_timeout_ms: int = 3_600_000
    fixed_delay: bool = False
    pause_after: int | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """What was asked for, resolved: all instants in epoch milliseconds, all durations in milliseconds.

    ``kind`` is ``"once"`` (with either ``at_ms`` or ``delay_ms``), ``"every"`` (with ``every_ms``; the first fire is at
    ``start_ms``, else ``initial_delay_ms`` from now, else one interval from now) or ``"cron"``. ``until_ms`` is the
    last instant at which an occurrence may be due, ``limit`` the number of occurrences. ``rule`` is what a calendar
    says (None for one-shots and plain intervals), ``policy`` what differs from the defaults. None stands for "not
    given". Made by `timerq.timing.resolve_timing`, which alone validates.
    """

    kind: Literal["once", "every", "cron"]
    at_ms: int | None = None
    delay_ms: int | None = None
    every_ms: int | None = None
    start_ms: int | None = None
    initial_delay_ms: int | None = None
    until_ms: int | None = None
    limit: int | None = None
    rule: Rule | None = None
    policy: Policy | None = None
