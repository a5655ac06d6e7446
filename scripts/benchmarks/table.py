"""What was measured against what was promised, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on the ratio to the bare script, or on timerq's own value."""

    of: Literal["ratio", "value"]
    sense: Literal["≥", "≤"]
    bound: float

    def met(self, row: Row) -> bool:
        value = row.ratio if self.of == "ratio" else row.ours
        assert value is not None
        return value >= self.bound if self.sense == "≥" else value <= self.bound

    def __str__(self) -> str:
        return f"{self.sense} {self.bound:g}{' ×' if self.of == 'ratio' else ''}"


def ratio_at_least(bound: float) -> Target:
    return Target("ratio", "≥", bound)


def ratio_at_most(bound: float) -> Target:
    return Target("ratio", "≤", bound)


def at_most(bound: float) -> Target:
    return Target("value", "≤", bound)


@dataclass(frozen=True, slots=True)
class Row:
    """One line: timerq's value, the bare one's, and how they compare. ``spread`` is the ratio's least and greatest
    over the rounds."""

    what: str
    unit: str
    ours: float
    bare: float | None = None
    ratio: float | None = None
    spread: tuple[float, float] | None = None
    target: Target | None = None
    note: str = ""
    figure: str = ""

    @property
    def verdict(self) -> str:
        return "" if self.target is None else "ok" if self.target.met(self) else "MISSED"

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "target": str(self.target or ""), "verdict": self.verdict}


def compare(
    what: str,
    unit: str,
    ours: Sequence[float],
    bare: Sequence[float],
    target: Target | None = None,
    note: str = "",
) -> Row:
    """A row of rounds that took turns: the medians, and the median of the ratios within each round."""
    ratios = [a / b for a, b in zip(ours, bare, strict=True)]
    return Row(
        what, unit, median(ours), median(bare), median(ratios), (min(ratios), max(ratios)), target, note
    )


HEADINGS = ("figure", "timerq", "bare", "ratio", "target", "")


def render(rows: Sequence[Row]) -> str:
    """A Markdown table that also reads well in a terminal."""
    lines = [HEADINGS]
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f} ×"
        if row.spread is not None:
            ratio += f" ({row.spread[0]:.2f}–{row.spread[1]:.2f})"
        lines.append(
            (
                row.what + (f" ({row.note})" if row.note else ""),
                number(row.ours, row.unit),
                "" if row.bare is None else number(row.bare, row.unit),
                ratio,
                "" if row.target is None else str(row.target),
                row.verdict,
            )
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADINGS))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:5]), "-" * max(widths[5], 3)]
    texts = ["| " + " | ".join(_cells(line, widths)) + " |" for line in lines]
    return "\n".join([texts[0], "| " + " | ".join(rule) + " |", *texts[1:]])


def _cells(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [
        cell.ljust(width) if i in (0, 5) else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(line, widths, strict=True))
    ]


def number(value: float, unit: str) -> str:
    """Three digits that matter, thousands apart."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f} {unit}"
