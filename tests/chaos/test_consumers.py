"""Consumers that die, stand still, lose their Redis or are told to go, at every step between read and ack."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis

from tests.support.arena import Arena
from tests.support.consumers import Running, Seen
from tests.support.events import Stopwatch
from tests.support.mortal import GROUPS, STEPS, WAYS, possible
from tests.support.proxy import Fault, Proxy, Words, wait_for
from tests.support.worker import ROOT, Worker
from timerq import Event, TimerQueue
from timerq.clock import ask_redis
from timerq.codec import decode
from timerq.commands.command import Namespace
from timerq.commands.consume import RawDelivery, Settlement, receive, settle
from timerq.consumer import Consumer
from timerq.consumer.desk import Desk
from timerq.embedded import EmbeddedRedis
from timerq.keys import dead, hold, lease, reader, retry, stream
from timerq.link import Link
from timerq.lua import SCRIPTS
from timerq.model import Delivery
from timerq.testing import ManualClock

pytestmark = pytest.mark.one_server
GROUP = "g"
EVERY_MS = 300
PAST = "2020-01-01T00:00:00Z"


@pytest.fixture
def arena(redis_url: str) -> Any:
    with Arena(redis_url) as arena:
        yield arena


def arm_and_fire(arena: Arena, key: str, event: Event, **words: Any) -> None:
    """One event of a schedule, on its stream when this returns."""
    arena.queue.upsert(key, event, delay=0, **words)
    wait_for(lambda: arena.fire().published == 1, f"{key} has fired")


# ------------------------------------------------------------------------------------------------ what has gone


def _cancel(arena: Arena) -> None:
    assert not arena.queue.cancel("first", owner="o")  # it has fired; what is left behind is a floor


def _trim(arena: Arena) -> None:
    key = stream(arena.namespace.tags[0], b"events")
    arena.client.xdel(key, arena.client.xrange(key)[0][0])


def _rearm(arena: Arena) -> None:
    arena.queue.upsert("first", Event("t", "later"), delay="1h", owner="o")


@pytest.mark.parametrize("gone", [_cancel, _trim, _rearm])
def test_a_lane_goes_on_when_what_was_to_be_tried_again_has_gone(
    arena: Arena, gone: Callable[[Arena], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    arm_and_fire(arena, "first", Event("t", "first"), owner="o")
    arm_and_fire(arena, "second", Event("t", "second"), owner="o")
    seen = Seen()
    app = Consumer(arena.url, group=GROUP, ordered=True, drop_superseded=gone is _rearm)
    send = Desk._send

    async def sent(desk: Desk, items: Sequence[Settlement]) -> Sequence[str]:
        words = await send(desk, items)
        if items[0].verb == "retry":
            gone(
                arena
            )  # here nothing else is asked meanwhile: however slow the machine, it is not tried before
        return words

    monkeypatch.setattr(Desk, "_send", sent)

    @app.on("t", backoff="1s", max_backoff="1s")
    async def handle(event: Delivery) -> None:
        seen.add((event.payload, event.attempt))
        if event.payload == "first":
            raise ValueError("not now")

    with Running(app):
        seen.wait(lambda all: ("second", 1) in all)
    assert seen.all == [("first", 1), ("second", 1)]
    assert app.counts.stale + app.counts.gone == 1
    assert pending(arena.client, arena) == 0


def pending(client: redis.Redis, arena: Arena, group: str = GROUP) -> int:
    """How many entries a group has read and not settled."""
    found = 0
    for tag in arena.namespace.tags:
        infos = {info["name"]: info for info in client.xinfo_groups(stream(tag, b"events"))}
        found += infos[group.encode()]["pending"]
    return found


@pytest.mark.parametrize("runs", [False, True])
def test_a_lane_goes_on_when_the_whole_stream_has_gone(
    arena: Arena, redis_client: redis.Redis, runs: bool
) -> None:
    """Whether its first event waits to be tried again just then, or fails when the reader knows of it already."""
    seen, failed, may_fail = Seen(), threading.Event(), asyncio.Event()
    app = Consumer(arena.url, group=GROUP, ordered=True)

    @app.on("t", backoff="1h", max_backoff="1h")
    async def handle(event: Delivery) -> None:
        seen.add(event.payload)
        if event.payload == "first":
            failed.set()
            if runs:
                await may_fail.wait()
            raise ValueError("not now")
        if event.payload == "other":
            may_fail.set()

    arena.queue.publish(Event("t", "first"), key="lane")
    with Running(app):
        assert failed.wait(30)
        if not runs:
            wait_for(lambda: app.counts.retried == 1, "it waits to be tried again")
        redis_client.delete(stream(arena.namespace.tags[0], b"events"))
        arena.queue.publish(Event("t", "other"), key="another lane")
        seen.wait(2)
        if runs:
            wait_for(lambda: app.counts.lost == 1, "it has failed, and is nobody's")
        arena.queue.publish(Event("t", "second"), key="lane")
        seen.wait(3)
    assert seen.all == ["first", "other", "second"]
    assert nothing_is_left(redis_client, arena.namespace, GROUP)


# ------------------------------------------------------------------------------------------------ at every step


class Mortals(Worker):
    """The parent of tests/support/mortal.py."""

    says = "all are at work"

    def __init__(self, url: str, **environment: str) -> None:
        super().__init__(url, **environment)
        self._command = [sys.executable, "-m", "tests.support.mortal"]


class Note(NamedTuple):
    """What a handler did."""

    word: str
    id: str
    attempt: int
    lane: str
    who: str
    at_ms: int


def notes(client: redis.Redis, group: str) -> list[Note]:
    lines: list[bytes] = client.lrange(f"notes:{group}", 0, -1)  # type: ignore[assignment]
    found = []
    for line in lines:
        word, id, attempt, lane, who, at_ms = line.decode().split(" ")
        found.append(Note(word, id, int(attempt), lane, who, int(at_ms)))
    return found


def nothing_is_left(client: redis.Redis, namespace: Namespace, group: str) -> bool:
    """No event unread, pending, leased, waiting for a retry or held."""
    for tag in namespace.tags:
        infos = {info["name"]: info for info in client.xinfo_groups(stream(tag, b"events"))}
        info = infos.get(group.encode())
        if info is None or info["pending"] or info.get("lag"):
            return False
        if client.exists(*(key(tag, b"events", group.encode()) for key in (hold, lease, retry))):
            return False
    return True


def test_consumers_that_go_at_every_step(redis_url: str, redis_client: redis.Redis) -> None:
    with TimerQueue.connect(redis_url) as queue:
        queue.init(partitions=2)
        field = Field(redis_url, queue, redis_client)
        with Worker(redis_url), Mortals(redis_url) as mortals:
            wait_for(field.all_visited, "every step is visited", 120)
            redis_client.set("calm", 1)
            field.pause()
            for group in GROUPS:
                wait_for(
                    partial(nothing_is_left, redis_client, field.namespace, group), f"{group}: all is settled"
                )
            assert mortals.terminate() == 0
        field.check()


class Field:
    """What there is to be handled, and what must hold when all of it is."""

    def __init__(self, url: str, queue: TimerQueue, client: Any) -> None:
        assert queue.namespace is not None
        self.url = url
        self.queue, self.client, self.namespace = queue, client, queue.namespace
        self.published = 0
        self.ticks: list[str] = []
        for group in GROUPS:
            more: dict[str, Any] = {"every": EVERY_MS, "ack_group": group, "running_timeout": "1h"}
            for n in range(2):
                self.ticks += [f"skip-{group}-{n}", f"delay-{group}-{n}"]
                queue.upsert(f"skip-{group}-{n}", Event("tick"), overlap="skip", **more)
                queue.upsert(f"delay-{group}-{n}", Event("tick"), fixed_delay=True, **more)

    def pause(self) -> None:
        for key in self.ticks:
            self.queue.pause(key)

    def publish(self) -> None:
        """A few more, while the consumers keep up."""
        length = sum(self.client.xlen(stream(tag, b"events")) for tag in self.namespace.tags)
        settled = min(
            len({note.id for note in notes(self.client, group) if note.word == "ended"}) for group in GROUPS
        )
        if length - settled < 60 + self.published // 10:
            for n in range(self.published, self.published + 20):
                self.queue.publish(Event("bad" if n % 10 == 9 else "t", n), key=f"lane{n % 12}")
            self.published += 20

    def all_visited(self) -> bool:
        self.publish()
        visited = {name.decode() for name in self.client.hkeys("visits")}
        return wanted_visits() <= visited and all(self.queue.get(key).fired_total > 3 for key in self.ticks)

    # ------------------------------------------------------------------------------------------- what holds

    def check(self) -> None:
        visits = {name.decode(): int(count) for name, count in self.client.hgetall("visits").items()}
        assert sum(visits.values()) >= len(wanted_visits())
        events = self.events()
        bad = {id for id, event in events.items() if event[b"type"] == b"bad"}
        for group in GROUPS:
            told = notes(self.client, group)
            ended = {note.id for note in told if note.word == "ended"}
            letters = Counter(letter[b"id"].decode() for letter in self.letters(group))
            assert ended | set(letters) == set(events), group  # every event, at least once
            assert letters == dict.fromkeys(bad, 1), group  # given up once, and none but those
            check_attempts(told)
            self.check_acknowledgements(group, told)
        check_lanes(notes(self.client, "lanes"), list(events.values()))
        self.check_strangers(events)
        check_follow_ups(self.queue, events)

    def events(self) -> dict[str, dict[bytes, bytes]]:
        found = {}
        for tag in self.namespace.tags:
            for entry, fields in self.client.xrange(stream(tag, b"events")):
                found[fields[b"id"].decode()] = {**fields, b"entry": entry}
        return found

    def letters(self, group: str) -> list[dict[bytes, bytes]]:
        return [
            fields
            for tag in self.namespace.tags
            for _, fields in self.client.xrange(dead(tag, b"events", group.encode()))
        ]

    def check_acknowledgements(self, group: str, told: list[Note]) -> None:
        """Who waits for its events to be handled goes on when the one before is, and not sooner."""
        first_ended = {note.id: note.at_ms for note in reversed(told) if note.word == "ended"}
        for key in self.ticks:
            if key.split("-")[1] != group:
                continue
            fired = [event for event in self.events().values() if event[b"key"] == key.encode()]
            assert len(fired) > 3, key
            for before, after in pairwise(sorted(fired, key=lambda event: int(event[b"n"]))):
                handled_ms = first_ended[before[b"id"].decode()]
                least_ms = EVERY_MS if key.startswith("delay") else 0
                assert int(after[b"fired_ms"]) >= handled_ms + least_ms, key

    def check_strangers(self, events: dict[str, dict[bytes, bytes]]) -> None:
        """A group that has read nothing meanwhile finds each event as new."""
        ids = []
        link = Link(self.url, ask_redis)

        def read(partition: int) -> list[RawDelivery]:
            command = receive(self.namespace, partition, "events", "late", "c", count=200, lease_ms=60_000)
            (received,) = link.send([command])
            return list(received.deliveries)

        for partition in range(2):
            while brought := read(partition):
                ids += [raw.fields[b"id"].decode() for raw in brought]
                assert {(raw.delivery, raw.attempt) for raw in brought} == {(1, 1)}
        link.close()
        assert Counter(ids) == dict.fromkeys(events, 1)


def wanted_visits() -> set[str]:
    return {
        f"{group}: {step}: {way}"
        for group in GROUPS
        for step in STEPS
        for way in WAYS
        if possible(step, way, group)
    }


def check_attempts(told: list[Note]) -> None:
    """Each handling has a number of its own, unless it was cut short by a stop and handed back."""
    begun: dict[str, list[int]] = defaultdict(list)
    cut: Counter[str] = Counter()
    for note in told:
        if note.word == "begun":
            begun[note.id].append(note.attempt)
        elif note.word == "cut":
            cut[note.id] += 1
    for id, attempts in begun.items():
        assert len(attempts) - len(set(attempts)) <= cut[id], (id, attempts)
        assert len(attempts) <= max(attempts) + cut[id], (id, attempts)


def check_lanes(told: list[Note], events: list[dict[bytes, bytes]]) -> None:
    """None is begun before each one in front of it in its lane was handled, or given up."""
    lanes: dict[str, list[str]] = defaultdict(list)
    for event in events:  # a lane lies in one partition, and its events in the order of the stream
        if event[b"type"] != b"bad":
            lanes[event[b"key"].decode()].append(event[b"id"].decode())
    first: dict[tuple[str, str], int] = {}
    for place, note in enumerate(told):
        first.setdefault((note.word, note.id), place)
    for lane, ids in lanes.items():
        for before, after in pairwise(ids):
            story = [note for note in told if note.id in (before, after)]
            assert first["ended", before] < first["begun", after], (lane, story)


def check_follow_ups(queue: TimerQueue, events: dict[str, dict[bytes, bytes]]) -> None:
    """However often their handlers ran, in two groups: one timer for each event that armed one, at its instant."""
    armed = {schedule.key: schedule.at_ms for schedule in queue.list(prefix="follow@")}
    wanted = {
        f"follow@{id}": int(event[b"fired_ms"]) + 3_600_000
        for id, event in events.items()
        if event[b"type"] == b"t" and decode("application/msgpack", event[b"payload"]) % 4 == 0
    }
    assert armed == wanted


# ------------------------------------------------------------------------------------------------ lost and late answers


def listens(client: redis.Redis) -> bool:
    """Whether a read stands open."""
    clients: dict[str, int] = client.info("clients")
    return clients["blocked_clients"] > 0


def is_receive(words: Words, *, page: bool) -> bool:
    """Whether a command is receive.lua's: for what is held already, or for what is new."""
    return len(words) > 4 and words[1] == SCRIPTS["receive"].sha.encode() and (b"0-0" in words[-3:]) == page


