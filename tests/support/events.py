"""What lies on the streams, as it comes: tests wait for events, not for time to pass."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType

import redis

from timerq.commands.command import Namespace
from timerq.tail import Published, Tail, Unreadable


class Events:
    """Every event of a namespace's stream, from its beginning; a context manager.

    It follows the stream through restarts of Redis. What cannot be read as an event fails the test.
    """

    def __init__(self, url: str, namespace: Namespace | None, stream: str = "events") -> None:
        assert namespace is not None
        self._tail = Tail(url, namespace, stream, from_start=True)
        self._came = threading.Condition()
        self._all: list[Published] = []
        self._broken: list[Unreadable] = []
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def __enter__(self) -> Events:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tail.close()
        self._thread.join(10)

    def _follow(self) -> None:
        for event in self._tail:
            with self._came:
                if isinstance(event, Published):
                    self._all.append(event)
                else:
                    self._broken.append(event)
                self._came.notify_all()

    @property
    def all(self) -> list[Published]:
        """What has come, in order."""
        with self._came:
            assert not self._broken
            return list(self._all)

    def of(self, key: str) -> list[Published]:
        """Those of one key."""
        return [event for event in self.all if event.key == key]

    def wait(
        self,
        enough: int | Callable[[Sequence[Published]], bool],
        timeout_s: float = 30,
        key: str | None = None,
    ) -> list[Published]:
        """Wait until there are ``enough`` (of ``key``), or until ``enough`` says so; returns them all."""

        def found() -> list[Published]:
            return [event for event in self._all if key is None or event.key == key]

        def ready() -> bool:
            return enough(found()) if callable(enough) else len(found()) >= enough

        with self._came:
            if not self._came.wait_for(lambda: bool(self._broken) or ready(), timeout_s):
                raise TimeoutError(f"only {len(found())} events came within {timeout_s} s")
            assert not self._broken
            return found()

    def check(self) -> None:
        """What holds for any events: each once, none early."""
        events = self.all
        assert [id for id, count in Counter(event.id for event in events).items() if count > 1] == []
        assert [event for event in events if event.fired_ms < event.at_ms and "-t" not in event.id] == []


class Stopwatch:
    """How long something took, in seconds, and how much processor time this process spent in it."""

    def __enter__(self) -> Stopwatch:
        self._wall, self._cpu = time.monotonic(), time.process_time()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds, self.cpu_s = time.monotonic() - self._wall, time.process_time() - self._cpu


def server_ms(client: redis.Redis) -> int:
    """The server's time, epoch ms."""
    seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) // 1000
