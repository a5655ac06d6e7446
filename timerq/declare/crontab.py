"""A crontab's lines as schedules: what crontab(5) of Debian's cron says of them (and of `CRON_TZ`, cronie's).

A line's event carries what cron would run: ``command``, and ``stdin``, ``environment`` and ``user`` where it has any.
Its times mean what they mean to cron, clock changes included, or the line is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from timerq.commands.arming import Upsert
from timerq.declare.declared import Declared, DeclaredSet, make_set
from timerq.declare.documents import Unreadable
from timerq.declare.entries import Naming, check
from timerq.declare.files import decode
from timerq.errors import Fault, InvalidDeclaration, InvalidSchedule
from timerq.model import Event
from timerq.timing.cron import parse_cron
from timerq.timing.zones import zone

_SETTING = re.compile(r"""(?:"([^"]*)"|'([^']*)'|([^\s=]+))\s*=\s*(.*)""")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ZONES = ("CRON_TZ", "TZ")
_FIELDS = 5
_WANT_LINE = "want five fields (minute hour day month weekday) or a macro like @daily, and a command"


@dataclass(frozen=True, slots=True)
class _Line:
    """A line that runs something."""

    cron: str
    exclude: str | None
    user: str | None
    command: str
    stdin: str | None


def load_crontab(
    data: bytes,
    source: str,
    label: str,
    *,
    system: bool = False,
    event_type: str = "crontab",
    prefix: str = "",
    hint: str = "set=",
) -> DeclaredSet:
    """The schedules of a crontab's bytes as the set ``label``; the words are those of `read_crontab`.

    Raises `InvalidDeclaration`, also for no bytes at all: a `crontab -l` that failed prints none, and is not to take
    away what is stored. A crontab that means to have no lines has a comment.
    """
    if not data:
        want = "nothing came; want a crontab, or where it is to have no lines, a comment: # none"
        raise InvalidDeclaration([Fault(source, None, "", want)])
    try:
        text = decode(data)
    except Unreadable as error:
        raise InvalidDeclaration([Fault(source, error.line, error.key, error.text)]) from None
    schedules = read_crontab(text, source, system=system, event_type=event_type, prefix=prefix)
    return make_set(label, schedules, source, hint)


def read_crontab(
    text: str, source: str, *, system: bool = False, event_type: str = "crontab", prefix: str = ""
) -> list[Declared]:
    """The schedules of a crontab, called ``<prefix>cron-1``, ``<prefix>cron-2``, … in the order of its lines.

    ``system`` is for files like /etc/crontab, where a user stands before the command. ``CRON_TZ`` (before it ``TZ``)
    sets the zone of the lines below, UTC where there is none; the other variables are their environment.

    Raises `InvalidDeclaration` with every line that cannot be used.
    """
    naming = Naming(prefix)
    environment: dict[str, str] = {}
    faults: list[Fault] = []
    found: list[Declared] = []
    for number, line in _lines(text):
        try:
            setting = _setting(line)
            if setting is not None:
                variable, value = setting
                if variable in _ZONES and value:
                    zone(value, variable)
                environment[variable] = value
                continue
            parsed = _parse(line, system)
            upsert = _upsert(parsed, naming.next(), event_type, environment)
            check(upsert)
            found.append(Declared(upsert, source, number))
        except Unreadable as error:
            faults.append(Fault(source, number, error.key, error.text))
        except InvalidSchedule as error:
            told = str(error).removeprefix(f"{error.field}: ")
            faults.append(Fault(source, number, error.field, told))
    if faults:
        raise InvalidDeclaration(faults)
    return found


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that say something, without the blanks before them, and their numbers."""
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r").lstrip(" \t")
        if line and line[0] != "#":
            yield number, line


def _setting(line: str) -> tuple[str, str] | None:
    """The name and value of a line ``NAME = value``; quotes keep blanks."""
    match = _SETTING.fullmatch(line)
    if match is None:
        return None
    name = match[1] or match[2] or match[3] or ""
    if not _NAME.fullmatch(name):
        if match[3] is not None and any(char in name for char in "*@/,-?"):
            return None  # a time field with a = in it: no setting, and no time either
        raise Unreadable(None, name, "want a variable's name of letters, digits and _")
    value = match[4].rstrip(" \t")
    if value[:1] in ("'", '"'):
        if len(value) < 2 or value[-1] != value[0]:
            raise Unreadable(None, name, f"want the closing {value[0]}")
        value = value[1:-1]
    return name, value


def _parse(line: str, system: bool) -> _Line:
    count = 1 if line[0] == "@" else _FIELDS
    if line.lower().startswith("@reboot"):
        raise Unreadable(None, "@reboot", "runs when a machine starts, and there is none here: want a time")
    parts = re.split(r"[ \t]+", line, maxsplit=count + system)
    if len(parts) < count:
        raise Unreadable(None, "", _WANT_LINE)
    cron, exclude = _both_days(parts[:count]) if count == _FIELDS else (parts[0], None)
    if system and len(parts) <= count:
        raise Unreadable(None, "user", "want a user before the command")
    command = parts[count + system] if len(parts) > count + system else ""
    command, stdin = _split_command(command.rstrip())
    if not command.strip():
        raise Unreadable(
            None, "command", "want a command behind the time" + (" and the user" if system else "")
        )
    return _Line(cron, exclude, parts[count] if system else None, command, stdin)


def _both_days(fields: list[str]) -> tuple[str, str | None]:
    """The expression of a line's fields, and what it leaves out.

    To cron a day field that begins with ``*`` but is not ``*`` (``*/2``) must match *beside* the other one; here, as in
    a plain pair of day fields, either is enough. So the weekday becomes the days that are left out.
    """
    cron = " ".join(fields)
    day, weekday = fields[2], fields[4]
    is_pair = not {day, weekday} & {"*", "*/1", "?"}
    if not is_pair or not (day.startswith("*") or weekday.startswith("*")):
        return cron, None
    wanted = parse_cron(cron).weekdays
    others = ",".join(str(number) for number in range(7) if not wanted >> number & 1)
    return " ".join([*fields[:4], "*"]), f"* * * * {others}" if others else None


def _split_command(text: str) -> tuple[str, str | None]:
    """The command, and what stands behind its first ``%``: cron's stdin, whose further ``%`` are line breaks.

    A ``%`` behind a backslash is a percent sign, and loses the backslash; every other backslash stays.
    """
    parts = [part.replace("\\%", "%") for part in re.split(r"(?<!\\)%", text)]
    return parts[0], "\n".join(parts[1:]) if len(parts) > 1 else None


def _upsert(line: _Line, name: str, event_type: str, environment: Mapping[str, str]) -> Upsert:
    payload: dict[str, object] = {"command": line.command}
    if line.stdin is not None:
        payload["stdin"] = line.stdin
    others = {key: value for key, value in environment.items() if key not in _ZONES}
    if others:
        payload["environment"] = others
    if line.user is not None:
        payload["user"] = line.user
    timezone = environment.get("CRON_TZ") or environment.get("TZ") or None
    return Upsert(
        key=name, event=Event(event_type, payload), cron=line.cron, exclude=line.exclude, timezone=timezone
    )
