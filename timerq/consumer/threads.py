"""Threads for handlers that block: as many as are needed at once, kept for the next ones.

They are daemons: a handler that never returns must not keep the process from ending when its time to drain is up. (The
executors of the standard library wait for every thread at the interpreter's exit.)
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

_Job = tuple[Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class Threads:
    """Runs functions in threads, each in an empty context: nothing of the loop's or of the last call leaks in."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._made = 0
        self._busy = 0

    def call(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Starts ``function``; the future is done when it has returned or raised. Called from the loop only."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._busy += 1
        future.add_done_callback(self._free)
        if self._busy > self._made:
            self._made += 1
            threading.Thread(target=self._work, name=f"{self._name}-{self._made}", daemon=True).start()
        self._jobs.put((function, future, loop))
        return future

    def close(self) -> None:
        """Ends the threads, each when it has nothing in hand; waits for none."""
        for _ in range(self._made):
            self._jobs.put(None)
        self._made = 0

    def _free(self, future: asyncio.Future[Any]) -> None:
        self._busy -= 1

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            function, future, loop = job
            result, error = None, None
            try:
                result = contextvars.Context().run(function)
            except BaseException as raised:
                error = raised  # also of a handler that calls sys.exit(): it has failed, the loop goes on
            try:
                loop.call_soon_threadsafe(_finish, future, result, error)
            except RuntimeError:
                return  # the loop has ended: nobody waits for this any more
            del job, function, future, result, error


def _finish(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return  # whoever waited was cancelled
    if error is None:
        future.set_result(result)
    elif isinstance(error, (StopIteration, GeneratorExit, KeyboardInterrupt, SystemExit)):
        future.set_exception(RuntimeError(f"the handler raised {type(error).__name__}: {error}"))
    else:
        future.set_exception(error)
