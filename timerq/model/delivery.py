"""What a handler gets: one event, read, with where it came from and which handling of it this is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from datetime import datetime
from typing import Any

from timerq.model.names import to_datetime


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event in the hands of a handler.

    ``id`` is the idempotency key: the same for every delivery of the event. ``at_ms`` is when it was due, ``fired_ms``
    when it was published (epoch ms, by Redis). ``n`` is the occurrence of the schedule's ``version``, ``missed`` how
    many later ones it stands for besides itself. ``attempt`` counts the handlings of it that have begun in this
    ``group``, from 1; ``delivery`` grows each time it is handed to somebody and is the fence of who may settle it.
    ``entry`` is its place in the ``stream`` of ``partition``. ``payload`` is decoded, or an instance of the handler's
    model.
    """

    id: str
    type: str
    key: str
    tenant: str
    owner: str | None
    at_ms: int
    fired_ms: int
    n: int
    version: int
    missed: int
    payload: Any = field(repr=False)
    correlation: Mapping[str, str]
    stream: str
    group: str
    attempt: int
    delivery: int
    partition: int
    entry: str
    backfill: bool = False

    @property
    def lane(self) -> str:
        """What its order is kept for: its owner, or its key where it has none."""
        return self.owner or self.key

    @property
    def at(self) -> datetime:
        """When it was due, as an aware UTC datetime."""
        return to_datetime(self.at_ms)

    @property
    def fired_at(self) -> datetime:
        """When it was published, as an aware UTC datetime."""
        return to_datetime(self.fired_ms)


# A frozen dataclass sets each field by a call of its own, which takes longer than reading them. So the values are set
# in an object of the very same slots that is not frozen yet.
_Draft: Any = make_dataclass("_Draft", [(one.name, one.type) for one in fields(Delivery)], slots=True)


def make_delivery(*values: Any) -> Delivery:
    """A `Delivery` of the values of all its fields, in their order."""
    made = _Draft(*values)
    made.__class__ = Delivery
    return made  # type: ignore[no-any-return]