def test_what_is_settled_while_it_is_told_as_held_is_not_begun_again(
    proxy: Proxy, arena: Arena, redis_client: redis.Redis
) -> None:
    seen = Seen()
    goes_on = threading.Event()
    app = Consumer(proxy.url, group=GROUP)
    faults: list[Fault] = []

    @app.on("t")
    async def handle(event: Delivery) -> None:
        if event.payload == 1:  # in the loop, before it asks for more
            faults.append(proxy.swallow_reply(partial(is_receive, page=False)))
            faults.append(proxy.hold_reply(partial(is_receive, page=True)))
        seen.add((event.payload, event.attempt))
        if event.payload == 1:
            assert await asyncio.to_thread(goes_on.wait, 30)

    with Running(app):
        arena.queue.publish(Event("t", 1), key="k1")
        seen.wait(1)
        lost, told = faults
        wait_for(lambda: listens(redis_client), "what is to be lost stands open")
        arena.queue.publish(Event("t", 2), key="k2")
        lost.wait()
        told.wait()  # it says that both are held
        goes_on.set()
        wait_for(lambda: pending(redis_client, arena) == 1, "the first is settled")
        wait_for(lambda: app.counts.handled == 1, "and it is known")
        told.release()
        wait_for(lambda: app.counts.handled == 2, "the second is settled too")
    assert sorted(seen.all) == [(1, 1), (2, 1)]
    assert app.counts.lost == 0


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_lane_stands_for_what_is_to_be_tried_again_also_where_the_lead_changes_meanwhile(
    proxy: Proxy, arena: Arena, redis_client: redis.Redis, is_answered: bool
) -> None:
    seen = Seen()
    app = Consumer(proxy.url, group=GROUP, ordered=True)

    @app.on("t", backoff="1s", max_backoff="1s")
    async def handle(event: Delivery) -> None:
        seen.add((event.payload, event.attempt))
        if event.payload == 1 and event.attempt == 1:
            raise ValueError("not now")

    tag = arena.namespace.tags[0]
    with Running(app):
        settled = proxy.hold_reply(lambda words: words[1:2] == [SCRIPTS["settle"].sha.encode()])
        arena.queue.publish(Event("t", 1), key="k")
        settled.wait()  # it is to be tried again, and its consumer does not know yet that this is known
        if is_answered:
            settled.release()
            wait_for(lambda: app.counts.retried == 1, "it knows")
        redis_client.delete(reader(tag, b"events", GROUP.encode()))  # its lead has ended: it leads anew
        arena.queue.publish(Event("t", 2), key="k")
        arena.queue.publish(Event("t", 3), key="another")
        seen.wait(lambda all: (3, 1) in all)
        settled.release()
        seen.wait(4)
    assert [one for one in seen.all if one[0] != 3] == [(1, 1), (1, 2), (2, 1)]


