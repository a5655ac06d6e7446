"""Twenty thousand timers, three dispatchers, and everything that can happen to processes meanwhile.

Every acknowledged timer must be on the stream exactly once, none early, none after its confirmed cancel, none with a
replaced payload; and of each recurring schedule every occurrence, none twice.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.events import Events
from tests.support.proxy import wait_for
from tests.support.ticks import calendar, previewed, told
from tests.support.worker import Worker
from timerq import Event, Outcome, QueueUnavailable, TimerQueue, Upsert
from timerq.embedded import EmbeddedRedis
from timerq.tail import Published

TIMERS = 20_000
SECONDS = 20
PARTITIONS = 3


RECURRING: dict[str, dict[str, Any]] = {
    "cron": {"cron": "* * * * * *", "timezone": "Europe/Paris"},
    "catch up": {"cron": "* * * * * *", "misfire": "catch_up", "max_catch_up": 1000},
    "interval": {"every": 50},
    "jitter": {"every": 400, "jitter": 300},
    "skip": {"every": 500, "misfire": "skip", "grace": 700},
}
"""Not of the producers' keys: nobody changes them."""


class Ledger:
    """What was acknowledged: which versions must be published, with which payload and instant; which ones may be."""

    def __init__(self) -> None:
        self.due: dict[int, tuple[str, int, int]] = {}
        self.taken_back: dict[int, str] = {}
        self.unknown_payloads: set[int] = set()
        self.unknown_versions: set[int] = set()
        self._latest: dict[str, int] = {}

    def armed(self, key: str, payload: int, version: int, at_ms: int, replaced: int | None) -> None:
        if replaced is not None:
            self._take_back(replaced, "replaced")
        self.due[version] = (key, payload, at_ms)
        self._latest[key] = version

    def cancelled(self, version: int) -> None:
        self._take_back(version, "cancelled")

    def _take_back(self, version: int, why: str) -> None:
        # where it is not known, an unanswered call armed it
        if self.due.pop(version, None) is not None or version in self.unknown_versions:
            self.unknown_versions.discard(version)
        self.taken_back[version] = why

    def unanswered(self, key: str, payload: int | None) -> None:
        """Redis went away before it said what became of a call."""
        if payload is not None:
            self.unknown_payloads.add(payload)
        version = self._latest.get(key)
        if version in self.due:
            assert version is not None
            self.unknown_versions.add(version)  # it may have been replaced or cancelled
            del self.due[version]

    def faults(self, events: list[Published]) -> list[str]:
        """Every broken promise."""
        found = []
        for id, count in Counter(event.id for event in events).items():
            if count > 1:
                found.append(f"{count} times: {id}")
        for event in events:
            if event.fired_ms < event.at_ms:
                found.append(f"early: {event}")
            if event.key in RECURRING:
                continue
            if event.version in self.taken_back:
                found.append(f"{self.taken_back[event.version]} and yet published: {event}")
            elif event.version in self.due:
                if (event.key, event.payload, event.at_ms) != self.due[event.version]:
                    found.append(f"not as armed ({self.due[event.version]}): {event}")
            elif event.version not in self.unknown_versions and event.payload not in self.unknown_payloads:
                found.append(f"never armed: {event}")
        published = {event.version for event in events}
        found += [f"lost: {self.due[version]}" for version in self.due if version not in published]
        return found


