"""tail: what happens."""

from __future__ import annotations

from time import sleep
from typing import Any

import click

from timerq.cli import show
from timerq.cli.base import NotFound, QueueCommand, Target, json_option, pass_target
from timerq.cli.values import number
from timerq.client import TimerQueue
from timerq.commands.command import Namespace
from timerq.commands.namespace import find_namespace
from timerq.model import ERRORS, check_plain_name
from timerq.tail import Published, Tail, Unreadable


@click.command(cls=QueueCommand)
@click.option("--stream", metavar="NAME", default="events", show_default=True)
@click.option(
    "--from-start", is_flag=True, help="Begin with the oldest event that is kept, not with the next one."
)
@click.option("--key", metavar="KEY", help="Only events of this key.")
@click.option("--count", "limit", type=number, help="End after so many events.")
@click.option("--no-follow", is_flag=True, help="End at the end of the stream; implies --from-start.")
@json_option
@pass_target
def tail(
    target: Target,
    /,
    stream: str,
    from_start: bool,
    key: str | None,
    limit: int | None,
    no_follow: bool,
    as_json: bool,
) -> None:
    """Print events as they are published, of all partitions, until Ctrl-C.

    A line has the time of publication, how late that was (or what published it, where its timing did not), type, key,
    number of the occurrence, id (which `timerq done` takes) and payload. It reads without a group and leaves no trace.
    Events of every tenant are shown, unless --tenant is given here. While Redis is away it waits, and goes on where it
    was. Of the stream errors, a line has the time, what it is, whose, why, and of a handling which one.

    \b
    Examples:
      timerq tail
      timerq tail --stream errors
      timerq tail --stream audit --json
      timerq tail --no-follow --key reminder:order-42
      timerq tail --from-start --count 10
    """
    if limit == 0:
        return
    check_plain_name("stream", stream)
    with target.open() as queue:
        try:
            namespace, waited = _namespace(queue, target.resolve().namespace, wait=not no_follow)
        except KeyboardInterrupt:
            if no_follow:
                raise
            return  # how one ends it, also where it has not begun
    seen = 0
    with Tail(
        target.resolve().redis_url,
        namespace,
        stream,
        from_start=from_start or no_follow or waited,
        follow=not no_follow,
        trouble=show.note,
    ) as events:
        try:
            for event in events:
                if isinstance(event, Unreadable):
                    show.note(f"entry {event.entry} of partition {event.partition}: {show.clean(event.why)}")
                    continue
                if target.tenant not in (None, event.tenant) or key not in (None, event.key):
                    continue
                if as_json:
                    show.say_json(show.event_words(event))
                else:
                    show.say(_event_line(event))
                seen += 1
                if seen == limit:
                    return
        except KeyboardInterrupt:
            return  # how one ends it


def _event_line(event: Published) -> str:
    if event.stream == ERRORS:
        return _trouble_line(event)
    words = [
        show.local(event.fired_ms),
        _how(event),
        show.clean(event.type),
        show.name_of(event.key, event.owner),
    ]
    if event.n:
        words.append(f"#{event.n}" + (f" ({event.missed:,} missed)" if event.missed else ""))
    return "  ".join([*words, show.clean(event.id), show.payload_text(event.payload)])


def _trouble_line(event: Published) -> str:
    """What there is to know at a glance; the traceback is left to --json and `dead show`."""
    told = event.payload if isinstance(event.payload, dict) else {"reason": event.payload}
    words = [show.local(event.fired_ms), show.clean(event.type), show.name_of(event.key, event.owner)]
    reason = told.get("reason")
    words.append(show.clean(reason) if isinstance(reason, str) else show.payload_text(reason))
    if event.type.startswith("handler."):
        words.append(_of_handler(told))
    elif event.origin == "report":
        words.append(f"due {show.local(event.at_ms)}")
    return "  ".join(words)


def _of_handler(told: dict[str, Any]) -> str:
    """Which handling failed."""
    parts = [f"group {told.get('group')} of {told.get('stream')}"]
    if told.get("event"):
        parts.insert(0, f"event {told['event']} ({told.get('type')})")
        parts.append(f"attempt {told.get('attempt')} of {told.get('attempts')}")
    else:
        parts.insert(0, f"entry {told.get('entry')}")
    if isinstance(told.get("retry_at"), int):
        parts.append(f"again at {show.local(told['retry_at'])}")
    return show.clean(", ".join(parts))


def _how(event: Published) -> str:
    """How late it was published, or why at all."""
    if event.origin == "timing":
        lag_ms = event.fired_ms - event.at_ms
        return f"+{show.length(lag_ms)}" if lag_ms >= 0 else f"{lag_ms}ms"
    return f"backfilled of {show.local(event.at_ms)}" if event.backfill else event.origin


def _namespace(queue: TimerQueue, name: str, *, wait: bool) -> tuple[Namespace, bool]:
    """The namespace to read from, and whether it was waited for: looking makes none. Raises `NotFound`."""
    missing = f"there is no namespace {name!r} yet: init makes it, or the first upsert"
    namespace = queue.run(find_namespace(name))
    if not namespace.layout and not wait:
        raise NotFound(missing)
    waited = not namespace.layout
    if waited:
        show.note(f"{missing}; waiting for it")
    while not namespace.layout:
        sleep(1)  # nothing in an empty Redis could tell
        namespace = queue.run(find_namespace(name))
    return namespace, waited
