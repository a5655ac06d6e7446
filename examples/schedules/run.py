"""A week of the schedules `morning` and `cleanup`, in a second:

    python examples/schedules/run.py

They are declared twice, in agent.yaml and on the functions of jobs.py. The file is applied, and the module found to say
the same. Then a clock that moves when it is told goes through a week with a clock change in it, and each event goes to
its function. It brings a Redis of its own.
"""

from __future__ import annotations

from pathlib import Path

from timerq import TimerQueue, tick_name
from timerq.declare import load, scheduled_functions
from timerq.declare.apply import apply, plan
from timerq.embedded import EmbeddedRedis
from timerq.tail import Published, Tail
from timerq.testing import ManualClock, fire_until

FILE = Path(__file__).with_name("agent.yaml")
THURSDAY, NEXT_THURSDAY = "2026-10-22T12:00:00Z", "2026-10-29T12:00:00Z"


def main() -> None:
    """Applies, lets the week pass, and prints what came."""
    clock = ManualClock(THURSDAY)
    with EmbeddedRedis() as server, TimerQueue.connect(server.url, clock=clock) as queue:
        namespace = queue.init(clock="manual")
        applied = apply(queue, load(FILE), prune=True)
        print("applied agent.yaml:", *applied.items)
        print("planned jobs.py:", plan(queue, load("jobs", "agent")).counts)
        functions = {function.name: function for function in scheduled_functions("jobs")}
        fire_until(queue, clock, NEXT_THURSDAY)
        with Tail(server.url, namespace, from_start=True, follow=False) as events:
            for event in events:
                assert isinstance(event, Published)
                print(tick_name(event.key, event.at_ms).ljust(28), functions[event.type].run(event))


if __name__ == "__main__":
    main()
