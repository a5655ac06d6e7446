"""timerq dev with an app: it runs, begins anew when its files change, and ends whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import run_cli
from timerq import Event, TimerQueue
from timerq.cli.develop import Changes, Child, _where, look_at

pytestmark = pytest.mark.one_server
ROOT = Path(__file__).parents[2]

APP = """\
import os
import time
import timerq

app = timerq.Consumer(group="shop")

def say(text):
    os.write(1, f"{text}\\n".encode())

@app.on("greeting")
def greet(event):
    say(f"greeted by MARK {event.payload}")

@app.on("slow")
def slow(event):
    say("slow begins")
    while not os.path.exists("go"):
        time.sleep(0.01)
    say("slow ends")

"""
TICK = """\
@timerq.schedule(every="100ms")
def tick():
    say("tick of MARK")
"""


class Dev:
    """`timerq dev` in a folder of its own; what it and the app have said, wherever they said it."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "timerq", "dev", "--port", "0", *words],
            cwd=folder,
            env=os.environ
            | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._came = threading.Condition()
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.url = self.until(" at unix:", " at redis:").partition(" at ")[2].partition(",")[0]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._came:
                self.lines.append(line.rstrip("\n"))
                self._came.notify_all()

    def until(self, *parts: str, since: int = 0, timeout_s: float = 30) -> str:
        """The first line behind ``since`` with any of the parts, as soon as it is said."""

        def found() -> list[str]:
            return [line for line in self.lines[since:] if any(part in line for part in parts)]

        with self._came:
            assert self._came.wait_for(found, timeout_s), f"no {parts} in {self.lines}"
            return found()[0]

    @property
    def count(self) -> int:
        with self._came:
            return len(self.lines)

    def end(self, number: int = signal.SIGTERM) -> int:
        self._process.send_signal(number)
        code = self._process.wait(30)
        self._reader.join(30)
        return code

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._reader.join(30)
            self._process.stdout.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "one", TICK)
    return tmp_path


def write(folder: Path, mark: str, schedule: str = "") -> None:
    (folder / "shop.py").write_text((APP + schedule).replace("MARK", mark))


@pytest.fixture
def devs() -> Iterator[list[Dev]]:
    begun: list[Dev] = []
    yield begun
    for dev in begun:
        dev.kill()


@pytest.mark.slow
def test_an_app_begins_anew_when_its_files_change(folder: Path, devs: list[Dev]) -> None:
    dev = Dev(folder, "shop:app")
    devs.append(dev)
    dev.until("shop:app handles events of timerq", "with 1 schedule")
    dev.until("tick of one")
    with TimerQueue.connect(dev.url) as queue:
        queue.publish(Event("greeting", 1), key="k")
        dev.until("greeted by one 1")

        queue.publish(Event("slow"), key="k")
        dev.until("slow begins")
        write(folder, "two", TICK)
        dev.until("begins anew")
        (folder / "go").touch()
        dev.until("tick of two")
        lines = dev.lines
        begun = next(i for i, line in enumerate(lines) if "begins anew" in line)
        two = next(i for i, line in enumerate(lines) if "of two" in line)
        assert "slow ends" in lines[begun:two]  # what ran before has stopped by then
        assert not [line for line in lines[two:] if "of one" in line]

        write(folder, "three")  # its schedule is no longer declared
        dev.until("with no schedules")
        assert queue.get("tick") is None
        queue.publish(Event("greeting", 3), key="k")
        dev.until("greeted by three 3")

        since = dev.count
        (folder / "shop.py").write_text("this is no Python")
        dev.until("cannot be imported", since=since)
        dev.until("It has ended (2)", since=since)
        assert queue.stats().dispatchers == []
        write(folder, "four", TICK)
        dev.until("tick of four")
        assert len(queue.stats().dispatchers) == 1
    assert dev.end(signal.SIGINT) == 0
    assert not [line for line in dev.lines if "Traceback" in line]