def test_connections_that_fail_and_a_redis_that_is_restarted(
    make_redis: Callable[..., EmbeddedRedis], tmp_path: Path
) -> None:
    server = make_redis(tmp_path, appendfsync="always")
    with Proxy(server.url) as proxy, TimerQueue.connect(server.url) as queue:
        queue.init(partitions=2)
        seen = {group: Seen() for group in GROUPS}
        apps = [
            Consumer(proxy.url, group=group, ordered=group == "lanes", concurrency=5, lease="2s")
            for group in GROUPS
            for _ in range(2)
        ]
        for app in apps:

            @app.on("t", attempts=1000, backoff="20ms", max_backoff="40ms")
            async def handle(event: Delivery) -> None:
                if event.payload % 7 == 3 and event.attempt == 1:
                    raise ValueError("not yet")
                seen[event.group].add(event)

        count = 0
        lost: dict[str, list[Fault]] = {"receive": [], "settle": [], "lead": []}

        def publish(many: int) -> None:
            nonlocal count
            for n in range(count, count + many):
                queue.publish(Event("t", n), key=f"lane{n % 6}")
            count += many

        with ExitStack() as stack:
            for app in apps:
                stack.enter_context(Running(app))
            for turn in range(12):
                publish(10)
                for name in lost:
                    lost[name].append(proxy.swallow_reply(partial(is_call, name)))
                if turn % 3 == 0:
                    proxy.close_connections()
                if turn in (4, 8):
                    server.kill()
                    server.start()
                publish(10)
                for each in seen.values():
                    each.wait(lambda all: len({event.id for event in all}) >= count - 20)
            for name, faults in lost.items():
                wait_for(partial(struck_often, faults), f"{name}: its answers are lost")
            assert queue.namespace is not None
            namespace = queue.namespace
            with redis.Redis.from_url(server.url) as client:
                for group in GROUPS:
                    wait_for(partial(nothing_is_left, client, namespace, group), f"{group}: all is settled")
    for group, each in seen.items():
        assert len(set(each.ids)) == count, group
    for lane in range(6):
        order = list(
            dict.fromkeys(event.payload for event in seen["lanes"].all if event.key == f"lane{lane}")
        )
        assert order == sorted(order)


