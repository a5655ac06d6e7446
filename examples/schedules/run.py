"""A week of the schedules `morning` and `cleanup`, in a second:

    python examples/schedules/run.py

They are declared twice, in agent.yaml and on the functions of jobs.py. The file is applied, and the module found to say
the same. Then a clock that moves when it is told goes through a week with a clock change in it, and the consumer of
jobs.py runs the functions. What came of each is kept with its schedule. It brings a Redis of its own.
"""

from __future__ import annotations

from pathlib import Path

from jobs import app

from timerq import tick_name
from timerq.declare import load
from timerq.declare.apply import apply, plan
from timerq.testing import ManualClock, TestQueue

FILE = Path(__file__).with_name("agent.yaml")
THURSDAY, NEXT_THURSDAY = "2026-10-22T12:00:00Z", "2026-10-29T12:00:00Z"


def main() -> None:
    """Applies, lets the week pass, and prints what came."""
    with TestQueue("embedded:", clock=ManualClock(THURSDAY)) as kit:
        applied = apply(kit.queue, load(FILE), prune=True)
        print("applied agent.yaml:", *applied.items)
        print("planned jobs.py:", plan(kit.queue, load("jobs", "agent")).counts)
        events = kit.set(NEXT_THURSDAY, app)
        summaries = {
            (schedule.key, fire.at_ms): fire.summary
            for schedule in kit.queue.list()
            for fire in schedule.fires
        }
        for event in events:
            print(tick_name(event.key, event.at_ms).ljust(28), summaries[event.key, event.at_ms])


if __name__ == "__main__":
    main()
