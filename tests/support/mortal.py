"""Consumers that die, stand still or are told to go, each by a plan of its own, and the parent that forks them.

`python -m tests.support.mortal`: two consumers for each of the groups `free` and `lanes` (the ordered one). A consumer
goes at the step of its plan; the parent wakes who stands still and forks another for who has gone. A fork is up in
a fraction of the time that a process of its own takes, so there are many deaths in a second. Until Redis has the key
`calm`; then they live. After SIGTERM all are told to go. It ends with 0 where each that was told to go did so with 0.

In Redis: the hash `visits` counts each step and way; the list `notes:<group>` has what the handlers did, in order.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import redis
import redis.asyncio

from timerq.commands.consume import Received, Settlement
from timerq.commands.lead import Lead
from timerq.consumer import AsyncContext, Consumer
from timerq.consumer.desk import Desk
from timerq.consumer.leader import Leader
from timerq.consumer.loop import Reader
from timerq.model import Delivery

GROUPS = ("free", "lanes")
LEASE_MS = 400
PATIENCE = 40
"""So many events a consumer handles under one plan."""
VERBS = ("ack", "retry", "reject", "extend", "begin", "back")
STEPS = (
    "leading",  # it has been told that it leads
    "received",  # receive has answered
    "starting",
    "begun",  # in the handler, before its effect
    "effect",  # … and behind it
    "ended",
    *(f"{when} {verb}" for verb in VERBS for when in ("sending", "sent")),  # sent: settle's answer is lost
)
WAYS = ("kill", "stop", "go")
BAD_ATTEMPTS = 3


def possible(step: str, way: str, group: str) -> bool:
    """Whether a group comes by a step, and may go that way there."""
    if group == "free" and step == "leading":
        return False
    return way != "go" or step in ("received", "starting", "begun", "effect", "sending ack", "sent ack")


class Plan:
    """Where a consumer goes, and how."""

    def __init__(self, url: str, group: str, luck: random.Random) -> None:
        self.group = group
        self.luck = luck
        self.client = redis.Redis.from_url(url)
        self.app: Consumer | None = None
        self.make()

    def make(self) -> None:
        """One of the steps that were visited least, unless it is to live."""
        visits: Any = self.client.hgetall("visits")
        choices = [(step, way) for step in STEPS for way in WAYS if possible(step, way, self.group)]
        self.luck.shuffle(choices)
        choices.sort(key=lambda choice: int(visits.get(self.name(*choice).encode(), 0)))
        few = choices[:4] if self.luck.random() < 0.7 else choices
        self.step, self.way = ("", "") if self.client.exists("calm") else self.luck.choice(few)
        self.left = self.luck.choice([1, 1, 2, 5])
        self.handled = 0

    def name(self, step: str, way: str) -> str:
        return f"{self.group}: {step}: {way}"

    def visit(self, step: str) -> None:
        """The consumer is at `step`."""
        if step != self.step:
            return
        self.left -= 1
        if self.left:
            return
        self.client.hincrby("visits", self.name(step, self.way), 1)
        if self.way == "go":
            self.go()
        elif self.way == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            os.kill(os.getpid(), signal.SIGSTOP)
            self.make()  # it has been woken

    def came(self) -> None:
        """An event has come to a handler. Who is to go when it hands back is told to stop first."""
        self.handled += 1
        if self.handled > PATIENCE:  # some steps come only when others have died
            self.make()
        if self.step.endswith("back") and self.handled == 3:
            self.left = 1
            self.go()

    def go(self) -> None:
        assert self.app is not None
        self.app.request_stop()


def tamper(plan: Plan) -> None:
    """Puts the steps into the consumer's methods."""

    def before(thing: type, name: str, step: str) -> None:
        method: Callable[..., Any] = getattr(thing, name)

        def visited(self: Any, *args: Any) -> Any:
            plan.visit(step)
            return method(self, *args)

        setattr(thing, name, visited)

    take, ask, send = Reader._take, Leader._ask, Desk._send

    def taken(self: Reader, received: Received, places: int) -> int:
        if received.deliveries:
            plan.visit("received")
        return take(self, received, places)

    async def asked(self: Leader, what: Any) -> Lead:
        lead = await ask(self, what)
        if lead.epoch:
            plan.visit("leading")
        return lead

    async def sent(self: Desk, items: Sequence[Settlement]) -> Sequence[str]:
        verbs = {item.verb for item in items}
        for verb in VERBS:
            if verb in verbs:
                plan.visit(f"sending {verb}")
        words = await send(self, items)
        for verb in VERBS:
            if verb in verbs:
                plan.visit(f"sent {verb}")
        return words

    Reader._take, Leader._ask, Desk._send = taken, asked, sent  # type: ignore[method-assign]
    before(Desk, "start", "starting")
    before(Desk, "_ended", "ended")


