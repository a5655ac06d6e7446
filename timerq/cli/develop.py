"""dev with an app: a process that runs it, and another one whenever its files change."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from timerq.cli import show
from timerq.cli.base import QueueCommand, Target, import_from_here, pass_target
from timerq.errors import InvalidSchedule
from timerq.topology import redact

LOOK_EVERY_S = 0.5
_SUFFIXES = (".py", ".yaml", ".yml", ".toml")
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}
_HERE = {"localhost": "127.0.0.1", "::1": "127.0.0.1"}
_BUSY_SHARE = 10
"""Looking at the files takes a tenth of the time at the most, however many there are."""

Files = Mapping[str, tuple[int, int]]


def look_at(places: Iterable[Path]) -> Files:
    """The time of change (ns) and the size of every source file in some folders, and of single files."""
    found: dict[str, tuple[int, int]] = {}
    for place in places:
        if place.is_file():
            _note(found, str(place))
        for folder, folders, files in os.walk(place):
            folders[:] = [
                name
                for name in folders
                if name[0] != "." and name not in _SKIPPED and not _is_environment(folder, name)
            ]
            for name in files:
                if name.endswith(_SUFFIXES):
                    _note(found, os.path.join(folder, name))
    return found


def _is_environment(folder: str, name: str) -> bool:
    return os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))


def _note(found: dict[str, tuple[int, int]], path: str) -> None:
    try:
        status = os.stat(path)
    except OSError:
        return  # it has gone meanwhile
    found[path] = status.st_mtime_ns, status.st_size


class Changes:
    """Tells when files have changed and come to rest: an editor or a checkout writes many, one after the other."""

    def __init__(self, places: Iterable[Path]) -> None:
        self._places = list(places)
        self._known = self._last = look_at(self._places)
        self._again_s = 0.0

    def have_come(self) -> bool:
        """Whether something is other than it was when this said so last, and the same as at the last look."""
        begun_s = time.monotonic()
        if begun_s < self._again_s:
            return False
        now = look_at(self._places)
        self._again_s = time.monotonic() + (time.monotonic() - begun_s) * _BUSY_SHARE
        rests, self._last = now == self._last, now
        if not rests or now == self._known:
            return False
        self._known = now
        return True


class Child:
    """The process that runs the app: `start` begins another one, `stop` lets it end in its own order."""

    def __init__(self, app: str, words: list[str], environment: Mapping[str, str]) -> None:
        self._app = app
        self._words = words
        # what is compiled goes by whole seconds and sizes, so a second change within one could be overlooked
        self._environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment}
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline = -1

    def start(self) -> None:
        """Begins it. It ends when this process does, however that ends."""
        theirs, self._lifeline = os.pipe()
        command = [
            sys.executable,
            "-m",
            "timerq",
            "dev-app",
            self._app,
            "--lifeline",
            str(theirs),
            *self._words,
        ]
        try:
            self._process = subprocess.Popen(command, env=self._environment, pass_fds=(theirs,))
        finally:
            os.close(theirs)

    def stop(self) -> None:
        """Asks it to stop, and waits: what it has in hand may end as long as the app's drain says."""
        if self._process is None:
            return
        os.close(self._lifeline)
        self._process.terminate()
        self._process.wait()
        self._process = None

    def has_ended(self) -> int | None:
        """Its exit code, once, where it has ended by itself."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        os.close(self._lifeline)
        self._process = None
        return code


class Reloading:
    """The child for the files of a folder, asked again and again."""

    def __init__(self, child: Child, places: Iterable[Path]) -> None:
        self._child = child
        self._changes = Changes(places)

    def __enter__(self) -> Reloading:
        self._child.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._child.stop()

    def look(self) -> None:
        """Begins anew where something has changed; the old one has stopped by then."""
        code = self._child.has_ended()
        if code is not None:
            show.say(f"It has ended ({code}); it begins anew when a file changes.")
            sys.stdout.flush()
        if self._changes.have_come():
            show.say("Files have changed: it begins anew.")
            sys.stdout.flush()
            self._child.stop()
            self._child.start()


@click.command(cls=QueueCommand, hidden=True)
@click.argument("app", metavar="MODULE:APP")
@click.option("--lifeline", type=int, required=True, help="A descriptor: its end asks to stop.")
@click.option("--schedules", multiple=True)
@click.option("--no-schedules", is_flag=True)
@pass_target
def dev_app(
    target: Target, /, app: str, lifeline: int, schedules: tuple[str, ...], no_schedules: bool
) -> None:
    """The process behind `timerq dev MODULE:APP`."""
    from timerq.cli.run import log_to_stderr
    from timerq.consumer.ending import run_to_end
    from timerq.running import Running

    import_from_here()
    log_to_stderr()
    running = _running(target, app, schedules, no_schedules)

    def asked() -> None:
        asyncio.get_running_loop().remove_reader(lifeline)
        running.request_stop()

    async def main(running: Running) -> None:
        async with running:
            asyncio.get_running_loop().add_reader(lifeline, asked)
            _greet(app, running)

    run_to_end(main(running))


def _running(target: Target, app: str, schedules: tuple[str, ...], no_schedules: bool) -> Any:
    from timerq.consumer.load import load_consumer
    from timerq.running import run

    consumer = load_consumer(app)
    settings = target.resolve()
    if consumer.is_placed and _where(consumer.place.url) != _where(settings.redis_url):
        # its schedules would be declared, taken over and cancelled in a queue that others may live by
        raise InvalidSchedule(
            "queue",
            redact(consumer.place.url),
            f"want this Redis, {redact(settings.redis_url)}: leave the queue out of the Consumer(…)",
        )
    consumer.configure(url=settings.redis_url, namespace=settings.namespace, name="dev")
    wanted = [] if no_schedules else [*functions_of(app, consumer), *schedules]
    label = f"dev.{consumer.group}"
    return run(
        None,
        consumer,
        wanted,
        keep_alive=True,
        label=label,
        prune=True,
        take_over=True,
        by="timerq dev",
        name="dev",
    )


def _where(url: str) -> tuple[str, str, int, str]:
    """Where a URL points, however it says so."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "unix":
        return "unix", "", 0, parts.path
    return parts.scheme, _HERE.get(host, host), parts.port or 6379, parts.path.strip("/") or "0"


def functions_of(target: str, app: Any) -> list[Any]:
    """The functions under ``@timerq.schedule`` that an app handles, and those of the module that ``target`` names."""
    from timerq.declare import ScheduledFunction

    handled = [handler.function for handler in app.handlers.values()]
    beside = vars(sys.modules[target.partition(":")[0]]).values()
    return list(dict.fromkeys(thing for thing in (*handled, *beside) if isinstance(thing, ScheduledFunction)))


def _greet(app: str, running: Any) -> None:
    consumer, applied = running.app, running.applied
    count = len(applied.items)
    started = f"{count} schedule{'s' * (count != 1)}" if count else "no schedules"
    place = consumer.place
    show.say(
        f"{app} handles {consumer.stream} of {place.namespace} at {redact(place.url)} for group {consumer.group}, "
        f"with {started}"
    )
    sys.stdout.flush()
