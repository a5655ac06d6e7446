"""A progress bar on stderr; nothing at all where that is no terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Bar:
    """How far something is; what it counts is the caller's business."""

    def __init__(self, progress: Progress | None, task: TaskID | None) -> None:
        self._progress = progress
        self._task = task

    def advance(self, by: int) -> None:
        """So much more is done."""
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task, by)

    def show(self, *, done: int | None = None, total: int | None = None) -> None:
        """So much is done, of so much."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, total=total)


@contextmanager
def bar(title: str, total: int | None = None, *, shown: bool = True) -> Iterator[Bar]:
    """Shows a bar while the block runs; without a ``total`` it only says that something goes on."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if not (shown and console.is_terminal):
        yield Bar(None, None)
        return
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    # stdout is left alone: it may be a pipe that wants its data
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as progress:
        yield Bar(progress, progress.add_task(title, total=total))
