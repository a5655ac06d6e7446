"""What was promised to the demo's timers, and what came of it: the sums that `timerq demo` prints."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from timerq.cli.show import jsonable
from timerq.client import Handle
from timerq.model import Change, Outcome
from timerq.tail import Published

Identity = tuple[str, str | None, int]
"""Key, owner and version: one acknowledged one-shot."""


@dataclass(frozen=True, slots=True)
class Promise:
    """When it is due (epoch ms), and as what."""

    at_ms: int
    type: str
    payload: str


@dataclass(slots=True)
class Report:
    """Counts of promises, then of broken ones, then lags in ms.

    ``lag_…`` is by Redis's clock alone (published - due), the others are at the reader (read - due): of all, of those
    due before a dispatcher was killed, and of those due after it.
    """

    due: int = 0
    fired: int = 0
    cancelled: int = 0
    cancelled_too_late: int = 0
    replaced: int = 0
    duplicated: int = 0
    lost: int = 0
    early: int = 0
    wrong_payload: int = 0
    revived: int = 0
    unknown: int = 0
    lag_p50_ms: float | None = None
    lag_p99_ms: float | None = None
    reader_lag_p50_ms: float | None = None
    reader_lag_p99_ms: float | None = None
    before_kill_p50_ms: float | None = None
    before_kill_p99_ms: float | None = None
    after_kill_p50_ms: float | None = None
    after_kill_p99_ms: float | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def broken(self) -> bool:
        """Whether any promise was."""
        return bool(
            self.duplicated
            or self.lost
            or self.early
            or self.wrong_payload
            or self.revived
            or self.unknown
            or self.problems
        )

    def words(self) -> dict[str, Any]:
        """The report as JSON."""
        return {**asdict(self), "kept": not self.broken}


class Ledger:
    """Told by one thread what was acknowledged, by another what came; events may come before their acknowledgement."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._promised: dict[Identity, Promise] = {}
        self._withdrawn: dict[Identity, str] = {}
        self._came: dict[Identity, list[Published]] = {}
        self._outstanding = 0
        self._too_late = 0
        self.seen = 0
        self.killed_ms: int | None = None

    def armed(self, handle: Handle, value: dict[str, Any]) -> None:
        """An upsert was acknowledged; ``value`` has its words."""
        if handle.outcome not in (Outcome.CREATED, Outcome.REPLACED) or handle.at_ms is None:
            return
        with self._changed:
            if handle.replaced_version is not None:
                self._withdraw((handle.key, handle.owner, handle.replaced_version), "replaced")
            identity = (handle.key, handle.owner, handle.version)
            event = value["event"]
            self._promised[identity] = Promise(handle.at_ms, event["type"], _text(event.get("payload")))
            self._outstanding += identity not in self._came
            self._changed.notify_all()

    def cancelled(self, change: Change) -> None:
        """A cancel was answered: one that found nothing leaves the promise, as its timer must have fired."""
        with self._changed:
            if change.outcome is Outcome.CANCELLED:
                self._withdraw((change.key, change.owner, change.version), "cancelled")
            else:
                self._too_late += 1
            self._changed.notify_all()

    def saw(self, event: Published) -> None:
        """An event was read from the stream."""
        identity = (event.key, event.owner, event.version)
        with self._changed:
            self.seen += 1
            first = identity not in self._came
            self._came.setdefault(identity, []).append(event)
            self._outstanding -= first and identity in self._promised
            self._changed.notify_all()

    def _withdraw(self, identity: Identity, why: str) -> None:
        self._withdrawn[identity] = why
        if self._promised.pop(identity, None) is not None:
            self._outstanding -= identity not in self._came

    @property
    def due(self) -> int:
        """How many promises stand."""
        return len(self._promised)

    @property
    def complete(self) -> bool:
        """Whether all that must come has come."""
        return self._outstanding == 0

    def wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Until ``condition``, which is looked at whenever something changes; False after ``timeout_s``."""
        with self._changed:
            return self._changed.wait_for(condition, max(0.0, timeout_s))

    def latest_ms(self) -> int:
        """The last instant at which something is due (epoch ms)."""
        with self._changed:
            return max((promise.at_ms for promise in self._promised.values()), default=0)

    def report(self) -> Report:
        """The sums."""
        with self._changed:
            report = Report(due=len(self._promised), cancelled_too_late=self._too_late)
            ways = list(self._withdrawn.values())
            report.cancelled, report.replaced = ways.count("cancelled"), ways.count("replaced")
            lags: list[float] = []
            before: list[float] = []
            after: list[float] = []
            for identity, events in self._came.items():
                report.duplicated += len(events) - 1
                promise = self._promised.get(identity)
                if promise is None:
                    report.revived += identity in self._withdrawn
                    report.unknown += identity not in self._withdrawn
                    continue
                event = events[0]
                report.fired += 1
                report.early += event.fired_ms < promise.at_ms or event.read_us < promise.at_ms * 1000
                report.wrong_payload += (
                    event.type != promise.type
                    or event.at_ms != promise.at_ms
                    or _text(event.payload) != promise.payload
                )
                lags.append(event.fired_ms - promise.at_ms)
                alone = self.killed_ms is not None and promise.at_ms > self.killed_ms
                (after if alone else before).append(event.read_us / 1000 - promise.at_ms)
            report.lost = report.due - report.fired
            report.lag_p50_ms, report.lag_p99_ms = quantile(lags, 0.5), quantile(lags, 0.99)
            everything = before + after
            report.reader_lag_p50_ms, report.reader_lag_p99_ms = (
                quantile(everything, 0.5),
                quantile(everything, 0.99),
            )
            report.before_kill_p50_ms, report.before_kill_p99_ms = (
                quantile(before, 0.5),
                quantile(before, 0.99),
            )
            report.after_kill_p50_ms, report.after_kill_p99_ms = quantile(after, 0.5), quantile(after, 0.99)
            return report


def quantile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least ``share`` of them do not exceed; None of none."""
    if not values:
        return None
    ordered = sorted(values)
    return round(ordered[max(0, -(-int(share * 100) * len(ordered) // 100) - 1)], 3)


def _text(payload: Any) -> str:
    """A payload for comparing: 1, 1.0 and true stay apart."""
    return json.dumps(jsonable(payload), sort_keys=True)
