"""Schedules that are declared on the functions which handle their events."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from timerq.commands.arming import Upsert
from timerq.declare.declared import Declared
from timerq.declare.entries import check
from timerq.errors import InvalidSchedule
from timerq.model import Codec, DstGap, DstOverlap, Event, Misfire, Overlap, check_text, to_datetime
from timerq.timing import Duration, Exclusion, Instant

P = ParamSpec("P")
R = TypeVar("R")

_OFFERED = ("fired_at", "name", "event")
_KINDS = inspect.Parameter


class FiredEvent(Protocol):
    """What `ScheduledFunction.run` needs of an event that was read from a stream."""

    @property
    def at_ms(self) -> int:
        """The instant of its occurrence (epoch ms)."""
        ...


class ScheduledFunction(Generic[P, R]):
    """A function under a schedule: made by `schedule`, stored by ``timerq apply``, called by whoever reads its events.

    Calling it calls the function as it stands. ``name`` is the schedule's key and the type of its events, ``upsert``
    what is stored.
    """

    __wrapped__: Callable[P, R]

    def __init__(self, function: Callable[P, R], upsert: Upsert) -> None:
        """Raises `InvalidSchedule` for a bad timing, event or name, or a function that could not be called."""
        check(upsert)
        update_wrapper(self, function)  # first: it brings the function's own attributes along
        self._function = function
        self._takes = _parameters(function)
        self.upsert = upsert

    @property
    def name(self) -> str:
        """The schedule's name, and the type of its events."""
        return self.upsert.key

    @property
    def declared(self) -> Declared:
        """The schedule with the place of its function."""
        code = getattr(inspect.unwrap(self._function), "__code__", None)
        if code is None:
            return Declared(self.upsert, str(getattr(self._function, "__module__", "?")))
        return Declared(self.upsert, code.co_filename, code.co_firstlineno)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the function."""
        return self._function(*args, **kwargs)

    def run(self, event: FiredEvent) -> R:
        """Calls the function for an event of its schedule, and returns what it returns: of an async one, a coroutine.

        It gets those of these arguments that its signature takes: ``fired_at``, the aware UTC datetime of the tick (the
        one in its `tick_name`; a late event still has the instant at which it was due), ``name``, the schedule's name,
        and ``event`` itself.
        """
        offered = {"fired_at": to_datetime(event.at_ms), "name": self.name, "event": event}
        by_place = [offered[name] for name, is_by_place in self._takes.items() if is_by_place]
        by_name = {name: offered[name] for name, is_by_place in self._takes.items() if not is_by_place}
        return self._function(*by_place, **by_name)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<schedule {self.name!r} of {self._function!r}>"


def schedule(
    cron: str | Iterable[str] | None = None,
    *,
    timezone: str | None = None,
    every: Duration | None = None,
    name: str | None = None,
    payload: Any = None,
    stream: str = "events",
    correlation: Mapping[str, str] | None = None,
    codec: Codec = "msgpack",
    dst_gap: DstGap | None = None,
    dst_overlap: DstOverlap | None = None,
    exclude: Exclusion | Iterable[Exclusion] | None = None,
    anchor: Instant | None = None,
    jitter: Duration | None = None,
    initial_delay: Duration | None = None,
    start: Instant | None = None,
    until: Instant | None = None,
    limit: int | None = None,
    misfire: Misfire | None = None,
    grace: Duration | None = None,
    max_catch_up: int | None = None,
    overlap: Overlap | None = None,
    ack_group: str | None = None,
    running_timeout: Duration | None = None,
    fixed_delay: bool | None = None,
    pause_after: int | None = None,
    paused: bool | None = None,
) -> Callable[[Callable[P, R]], ScheduledFunction[P, R]]:
    """Declares the schedule of the decorated function; nothing is stored before ``timerq apply`` reads its module.

        @schedule(cron="0 9 * * MON-FRI", timezone="Europe/Paris")
        def morning(fired_at: datetime) -> None: ...

    ``name`` is the function's own unless given; it is the schedule's key and the type of its events. The words of the
    timing are those of `TimerQueue.upsert`, those of the event those of `Event`. The function is called by
    `ScheduledFunction.run`.

    Raises `InvalidSchedule` where it stands, so that a module with a bad schedule cannot be imported.
    """
    words: dict[str, Any] = {
        "cron": cron,
        "timezone": timezone,
        "every": every,
        "dst_gap": dst_gap,
        "dst_overlap": dst_overlap,
        "exclude": exclude,
        "anchor": anchor,
        "jitter": jitter,
        "initial_delay": initial_delay,
        "start": start,
        "until": until,
        "limit": limit,
        "misfire": misfire,
        "grace": grace,
        "max_catch_up": max_catch_up,
        "overlap": overlap,
        "ack_group": ack_group,
        "running_timeout": running_timeout,
        "fixed_delay": fixed_delay,
        "pause_after": pause_after,
        "paused": paused,
    }
    if callable(cron):
        raise InvalidSchedule("function", cron, "want brackets: @schedule(cron=…) or @schedule(every=…)")

    def decorate(function: Callable[P, R]) -> ScheduledFunction[P, R]:
        if not callable(function) or isinstance(function, type):
            raise InvalidSchedule("function", function, "want @schedule(…) on a function")
        if isinstance(function, ScheduledFunction):
            want = (
                f"want one @schedule(…) on it: for another, other = schedule(…)({function.name}.__wrapped__)"
            )
            raise InvalidSchedule("function", function, want)
        given = getattr(function, "__name__", None) if name is None else name
        if given is None:
            raise InvalidSchedule("name", None, "want name= for a function that has none")
        try:
            if (cron is None) == (every is None):
                raise InvalidSchedule("cron", cron, "want exactly one of cron= and every=")
            check_text("name", given)
            event = Event(given, payload, stream=stream, correlation=correlation, codec=codec)
            return ScheduledFunction(function, Upsert(key=given, event=event, **words))
        except InvalidSchedule as error:
            error.add_note(f"in @schedule(…) of the function {getattr(function, '__name__', given)}")
            raise

    return decorate


def _parameters(function: Callable[..., Any]) -> dict[str, bool]:
    """Those of the offered arguments that a function takes, and whether it takes them by their place alone."""
    takes: dict[str, bool] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is _KINDS.VAR_KEYWORD:
            takes |= {offered: False for offered in _OFFERED if offered not in takes}
        elif parameter.kind is _KINDS.VAR_POSITIONAL:
            continue
        elif parameter.name in _OFFERED:
            takes[parameter.name] = parameter.kind is _KINDS.POSITIONAL_ONLY
        elif parameter.default is _KINDS.empty:
            raise InvalidSchedule(
                "function",
                f"{getattr(function, '__name__', function)}{inspect.signature(function)}",
                f"want a function that can be called with {', '.join(_OFFERED)}, or any of them",
            )
    return takes
