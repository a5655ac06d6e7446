"""A file's content, and where in it each value stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from timerq.errors import Fault

Path: TypeAlias = "tuple[str | int, ...]"
"""The keys and indexes that lead to a value of a document."""

MAX_FILE_BYTES = 4_194_304
"""The largest file of schedules that is read."""


class Unreadable(Exception):
    """The text cannot be read as what it should be: ``line`` (from 1, None: not known), ``key``, and what is wrong."""

    def __init__(self, line: int | None, key: str, text: str) -> None:
        super().__init__(text)
        self.line = line
        self.key = key
        self.text = text


@dataclass(frozen=True, slots=True)
class Document:
    """What a file holds: ``lines`` has the line (from 1) of each path of a YAML file, and none of a TOML one."""

    source: str
    value: Any
    lines: Mapping[Path, int] = field(default_factory=dict)

    def line(self, path: Path) -> int | None:
        """The line of a path, or of the nearest one above it."""
        for length in range(len(path), -1, -1):
            if (line := self.lines.get(path[:length])) is not None:
                return line
        return None

    def at(self, path: Path) -> Any:
        """The value at a path."""
        value = self.value
        for step in path:
            value = value[step]
        return value

    def fault(self, path: Path, text: str, key: str | None = None) -> Fault:
        """What is wrong at a path, which the message names as ``key``."""
        return Fault(self.source, self.line(path), written(path) if key is None else key, text)


def written(path: Path) -> str:
    """A path as text: ``jobs.morning.cron``, ``jobs[2].cron``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
