"""timerq: a distributed timer queue on Redis.

A schedule is a value stored in Redis under a key; when it is due, a dispatcher moves it, in one atomic step, onto a
Redis Stream, where any program can read it as an event.

    from timerq import Consumer, Delivery, Event, TimerQueue

    queue = TimerQueue.connect("redis://localhost:6379/0", namespace="prod", tenant="acme")

    queue.upsert("reminder:order-42", Event("order.reminder", {"order_id": 42}), delay="30m")
    queue.upsert("digest", Event("digest.due"), cron="0 9 * * MON-FRI", timezone="Europe/Paris")
    queue.upsert("heartbeat", Event("tick"), every="5s")
    queue.cancel("reminder:order-42")
    for schedule in queue.list(prefix="reminder:"):
        print(schedule.key, schedule.at)

A producer needs no more. Dispatchers (``timerq worker``) do the firing, as many as you like, and consumers
(``timerq consume``) the handling:

    app = Consumer(queue, group="billing")

    @app.on("order.reminder")
    def remind(event: Delivery) -> None: ...

A clock change skips times and repeats others; what a schedule makes of it is its own choice (``dst_gap=``,
``dst_overlap=``), as is what becomes of occurrences that nobody was there to fire (``misfire=``) and of one that is due
while the event before it is still being handled (``overlap=``). When it will be due can be seen before it is saved:

    timerq.preview(cron="30 2 * * *", timezone="Europe/Paris", dst_gap="skip", after="2026-03-27T12:00:00Z", n=3)

The walk of one schedule, for who wants to know how: `TimerQueue.upsert` (client.py) asks `commands.upsert` what to send
and sends it (link.py) to ``lua/upsert.lua``, which stores it. A `Dispatcher` (dispatcher/partition.py) sleeps until it
is due and calls ``lua/fire.lua``, which puts the event on its stream and takes the schedule out, or arms its next
occurrence. A `Consumer` (consumer/loop.py) takes the event by ``lua/receive.lua``, runs its handler
(consumer/runner.py), and says by ``lua/settle.lua`` what became of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from timerq.async_client import AsyncHandle, AsyncTimerQueue
    from timerq.async_owner import AsyncOwner
    from timerq.client import Handle, TimerQueue
    from timerq.clock import Clock
    from timerq.commands.arming import Upsert
    from timerq.commands.calling import Task
    from timerq.commands.history import History, LogEntry
    from timerq.commands.letters import DeadLetter, DeadPage, FailedAttempt, Which
    from timerq.consumer import AsyncContext, Consumer, Context
    from timerq.declare import ScheduledFunction, schedule
    from timerq.errors import (
        BacklogFull,
        ContractBroken,
        DurabilityUnavailable,
        Fault,
        Incomplete,
        InvalidDeclaration,
        InvalidPayload,
        InvalidSchedule,
        NamespaceMismatch,
        QueueUnavailable,
        TimerqError,
    )
    from timerq.model import (
        Backfilled,
        Backlog,
        Bound,
        Change,
        Delivery,
        Event,
        Fire,
        GroupStats,
        Outcome,
        Page,
        Policy,
        Rule,
        Schedule,
        State,
        Stats,
        Swept,
        Timing,
        tick_name,
    )
    from timerq.owner import Owner
    from timerq.previews import preview
    from timerq.running import Running, Started, fire_now, lifespan, run, start
    from timerq.timing import resolve_due, resolve_duration

__version__ = "0.1.0"

__all__ = [
    "AsyncContext",
    "AsyncHandle",
    "AsyncOwner",
    "AsyncTimerQueue",
    "Backfilled",
    "Backlog",
    "BacklogFull",
    "Bound",
    "Change",
    "Clock",
    "Consumer",
    "Context",
    "ContractBroken",
    "DeadLetter",
    "DeadPage",
    "Delivery",
    "DurabilityUnavailable",
    "Event",
    "FailedAttempt",
    "Fault",
    "Fire",
    "GroupStats",
    "Handle",
    "History",
    "Incomplete",
    "InvalidDeclaration",
    "InvalidPayload",
    "InvalidSchedule",
    "LogEntry",
    "NamespaceMismatch",
    "Outcome",
    "Owner",
    "Page",
    "Policy",
    "QueueUnavailable",
    "Rule",
    "Running",
    "Schedule",
    "ScheduledFunction",
    "Started",
    "State",
    "Stats",
    "Swept",
    "Task",
    "TimerQueue",
    "TimerqError",
    "Timing",
    "Upsert",
    "Which",
    "fire_now",
    "lifespan",
    "preview",
    "resolve_due",
    "resolve_duration",
    "run",
    "schedule",
    "start",
    "tick_name",
]

# A producer needs a few of them, a plugin of pytest none: each room is loaded when something of it is asked for.
_ROOMS = {
    "async_client": "AsyncHandle AsyncTimerQueue",
    "async_owner": "AsyncOwner",
    "client": "Handle TimerQueue",
    "clock": "Clock",
    "commands.arming": "Upsert",
    "commands.calling": "Task",
    "commands.history": "History LogEntry",
    "commands.letters": "DeadLetter DeadPage FailedAttempt Which",
    "consumer": "AsyncContext Consumer Context",
    "declare": "ScheduledFunction schedule",
    "errors": (
        "BacklogFull ContractBroken DurabilityUnavailable Fault Incomplete InvalidDeclaration "
        "InvalidPayload InvalidSchedule NamespaceMismatch QueueUnavailable TimerqError"
    ),
    "model": (
        "Backfilled Backlog Bound Change Delivery Event Fire GroupStats Outcome Page Policy Rule "
        "Schedule State Stats Swept Timing tick_name"
    ),
    "owner": "Owner",
    "previews": "preview",
    "running": "Running Started fire_now lifespan run start",
    "timing": "resolve_due resolve_duration",
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names.split()}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Loads the room of a public name, or a room by its own name."""
        room = _ROOM_OF.get(name)
        if room is None and name in _ROOMS:
            return import_module(f"timerq.{name}")
        if room is None:
            raise AttributeError(f"module 'timerq' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"timerq.{room}"), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
