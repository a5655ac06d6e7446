"""A pytest run of a small project of its own, as users of timerq have one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

SAMPLE = """
    from timerq import Event
    from timerq.testing import TestQueue, assert_not_scheduled, assert_scheduled

    seen = set()

    def test_one(timer_queue, manual_clock):
        assert timer_queue.clock is manual_clock
        timer_queue.queue.upsert("a", Event("t"), delay="30m")
        assert_scheduled(timer_queue, "a", within="30m")
        assert [event.key for event in timer_queue.advance("30m")] == ["a"]
        assert str(manual_clock.now) == "2026-01-01 00:30:00+00:00"
        seen.add(timer_queue.namespace.name)

    def test_two(manual_clock, timer_queue):
        assert_not_scheduled(timer_queue, "a")
        assert timer_queue.events() == []
        assert manual_clock.now.minute == 0
        seen.add(timer_queue.namespace.name)
        assert len(seen) == 2
        assert (timer_queue.url is None) == {fake}

    def test_a_clock_alone(manual_clock):
        assert manual_clock.advance("1s") == manual_clock.now_ms
"""


def run_pytest(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV_CORE"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def outcome(done: subprocess.CompletedProcess[str]) -> str:
    """The last line, without its time."""
    return re.sub(r" in [0-9.]+s.*", "", (done.stdout.strip() or done.stderr).splitlines()[-1])


def write(folder: Path, text: str, name: str = "test_sample.py") -> None:
    (folder / name).write_text(textwrap.dedent(text), encoding="utf-8")
