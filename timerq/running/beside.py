"""The same for programs without an event loop: all of it in threads beside them."""

from __future__ import annotations

import asyncio
import atexit
import signal
import threading
from types import TracebackType
from typing import Any, Self

from timerq.async_client import AsyncTimerQueue
from timerq.client import TimerQueue
from timerq.consumer import Consumer
from timerq.consumer.ending import run_to_end
from timerq.declare import ScheduledFunction
from timerq.errors import TimerqError
from timerq.running.block import Running, run
from timerq.running.schedules import Schedules
from timerq.signals import SIGNALS, Heeded
from timerq.timing import Instant

EXIT_GRACE_S = 1.0
"""How long the end of a process waits for handlers, where nobody has called `Started.stop`."""


def start(
    queue: TimerQueue | AsyncTimerQueue | str | None,
    app: Consumer,
    schedules: Schedules | None = None,
    *,
    keep_alive: bool = False,
    **words: Any,
) -> Started:
    """Starts what `run` starts, with its ``words``, in threads beside the caller, and returns when it is at work.

        running = timerq.start(queue, app, [morning])
        ...
        running.stop()

    It is a context manager too, which stops at the end of its block. It never keeps a process alive: a script that
    comes to its end ends, and what was being handled has a second for it, else it comes again. With ``keep_alive`` the
    process goes on until SIGTERM, SIGINT or `Started.stop`, and a block waits for that at its end; the signals are
    heeded where nobody else does, and `start` was called in the main thread.

    Raises what `run` raises, and what entering its block raises.
    """
    started = Started(run(queue, app, schedules, **words), keep_alive=keep_alive)
    started.begin()
    return started


class Started:
    """What `start` has started. Thread-safe."""

    def __init__(self, running: Running, *, keep_alive: bool = False) -> None:
        self._running = running
        self._keep_alive = keep_alive
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._before: dict[int, Any] = {}
        self._thread = threading.Thread(target=self._live, name="timerq-run", daemon=not keep_alive)

    def begin(self) -> None:
        """Starts it; returns when it is at work. `start` has done so."""
        if self._keep_alive:
            self._hear_signals()
        else:
            atexit.register(self._leave)
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            self.stop()

    def wait(self) -> None:
        """Returns when it has stopped, whoever asked for it. Raises what ended it, where nobody did."""
        self._thread.join()
        atexit.unregister(self._leave)
        self._restore_signals()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def stop(self) -> None:
        """Stops all, in order, and returns when what was being handled has ended: see `Running.stop`. Twice is once.

        Raises what has ended it before, if anything has. Not for handlers: there `request_stop` is right.
        """
        self.request_stop()
        self.wait()

    def request_stop(self) -> None:
        """Begins to stop, and does not wait for it; also from handlers of events and of signals."""
        self._running.request_stop()

    def fire_now(
        self, schedule: ScheduledFunction[..., Any] | str, *, fired_at: Instant | None = None
    ) -> bool:
        """Runs one schedule in this process, now, and waits for it: see `timerq.fire_now`."""
        loop = self._loop
        if loop is None or not self._thread.is_alive():
            raise TimerqError("this run has stopped")
        if threading.current_thread() is self._thread:
            raise TimerqError(
                "an async handler would wait for itself: want await timerq.fire_now(app, …) there"
            )
        return asyncio.run_coroutine_threadsafe(
            self._running.fire_now(schedule, fired_at=fired_at), loop
        ).result()

    @property
    def app(self) -> Consumer:
        """Whose handlers run."""
        return self._running.app

    @property
    def failing(self) -> dict[str, str]:
        """What does not work just now, and why; empty when all is well."""
        return self._running.failing

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._keep_alive:
            self.wait()
        self.stop()

    # ------------------------------------------------------------------------------------------------ how

    def _live(self) -> None:
        try:
            run_to_end(self._main())
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with self._running as running:
            self._ready.set()
            await running.wait()

    def _leave(self) -> None:
        """The process ends: whoever can end within a moment may, and what has not begun is handed back."""
        self._running.request_stop()
        self._thread.join(EXIT_GRACE_S)

    def _hear_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return

        heeded = Heeded()

        def asked(number: int, frame: object) -> None:
            heard = heeded.heard(number)
            if heard == "first":
                self.request_stop()
            elif heard == "again":
                signal.signal(number, self._before.pop(number))
                signal.raise_signal(number)

        for number in SIGNALS:
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                self._before[number] = signal.signal(number, asked)

    def _restore_signals(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in list(self._before):
                signal.signal(number, self._before.pop(number))
