"""init, worker, dev: a namespace, and the processes that serve it."""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from timerq.cli import show
from timerq.cli.base import QueueCommand, Target, Unavailable, json_option, pass_target
from timerq.cli.develop import LOOK_EVERY_S, Child, Reloading
from timerq.cli.values import duration, number
from timerq.client import TimerQueue
from timerq.embedded import EmbeddedRedis
from timerq.signals import SIGNALS, Heeded
from timerq.topology import redact

DEV_PORT = 6379
_LOOK_AT_REDIS_S = 1.0


@click.command(cls=QueueCommand)
@click.option("--partitions", type=number, help="How many parts it has, chosen for good [1].")
@click.option(
    "--clock", type=click.Choice(["redis", "manual"]), help='"manual" is for tests; chosen for good [redis].'
)
@click.option("--retention", type=duration, help="How long events stay on their streams at least [24h].")
@click.option("--max-age", type=duration, help="How long unread ones stay at the most; 0s for no bound.")
@click.option("--max-length", type=number, help="How many entries a stream has at the most; 0 for no bound.")
@json_option
@pass_target
def init(
    target: Target,
    /,
    partitions: int | None,
    clock: str | None,
    retention: str | None,
    max_age: str | None,
    max_length: int | None,
    as_json: bool,
) -> None:
    """Make the namespace, or change the settings that are given.

    Nobody needs to: the first command makes one with a single partition. More partitions spread over a Cluster and
    over processors.

    \b
    Examples:
      timerq init --namespace prod --partitions 8
      timerq init --namespace prod --retention 72h
    """
    with target.open() as queue:
        namespace = queue.init(
            partitions=partitions, clock=clock, retention=retention, max_age=max_age, max_length=max_length
        )
    settings = {name: int(text) if text else None for name, text in namespace.settings.items()}
    if as_json:
        show.say_json(
            {
                "namespace": namespace.name,
                "partitions": namespace.partitions,
                "clock": "manual" if namespace.manual_clock else "redis",
                **settings,
            }
        )
        return
    show.say(
        f"namespace {namespace.name}: {namespace.partitions} partition{'s' * (namespace.partitions > 1)}"
    )
    for name, value in settings.items():
        if value is not None:
            plain = name.removesuffix("_ms").replace("_", " ")
            show.say(f"  {plain:<12}{show.exact(value) if name.endswith('_ms') else f'{value:,}'}")


class Stop:
    """Waits for SIGTERM or SIGINT, or for another reason to stop."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self._on_signal: list[Callable[[], None]] = []
        self._heeded = Heeded()
        self.asked = False

    def on_signal(self, call: Callable[[], None]) -> None:
        """``call`` is made in the handler, so it must be safe there."""
        self._on_signal.append(call)

    def wait(self, timeout_s: float | None = None, also: int | None = None) -> bool:
        """True once asked to stop, or when the descriptor ``also`` has something to read (its end, usually)."""
        ready, _, _ = select.select([self._read, *([] if also is None else [also])], [], [], timeout_s)
        return bool(ready)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        heard = self._heeded.heard(number)
        if heard == "again":
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        elif heard == "first":
            self.asked = True
            os.write(self._write, b"!")
            for call in self._on_signal:
                call()


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """SIGTERM and SIGINT ask to stop, and no longer raise."""
    stop = Stop()
    before = {number: signal.signal(number, stop._handle) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(stop._read)
        os.close(stop._write)


def log_to_stderr() -> None:
    """What the dispatcher has to say, for people and journals."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr, force=True
    )


@click.command(cls=QueueCommand)
@click.option("--name", metavar="NAME", help="What it is called in `timerq stats` [host and process id].")
@click.option(
    "--batch", type=number, default=200, show_default=True, help="How many one step fires at the most."
)
@click.option("--while-stdin", is_flag=True, hidden=True, help="Also stop when stdin ends.")
@pass_target
def worker(target: Target, /, name: str | None, batch: int, while_stdin: bool) -> None:
    """Fire what is due: run a dispatcher until SIGTERM or Ctrl-C.

    Run as many as you like: they share the work, and cover for one that dies. Stopping one finishes what it has in
    hand; killing it loses nothing.

    \b
    Example:
      timerq worker --namespace prod
    """
    from timerq.dispatcher import Dispatcher  # here, so that the other commands start faster

    if not 1 <= batch <= 200:
        raise click.BadParameter("want 1 to 200", param_hint="--batch")
    settings = target.resolve()
    log_to_stderr()
    with stop_on_signals() as stop:
        dispatcher = Dispatcher(settings.redis_url, namespace=settings.namespace, name=name, batch=batch)
        stop.on_signal(dispatcher.request_stop)
        dispatcher.start()
        try:
            if not stop.asked:
                show.say(f"{dispatcher.name} fires {settings.namespace} at {redact(settings.redis_url)}")
                sys.stdout.flush()
            stop.wait(also=0 if while_stdin else None)
        finally:
            dispatcher.stop()