def struck_often(faults: list[Fault]) -> bool:
    return sum(fault.struck for fault in faults) >= 5


def is_call(name: str, words: Words) -> bool:
    """Whether a command runs a script."""
    return words[1:2] == [SCRIPTS[name].sha.encode()]


# ------------------------------------------------------------------------------------------------ cancelled, destroyed

TIMES = 1000


class Group:
    """The consumers of a group that a test moves by hand: `read` and `settle` from a link of their own."""

    def __init__(self, arena: Arena) -> None:
        self.namespace = arena.namespace
        self.link = Link(arena.url, ask_redis)

    def read(self) -> list[RawDelivery]:
        command = receive(self.namespace, 0, "events", GROUP, "c", count=200, lease_ms=60_000)
        (received,) = self.link.send([command])
        return list(received.deliveries)

    def try_again(self, deliveries: list[RawDelivery]) -> None:
        """They failed, and are tried again at once."""
        items = [Settlement(raw.entry, raw.delivery, "retry", at_ms=1) for raw in deliveries]
        if items:
            self.link.send([settle(self.namespace, 0, "events", GROUP, "c", items)])


@pytest.mark.parametrize("verb", ["cancel", "destroy"])
def test_nothing_is_handed_out_once_it_is_cancelled_or_destroyed(arena: Arena, verb: str) -> None:
    """At one instant with fire and with receive. What was handed out before and failed is not handed out again."""
    group = Group(arena)
    came: Counter[str] = Counter()
    for turn in range(TIMES):
        owner = f"o{turn % 5}"
        words: dict[str, Any] = {"every": "1h", "start": PAST} if turn % 2 else {"delay": 0}
        arena.queue.upsert("k", Event("t"), owner=owner, **words)
        if turn % 3 == 0:
            arena.fire()
        end: Callable[[], object] = partial(arena.queue.cancel, "k", owner=owner)
        if verb == "destroy":
            end = arena.queue.owner(owner).destroy
        _, fired, brought = arena.duel(end, arena.fire, group.read)
        came["fired"] += fired.published
        came["handed out"] += len(brought)
        group.try_again(brought)
        arena.fire()
        assert group.read() == []
    assert 0 < came["handed out"] < TIMES
    assert 0 < came["fired"] < TIMES
    assert pending(arena.client, arena) == 0
    group.link.close()