def consume(url: str, plan: Plan) -> None:
    """The life of one consumer."""
    app = plan.app = Consumer(
        url,
        group=plan.group,
        ordered=plan.group == "lanes",
        concurrency=8,
        lease=LEASE_MS,
        drain="50ms",
        declares=("follow",),
    )
    client = redis.asyncio.Redis.from_url(url)
    tamper(plan)

    async def note(word: str, event: Delivery) -> None:
        seconds, micros = await client.time()
        now_ms = seconds * 1000 + micros // 1000
        line = f"{word} {event.id} {event.attempt} {event.lane} {os.getpid()}/{event.delivery} {now_ms}"
        await client.rpush(f"notes:{plan.group}", line)

    @asynccontextmanager
    async def handling(event: Delivery) -> AsyncIterator[None]:
        try:
            await note("begun", event)
            plan.came()
            plan.visit("begun")
            yield
        except asyncio.CancelledError:  # its time to drain is up
            await note("cut", event)
            raise

    @app.on("t", attempts=1000, backoff="10ms", max_backoff="40ms")
    async def handle(event: Delivery, ctx: AsyncContext) -> None:
        async with handling(event):
            number = event.payload
            await asyncio.sleep(0.25 if number % 11 == 0 else 0)
            if number % 7 == 3 and event.attempt <= 2:
                raise ValueError("not yet")
            if number % 4 == 0:
                await ctx.schedule("follow", delay="1h")
            plan.visit("effect")
            await note("ended", event)

    @app.on("bad", attempts=BAD_ATTEMPTS, backoff="10ms", max_backoff="40ms")
    async def bad(event: Delivery) -> None:
        async with handling(event):
            plan.visit("effect")
            raise ValueError("never")

    @app.on("tick", attempts=1000)
    async def tick(event: Delivery) -> None:
        async with handling(event):
            await asyncio.sleep(0.02)
            plan.visit("effect")
            await note("ended", event)

    app.run()


class Parent:
    """Forks, wakes and replaces them."""

    def __init__(self, url: str, seed: int) -> None:
        self.url = url
        self.luck = random.Random(seed)
        self.children: dict[int, str] = {}
        self.sleepers: dict[int, float] = {}
        self.going = False
        self.failed = False

    def fork(self, group: str) -> None:
        seed = self.luck.random()
        pid = os.fork()
        if pid:
            self.children[pid] = group
            return
        code = 1
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD, signal.SIGTERM})
            random.seed(seed)
            consume(self.url, Plan(self.url, group, random.Random(seed)))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def run(self) -> int:
        heard = {signal.SIGCHLD, signal.SIGTERM}
        signal.pthread_sigmask(signal.SIG_BLOCK, heard)
        for group in GROUPS * 2:
            self.fork(group)
        print("all are at work", file=sys.stderr)
        while self.children:
            info = signal.sigtimedwait(heard, self.wait_s())
            if info is not None and info.si_signo == signal.SIGTERM:
                self.going = True
                for pid in self.children:
                    os.kill(pid, signal.SIGTERM)
            self.wake()
            self.reap()
        return int(self.failed)

    def wait_s(self) -> float:
        if not self.sleepers:
            return 1.0
        return max(0.0, min(self.sleepers.values()) - time.monotonic())

    def wake(self) -> None:
        for pid, until_s in list(self.sleepers.items()):
            if self.going or until_s <= time.monotonic():
                del self.sleepers[pid]
                os.kill(pid, signal.SIGCONT)

    def reap(self) -> None:
        while self.children:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if not pid:
                return
            if os.WIFSTOPPED(status):  # for less than a lease, or for longer
                sleep_s = 0 if self.going else self.luck.choice([0.05, 1.5]) * LEASE_MS / 1000
                self.sleepers[pid] = time.monotonic() + sleep_s
                continue
            group = self.children.pop(pid)
            self.sleepers.pop(pid, None)
            fine = {0, -signal.SIGKILL, *([-signal.SIGTERM] if self.going else [])}  # or it had not begun
            if os.waitstatus_to_exitcode(status) not in fine:
                print(f"a consumer of {group} has ended with status {status}", file=sys.stderr)
                self.failed = True
            if not self.going:
                self.fork(group)


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)
    sys.exit(Parent(os.environ["TIMERQ_REDIS_URL"], int(os.environ.get("SEED", "1"))).run())
