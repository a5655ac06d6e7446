"""The values of timerq: frozen, validated where they are made, the same in both clients.

All instants are epoch milliseconds (``_ms``, and ``at`` of a stored schedule as an aware datetime beside it).

names     keys, owners, streams as callers may give them      timing    what was asked for
schedule  Event, and the Schedule that publishes it           answers   what calls say
delivery  an event in the hands of a handler
"""

from timerq.model.answers import (
    Backfilled,
    Backlog,
    Bound,
    BoundRule,
    Change,
    GroupStats,
    Outcome,
    Page,
    Stats,
    Swept,
)
from timerq.model.delivery import Delivery, make_delivery
from timerq.model.names import (
    ERRORS,
    MAX_NAME_BYTES,
    check_plain_name,
    check_text,
    instant_text,
    tick_name,
    to_datetime,
)
from timerq.model.schedule import Codec, Event, Fire, Schedule, State
from timerq.model.timing import DstGap, DstOverlap, Misfire, Overlap, Policy, Rule, Timing

__all__ = [
    "ERRORS",
    "MAX_NAME_BYTES",
    "Backfilled",
    "Backlog",
    "Bound",
    "BoundRule",
    "Change",
    "Codec",
    "Delivery",
    "DstGap",
    "DstOverlap",
    "Event",
    "Fire",
    "GroupStats",
    "Misfire",
    "Outcome",
    "Overlap",
    "Page",
    "Policy",
    "Rule",
    "Schedule",
    "State",
    "Stats",
    "Swept",
    "Timing",
    "check_plain_name",
    "check_text",
    "instant_text",
    "make_delivery",
    "tick_name",
    "to_datetime",
]
