"""Which schedules a run starts: functions, files, modules or sets → one declared set, and who handles its events."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from timerq.consumer import Consumer
from timerq.declare import Declared, DeclaredSet, ScheduledFunction, load, scheduled_functions
from timerq.declare.declared import make_set
from timerq.declare.modules import TARGET
from timerq.errors import InvalidSchedule

Schedule = ScheduledFunction[..., Any] | DeclaredSet | str | os.PathLike[str]
"""A function under ``@timerq.schedule``; a set; a file or folder; ``module`` or ``module:attr`` with functions."""

Schedules = Schedule | Iterable[Schedule]
"""One or several; they become one set."""


def gather(
    schedules: Schedules | None, label: str | None, default_label: str
) -> tuple[DeclaredSet | None, list[ScheduledFunction[..., Any]]]:
    """The set that ``schedules`` are, None for None, and the functions among them.

    A set, file, folder or module that stands alone keeps its own name unless ``label`` gives another; otherwise it is
    ``default_label``. Raises `InvalidSchedule`, `InvalidDeclaration` and OSError.
    """
    if schedules is None:
        return None, []
    things = each(schedules)
    declared: list[Declared] = []
    functions: list[ScheduledFunction[..., Any]] = []
    own_labels: list[str] = []
    for thing in things:
        if isinstance(thing, ScheduledFunction):
            functions.append(thing)
            declared.append(thing.declared)
        elif isinstance(thing, DeclaredSet):
            declared += thing.schedules
            own_labels.append(thing.label)
        elif isinstance(thing, str) and not Path(thing).exists() and TARGET.fullmatch(thing):
            found = scheduled_functions(thing)
            functions += found
            declared += [function.declared for function in found]
            own_labels.append(thing.replace(":", "."))
        elif isinstance(thing, (str, os.PathLike)):
            loaded = load(thing, label, "label=")
            declared += loaded.schedules
            own_labels.append(loaded.label)
        else:
            raise _refused(thing)
    if label is None:
        label = own_labels[0] if len(things) == 1 and own_labels else default_label
    return make_set(label, declared, "schedules", "label="), functions


def each(schedules: Schedules) -> list[Any]:
    """What ``schedules`` are, one by one. Raises `InvalidSchedule` for what is neither one nor several."""
    if isinstance(schedules, (ScheduledFunction, DeclaredSet, str, os.PathLike)):
        return [schedules]
    try:
        return list(schedules)
    except TypeError:
        raise _refused(schedules) from None


def attach(app: Consumer, functions: Iterable[ScheduledFunction[..., Any]]) -> None:
    """Makes ``app`` handle the events of these functions, where it does not yet.

    Raises `InvalidSchedule` where it has another handler for them, or does not read their stream.
    """
    for function in functions:
        known = app.handler_of(function.name)
        if known is None:
            app.add(function)
        elif known.function is not function:
            want = f"want another name: the app has a handler for events of type {function.name!r} already"
            raise InvalidSchedule("schedules", function.name, want)


def _refused(thing: object) -> InvalidSchedule:
    want = "want functions under @timerq.schedule(…), files, folders, modules or DeclaredSets"
    return InvalidSchedule("schedules", thing, want)