# ------------------------------------------------------------------------------------------------ a hundred crashes

CRASHES = """
import os, signal, sys
from timerq import Event, TimerQueue
from timerq.consumer import Consumer
from timerq.embedded import EmbeddedRedis
from timerq.testing import ManualClock, fire_due

url = sys.argv[1]
clock = ManualClock("2026-01-01T00:00:00Z")
with TimerQueue.connect(url, clock=clock) as queue:
    queue.init(clock="manual")
    queue.publish(Event("t"), key="k")

def consume(turn):
    app = Consumer(TimerQueue.connect(url, clock=clock), group="g", lease="1s", declares=["follow"])

    @app.on("t", attempts=1000)
    async def handle(event, ctx):
        if turn % 4 == 1:  # between its two armings
            await ctx.schedule("follow", delay="1h")
            os.kill(os.getpid(), signal.SIGKILL)
        await ctx.schedule("follow", delay="1h")
        await ctx.schedule("follow", delay="2h", name="second")
        if turn < 100:
            os.kill(os.getpid(), signal.SIGKILL)
        assert event.attempt == 101, event.attempt
        app.request_stop()

    app.run()

def fork(turn):
    clock.advance("2s")
    pid = os.fork()
    if not pid:
        code = 1
        try:
            consume(turn)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

for turn in range(100):
    if turn == 60:
        clock.advance("3d")
        with TimerQueue.connect(url, clock=clock) as queue:
            fire_due(queue)
    assert fork(turn) == -signal.SIGKILL, turn
assert fork(100) == 0
clock.advance("3d")
with TimerQueue.connect(url, clock=clock) as queue:
    fire_due(queue)
    assert [*queue.list()] == []
"""


