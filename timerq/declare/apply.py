"""What would change in a queue if it had the schedules of a `DeclaredSet`, and making it have them."""

from __future__ import annotations

from timerq.client import Handle, TimerQueue
from timerq.commands.planned import Applied, SetPlan
from timerq.declare.declared import DeclaredSet


def plan(queue: TimerQueue, declared: DeclaredSet) -> SetPlan:
    """What `apply` would do; nothing is written. Raises as it does."""
    return queue.plan_set(declared.label, declared.upserts)


def apply(
    queue: TimerQueue,
    declared: DeclaredSet,
    *,
    prune: bool = False,
    take_over: bool = False,
    by: str | None = None,
    durable: str | None = None,
) -> Applied[Handle]:
    """Stores what has changed under the set's label, and removes the rest, as ``by``: see `TimerQueue.apply_set`.

    Raises `InvalidSchedule` (nothing was written), `QueueUnavailable` (running it again heals) and
    `NamespaceMismatch`.
    """
    return queue.apply_set(
        declared.label, declared.upserts, prune=prune, take_over=take_over, by=by, durable=durable
    )
