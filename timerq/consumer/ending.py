"""An event loop that ends when it is to: neither a task nor a thread that ignores its end keeps it."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

logger = logging.getLogger("timerq.consumer")

T = TypeVar("T")

PATIENCE_S = 2.0
"""How long tasks that were cancelled at the end may take."""


def run_to_end(main: Coroutine[Any, Any, T]) -> T:
    """Does what `asyncio.run` does, but waits for no thread, nor for ever for a task that was cancelled and goes on."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        main.close()
        raise RuntimeError("an event loop runs already: want await serve(), not run()")
    loop = asyncio.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        loop.set_default_executor(DaemonExecutor())
        return loop.run_until_complete(main)
    finally:
        try:
            loop.run_until_complete(_end(loop))
        finally:
            asyncio.set_event_loop(None)
            loop.close()


async def _end(loop: asyncio.AbstractEventLoop) -> None:
    """Cancels what is left, and waits for it as long as it may take."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    left: set[asyncio.Task[Any]] = set()
    if tasks:
        ended, left = await asyncio.wait(tasks, timeout=PATIENCE_S)
        for task in ended:
            if not task.cancelled() and (error := task.exception()) is not None:
                about = "a task has failed at the end"
                loop.call_exception_handler({"message": about, "exception": error, "task": task})
    if left:
        logger.warning("%d tasks go on though they were cancelled: nobody waits for them", len(left))
    await asyncio.wait({asyncio.ensure_future(loop.shutdown_asyncgens())}, timeout=PATIENCE_S)


class DaemonExecutor(ThreadPoolExecutor):
    """An executor whose threads keep no process alive, and that works when the main thread has come to its end.

    Those of the standard library are waited for at exit, and refuse work from then on, also name look-ups.
    """

    def __init__(self) -> None:
        super().__init__()
        self._most = min(32, (os.cpu_count() or 1) + 4)  # as there
        self._guard = threading.Lock()
        self._jobs: deque[Callable[[], None]] = deque()
        self._made = 0

    def submit(self, function: Callable[..., Any], /, *args: Any, **words: Any) -> Future[Any]:
        """Runs it in one of its threads, of which there are as many as are needed."""
        future: Future[Any] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = function(*args, **words)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        with self._guard:
            self._jobs.append(job)
            is_another = self._made < self._most
            self._made += is_another
        if is_another:
            threading.Thread(target=self._work, name="timerq-executor", daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            with self._guard:
                if not self._jobs:
                    self._made -= 1
                    return
                job = self._jobs.popleft()
            job()
            del job