def test_a_handler_that_crashes_a_hundred_times_arms_one_timer(
    redis_url: str, redis_client: redis.Redis
) -> None:
    """Also when the timer has fired meanwhile, and three days have gone by."""
    subprocess.run([sys.executable, "-c", CRASHES, redis_url], check=True, cwd=ROOT)
    (key,) = redis_client.scan_iter("*:s:events")
    types = Counter(fields[b"type"] for _, fields in redis_client.xrange(key))
    assert types == {b"t": 1, b"follow": 2}


POISON = """
import os, signal, sys
import redis
from timerq import TimerQueue
from timerq.consumer import Consumer, suspects
from timerq.testing import ManualClock

url = sys.argv[1]
clock = ManualClock()
suspects.FIRST_S = suspects.MOST_S = 60  # none begins beside another one because that one's machine is slow

def consume():
    queue = TimerQueue.connect(url, clock=clock)
    app = Consumer(queue, group="g", ordered=sys.argv[2] == "1", concurrency=10, lease="1s")
    client = redis.Redis.from_url(url)

    @app.on("t", attempts=4)
    async def handle(event):
        client.rpush("begun", f"{event.payload} {event.attempt}")
        if event.payload == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        if event.payload == 9:
            app.request_stop()

    app.run()

codes = []
while codes[-1:] != [0] and len(codes) < 6:
    clock.advance("2s")  # what a consumer holds is its own until it has gone, however slow the machine
    pid = os.fork()
    if not pid:
        code = 1
        signal.alarm(60)  # where all is buried, nobody says when it is over
        try:
            consume()
            code = 0
        finally:
            os._exit(code)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
assert codes == [-signal.SIGKILL] * 4 + [0], codes
"""


