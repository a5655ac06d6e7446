"""Which events of an ordered group may run now.

A lane's events run one at a time, in the order of the stream. One that waits for a retry, or that somebody else still
holds, keeps its own lane standing and no other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")

MOST, MOST_BYTES = 20_000, 64 * 1024 * 1024
"""How many events are kept, and how large they may be, those in lanes that stand included."""


@dataclass(slots=True)
class _Waiting(Generic[T]):
    """One entry of a lane; ``thing`` is None while it cannot be run: it stands there to keep the others behind it."""

    entry: bytes
    thing: T | None


@dataclass(slots=True)
class _Lane(Generic[T]):
    entries: deque[_Waiting[T]] = field(default_factory=deque)
    running: bool = False
    listed: bool = False

    @property
    def standing(self) -> int:
        """How many entries are held up, since the first one cannot be run."""
        return (
            0 if self.running or not self.entries or self.entries[0].thing is not None else len(self.entries)
        )


class Lanes(Generic[T]):
    """What one reader of a partition holds for an ordered group; ``T`` is what it runs. Pure bookkeeping."""

    def __init__(self) -> None:
        self._lanes: dict[Hashable, _Lane[T]] = {}
        self._lane_of: dict[bytes, Hashable] = {}
        self._ready: deque[Hashable] = deque()
        self._over: set[bytes] = set()
        self._standing = 0

    def __len__(self) -> int:
        """How many entries it knows of: running, waiting for their turn, or standing."""
        return len(self._lane_of)

    def __contains__(self, entry: bytes) -> bool:
        return entry in self._lane_of

    @property
    def live(self) -> int:
        """How many entries are in lanes that do not stand."""
        return len(self._lane_of) - self._standing

    def room(self, ahead: int, largest: int) -> int:
        """How many more to read, where ``ahead`` living ones are enough and none has more than ``largest`` bytes.

        A lane that stands takes no room from the others, until there is too much of it to be kept.
        """
        most = max(ahead, min(MOST, MOST_BYTES // largest))
        return max(0, min(ahead - self.live, most - len(self)))

    def behind(self, entry: bytes) -> T | None:
        """What is to run next in the lane of the running ``entry``; None where nothing is, or it cannot yet."""
        place = self._lanes.get(self._lane_of.get(entry))
        return place.entries[1].thing if place is not None and len(place.entries) > 1 else None

    def line(self, entry: bytes, most: int) -> list[T]:
        """What runs behind ``entry`` in its lane, up to ``most`` of it and up to where the lane will stand."""
        place = self._lanes.get(self._lane_of.get(entry))
        found: list[T] = []
        for waiting in islice(place.entries if place is not None else (), 1, most + 1):
            if waiting.thing is None:
                break
            found.append(waiting.thing)
        return found

    @property
    def has_ready(self) -> bool:
        """Whether `next` may have one to give."""
        return bool(self._ready)

    def add(self, lane: Hashable, entry: bytes, thing: T | None) -> bool:
        """``entry`` has come, behind what came before it; with None for ``thing`` it stands until it comes again.

        One that is known takes its old place, unless it is running: then this is False and nothing changes.
        """
        known = self._lane_of.get(entry)
        if known is None:
            place = self._lanes.setdefault(lane, _Lane())
            self._standing -= place.standing
            place.entries.append(_Waiting(entry, thing))
            self._standing += place.standing
            self._lane_of[entry] = lane
            self._list(lane, place)
            return True
        place = self._lanes[known]
        for position, waiting in enumerate(place.entries):
            if waiting.entry == entry:
                if position == 0 and place.running:
                    return False
                self._standing -= place.standing
                waiting.thing = thing
                self._standing += place.standing
                self._list(known, place)
                return True
        return False

    def next(self) -> T | None:
        """The next one that may run, lanes taking turns; it is running from now on. None where none may."""
        while self._ready:
            name = self._ready.popleft()
            place = self._lanes.get(name)
            if place is None:
                continue
            place.listed = False
            if not place.running and place.entries and (thing := place.entries[0].thing) is not None:
                place.running = True
                return thing
        return None

    def done(self, entry: bytes) -> None:
        """It is over with ``entry``: the next of its lane may run. Unknown ones are nobody's trouble."""
        self._over.discard(entry)
        name = self._lane_of.pop(entry, None)
        if name is None:
            return
        place = self._lanes[name]
        self._standing -= place.standing
        if place.entries and place.entries[0].entry == entry:
            place.entries.popleft()
            place.running = False
        else:
            place.entries = deque(waiting for waiting in place.entries if waiting.entry != entry)
        self._standing += place.standing
        if place.entries:
            self._list(name, place)
        elif not place.running:
            del self._lanes[name]

    def gone(self, entry: bytes) -> None:
        """It never comes again: nothing waits for it. A running one is over with when it ends."""
        name = self._lane_of.get(entry)
        if name is None:
            return
        place = self._lanes[name]
        if place.running and place.entries[0].entry == entry:
            self._over.add(entry)
        else:
            self.done(entry)

    def stand(self, entry: bytes) -> None:
        """The running ``entry`` is tried again later: its lane stands until it is added again."""
        if entry in self._over:
            self.done(entry)
            return
        name = self._lane_of.get(entry)
        if name is None:
            return
        place = self._lanes[name]
        if place.entries[0].entry == entry:
            self._standing -= place.standing
            place.running = False
            place.entries[0].thing = None
            self._standing += place.standing

    def drop_waiting(self) -> list[T]:
        """Forgets all but the running ones; returns those that could have been run, in no order across lanes."""
        dropped: list[T] = []
        for name, place in list(self._lanes.items()):
            kept: deque[_Waiting[T]] = deque()
            for position, waiting in enumerate(place.entries):
                if position == 0 and place.running:
                    kept.append(waiting)
                    continue
                del self._lane_of[waiting.entry]
                if waiting.thing is not None:
                    dropped.append(waiting.thing)
            place.entries = kept
            if not kept:
                del self._lanes[name]
        self._standing = 0  # what is left is running
        return dropped

    def waiting(self) -> Iterator[T]:
        """What is held and not running."""
        for place in self._lanes.values():
            for position, waiting in enumerate(place.entries):
                if waiting.thing is not None and not (position == 0 and place.running):
                    yield waiting.thing

    def _list(self, name: Hashable, place: _Lane[T]) -> None:
        if not (place.listed or place.running) and place.entries and place.entries[0].thing is not None:
            place.listed = True
            self._ready.append(name)
