"""Functions that are called later: what is stored of a call, and how a handler makes it again. Pure."""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable, Sequence
from functools import update_wrapper
from hashlib import blake2b
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from timerq import codec
from timerq.errors import InvalidPayload, InvalidSchedule
from timerq.model import Event, check_text

P = ParamSpec("P")
R = TypeVar("R")


class Called(Protocol):
    """What `Task.run` needs of an event."""

    @property
    def payload(self) -> Any:
        """The list of arguments."""
        ...


class Task(Generic[P, R]):
    """A function that a `Consumer` calls for events, made by `Consumer.task`. Calling it calls the function itself."""

    __wrapped__: Callable[P, R]

    def __init__(self, function: Callable[P, R], *, name: str | None = None, stream: str = "events") -> None:
        """Raises `InvalidSchedule` for what is no function, cannot be called by place alone, or has no name."""
        if not callable(function) or isinstance(function, (type, Task)):
            raise InvalidSchedule("function", function, "want @app.task on a function")
        given = getattr(function, "__name__", None) if name is None else name
        if given is None:
            raise InvalidSchedule("name", None, "want name= for a function that has none")
        check_text("name", given)
        self._signature = inspect.signature(function)
        for parameter in self._signature.parameters.values():
            if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
                want = "want a function that can be called without naming its arguments"
                raise InvalidSchedule("function", f"{given}{self._signature}", want)
        update_wrapper(self, function)
        self._function = function
        self.name: str = given
        self._stream = stream

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the function."""
        return self._function(*args, **kwargs)

    def event(self, *args: Any) -> Event:
        """The event whose handler calls the function with ``args``; for any verb that takes an event.

        Raises `InvalidSchedule` where the function cannot be called with them.
        """
        try:
            self._signature.bind(*args)
        except TypeError as error:
            raise InvalidSchedule(
                "args", args, f"want those of {self.name}{self._signature} ({error})"
            ) from None
        return Event(self.name, list(args), stream=self._stream)

    def handler(self) -> Callable[..., Any]:
        """The handler of its events: async where the function is."""
        run: Callable[..., Any]
        if inspect.iscoroutinefunction(inspect.unwrap(self._function)):

            async def run(event):  # type: ignore[no-untyped-def]  # handlers' hints would have to name a Delivery
                return await self._call(event)
        else:

            def run(event):  # type: ignore[no-untyped-def]
                return self._call(event)

        run.__qualname__ = self.name
        return run

    def _call(self, event: Called) -> Any:
        arguments = event.payload
        if not isinstance(arguments, list):
            raise InvalidPayload("payload: want the list of arguments")
        try:
            self._signature.bind(*arguments)
        except TypeError as error:
            raise InvalidPayload(
                f"payload: want the arguments of {self.name}{self._signature} ({error})"
            ) from None
        return self._function(*arguments)  # type: ignore[call-arg]

    def __repr__(self) -> str:
        return f"<task {self.name!r} of {self._function!r}>"


def yields(function: Any) -> bool:
    """Whether it is a generator, asynchronous or not: calling it would run nothing of it."""
    inner = inspect.unwrap(function)
    return any(
        inspect.isgeneratorfunction(what) or inspect.isasyncgenfunction(what)
        for what in (inner, getattr(type(inner), "__call__", None))  # noqa: B004  # its code, not whether there is any
    )


def call_later(function: object, args: Sequence[Any], key: str | None) -> tuple[str, Event]:
    """The key and the event of one call. Each has a key of its own unless one is given."""
    event = _event(function, args)
    return (f"{event.type}:{secrets.token_hex(8)}" if key is None else key), event


def call_every(function: object, args: Sequence[Any], key: str | None) -> tuple[str, Event]:
    """The key and the event of a call that repeats. The same function and arguments have the same key."""
    event = _event(function, args)
    if key is None:
        key = event.type
        if args:
            _, data = codec.encode(event.payload, event.codec)
            key = f"{key}:{blake2b(data, digest_size=8).hexdigest()}"
    return key, event


def _event(function: object, args: Sequence[Any]) -> Event:
    if not isinstance(function, Task):
        raise InvalidSchedule(
            "function", function, "want a function under @app.task, where app is a Consumer"
        )
    return function.event(*args)
