"""A registered handler: which arguments it takes, and when trying again is worth it."""

from __future__ import annotations

import asyncio
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from timerq.commands.calling import yields
from timerq.consumer.backoff import LONGEST_MS, Backoff
from timerq.declare import ScheduledFunction
from timerq.errors import InvalidPayload, InvalidSchedule
from timerq.model import Delivery, check_text
from timerq.timing import Duration, resolve_duration

Errors = type[BaseException] | tuple[type[BaseException], ...]
"""One class of exceptions, or several."""

RETRIED: Errors = (Exception, asyncio.CancelledError)
"""What is tried again unless the handler says otherwise; cancelled may have been something that it waited for."""

MAX_ATTEMPTS = 1000
_EVENT, _CONTEXT, _PAYLOAD = "event", "ctx", "payload"
_EVENT_ALONE = (_EVENT,)
_BY_NAME = {"event": _EVENT, "ctx": _CONTEXT, "context": _CONTEXT, "payload": _PAYLOAD}
_WANT = "want a function of (event), (event, ctx), (payload) or (payload, ctx)"


@dataclass(frozen=True, slots=True)
class Handler:
    """What is run for the events of one type, and what becomes of them where it fails.

    ``attempts`` is how many handlings of one event may begin. An error is tried again where it is one of ``retry_on``
    and none of ``give_up_on``. ``timeout_s`` is how long one handling may take. ``takes`` are the arguments that the
    function wants, by their place, and ``names`` those that it takes by name alone. ``is_plain``: it is awaited as it
    stands, without a model, a time-out or a context.
    """

    event_type: str
    function: Callable[..., Any]
    is_async: bool
    takes: tuple[str, ...]
    names: Mapping[str, str]
    attempts: int
    backoff: Backoff
    retry_on: tuple[type[BaseException], ...]
    give_up_on: tuple[type[BaseException], ...]
    timeout_s: float | None
    check: Callable[[Any], Any] | None
    takes_context: bool
    is_plain: bool

    @property
    def name(self) -> str:
        """What it is called in logs."""
        return str(getattr(self.function, "__qualname__", None) or self.function)

    def prepare(self, event: Delivery) -> Delivery:
        """The event with its payload as the handler's model; raises `InvalidPayload`."""
        return event if self.check is None else replace(event, payload=self.check(event.payload))

    def call(self, event: Delivery, context: Any) -> Any:
        """Calls the function; of an async one, the coroutine is returned."""
        if self.takes == _EVENT_ALONE and not self.names:
            return self.function(event)
        if isinstance(self.function, ScheduledFunction):
            return self.function.run(event)
        offered = {_EVENT: event, _CONTEXT: context, _PAYLOAD: event.payload}
        return self.function(
            *(offered[what] for what in self.takes),
            **{name: offered[what] for name, what in self.names.items()},
        )


def make_handler(
    type_: str,
    function: Callable[..., Any],
    *,
    model: Any = None,
    attempts: int = 5,
    backoff: Duration = "1s",
    max_backoff: Duration | None = None,
    retry_on: Errors = RETRIED,
    give_up_on: Errors = (),
    timeout: Duration | None = None,
) -> Handler:
    """Raises `InvalidSchedule` for a word that cannot be, or a function that cannot be called with an event."""
    check_type(type_)
    if not callable(function):
        raise InvalidSchedule("function", function, _WANT)
    if yields(function):
        raise InvalidSchedule("function", function, "want a function that returns, not one that yields")
    if type(attempts) is not int or not 1 <= attempts <= MAX_ATTEMPTS:
        raise InvalidSchedule("attempts", attempts, f"want a number from 1 to {MAX_ATTEMPTS}")
    first_ms = resolve_duration(backoff, field="backoff")
    if max_backoff is None:
        max_ms = max(first_ms, LONGEST_MS)
    elif (max_ms := resolve_duration(max_backoff, field="max_backoff")) < first_ms:
        raise InvalidSchedule("max_backoff", max_backoff, "want one that is not shorter than backoff=")
    timeout_ms = None if timeout is None else resolve_duration(timeout, field="timeout")
    if timeout_ms == 0:
        raise InvalidSchedule("timeout", timeout, "want a duration above 0, or None for no bound")
    is_async = _is_async(function)
    takes, names, found = _parameters(function, is_async)
    wanted = found if model is None else model
    takes_context = _CONTEXT in takes or _CONTEXT in names.values()
    return Handler(
        type_,
        function,
        is_async,
        takes,
        names,
        attempts,
        Backoff(first_ms, max_ms),
        _errors("retry_on", retry_on),
        _errors("give_up_on", give_up_on),
        None if timeout_ms is None else timeout_ms / 1000,
        None if wanted is None else _checker(wanted),
        takes_context,
        is_async and wanted is None and timeout_ms is None and not takes_context,
    )


