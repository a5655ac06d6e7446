"""What `timerq demo` does: the processes it starts, the timers it loads and alters, the kill, and the waiting."""

from __future__ import annotations

import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from timerq.cli import show
from timerq.cli.bar import Bar, bar
from timerq.cli.base import BadInput, Failure, Unavailable
from timerq.cli.ledger import Ledger, Report
from timerq.cli.lines import LONGEST_LINE, upsert_pieces
from timerq.client import TimerQueue
from timerq.embedded import EmbeddedRedis
from timerq.errors import TimerqError
from timerq.tail import Published, Tail

NAMESPACE = "demo"
_START_S, _LEAVE_S, _GRACE_S = 30.0, 15.0, 20.0


@dataclass(frozen=True, slots=True)
class Alteration:
    """What happens to a timer while it waits, ``after_ms`` from the beginning: an upsert, or a cancel (its words)."""

    after_ms: int
    upsert: Mapping[str, Any] | None
    cancel: Mapping[str, Any] | None


class Worker:
    """A dispatcher in a process of its own, which ends with this one."""

    def __init__(self, name: str, url: str, log: IO[bytes]) -> None:
        self.name = name
        self._log = log
        command = [sys.executable, "-m", "timerq", "--redis", url, "--namespace", NAMESPACE]
        self.process = subprocess.Popen(
            [*command, "worker", "--name", name, "--while-stdin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for us; we then stop it in order
        )

    def wait_until_it_fires(self) -> None:
        """Until it says so on stdout."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], _START_S)
        if not ready or not self.process.stdout.readline():
            raise Failure(f"dispatcher {self.name} did not start:\n{self.said()}")

    def said(self) -> str:
        """The end of its log."""
        self._log.seek(0)
        return self._log.read()[-2000:].decode(errors="replace")

    def kill(self) -> None:
        """SIGKILL, at whatever instruction it is."""
        self.process.kill()
        self.process.wait()

    def leave(self) -> str | None:
        """SIGTERM; what was wrong with how it left, if anything."""
        self.process.terminate()
        try:
            code = self.process.wait(timeout=_LEAVE_S)
        except subprocess.TimeoutExpired:
            return f"dispatcher {self.name} did not leave within {_LEAVE_S:.0f} s of SIGTERM"
        return None if code == 0 else f"dispatcher {self.name} left with exit code {code}:\n{self.said()}"

    def close(self) -> None:
        """Whatever happened, it is gone afterwards."""
        if self.process.poll() is None:
            self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def check_fit(value: Mapping[str, Any]) -> None:
    """The demo counts one-shots on one stream; everything else is checked by the queue. Raises ValueError."""
    event = value.get("event")
    recurs = "every" in value or "cron" in value
    if recurs or not isinstance(event, dict) or event.get("stream", "events") != "events":
        raise ValueError("the demo counts one-shots (at or delay) on the stream events only")


def play(server: Path | None, file: Path, alterations: Sequence[Alteration], partitions: int) -> Report:
    """The whole of it. Raises `Failure` where it could not be played to its end."""
    ledger = Ledger()
    with ExitStack() as stack:
        redis = stack.enter_context(EmbeddedRedis(server=server))
        queue = stack.enter_context(TimerQueue.connect(redis.url, namespace=NAMESPACE))
        namespace = queue.init(partitions=partitions)
        workers = []
        for name in ("one", "two"):
            workers.append(Worker(name, redis.url, stack.enter_context(tempfile.TemporaryFile())))
            stack.callback(workers[-1].close)
        for worker in workers:
            worker.wait_until_it_fires()
        show.note(f"{redis.kind.capitalize()} {redis.version}, {partitions} partitions, two dispatchers")
        fired = stack.enter_context(bar("fired"))
        tail = stack.enter_context(Tail(redis.url, namespace, from_start=True, trouble=show.note))
        reader = threading.Thread(target=_read, args=(tail, ledger, fired), daemon=True)
        reader.start()
        problems = _Play(queue, ledger, workers, fired).run(file, alterations)
        tail.close()
        reader.join()
        problems += [problem for worker in workers[1:] if (problem := worker.leave()) is not None]
    report = ledger.report()
    report.problems = problems
    return report


class _Play:
    def __init__(self, queue: TimerQueue, ledger: Ledger, workers: Sequence[Worker], fired: Bar) -> None:
        self._queue = queue
        self._ledger = ledger
        self._workers = workers
        self._fired = fired
        self._half = 0
        self._killed = False

    def run(self, file: Path, alterations: Sequence[Alteration]) -> list[str]:
        """Loads, alters, kills, and waits until all has come; what went wrong besides what the ledger counts."""
        ledger = self._ledger
        began_s = time.monotonic()
        self._load(file)
        for alteration in alterations:
            self._kill_at_half(began_s + alteration.after_ms / 1000)
            self._alter(alteration)
        last_s = time.monotonic() + (ledger.latest_ms() - show.now_ms()) / 1000 + _GRACE_S
        self._kill_at_half(last_s, wait_on=False)
        ledger.wait(lambda: ledger.complete, last_s - time.monotonic())
        problems = [] if self._killed else ["half of the timers never fired, so no dispatcher was killed"]
        stats = self._queue.stats()
        if stats.schedules:
            problems.append(f"{stats.schedules} schedules are still in Redis")
        published = sum(stats.streams.values())
        if not ledger.wait(lambda: ledger.seen >= published, _GRACE_S):
            problems.append(f"the reader saw {ledger.seen} of {published} events")
        return problems

    def _load(self, file: Path) -> None:
        began_s = time.monotonic()
        with open(file, "rb") as source:
            for result in upsert_pieces(self._queue, source, longest=LONGEST_LINE):
                if result.fault is not None:
                    raise Unavailable(f"{file}:{result.number}: {result.fault}")
                try:
                    if result.wrong is not None:
                        raise ValueError(result.wrong)
                    check_fit(result.value)
                except ValueError as error:
                    raise BadInput(f"{file}:{result.number}: {error}") from error
                if result.handle is not None:
                    self._ledger.armed(result.handle, result.value)
        took_ms = (time.monotonic() - began_s) * 1000
        show.note(f"{self._ledger.due:,} timers of {file.name} loaded in {took_ms:.0f} ms")
        self._half = self._ledger.due // 2
        self._fired.show(total=self._ledger.due)

    def _kill_at_half(self, until_s: float, *, wait_on: bool = True) -> None:
        """Waits until then (monotonic), and kills a dispatcher as soon as half of the timers have fired."""
        ledger = self._ledger
        if not self._killed and ledger.wait(lambda: ledger.seen >= self._half, until_s - time.monotonic()):
            ledger.killed_ms = show.now_ms()
            self._workers[0].kill()
            self._killed = True
            show.note(
                f"dispatcher {self._workers[0].name} killed (SIGKILL) when {ledger.seen:,} events were read"
            )
        if wait_on:
            ledger.wait(lambda: False, until_s - time.monotonic())

    def _alter(self, alteration: Alteration) -> None:
        ledger, queue = self._ledger, self._queue
        if alteration.cancel is not None:
            ledger.cancelled(queue.cancel(alteration.cancel["key"], owner=alteration.cancel.get("owner")))
        elif alteration.upsert is not None:
            (answer,) = queue.upsert_many([alteration.upsert])
            if isinstance(answer, TimerqError):
                raise answer
            ledger.armed(answer, dict(alteration.upsert))
        self._fired.show(total=ledger.due)


def _read(tail: Tail, ledger: Ledger, fired: Bar) -> None:
    for event in tail:
        if isinstance(event, Published):
            ledger.saw(event)
            fired.show(done=ledger.seen)
