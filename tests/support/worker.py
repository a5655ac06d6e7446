"""A dispatcher as a process of its own, which a test may stop, kill, freeze and listen to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parents[2]


class Worker:
    """`python -m workers.dispatch`; a context manager. `start` may be called again after it has ended."""

    says = "fires namespace"
    """What it logs when it is at work."""

    def __init__(
        self, url: str, namespace: str = "timerq", program: str | None = None, **environment: str
    ) -> None:
        """`program` is Python code to run instead, for a worker that a test has tampered with."""
        self._command = [
            sys.executable,
            *(["-m", "workers.dispatch"] if program is None else ["-c", program]),
        ]
        self._environment = os.environ | {
            "TIMERQ_REDIS_URL": url,
            "TIMERQ_NAMESPACE": namespace,
            "PYTHONUNBUFFERED": "1",
            **environment,
        }
        self._process: subprocess.Popen[str] | None = None
        self._said = threading.Condition()
        self._lines: list[str] = []
        self._begun = 0
        self._reader: threading.Thread | None = None

    def start(self, *, wait: bool = True) -> Worker:
        """Start it, and wait until it fires. Does nothing when it runs already."""
        if self.alive:
            return self
        self._begun = len(self.lines)
        self._process = subprocess.Popen(
            self._command, cwd=ROOT, env=self._environment, stderr=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()
        if wait:
            self.wait_until_it_fires()
        return self

    def wait_until_it_fires(self) -> None:
        """Wait until it says so: before that it heeds no signal."""
        self.wait_for_line(self.says, since=self._begun)

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                with self._said:
                    self._lines.append(line.rstrip("\n"))
                    self._said.notify_all()

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def stands_still(self) -> bool:
        """Whether it is stopped, as by SIGSTOP (Linux only)."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    @property
    def lines(self) -> list[str]:
        """What it has logged."""
        with self._said:
            return list(self._lines)

    def wait_for_line(self, part: str, *, since: int = 0, times: int = 1, timeout_s: float = 30) -> None:
        """Wait until it has logged ``part`` ``times`` times, behind the first ``since`` lines."""
        self._wait(lambda lines: sum(part in line for line in lines[since:]) >= times, part, timeout_s)

    def _wait(self, ready: Callable[[list[str]], bool], what: str, timeout_s: float) -> None:
        with self._said:
            if not self._said.wait_for(lambda: ready(self._lines), timeout_s):
                raise TimeoutError(f"no {what!r} within {timeout_s} s in {self._lines}")

    def freeze(self) -> None:
        """SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self.process.kill()
        self._end()

    def terminate(self, timeout_s: float = 30) -> int:
        """SIGTERM; returns its exit code."""
        self.process.terminate()
        return self._end(timeout_s)

    def _end(self, timeout_s: float = 30) -> int:
        code = self.process.wait(timeout_s)
        if self._reader is not None:
            self._reader.join(10)
        return code

    @property
    def cpu_s(self) -> float:
        """The processor time it has spent (Linux only)."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> Worker:
        try:
            return self.start()
        except BaseException:
            if self.alive:
                self.kill()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.alive:
            self.kill()
