"""What a consumer has done since it started."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    """Numbers of events, since this process started.

    ``handled``: acknowledged after their handler. ``retried``: failed, and to be tried again. ``dead``: given up.
    ``unwanted``: no handler wants them. ``unreadable``: their fields cannot be read; they are dead letters too.
    ``stale``: not run, because cancelled after they fired, or of an owner that has gone. ``gone``: trimmed before they
    were handled. ``lost``: went to another consumer while they were handled here. ``handed_back``: not begun, or
    interrupted, when this one stopped; or not begun soon enough.
    """

    handled: int = 0
    retried: int = 0
    dead: int = 0
    unwanted: int = 0
    unreadable: int = 0
    stale: int = 0
    gone: int = 0
    lost: int = 0
    handed_back: int = 0
