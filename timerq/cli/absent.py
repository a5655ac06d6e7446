"""What to say where there is no schedule of a key: perhaps it is another owner's."""

from __future__ import annotations

from timerq.cli import show
from timerq.cli.base import NotFound
from timerq.client import TimerQueue

_MOST = 20
_TOLD = 3


def absent(queue: TimerQueue, key: str, owner: str | None, outcome: str = "") -> NotFound:
    """There is no schedule of ``key`` (and ``owner``); ``outcome`` is the word that said so."""
    said = ": ".join(filter(None, (show.name_of(key, owner), outcome, "nothing waits under this key")))
    # in the order of keys: this one comes first
    found = queue.list_page(key, limit=_MOST).items if key else []
    owners = [schedule.owner for schedule in found if schedule.key == key]
    named = [show.clean(one) for one in owners if one is not None]
    if named:
        more = f" and {len(named) - _TOLD} more" if len(named) > _TOLD else ""
        hint = f"There is one of this key that belongs to {', '.join(named[:_TOLD])}{more}: name its --owner."
    elif owners:
        hint = "There is one of this key without an owner: leave --owner out."
    else:
        hint = "See what waits with: timerq list"
    return NotFound(said, hint)
