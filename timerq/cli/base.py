"""What every command shares: where the queue is, how errors end, and the options that repeat."""

from __future__ import annotations

import getpass
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import click
import redis

from timerq.cli.show import clean_lines
from timerq.client import TimerQueue
from timerq.commands.command import Scope
from timerq.commands.namespace import find_namespace
from timerq.commands.phrasing import for_options
from timerq.errors import (
    BacklogFull,
    ContractBroken,
    DurabilityUnavailable,
    InvalidDeclaration,
    InvalidSchedule,
    QueueUnavailable,
    TimerqError,
)
from timerq.settings import Settings
from timerq.topology import redact

F = TypeVar("F", bound=Callable[..., Any])

OTHER, BAD_INPUT, NOT_FOUND, UNAVAILABLE, INTERRUPTED, PIPE_CLOSED = 1, 2, 3, 4, 130, 141
"""Exit codes; docs/cli.md has the table."""


@dataclass
class Target:
    """Where the queue is: what the command line says, and for the rest the environment."""

    redis: str | None = None
    namespace: str | None = None
    tenant: str | None = None
    settings: Settings | None = None
    connects: bool = False

    def resolve(self) -> Settings:
        """The environment's settings under the command line's. Raises `InvalidSchedule` for a bad variable."""
        if self.settings is None:
            found = Settings.from_environment()
            self.settings = replace(
                found,
                redis_url=found.redis_url if self.redis is None else self.redis,
                namespace=found.namespace if self.namespace is None else self.namespace,
                tenant=found.tenant if self.tenant is None else self.tenant,
            )
        return self.settings

    def open(self) -> TimerQueue:
        """The queue, closed by the caller. Raises `InvalidSchedule` for a bad URL or name."""
        settings = self.resolve()
        self.connects = True
        return TimerQueue.connect(
            settings.redis_url,
            namespace=settings.namespace,
            tenant=settings.tenant,
            payload_limit=settings.max_payload_bytes,
        )

    def scope(self, queue: TimerQueue) -> Scope:
        """For looking: a namespace that is not there is not made."""
        settings = self.resolve()
        namespace = queue.run(find_namespace(settings.namespace))
        return Scope(namespace, settings.tenant, settings.tenant.encode(), settings.max_payload_bytes)

    def refuse_redis(self, command: str) -> None:
        """For the commands that bring a Redis of their own."""
        if self.redis is not None:
            raise click.UsageError(f"{command} starts a Redis of its own: leave --redis out")


pass_target = click.make_pass_decorator(Target, ensure=True)


class Failure(click.ClickException):
    """Ends the program with a message on stderr, what to do next, and an exit code; never with a traceback."""

    exit_code = OTHER

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(clean_lines(message if hint is None else f"{message}\n{hint}"))


class BadInput(Failure):
    """What was asked for cannot be done."""

    exit_code = BAD_INPUT


class NotFound(Failure):
    """There is no such thing, or a race for it was lost."""

    exit_code = NOT_FOUND


class Unavailable(Failure):
    """Redis is away or refuses."""

    exit_code = UNAVAILABLE


def failure_of(error: Exception, target: Target) -> Failure:
    """How a fault ends the program."""
    if isinstance(error, DurabilityUnavailable):
        return Unavailable(str(error))
    if isinstance(error, QueueUnavailable):
        return Unavailable(str(error), _hint(error, target))
    if isinstance(error, BacklogFull):
        done = f"{error.published:,} events were" if error.published else "nothing was"
        return Unavailable(
            f"{error.why}; {done} published",
            "Try again when the group has acknowledged some, or let a timer wait for that: timerq upsert --delay 0s",
        )
    if isinstance(error, ContractBroken):
        return Failure(f"{error}\nThis is a fault of timerq or of its data: please report it.")
    if isinstance(error, TimerqError):  # InvalidSchedule, NamespaceMismatch
        return BadInput(str(error))
    assert isinstance(error, OSError)
    where = f"{error.filename}: " if error.filename else ""
    kind = BadInput if error.filename else Failure
    return kind(f"{where}{error.strerror or error}")


