"""A handler's coroutine that has begun and waits for something: what is left of it."""

from __future__ import annotations

import contextvars
from collections.abc import Coroutine, Generator
from typing import Any


class Begun:
    """To be awaited, once, in the task in which the coroutine has begun. It goes on in its own context."""

    __slots__ = ("_context", "_coroutine", "_waits")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], context: contextvars.Context, waits: Any) -> None:
        self._coroutine = coroutine
        self._context = context
        self._waits = waits

    def __await__(self) -> Generator[Any, Any, Any]:
        run, coroutine, waits = self._context.run, self._coroutine, self._waits
        try:
            while True:
                try:
                    value = yield waits
                except GeneratorExit:
                    run(coroutine.close)
                    raise
                except BaseException as error:
                    waits = run(coroutine.throw, error)
                else:
                    waits = run(coroutine.send, value)
        except StopIteration as ended:
            return ended.value