class Producer(threading.Thread):
    """Replaces and cancels timers of its own share of the keys while they wait and fire."""

    def __init__(
        self, url: str, ledger: Ledger, keys: list[str], until: float, end_ms: int, seed: int
    ) -> None:
        super().__init__(daemon=True)
        self._queue = TimerQueue.connect(url)
        self._ledger, self._keys, self._until, self._end_ms = ledger, keys, until, end_ms
        self._random = random.Random(seed)
        self._payload = seed * 10_000_000
        self.calls: Counter[str] = Counter()
        self.fault: BaseException | None = None

    def run(self) -> None:
        try:
            with self._queue:
                while time.monotonic() < self._until:
                    self._change(self._random.choice(self._keys))
        except BaseException as error:
            self.fault = error

    def _change(self, key: str) -> None:
        payload = None
        try:
            if self._random.random() < 0.4:
                change = self._queue.cancel(key)
                self.calls[change.outcome] += 1
                if change.outcome is Outcome.CANCELLED:
                    self._ledger.cancelled(change.version)
                return
            payload = self._payload = self._payload + 1
            # most of them soon, so that the change meets its firing
            at = min(
                self._end_ms, int(time.time() * 1000) + self._random.choice([-5, 0, 1, 2, 20, 500, 3000])
            )
            handle = self._queue.upsert(key, Event("replaced", payload), at=at)
            self.calls[handle.outcome] += 1
            assert handle.at_ms is not None
            self._ledger.armed(key, payload, handle.version, handle.at_ms, handle.replaced_version)
        except QueueUnavailable:
            self.calls["unanswered"] += 1
            self._ledger.unanswered(key, payload)


@pytest.mark.slow
@pytest.mark.one_server
def test_every_promise_is_kept(make_redis: Callable[..., EmbeddedRedis], tmp_path: Path) -> None:
    seed = random.randrange(1000)
    print(f"seed {seed}")
    luck = random.Random(seed)
    server = make_redis(tmp_path, appendfsync="always")
    workers = [Worker(server.url) for _ in range(3)]
    try:
        with TimerQueue.connect(server.url) as queue:
            queue.init(partitions=PARTITIONS)
            for worker in workers:
                worker.start()
            with Events(server.url, queue.namespace) as events:
                _run(server, workers, queue, events, luck)
        assert [worker.terminate() for worker in workers] == [0, 0, 0]
        assert not any("Traceback" in line for worker in workers for line in worker.lines)
    finally:
        for worker in workers:
            if worker.alive:
                worker.kill()


