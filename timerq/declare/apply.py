"""What would change in a queue if it had the schedules of a `DeclaredSet`, and making it have them."""

from __future__ import annotations

import time

from timerq.client import Handle, TimerQueue
from timerq.commands.durable import parse_durable
from timerq.commands.planned import Applied, SetPlan
from timerq.commands.sets import apply_set, plan_set
from timerq.declare.declared import DeclaredSet


def plan(queue: TimerQueue, declared: DeclaredSet) -> SetPlan:
    """What `apply` would do; nothing is written. Raises as it does."""
    now_ms = time.time_ns() // 1_000_000  # for a queue that is still to be made; every other has Redis's
    return queue.run(plan_set(queue._look(), declared.label, declared.upserts, now_ms))


def apply(
    queue: TimerQueue,
    declared: DeclaredSet,
    *,
    prune: bool = False,
    take_over: bool = False,
    durable: str | None = None,
) -> Applied[Handle]:
    """Stores what has changed, each schedule atomically under the set's label; what has not is not touched.

    ``prune`` cancels what the set declared before and declares no longer, never anything of another set or of none. A
    name that another set declares is refused unless ``take_over``. Where a later apply of the set begins meanwhile,
    this one stops, and says SUPERSEDED.

    Raises `InvalidSchedule` (nothing was written), `QueueUnavailable` (running it again heals) and
    `NamespaceMismatch`.
    """
    steps = apply_set(
        queue._open(),
        declared.label,
        declared.upserts,
        Handle,
        prune_others=prune,
        take_over=take_over,
        durable=parse_durable(durable),
    )
    applied = queue.run(steps)
    for item in applied.items:
        if isinstance(item, Handle):
            item._of(queue)
    return applied
