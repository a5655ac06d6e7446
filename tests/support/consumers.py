"""A consumer at work beside the test, and what its handlers have seen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from timerq.consumer import Consumer
from timerq.model import Delivery


class Running:
    """Runs a consumer in a thread of its own until the block ends; what it raised is raised there."""

    def __init__(self, app: Consumer) -> None:
        self.app = app
        self._reads = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.app.run(self._reads.set)
        except BaseException as error:
            self._error = error
        finally:
            self._reads.set()

    def start(self, *, wait: bool = True) -> Running:
        self._thread.start()
        if wait:
            assert self._reads.wait(30)
        return self

    def stop(self, timeout_s: float = 40) -> None:
        self.app.request_stop()
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), "the consumer has not stopped"
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Running:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Seen:
    """What handlers were called with, in the order of their calls; `wait` for it."""

    def __init__(self) -> None:
        self._came = threading.Condition()
        self._all: list[Any] = []

    def add(self, thing: Any) -> int:
        """Notes it; returns how many there are now."""
        with self._came:
            self._all.append(thing)
            self._came.notify_all()
            return len(self._all)

    @property
    def all(self) -> list[Any]:
        with self._came:
            return list(self._all)

    @property
    def ids(self) -> list[str]:
        """The ids of the events among them."""
        return [thing.id for thing in self.all if isinstance(thing, Delivery)]

    def wait(self, enough: int | Callable[[Sequence[Any]], bool], timeout_s: float = 30) -> list[Any]:
        """Wait until there are ``enough``, or until ``enough`` says so; returns them all."""

        def ready() -> bool:
            return enough(self._all) if callable(enough) else len(self._all) >= enough

        with self._came:
            if not self._came.wait_for(ready, timeout_s):
                raise TimeoutError(f"only {len(self._all)} came within {timeout_s} s: {self._all[-5:]}")
            return list(self._all)
