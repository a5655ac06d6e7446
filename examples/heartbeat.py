"""Actors with timers of their own: a heartbeat, a poll, and an idle time-out.

    timerq consume examples.heartbeat:app   beside a dispatcher (timerq worker), as many of both as you like
    python examples/heartbeat.py            the life of one actor, a quarter of an hour in a second

An actor is an owner. Its timers die with it: when it is stopped, restarted, or its process is killed. What they send
comes through the actor's lane like any other message: one at a time, in order, tried again where a handler fails.
"""

from __future__ import annotations

import logging

from timerq import AsyncContext, Consumer, Delivery, Event, Owner, TimerQueue

log = logging.getLogger("heartbeat")

app = Consumer(group="heartbeats", ordered=True)

TICK, POLL, IDLE = Event("tick"), Event("poll"), Event("idle")


def spawn(queue: TimerQueue, name: str) -> Owner:
    """Starts an actor; its timers live as long as this handle, and its process."""
    timers = queue.owner(name, ttl="15s")
    start(timers)
    return timers


def start(timers: Owner) -> None:
    # The first tick comes after 5 s; with initial_delay=0, at once.
    timers.start_fixed_delay("hb", TICK, "5s")
    timers.start_fixed_rate("poll", POLL, "30s")
    timers.start_single("idle", IDLE, "5m")


def restart(timers: Owner) -> None:
    """What a supervisor does: nothing of the old incarnation is left, or delivered."""
    timers.restart()
    start(timers)


@app.on("tick")
def on_tick(event: Delivery) -> None:
    log.info("%s: heartbeat", event.owner)


@app.on("poll")
def on_poll(event: Delivery) -> None:
    log.info("%s: polls", event.owner)


@app.on("set")
async def on_set(event: Delivery, ctx: AsyncContext) -> None:
    # The same key: the old timer is replaced. And it is a sign of life.
    await ctx.start_fixed_delay("hb", TICK, event.payload["interval_ms"])
    await ctx.start_single("idle", IDLE, "5m")


@app.on("idle")
async def on_idle(event: Delivery, ctx: AsyncContext) -> None:
    log.info("%s: idle", event.owner)
    await ctx.cancel("poll")


def main() -> None:
    """One actor from start to end."""
    from timerq.testing import TestQueue

    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    log.setLevel(logging.INFO)
    with TestQueue("embedded:", handlers=app) as kit:
        timers = spawn(kit.queue, "sensor-1")
        kit.advance("15s")
        timers.publish(Event("set", {"interval_ms": 120_000}), key="set")
        kit.advance("10m")
        print("active:", *timers.active_keys())
        timers.destroy()
        kit.advance("5m")
        print("destroyed:", timers.active_keys())


if __name__ == "__main__":
    main()
