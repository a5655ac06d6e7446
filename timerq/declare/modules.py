"""Schedules that are declared by `schedule` in Python modules."""

from __future__ import annotations

import importlib
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

from timerq.declare.declared import DeclaredSet, make_set
from timerq.declare.decorator import ScheduledFunction
from timerq.errors import Fault, InvalidDeclaration, InvalidSchedule

TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*(\.[^\W\d]\w*)*)?")
"""What a module, or something in it, looks like."""


def load_module(target: str, label: str | None = None, hint: str = "set=") -> DeclaredSet:
    """The decorated functions of ``module``, or those that ``module:attr`` holds, as a set.

    The set is ``label``, or called like the target. Raises `InvalidDeclaration`.
    """
    functions = scheduled_functions(target)
    if label is None:
        label = target.replace(":", ".")
    return make_set(label, [function.declared for function in functions], target, hint)


def scheduled_functions(target: str) -> list[ScheduledFunction[..., Any]]:
    """The decorated functions of ``module`` or ``module:attr``, each once, in the order of their definition.

    ``attr`` is one of them, a list or a mapping of them, or a class or module that has them as attributes. Raises
    `InvalidDeclaration` where the module cannot be imported, or declares none.
    """
    module_name, _, attribute = target.partition(":")
    module = imported(module_name, target)
    found: Any = module
    for name in attribute.split(".") if attribute else ():
        try:
            found = getattr(found, name)
        except AttributeError:
            raise InvalidDeclaration([Fault(target, None, "", f"there is no {name} in it")]) from None
    functions = list(dict.fromkeys(_functions_in(found)))
    if not functions:
        text = "declares no schedule: want a function under @timerq.schedule(…), or some of them"
        raise InvalidDeclaration([Fault(target, None, "", text)])
    return functions


def _functions_in(thing: Any) -> Iterator[ScheduledFunction[..., Any]]:
    if isinstance(thing, ScheduledFunction):
        yield thing
        return
    if isinstance(thing, (ModuleType, type)):
        inside: Iterable[Any] = vars(thing).values()
    elif isinstance(thing, Mapping):
        inside = thing.values()
    elif isinstance(thing, (list, tuple, set, frozenset)):
        inside = thing
    else:
        inside = getattr(thing, "__dict__", {}).values()
    yield from (inner for inner in inside if isinstance(inner, ScheduledFunction))


def imported(name: str, target: str) -> ModuleType:
    """The module ``name`` of ``target``; raises `InvalidDeclaration`, with the place, where it cannot be imported."""
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except InvalidSchedule as error:
        raise InvalidDeclaration([_fault_of(error, target)]) from error
    except (Exception, SystemExit) as error:  # whatever a module does while it is imported
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise InvalidDeclaration(
                [Fault(target, None, "", f"no file, folder or module: {error.name}")]
            ) from None
        place = _last_line(error)
        text = f"cannot be imported: {type(error).__name__}" + (f": {error}" if str(error) else "")
        if isinstance(error, SystemExit):  # let through, it would end the command as if it had done its work
            text += '; want what a program does behind if __name__ == "__main__":'
        raise InvalidDeclaration(
            [Fault(place[0] if place else target, place and place[1], "", text)]
        ) from error


def _fault_of(error: InvalidSchedule, target: str) -> Fault:
    """A refusal of the decorator, with the line that it stands on."""
    place = _last_line(error)
    text = "; ".join([str(error).removeprefix(f"{error.field}: "), *getattr(error, "__notes__", ())])
    return Fault(place[0] if place else target, place and place[1], error.field, text)


def _last_line(error: BaseException) -> tuple[str, int] | None:
    """The file and line of the last frame that is neither ours nor the import machinery's."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return error.filename, error.lineno
    ours = __file__.rpartition("declare")[0]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if (
            frame.lineno
            and not frame.filename.startswith((ours, "<frozen"))
            and "importlib" not in frame.filename
        ):
            return frame.filename, frame.lineno
    return None
