"""What `plan` and `apply` of a declared set answer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from timerq.commands.arming import Upserted
from timerq.commands.wording import Difference
from timerq.errors import TimerqError
from timerq.model import Change, Outcome

U = TypeVar("U", bound=Upserted)

Action = Literal["create", "change", "unchanged", "ended", "remove"]
"""What an `apply` would do: with "ended" nothing, as its `until` has passed; "remove" only where it prunes."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What an `apply` would do with the schedule of ``key``.

    ``words`` are those declared (of one to remove, those stored), ``differences`` the ones that change, old and new.
    ``taken_from`` names the other set that declared it before.
    """

    key: str
    action: Action
    words: dict[str, Any] = field(default_factory=dict)
    differences: tuple[Difference, ...] = ()
    taken_from: str | None = None


@dataclass(frozen=True, slots=True)
class SetPlan:
    """What an `apply` of the declared set ``label`` would do: its schedules as declared, then those to remove."""

    label: str
    items: tuple[Planned, ...]

    @property
    def counts(self) -> dict[Action, int]:
        """How many there are of each action."""
        return dict(Counter(item.action for item in self.items))


@dataclass(frozen=True, slots=True)
class Applied(Generic[U]):
    """What an `apply` of the declared set ``label`` did; true where all of it was done.

    ``outcome`` is DONE, or SUPERSEDED where a later apply of the set began meanwhile: what was not done by then is left
    to that one. ``items`` has an answer for each schedule that was declared, in order: what its upsert did, or the
    exception that says why it could not be done; None for one whose `until` has passed, which needs nothing done.
    ``removed`` has what was cancelled, and the key and the exception of what could not be. ``generation`` numbers the
    applies of all sets; it only grows.
    """

    label: str
    outcome: Outcome
    generation: int
    items: tuple[U | TimerqError | None, ...] = ()
    removed: tuple[Change | tuple[str, TimerqError], ...] = ()

    def __bool__(self) -> bool:
        failed = any(isinstance(item, TimerqError) for item in self.items)
        return (
            self.outcome is Outcome.DONE and not failed and all(isinstance(c, Change) for c in self.removed)
        )
