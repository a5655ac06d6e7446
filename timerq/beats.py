"""Which handles of owners have to be heard, and when: what `timerq.heartbeat` sends. No thread, no clock, no I/O."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple

from timerq.commands.command import MAX_ITEMS, Command, Namespace
from timerq.commands.owned import Life
from timerq.commands.owner import Heard, Owned, hear

logger = logging.getLogger("timerq.owner")

RETRY_S = 1.0
"""How soon a beat that Redis did not answer is sent again, at the latest."""

EARLY: Final = 0.25
"""By what part of its pause a beat comes early, to go with another one that is due."""

NAMED: Final = 3
"""So many owners are named in one line of the log."""


class Beat:
    """The heartbeat of one handle: three beats in its ttl."""

    def __init__(self, life: Life, namespace: Namespace, place: Owned) -> None:
        self.life = life
        self.namespace = namespace
        self.place = place
        self.usual_s = life.ttl_ms / 3000
        self.due_s = 0.0
        self.handle: weakref.finalize[Any, Any] | None = None
        self._drop: Callable[[Beat], None] | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether anybody has the handle, and has not stopped it."""
        return self.handle is not None and self.handle.alive

    def of(self, handle: object, drop: Callable[[Beat], None]) -> None:
        """Whose it is, and who is told when that is no more."""
        self._drop = drop
        self.handle = weakref.finalize(handle, drop, self)
        self.handle.atexit = False

    def stop(self) -> None:
        """No more of it; one that is on its way is heard to its end."""
        if self.handle is not None and self._drop is not None and self.handle.detach():
            self._drop(self)

    def heard(self, floor: int | None, now_s: float) -> bool:
        """What was answered; whether there is any point in the next one."""
        self.due_s = now_s + self.usual_s
        goes_on = self.life.beaten(self.place.incarnation, floor)
        if not goes_on and self.is_wanted and self.life.is_gone:
            logger.warning(
                "owner %s is gone: it was not heard in time, or was destroyed elsewhere", self.life.owner
            )
        return goes_on

    def missed(self, now_s: float) -> None:
        """Redis is away, which ends no owner: it may be back in time."""
        self.due_s = now_s + min(self.usual_s, RETRY_S)


class News(NamedTuple):
    """A beat that begins or ends; ``close``: all that are there end."""

    word: Literal["add", "drop", "close"]
    beat: Beat | None = None


class Load(NamedTuple):
    """One script call, and whose beats it carries."""

    command: Command[list[Heard]]
    beats: Sequence[Beat]


class Rounds:
    """Which beats there are, and which are due: pure, in seconds of whatever clock the caller has."""

    def __init__(self) -> None:
        self.beats: dict[Beat, None] = {}
        self._next_s = float("inf")

    def take(self, news: News, now_s: float) -> None:
        """Takes note of what begins or ends."""
        if news.word == "close":
            self.beats.clear()
        elif news.beat is None:
            return
        elif news.word == "drop":
            self.beats.pop(news.beat, None)
        else:
            news.beat.due_s = now_s + news.beat.usual_s
            self._next_s = min(self._next_s, news.beat.due_s)
            self.beats[news.beat] = None

    def wait_s(self, now_s: float) -> float:
        """How long nothing is due."""
        return max(0.0, self._next_s - now_s)

    def due(self, now_s: float) -> list[list[Load]]:
        """What is to be sent now: for each partition its calls, of which each is to follow the one before."""
        if now_s < self._next_s:
            return []
        places: dict[tuple[str, int], list[Beat]] = {}
        for beat in self.beats:
            if beat.due_s - EARLY * beat.usual_s <= now_s:
                places.setdefault((beat.namespace.name, beat.place.partition), []).append(beat)
                beat.due_s = float("inf")  # until it is answered
        self.again()
        return [[*_loads(beats)] for beats in places.values()]

    def heard(self, load: Load, answers: Sequence[Heard], now_s: float) -> None:
        """Tells each handle of a call what was answered."""
        for beat, answer in zip(load.beats, answers, strict=True):
            if isinstance(answer, Exception):
                self.missed(load._replace(beats=[beat]), answer, now_s)
            elif not beat.heard(answer, now_s):
                self.beats.pop(beat, None)
            self._next_s = min(self._next_s, beat.due_s)

    def missed(self, load: Load, error: Exception, now_s: float) -> None:
        """Nothing was answered."""
        for beat in load.beats:
            beat.missed(now_s)
            self._next_s = min(self._next_s, beat.due_s)
        names = [beat.life.owner for beat in load.beats if beat.is_wanted]
        if len(names) == 1:
            logger.warning("the heartbeat of owner %s was not heard: %s", names[0], error)
        elif names:
            named = ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")
            logger.warning("the heartbeats of %d owners (%s) were not heard: %s", len(names), named, error)

    def again(self) -> None:
        """Looks anew when the next is due."""
        self._next_s = min((beat.due_s for beat in self.beats), default=float("inf"))


def _loads(beats: Sequence[Beat]) -> Iterator[Load]:
    for first in range(0, len(beats), MAX_ITEMS):
        part = [beat for beat in beats[first : first + MAX_ITEMS] if beat.is_wanted]
        if part:
            command = hear(
                part[0].namespace,
                part[0].place.partition,
                [(beat.place, beat.life.ttl_ms) for beat in part],
            )
            yield Load(command, part)