def _hint(error: QueueUnavailable, target: Target) -> str | None:
    message = str(error)
    if "Address already in use" in message:
        return (
            "Something listens on that port already: use it if it is a Redis, or choose another with --port."
        )
    if not target.connects:
        return None
    url = redact(target.resolve().redis_url)
    if any(word in message for word in ("NOAUTH", "WRONGPASS", "uthenticat", "username-password")):
        return f"The Redis at {url} wants a password: give it in the URL, as in redis://:PASSWORD@host:6379/0"
    if "NOPERM" in message:
        return f"The user of this URL may not do that on the Redis at {url}: see its ACL rules."
    if "WRONGTYPE" in message:
        return (
            f"The Redis at {url} runs, but under one of the names of this namespace it holds something of another "
            "type, which is not timerq's: choose another --stream or --namespace, or move it out of the way."
        )
    if isinstance(error.__cause__, redis.ResponseError) or message.startswith("Redis refused"):
        return f"The Redis at {url} runs, and this is its answer."
    return f"Is Redis running at {url}? Name another with --redis or TIMERQ_REDIS_URL, or start one with: timerq dev"


class Verbs(click.Group):
    """Commands that belong together, in the order in which one needs them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """As they were added."""
        return list(self.commands)


class Commands(Verbs):
    """The group of all commands: it turns faults into messages and exit codes."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command."""
        target = ctx.ensure_object(Target)
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Whoever read our output has left (`| head`): that is theirs to decide, and no error of ours. What is
            # still in the buffer must not raise again at exit.
            _to_devnull(sys.stdout)
            ctx.exit(PIPE_CLOSED)
        except (TimerqError, OSError) as error:
            raise failure_of(error, target) from error
        except KeyboardInterrupt:
            click.echo(err=True)
            ctx.exit(INTERRUPTED)
        return result


def _to_devnull(stream: Any) -> None:
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except (OSError, ValueError):
        pass  # a stream without a descriptor has nothing to flush


def _keep(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None and parameter.name:
        setattr(ctx.ensure_object(Target), parameter.name, value)


def where_options(hidden: bool = False) -> list[click.Option]:
    """--redis, --namespace and --tenant."""
    words = {
        "redis": ("URL", "Where Redis is [TIMERQ_REDIS_URL; redis://localhost:6379/0]."),
        "namespace": ("NAME", "Which timer queue in it [TIMERQ_NAMESPACE; timerq]."),
        "tenant": ("NAME", "Whose schedules [TIMERQ_TENANT; default]."),
    }
    return [
        click.Option(
            [f"--{name}"], metavar=metavar, help=text, expose_value=False, callback=_keep, hidden=hidden
        )
        for name, (metavar, text) in words.items()
    ]


_MEANT = {"expressions": "cron"}  # of arguments that are called otherwise in Python


class QueueCommand(click.Command):
    """A command that works on the queue: the options that say where it is may stand behind its name too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(where_options(hidden=True))

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; a refusal speaks of its options, and shows what was given to them."""
        try:
            return super().invoke(ctx)
        except InvalidDeclaration:
            raise  # it speaks of the words of a file
        except InvalidSchedule as error:
            names, given = self._words(ctx)
            raise BadInput(for_options(error, names, given)) from error

    def _words(self, ctx: click.Context) -> tuple[dict[str, str], dict[str, Any]]:
        """What the words of Python are called here, a flag with what turns it off, and what was given for them."""
        names: dict[str, str] = {}
        given: dict[str, Any] = {}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option):
                long = max(parameter.opts, key=len)
                name = long.lstrip("-").replace("-", "_")
                names[name] = "/".join([long, *parameter.secondary_opts])
            else:
                name = _MEANT.get(str(parameter.name), str(parameter.name))
                names[name] = parameter.human_readable_name.strip("[].")
            given[name] = ctx.params.get(str(parameter.name))
        return names, given

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Options that name a section stand in it, the others behind."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                sections.setdefault(getattr(parameter, "section", "Options"), []).append(record)
        for name in sorted(sections, key="Options".__eq__):
            with formatter.section(name):
                formatter.write_dl(sections[name])


def import_from_here() -> None:
    """Modules are looked for in this folder too, as ``python -m`` does."""
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)


def who() -> str:
    """USER@HOST: who sits at this terminal, as far as the machine knows."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = str(os.getuid()) if hasattr(os, "getuid") else "somebody"
    name = f"{user}@{socket.gethostname()}".replace("\0", "")
    return name.encode(errors="replace")[:200].decode(errors="ignore")


def json_option(command: F) -> F:
    """--json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")(command)


def owner_option(command: F) -> F:
    """--owner."""
    return click.option("--owner", metavar="OWNER", help="The owner that the schedule belongs to.")(command)


def durable_option(command: F) -> F:
    """--durable."""
    return click.option(
        "--durable",
        metavar="LEVEL",
        help='Wait until the change is that safe: "replicas=N" or "fsync", with ",timeout=500ms" if you like.',
    )(command)
