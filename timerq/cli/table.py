"""Tables: drawn by rich on a terminal, aligned with blanks elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import click

_SHORTEST = 30
"""What a column that may be cut keeps at the least, in characters."""

_GAP = 2
"""What rich sets between columns, in characters."""

_NARROWEST = 10
"""What a column that may be broken keeps at the least, in characters."""


class Rows:
    """A table that may come in pieces."""

    def __init__(
        self,
        *columns: str,
        right: Sequence[str] = (),
        whole: Sequence[str] = (),
        optional: Sequence[str] = (),
        cut: Sequence[str] = (),
    ) -> None:
        """``right`` ones are set to the right, ``whole`` ones are not broken on a narrow terminal, but
        behind a comma.

        ``cut`` ones end with an ellipsis where a terminal's width does, but keep 30 characters; elsewhere all is said.
        ``optional`` ones are left out where none of their cells has anything in it: elsewhere than on a terminal the
        first piece settles that.
        """
        self._columns = columns
        self._right = right
        self._whole = whole
        self._optional = optional
        self._cut = cut
        self._shown: list[int] = []
        self._widths: list[int] = []
        self._on_terminal = sys.stdout.isatty()

    def add(self, rows: Iterable[Sequence[str]]) -> None:
        """Prints some rows; on a terminal each piece has its header, elsewhere the first one alone."""
        piece = [list(row) for row in rows]
        if not piece:
            return
        if self._on_terminal or not self._shown:
            self._shown = [
                i
                for i, column in enumerate(self._columns)
                if column not in self._optional or any(row[i] for row in piece)
            ]
        piece = [[row[i] for i in self._shown] for row in piece]
        columns = [self._columns[i] for i in self._shown]
        if self._on_terminal:
            self._draw(columns, piece)
            return
        if not self._widths:
            piece.insert(0, [column.upper() for column in columns])
            self._widths = [0] * len(columns)
        self._widths = [
            max(width, *map(len, cells))
            for width, cells in zip(self._widths, zip(*piece, strict=True), strict=True)
        ]
        for row in piece:
            cells = [
                cell.rjust(width) if column in self._right else cell.ljust(width)
                for cell, width, column in zip(row, self._widths, columns, strict=True)
            ]
            click.echo("  ".join(cells).rstrip())

    def _draw(self, columns: Sequence[str], piece: Sequence[Sequence[str]]) -> None:
        # here, and not above: most commands draw nothing
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        console = Console(highlight=False)
        piece = [
            [self._shortened(columns, piece, i, cell, console.width) for i, cell in enumerate(row)]
            for row in piece
        ]
        if self._needed(columns, piece) > console.width:
            may_break = [column in self._whole for column in columns]
            piece = [
                [cell.replace(", ", ",\n") if may else cell for cell, may in zip(row, may_break, strict=True)]
                for row in piece
            ]
        table = Table(box=None, pad_edge=False, header_style="bold")
        for i, column in enumerate(columns):
            table.add_column(
                column,
                justify="right" if column in self._right else "left",
                overflow="fold",
                no_wrap=column in (*self._whole, *self._cut),
                min_width=min(_width(column, piece, i), _NARROWEST),
            )
        for row in piece:
            table.add_row(*map(Text, row))
        # where that does not fit, the terminal breaks the lines: nothing is cut
        console.width = max(console.width, self._needed(columns, piece))
        console.print(table)

    def _shortened(
        self, columns: Sequence[str], piece: Sequence[Sequence[str]], place: int, cell: str, width: int
    ) -> str:
        """A cell, cut where its column is one that may be and the others leave it less room."""
        if columns[place] not in self._cut:
            return cell
        others = sum(_width(column, piece, i) + _GAP for i, column in enumerate(columns) if i != place)
        from rich.text import Text

        text = Text(cell)
        text.truncate(max(width - others, _SHORTEST), overflow="ellipsis")
        return text.plain

    def _needed(self, columns: Sequence[str], piece: Sequence[Sequence[str]]) -> int:
        """How many characters a line has at the least."""
        widths = [(column, _width(column, piece, i)) for i, column in enumerate(columns)]
        return sum(
            width if column in (*self._whole, *self._cut) else min(width, _NARROWEST)
            for column, width in widths
        ) + _GAP * (len(columns) - 1)


def _width(column: str, piece: Sequence[Sequence[str]], place: int) -> int:
    from rich.text import Text

    lines = [line for row in piece for line in row[place].split("\n")]
    return max(len(column), *(Text(line).cell_len for line in lines))
