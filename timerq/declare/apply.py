"""What would change in a queue if it had the schedules of a `DeclaredSet`, and making it have them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from timerq.client import Handle, TimerQueue
from timerq.commands.phrasing import for_file
from timerq.commands.planned import Applied, SetPlan
from timerq.declare.declared import DeclaredSet
from timerq.declare.entries import TIMING_WORDS
from timerq.errors import Fault, InvalidDeclaration, InvalidSchedule


def plan(queue: TimerQueue, declared: DeclaredSet) -> SetPlan:
    """What `apply` would do; nothing is written. Raises as it does."""
    with _placing(declared):
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

    Raises `InvalidSchedule` (nothing was written), with the place of a schedule that would never fire,
    `QueueUnavailable` (running it again heals) and `NamespaceMismatch`.
    """
    with _placing(declared):
        return queue.apply_set(
            declared.label, declared.upserts, prune=prune, take_over=take_over, by=by, durable=durable
        )


@contextmanager
def _placing(declared: DeclaredSet) -> Iterator[None]:
    """A refusal of a word of a schedule says where that is declared, and speaks of the words as a file has them."""
    try:
        yield
    except InvalidDeclaration:
        raise
    except InvalidSchedule as error:
        name, _, word = error.field.rpartition(".")
        for one in declared.schedules:
            if one.name == name and word in TIMING_WORDS:
                given = {word: getattr(one.upsert, word)}
                text = for_file(InvalidSchedule(word, error.got, error.want), given)
                raise InvalidDeclaration([Fault(one.source, one.line, error.field, text)]) from error
        raise
