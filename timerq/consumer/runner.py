"""Runs one handler for one event, and says what is to become of the event."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import random
from collections.abc import Awaitable, Callable
from functools import partial
from types import CoroutineType
from typing import Any

from timerq.consumer.begun import Begun
from timerq.consumer.context import AsyncContext, Context
from timerq.consumer.handlers import Handler
from timerq.consumer.threads import Threads
from timerq.consumer.verdict import DONE, Verdict, failed, succeeded
from timerq.errors import Incomplete
from timerq.model import Delivery

MakeContext = Callable[[Delivery], AsyncContext]


class Runner:
    """Runs handlers: async ones where it is called, sync ones in threads."""

    def __init__(self, threads: Threads, make_context: MakeContext) -> None:
        self._threads = threads
        self._make_context = make_context

    def begin(self, handler: Handler, event: Delivery) -> tuple[Verdict, BaseException | None] | Begun:
        """Runs a plain handler, in an empty context, as far as it goes without waiting: to its end, most of the time.

        What becomes of the event and what it failed with, or what is left to be `run` in the same task.
        """
        context = contextvars.Context()
        try:
            coroutine = context.run(handler.call, event, None)
        except KeyboardInterrupt:
            raise
        except BaseException as raised:
            return failed(handler, event.attempt, raised, random.random()), raised
        if type(coroutine) is not CoroutineType:
            coroutine = _awaited(coroutine)
        try:
            return Begun(coroutine, context, context.run(coroutine.send, None))
        except StopIteration as ended:
            return (DONE, None) if ended.value is None else _judged(handler, event, ended.value)
        except KeyboardInterrupt:
            raise
        except BaseException as raised:
            return failed(handler, event.attempt, raised, random.random()), raised

    async def run(
        self, handler: Handler, event: Delivery, begun: Begun | None = None
    ) -> tuple[Verdict, BaseException | None, asyncio.Future[Any] | None]:
        """What becomes of the event, what it failed with, and the thread's future where it outlives its time.

        To be called in a task of its own, with an empty context; with what has ``begun`` in it, where something has.
        Raises `asyncio.CancelledError` where that task is cancelled, and what ends the whole process.
        """
        me = asyncio.current_task()
        try:
            if begun is not None:
                result = await begun
            elif handler.is_plain:
                result = await handler.call(event, None)
            else:
                result = await self._result(handler, handler.prepare(event))
            return *_judged(handler, event, result), None
        except _TimedOut as late:
            error: BaseException = TimeoutError(str(late))
            return failed(handler, event.attempt, error, random.random()), error, late.thread
        except asyncio.CancelledError as cancelled:
            if _is_cancelling():
                raise
            error = cancelled  # something that the handler awaited was cancelled: that is its failure
        except KeyboardInterrupt:
            raise
        except GeneratorExit as raised:
            if not _goes_on(me):
                raise  # nobody waits for it any more
            error = raised  # the handler's own
        except BaseException as raised:
            error = raised
        return failed(handler, event.attempt, error, random.random()), error, None

    async def _result(self, handler: Handler, event: Delivery) -> Any:
        context: Any = None
        if handler.takes_context:
            context = self._make_context(event)
        if not handler.is_async:
            if context is not None:
                context = Context(context, asyncio.get_running_loop())
            return await self._in_thread(handler, partial(handler.call, event, context))
        if handler.timeout_s is None:
            return await handler.call(event, context)
        limit = asyncio.timeout(handler.timeout_s)
        try:
            async with limit:
                return await handler.call(event, context)
        except TimeoutError:
            if limit.expired():
                raise _TimedOut(handler.timeout_s) from None
            raise

    async def _in_thread(self, handler: Handler, call: Callable[[], Any]) -> Any:
        future = self._threads.call(call)
        if handler.timeout_s is not None:
            await asyncio.wait({future}, timeout=handler.timeout_s)
            if not future.done():
                raise _TimedOut(handler.timeout_s, future)
        result = await future
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise TypeError(f"{handler.name} returned something to be awaited: want async def")
        return result


class _TimedOut(Exception):
    """A handler took longer than it may. A thread cannot be ended: it goes on until it ends by itself."""

    def __init__(self, timeout_s: float, thread: asyncio.Future[Any] | None = None) -> None:
        super().__init__(f"the handler took longer than its timeout of {timeout_s:g} s")
        self.thread = thread


def _judged(handler: Handler, event: Delivery, result: Any) -> tuple[Verdict, BaseException | None]:
    """What becomes of an event whose handler has returned."""
    if isinstance(result, Incomplete):
        error = result.with_traceback(None)
        return failed(handler, event.attempt, error, random.random()), error
    return succeeded(result), None


async def _awaited(thing: Awaitable[Any]) -> Any:
    return await thing


def _goes_on(task: asyncio.Task[Any] | None) -> bool:
    """Whether a task is running just now: the coroutine of one that was given up is closed from elsewhere."""
    try:
        return asyncio.current_task() is task
    except RuntimeError:  # the event loop has ended
        return False


def _is_cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
