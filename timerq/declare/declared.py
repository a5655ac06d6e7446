"""What loaders make: schedules with the places that declare them, under the name of their set."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from timerq.commands.arming import Upsert
from timerq.errors import Fault, InvalidDeclaration, InvalidSchedule
from timerq.model import check_plain_name


@dataclass(frozen=True, slots=True)
class Declared:
    """One schedule, and the file and line (from 1; None: not known) that declare it."""

    upsert: Upsert
    source: str
    line: int | None = None

    @property
    def name(self) -> str:
        """Its name: the key that it is stored under."""
        return self.upsert.key

    @property
    def where(self) -> str:
        """Its file and line."""
        return self.source if self.line is None else f"{self.source}:{self.line}"


@dataclass(frozen=True, slots=True)
class DeclaredSet:
    """The schedules that are declared together, each name once. ``label`` is the set's name."""

    label: str
    schedules: tuple[Declared, ...]

    @property
    def upserts(self) -> list[Upsert]:
        """What to store."""
        return [declared.upsert for declared in self.schedules]


def make_set(label: Any, schedules: Iterable[Declared], source: str, hint: str = "set=") -> DeclaredSet:
    """The set of these schedules.

    Raises `InvalidDeclaration` for a name that is declared twice, and for a ``label`` that is no name: ``hint`` says
    how to give another.
    """
    faults: list[Fault] = []
    try:
        check_plain_name("set", label)
    except InvalidSchedule as error:
        faults.append(Fault(source, None, "set", f"{error}; give another with {hint}".removeprefix("set: ")))
    found: dict[str, Declared] = {}
    for declared in schedules:
        first = found.setdefault(declared.name, declared)
        if first is not declared:
            text = f"the name is declared twice; first at {first.where}"
            faults.append(Fault(declared.source, declared.line, declared.name, text))
    if faults:
        raise InvalidDeclaration(faults)
    return DeclaredSet(label, tuple(found.values()))
