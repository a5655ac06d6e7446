"""Dead letters on the command line: which ones are meant, and how they look."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from timerq.cli import show
from timerq.cli.base import BadInput, NotFound, Target
from timerq.cli.values import Age
from timerq.client import TimerQueue
from timerq.commands.command import Scope, Steps
from timerq.commands.letters import DeadLetter, Which
from timerq.commands.read import server_time
from timerq.model import ERRORS, check_plain_name
from timerq.timing import MAX_INSTANT_MS, resolve_duration, resolve_instant


def told_which(count: int, group: str, words: dict[str, Any]) -> str:
    """Which ones, in words."""
    what = f"{count:,} dead letter{'' if count == 1 else 's'} of group {show.clean(group)}"
    if words["type"] is not None:
        what += f", of type {show.clean(words['type'])}"
    if words["prefix"] is not None:
        what += f", whose key begins with {show.clean(words['prefix'])!r}"
    if words["since"] is not None:
        what += f", failed since {_age(words['since'])}"
    if words["older"] is not None:
        what += f", failed before {_age(words['older'])}"
    return what


def _age(value: Age | int | str) -> str:
    return f"{value.text} ago" if isinstance(value, Age) else str(value)


def which_of(queue: TimerQueue, target: Target, **words: Any) -> Which:
    """The words as what they mean; ages count back from Redis's time."""
    ages = {name: words[name] for name in ("since", "older") if isinstance(words[name], Age)}
    instants = {name: words[name] for name in ("since", "older")}
    if ages:
        lengths = {name: resolve_duration(age.text, field=name) for name, age in ages.items()}
        now_ms = queue.run(_now(target.scope(queue)))
        instants.update({name: max(0, now_ms - length_ms) for name, length_ms in lengths.items()})
    instants = {
        name: None if value is None else resolve_instant(value, field=name)
        for name, value in instants.items()
    }
    return Which(words["id"], words["prefix"] or "", words["type"], instants["since"], instants["older"])


def _now(scope: Scope) -> Steps[int]:
    if not scope.namespace.layout:
        return show.now_ms()
    (now_ms,) = yield [server_time(scope.namespace)]
    return now_ms  # type: ignore[no-any-return]


def group_of(queue: TimerQueue, stream: str, group: str | None) -> str | None:
    """The group that is meant: the only one that has dead letters where none is named, None where none has any."""
    if group is not None:
        return group
    check_plain_name("stream", stream)
    found = [one for one in queue.stats().groups if one.stream == stream and one.dead]
    if len(found) > 1:
        names = ", ".join(f"{one.group} ({one.dead:,})" for one in found)
        raise BadInput(
            f"several groups of stream {stream} have dead letters: {names}", "Name one: --group NAME"
        )
    return found[0].group if found else None


def nothing_there(queue: TimerQueue, stream: str, group: str | None) -> str:
    """What to say where nothing is found: perhaps it is another group, or another stream."""
    groups = queue.stats().groups
    elsewhere = [f"{one.stream} (group {one.group}, {one.dead:,})" for one in groups if one.dead]
    if group is None:
        said = f"No group of stream {stream} has dead letters."
        return f"{said} Elsewhere: {', '.join(elsewhere)}" if elsewhere else said
    names = [one.group for one in groups if one.stream == stream]
    if group in names:
        return f"Group {group} of stream {stream} has no such dead letters."
    said = f"No group {group} reads stream {stream}."
    return f"{said} There are: {', '.join(names)}" if names else said


def absent_letter(event_id: str, stream: str, group: str | None) -> NotFound:
    """There is no dead letter of an event."""
    whose = "no group" if group is None else f"group {group}"
    said = f"{show.clean(event_id)}: {whose} of stream {stream} has {'a' if group is None else 'no'} dead letter of it"
    more = "" if group is None else f" --group {group}"
    return NotFound(
        said,
        f"See those that there are with: timerq dead list --stream {stream}{more}",
    )


def letter_row(letter: DeadLetter) -> list[str]:
    """Its cells in a table."""
    failed_ms = letter.last_failed_ms // 1000 * 1000
    return [
        show.clean(letter.id or letter.place),
        show.clean(letter.type),
        show.clean(letter.key),
        show.clean(letter.owner or ""),
        f"{letter.attempts:,}",
        show.local(failed_ms) if failed_ms else "-",
        show.clean(letter.error),
    ]


def letter_lines(letter: DeadLetter) -> Iterator[tuple[str, str | None]]:
    """What there is to say of a letter; None where there is nothing."""
    yield "event", show.clean(letter.id) or "cannot be read"
    yield "place", letter.place
    yield "type", show.clean(letter.type) or None
    yield "key", show.clean(letter.key) or None
    yield "owner", None if letter.owner is None else show.clean(letter.owner)
    yield "tenant", show.clean(letter.tenant) or None
    yield "due", _when(letter.fields.get(b"at", b""))
    yield "published", _when(letter.fields.get(b"fired_ms", b""))
    yield "group", f"{letter.group} of stream {letter.stream}"
    yield "attempts", f"{letter.attempts:,}"
    yield "first failed", show.when(letter.first_failed_ms) if letter.first_failed_ms else None
    yield "last failed", show.when(letter.last_failed_ms) if letter.last_failed_ms else None
    yield "error", show.clean(letter.error)
    for past in letter.history:
        yield f"attempt {past.attempt:,}", f"{show.when(past.failed_ms)}: {show.clean(past.error)}"
    words = show.letter_words(letter)
    if words["unreadable"] is None:
        yield "payload", show.payload_text(letter.payload)
    else:
        yield "unreadable", show.clean(words["unreadable"])
        yield "fields", show.payload_text(words["fields"])
    yield "correlation", show.payload_text(words["correlation"]) if words["correlation"] else None


def _when(digits: bytes) -> str | None:
    text = digits.decode(errors="replace")
    if not (text.isascii() and text.isdigit()) or not 0 <= int(text) <= MAX_INSTANT_MS:
        return None
    return show.when(int(text))


def hints_for(letter: DeadLetter, target: Target) -> Iterator[str]:
    """What can be done about it, as commands for the same place."""
    names = {"namespace": target.namespace, "tenant": target.tenant}
    there = "".join(f" --{name} {shlex.quote(value)}" for name, value in names.items() if value is not None)
    if letter.key and letter.key.isprintable() and letter.stream != ERRORS:
        yield (
            "Each attempt, as long as it is kept: timerq tail --stream errors --no-follow "
            f"--key {shlex.quote(letter.key)}{there}"
        )
    name = letter.id if letter.id and letter.id.isprintable() else letter.place
    stream = "" if letter.stream == "events" else f" --stream {letter.stream}"
    words = f"--id {shlex.quote(name)} --group {letter.group}{stream}{there}"
    yield f"Try it again:   timerq dead replay {words}"
    yield f"Throw it away:  timerq dead discard {words}"
