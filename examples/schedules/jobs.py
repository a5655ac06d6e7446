"""The schedules of a small agent, each on the function that handles its events.

    timerq plan examples.schedules.jobs --set agent
    timerq apply examples.schedules.jobs --set agent --prune
    timerq consume examples.schedules.jobs:app

An occurrence that comes while the one before it is still being handled is left out, and one that nobody was there to
fire is not made up for. A function that raises, or returns Incomplete, has failed: that is in the log, on the stream
``errors`` and in ``timerq why``, and stops no other schedule.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from timerq import Consumer, Incomplete, schedule

app = Consumer(group="agent")


@schedule(
    cron="0 9 * * MON-FRI",
    timezone="Europe/Paris",
    payload={"prompt": "Summarise yesterday."},
    overlap="skip",
    misfire="skip",
)
def morning(event: Any) -> str | Incomplete:
    finish_reason, report = ask_agent(event.payload["prompt"])
    if finish_reason != "stop":
        return Incomplete(finish_reason)
    return report


@schedule(cron="@daily", overlap="skip", misfire="skip")
def cleanup(fired_at: datetime) -> str:
    return f"cleaned up as of {fired_at:%a %d %b %H:%M} UTC"


app.add(morning, cleanup, attempts=1)


def ask_agent(prompt: str) -> tuple[str, str]:  # yours
    return "stop", f"the agent is asked: {prompt}"