def check_type(type_: Any) -> None:
    """Raises `InvalidSchedule` for what is no event type."""
    if callable(type_):
        # `Consumer.on` without its brackets would decorate nothing, and the events would find no handler
        raise InvalidSchedule("type", type_, 'want the type of its events, as in @app.on("order.placed")')
    check_text("type", type_)


def _errors(name: str, value: Any) -> tuple[type[BaseException], ...]:
    classes = (value,) if isinstance(value, type) else value
    if isinstance(classes, (list, tuple, set, frozenset)) and all(
        isinstance(one, type) and issubclass(one, BaseException) for one in classes
    ):
        return tuple(classes)
    raise InvalidSchedule(name, value, "want an exception class, or a tuple of them")


def _is_async(function: Any) -> bool:
    inner = inspect.unwrap(function)
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(
        getattr(type(inner), "__call__", None)  # noqa: B004  # whether what it does is awaited, not whether it can be called
    )


def _parameters(function: Callable[..., Any], is_async: bool) -> tuple[tuple[str, ...], dict[str, str], Any]:
    """What it takes by place and by name, and the model that the annotation of its payload names."""
    if isinstance(function, ScheduledFunction):
        return (), {}, None
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise InvalidSchedule("function", function, _WANT) from None
    hints = _hints(function)
    takes: list[str] = []
    names: dict[str, str] = {}
    found: Any = None
    is_left_out = False
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        hint = hints.get(parameter.name)
        if isinstance(parameter.annotation, str) and hint is None and parameter.name not in _BY_NAME:
            # what it means cannot be told: an event in a model's place would be found out only when one comes
            want = "want annotations that can be looked up where it is defined, or parameters event, ctx, payload"
            raise InvalidSchedule("function", f"{function!r}: {parameter}", want)
        if is_async and getattr(hint, "is_awaited", True) is False:
            # it would forget to await, and nothing would happen
            want = "want AsyncContext in an async handler, whose verbs are awaited"
            raise InvalidSchedule("function", f"{function!r}: {parameter}", want)
        is_needed = parameter.default is parameter.empty
        what = _meant(parameter.name, hint, {*takes, *names.values()}, is_needed)
        if what is None or what in takes or what in names.values():
            if not is_needed:
                is_left_out = True  # what follows must be given by its name
                continue
            raise InvalidSchedule("function", f"{function!r}{inspect.signature(function)}", _WANT)
        if what == _PAYLOAD and _is_model(hint):
            found = hint
        if parameter.kind is parameter.KEYWORD_ONLY or is_left_out:
            names[parameter.name] = what
        else:
            takes.append(what)
    return tuple(takes), names, found


def _meant(name: str, hint: Any, taken: set[str], is_needed: bool) -> str | None:
    """Which of the offered things a parameter means: by its annotation, its name, or, where it is needed, its place."""
    if hint is Delivery:
        return _EVENT
    if getattr(hint, "is_handler_context", False):
        return _CONTEXT
    if _is_model(hint):
        return _PAYLOAD
    if name in _BY_NAME:
        return _BY_NAME[name]
    if not is_needed:
        return None
    if not taken:
        return _EVENT
    return _CONTEXT if _CONTEXT not in taken and len(taken) == 1 else None


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    while isinstance(function, functools.partial):
        function = function.func
    if not hasattr(function, "__annotations__") and not isinstance(function, type):
        function = type(function).__call__
    try:
        return typing.get_type_hints(function)
    except Exception:  # a name that only a type checker knows
        return {}


def _is_model(hint: Any) -> bool:
    return isinstance(hint, type) and hasattr(hint, "__pydantic_validator__")


def _checker(model: Any) -> Callable[[Any], Any]:
    """Makes payloads instances of a model: a pydantic one, or whatever pydantic has a schema for."""
    # here: it takes long to load, and most handlers want none
    from pydantic import TypeAdapter, ValidationError
    from pydantic.errors import PydanticUserError

    try:
        adapter = TypeAdapter(model)
    except PydanticUserError as error:
        raise InvalidSchedule("model", model, f"want what pydantic can validate ({error})") from error

    def check(payload: Any) -> Any:
        try:
            return adapter.validate_python(payload)
        except ValidationError as error:
            faults = "; ".join(  # without what came: it may be secret
                f"{'.'.join(map(str, ('payload', *fault['loc'])))}: {fault['msg']}"
                for fault in error.errors(include_input=False, include_url=False, include_context=False)[:10]
            )
            raise InvalidPayload(faults) from None

    return check