@click.command(cls=QueueCommand)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".timerq"),
    show_default=True,
    help="Where it keeps its data.",
)
@click.option("--port", type=number, default=DEV_PORT, show_default=True, help="0 chooses a free one.")
@click.option(
    "--schedules",
    metavar="WHERE",
    multiple=True,
    help="A file, folder or module whose schedules the app starts too (may be repeated).",
)
@click.option("--no-schedules", is_flag=True, help="Start none of the app's schedules.")
@click.argument("app", metavar="[MODULE:APP]", required=False)
@pass_target
def dev(
    target: Target,
    /,
    data: Path,
    port: int,
    schedules: tuple[str, ...],
    no_schedules: bool,
    app: str | None,
) -> None:
    """Run a Redis and a dispatcher here, for a laptop, until Ctrl-C; with MODULE:APP, the app too.

    What it holds is kept in a folder, and is there again at the next start.

    MODULE:APP names a timerq.Consumer. It runs with the functions under @timerq.schedule of its module, and begins
    anew when a file below this folder changes: what ran before has stopped by then, and schedules that are no longer
    declared are cancelled.

    \b
    Examples:
      timerq dev
      timerq dev --data /tmp/timers --port 0
      timerq dev shop.handlers:app --schedules schedules.yaml
    """
    target.refuse_redis("dev")
    if app is None and (schedules or no_schedules):
        raise click.UsageError(
            "--schedules and --no-schedules are for an app: name it, as in shop.handlers:app"
        )
    if schedules and no_schedules:
        raise click.UsageError("--schedules and --no-schedules exclude each other")
    settings = target.resolve()
    log_to_stderr()
    with stop_on_signals() as stop, EmbeddedRedis(data, port=port, server=settings.redis_server) as redis:
        with TimerQueue.connect(redis.url, namespace=settings.namespace) as queue:
            queue.init()
        if app is None:
            _fire(stop, redis, settings.namespace, data)
        else:
            words = ["--no-schedules"] * no_schedules + [
                word for where in schedules for word in ("--schedules", where)
            ]
            _serve(stop, redis, settings.namespace, data, app, words, [Path(where) for where in schedules])


def _fire(stop: Stop, redis: EmbeddedRedis, namespace: str, data: Path) -> None:
    """A dispatcher alone, until it is asked to stop."""
    from timerq.dispatcher import Dispatcher

    dispatcher = Dispatcher(redis.url, namespace=namespace, name="dev")
    stop.on_signal(dispatcher.request_stop)
    dispatcher.start()
    try:
        show.say(_greeting(redis, namespace, data))
        sys.stdout.flush()
        while not stop.wait(_LOOK_AT_REDIS_S):
            _check(redis)
    finally:
        dispatcher.stop()


def _serve(
    stop: Stop,
    redis: EmbeddedRedis,
    namespace: str,
    data: Path,
    app: str,
    words: list[str],
    places: list[Path],
) -> None:
    """An app with its own dispatcher, in a process that begins anew when files change, until it is asked to stop."""
    show.say(_greeting(redis, namespace, data, app))
    sys.stdout.flush()
    child = Child(app, words, {"TIMERQ_REDIS_URL": redis.url, "TIMERQ_NAMESPACE": namespace})
    with Reloading(child, [Path.cwd(), *places]) as reloading:
        while not stop.wait(LOOK_EVERY_S):
            _check(redis)
            reloading.look()


def _check(redis: EmbeddedRedis) -> None:
    if not redis.running:
        raise Unavailable(f"The Redis has ended; its log is {redis.log}")


def _greeting(redis: EmbeddedRedis, namespace: str, data: Path, app: str | None = None) -> str:
    words = [] if redis.port == DEV_PORT else [f"--redis {redis.url}"]
    if namespace != "timerq":
        words.append(f"--namespace {namespace}")
    timerq = " ".join(["timerq", *words])
    who = "a dispatcher fires" if app is None else f"{app} is fired and handled in"
    return f"""\
{redis.kind.capitalize()} {redis.version} at {redis.url}, its data in {data}; {who} namespace {namespace}.
Try, in another terminal:

    {timerq} tail
    {timerq} upsert hello --type greeting --payload '"hello"' --delay 3s

Ctrl-C ends it."""
