"""Running the command line: in this process, and as one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from timerq.cli import cli

Run = Callable[..., Result]


def run_cli(*words: str, input: str | bytes | None = None) -> Result:
    """Runs a command in this process; what it raises beyond its exit code is raised here."""
    result = CliRunner().invoke(cli, list(words), input=input, prog_name="timerq")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def sit_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody sits there to be asked."""

    class Terminal:
        @staticmethod
        def isatty() -> bool:
            return True

    class Sys:
        stdin = Terminal

    monkeypatch.setattr("timerq.cli.ask.sys", Sys)


def objects(result: Result) -> list[dict[str, Any]]:
    """What ``--json`` printed."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def upsert(run: Run, key: str, *more: str) -> dict[str, Any]:
    """Makes a schedule, due in an hour unless ``more`` says when; what ``--json`` says of it."""
    timed = any(word in ("--at", "--delay", "--every", "--cron") for word in more)
    (found,) = objects(
        run("upsert", key, "--type", "t", *(() if timed else ("--delay", "1h")), *more, "--json")
    )
    return found


class Program(subprocess.Popen[str]):
    """The command line in a process of its own; a context manager that leaves none behind."""

    def __init__(self, *words: str, url: str = "", **environ: str) -> None:
        where = {"TIMERQ_REDIS_URL": url} if url else {}
        super().__init__(
            [sys.executable, "-m", "timerq", *words],
            env={**os.environ, **where, **environ},
            text=True,
            encoding="latin-1" if "latin" in environ.get("PYTHONIOENCODING", "") else "utf-8",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def line(self) -> str:
        """The next line of its output."""
        assert self.stdout is not None
        return self.stdout.readline()

    def error_until(self, text: str) -> str:
        """The lines of its stderr up to one that holds ``text``."""
        assert self.stderr is not None
        seen = ""
        for line in self.stderr:
            seen += line
            if text in line:
                return seen
        raise AssertionError(f"{text!r} was never said: {seen}")

    def end(self, signal_number: int | None = None, timeout_s: float = 20) -> tuple[int, str, str]:
        """Sends a signal, if any, and waits: exit code, the rest of stdout, the rest of stderr."""
        if signal_number is not None:
            self.send_signal(signal_number)
        out, err = self.communicate(timeout=timeout_s)
        return self.returncode, out, err

    def __exit__(self, *exception: Any) -> None:
        if self.poll() is None:
            self.kill()
        super().__exit__(*exception)