def _run(
    server: EmbeddedRedis, workers: list[Worker], queue: TimerQueue, events: Events, luck: random.Random
) -> None:
    ledger = Ledger()
    start_ms = int(time.time() * 1000) + 1500
    end_ms = start_ms + SECONDS * 1000
    wanted = [
        Upsert(f"k{n}", Event("armed", n), at=start_ms + n * SECONDS * 1000 // TIMERS) for n in range(TIMERS)
    ]
    for upsert, handle in zip(wanted, queue.upsert_many(wanted), strict=True):
        assert not isinstance(handle, Exception)
        assert handle.at_ms is not None
        ledger.armed(upsert.key, upsert.event.payload, handle.version, handle.at_ms, None)

    firsts = {key: queue.upsert(key, Event("tick"), **words).at_ms for key, words in RECURRING.items()}

    until = time.monotonic() + SECONDS
    keys = [upsert.key for upsert in wanted]
    producers = [
        Producer(server.url, ledger, keys[share::2], until, end_ms, luck.randrange(1000) * 2 + share)
        for share in range(2)
    ]
    for producer in producers:
        producer.start()
    done = _chaos(server, workers, until, luck)
    for producer in producers:
        producer.join(60)
        assert producer.fault is None
    calls = sum((producer.calls for producer in producers), Counter[str]())
    print(done, calls, f"{len(ledger.due)} to be published")

    for worker in workers:
        worker.start()
        worker.wait_until_it_fires()
    events.wait(lambda seen: ledger.due.keys() <= {event.version for event in seen}, timeout_s=60)
    # those of which no answer came are not waited for above
    wait_for(lambda: queue.count() == len(RECURRING), "nothing else is left")
    _check_recurring(queue, events, firsts)
    assert ledger.faults(events.all) == []
    assert queue.stats().held == 0
    # it was no quiet walk
    assert min(done["kill"], done["freeze"], done["restart"]) >= 1
    assert min(calls[word] for word in ("REPLACED", "CREATED", "CANCELLED", "NOT_PENDING")) > 50


def _check_recurring(queue: TimerQueue, events: Events, firsts: dict[str, int]) -> None:
    """From the first to where the calendar goes on, every occurrence came once, or was counted as too late."""
    for key in RECURRING:
        assert queue.pause(key).outcome is Outcome.PAUSED
    for key, words in RECURRING.items():
        stored = queue.get(key)
        events.wait(stored.fired_total, key=key)
        found = events.of(key)
        assert [event.n for event in found] == list(range(1, stored.fired_total + 1))
        slots = calendar(stored)
        ticks = told(slots, [(event.at_ms, event.missed) for event in found])
        wanted = previewed(slots, firsts[key], stored.at_ms - 1)
        assert len(wanted) > SECONDS // 2
        if words.get("misfire") == "skip":
            assert ticks == sorted(set(ticks) & set(wanted))
            assert len(wanted) - len(ticks) == stored.skipped_total
            assert all(event.fired_ms - event.at_ms <= words["grace"] for event in found)
        else:
            assert ticks == wanted, key
        if words.get("misfire") == "catch_up":
            assert stored.missed_total == 0
    assert sum(queue.get(key).missed_total for key in RECURRING) > 0  # some were late


def _chaos(server: EmbeddedRedis, workers: list[Worker], until: float, luck: random.Random) -> Counter[str]:
    """Kills, freezes and restarts at random, until the time is up; all are thawed and alive again at the end."""
    done: Counter[str] = Counter()
    restart_at = until - SECONDS / 2
    frozen: dict[Worker, float] = {}

    def thaw(before: float) -> None:
        for worker in [worker for worker, end in frozen.items() if end <= before]:
            worker.thaw()
            del frozen[worker]

    while time.monotonic() < until:
        time.sleep(luck.uniform(0.02, 0.3))
        thaw(time.monotonic())
        worker = luck.choice(workers)
        if time.monotonic() > restart_at and not done["restart"]:
            done["restart"] += 1
            server.kill()
            server.start()
        elif worker in frozen:
            if luck.random() < 0.3:  # killed in its sleep
                del frozen[worker]
                worker.kill()
                worker.start(wait=False)
                done["kill"] += 1
        elif luck.random() < 0.5:
            worker.freeze()
            frozen[worker] = time.monotonic() + luck.choice([0.05, 0.3, 1.0, 3.0])
            done["freeze"] += 1
        else:
            worker.kill()
            worker.start(wait=False)
            done["kill"] += 1
    thaw(float("inf"))
    return done


def test_the_ledger_finds_what_is_wrong() -> None:
    """A check that cannot fail proves nothing."""

    def event(version: int, **other: Any) -> Published:
        values: dict[str, Any] = {
            "key": "k",
            "payload": 1,
            "at_ms": 50,
            "fired_ms": 50,
            "id": f"0-{version}-1",
        } | other
        return Published(
            partition=0, entry="1-1", type="t", tenant="default", owner=None, n=1, version=version, missed=0,
            content_type="", correlation={}, read_us=0, **values,
        )  # fmt: skip

    ledger = Ledger()
    ledger.armed("k", 1, 10, 50, None)
    assert ledger.faults([event(10)]) == []
    assert "lost" in ledger.faults([])[0]
    assert "2 times" in ledger.faults([event(10), event(10)])[0]
    assert "early" in ledger.faults([event(10, fired_ms=49)])[0]
    assert "not as armed" in ledger.faults([event(10, payload=2)])[0]
    assert "never armed" in ledger.faults([event(10), event(11)])[0]
    ledger.armed("k", 2, 20, 60, 10)
    assert "replaced" in ledger.faults([event(10), event(20, payload=2, at_ms=60, fired_ms=60)])[0]
    ledger.cancelled(20)
    assert "cancelled" in ledger.faults([event(20)])[0]
    assert ledger.faults([]) == []
    ledger.armed("k", 3, 30, 70, None)
    ledger.unanswered("k", 4)
    assert ledger.faults([]) == ledger.faults([event(30)]) == ledger.faults([event(40, payload=4)]) == []