@pytest.mark.slow
def test_schedules_are_left_out_or_come_from_files(folder: Path, devs: list[Dev]) -> None:
    dev = Dev(folder, "shop:app", "--no-schedules")
    devs.append(dev)
    dev.until("with no schedules")
    with TimerQueue.connect(dev.url) as queue:
        assert list(queue.list()) == []
    assert dev.end() == 0
    assert not [line for line in dev.lines if "tick of" in line]

    (folder / "more.yaml").write_text("greeting: {every: 100ms, payload: hello}\n")
    dev = Dev(folder, "shop:app", "--schedules", "more.yaml")
    devs.append(dev)
    dev.until("with 2 schedules")
    dev.until("greeted by one hello")
    (folder / "more.yaml").write_text("greeting: {every: 100ms, payload: changed}\n")
    dev.until("greeted by one changed")
    assert dev.end() == 0

    dev = Dev(folder, "shop:app", "--no-schedules")  # nor do those of the last time run
    devs.append(dev)
    dev.until("with no schedules")
    with TimerQueue.connect(dev.url) as queue:
        assert list(queue.list()) == []


def test_the_app_ends_when_dev_is_killed(folder: Path, devs: list[Dev]) -> None:
    dev = Dev(folder, "shop:app")
    devs.append(dev)
    dev.until("tick of one")
    dev.kill()  # the app holds the other end of its output: the reader ends when both have
    assert not dev._reader.is_alive()


@pytest.mark.parametrize("words", [["--no-schedules"], ["--schedules", "x.yaml"]])
def test_words_for_an_app_want_an_app(words: list[str]) -> None:
    result = run_cli("dev", *words)
    assert (result.exit_code, "name it" in result.output) == (2, True)
    result = run_cli("dev", "shop:app", "--schedules", "x.yaml", "--no-schedules")
    assert (result.exit_code, "exclude each other" in result.output) == (2, True)


def test_an_app_of_another_queue_is_left_alone(folder: Path, devs: list[Dev]) -> None:
    text = (folder / "shop.py").read_text()
    (folder / "shop.py").write_text(text.replace("Consumer(", 'Consumer("redis://127.0.0.1:1/0", '))
    dev = Dev(folder, "shop:app")
    devs.append(dev)
    assert "leave the queue out of the Consumer" in dev.until("want this Redis")
    dev.until("It has ended (2)")
    assert dev.end() == 0


def test_where_a_url_points() -> None:
    assert (
        _where("redis://localhost") == _where("redis://:secret@127.0.0.1:6379/0") == _where("redis://[::1]/")
    )
    assert _where("unix:///a/b.sock") == _where("unix:///a/b.sock?db=0")
    places = ["redis://127.0.0.1:1/0", "redis://127.0.0.1:1/1", "redis://other:1/0", "unix:///a", "unix:///b"]
    assert len({_where(place) for place in places}) == len(places)


def test_the_app_does_not_trust_what_was_compiled_a_moment_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[dict[str, str]] = []

    class Popen:
        def __init__(self, command: list[str], env: dict[str, str], **words: object) -> None:
            begun.append(env)

        def terminate(self) -> None: ...

        def wait(self) -> None: ...

    monkeypatch.setattr("timerq.cli.develop.subprocess.Popen", Popen)
    child = Child("shop:app", [], {"TIMERQ_NAMESPACE": "n"})
    child.start()
    child.stop()
    (environment,) = begun
    assert (environment["PYTHONDONTWRITEBYTECODE"], environment["TIMERQ_NAMESPACE"]) == ("1", "n")


def test_which_files_are_looked_at(tmp_path: Path) -> None:
    for name in (
        "a.py",
        "b/c.yaml",
        "b/d.txt",
        ".hidden/e.py",
        "venv/pyvenv.cfg",
        "venv/f.py",
        "b/__pycache__/g.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    single = tmp_path / "b" / "d.txt"
    found = {os.path.relpath(path, tmp_path) for path in look_at([tmp_path, single])}
    assert found == {"a.py", "b/c.yaml", "b/d.txt"}


def test_changes_are_told_once_they_have_come_to_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timerq.cli.develop._BUSY_SHARE", 0)
    path = tmp_path / "a.py"
    path.write_text("")
    changes = Changes([tmp_path])
    assert not changes.have_come()
    path.write_text("1")
    assert not changes.have_come()
    path.write_text("12")
    assert not changes.have_come()
    assert changes.have_come()
    assert not changes.have_come()
    path.unlink()
    assert [changes.have_come() for _ in range(3)] == [False, True, False]