@pytest.mark.parametrize("ordered", ["0", "1"])
def test_what_lies_beside_an_event_that_kills_its_consumers_is_handled(
    redis_url: str, redis_client: redis.Redis, ordered: str
) -> None:
    """It is dead after as many deaths as it may have attempts, and no other event loses more than two to it."""
    with TimerQueue.connect(redis_url, clock=ManualClock()) as queue:
        namespace = queue.init(clock="manual")
        for n in range(10):
            queue.publish(Event("t", n), key="k")
    subprocess.run([sys.executable, "-c", POISON, redis_url, ordered], check=True, cwd=ROOT)
    lines: list[bytes] = redis_client.lrange("begun", 0, -1)  # type: ignore[assignment]
    begun = [tuple(int(word) for word in line.split()) for line in lines]
    assert [attempt for n, attempt in begun if n == 4] == [1, 2, 3, 4]
    assert {n for n, _ in begun} == set(range(10))
    assert max(attempt for n, attempt in begun if n != 4) <= 3  # twice it was beside the one that killed
    assert min(attempt for n, attempt in begun if n > 4) == 2  # these lay beside it four times
    ((_, letter),) = redis_client.xrange(dead(namespace.tags[0], b"events", GROUP.encode()))
    assert (letter[b"attempts"], letter[b"error"]) == (
        b"4",
        b"handling 4 of 4 never ended: its process died, or lost the event",
    )
    assert nothing_is_left(redis_client, namespace, GROUP)


# ------------------------------------------------------------------------------------------------ told to go


class Consuming(Worker):
    """`python -m workers.consume` with the handlers of tests/support/handlers.py."""

    says = "reads stream"

    def __init__(self, url: str, **environment: str) -> None:
        super().__init__(url, **environment)
        self._command = [sys.executable, "-m", "workers.consume", "tests.support.handlers:app"]


@pytest.mark.parametrize("ordered", ["0", "1"])
def test_sigterm_hands_back_at_once_what_has_not_ended(
    arena: Arena, redis_client: redis.Redis, ordered: str
) -> None:
    """The next consumer has it long before the leases end, and what was not begun is on its first attempt."""
    for n in range(40):
        arena.queue.publish(Event("t", n * 7), key=f"k{n % 8}")
    with Consuming(arena.url, ORDERED=ordered, LEASE="10m", SLOW_S="600", DRAIN="200ms") as first:
        wait_for(lambda: redis_client.llen("begun") == 5, "five have begun")
        with Stopwatch() as watch:
            assert first.terminate() == 0
        assert watch.seconds < 20
    with Consuming(arena.url, ORDERED=ordered, LEASE="10m") as second:
        wait_for(lambda: nothing_is_left(redis_client, arena.namespace, GROUP), "all are settled")
        assert second.terminate() == 0
    lines: list[bytes] = redis_client.lrange("ended", 0, -1)  # type: ignore[assignment]
    ended = [line.split(b" ") for line in lines]
    assert len(ended) == len({id for id, *_ in ended}) == 40
    assert {attempt for _, attempt, *_ in ended} == {b"1"}
