"""The schedules of a small agent, each on the function that handles its events.

timerq plan examples.schedules.jobs --set agent
timerq apply examples.schedules.jobs --set agent --prune
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from timerq import schedule


@schedule(cron="0 9 * * MON-FRI", timezone="Europe/Paris", payload={"prompt": "Summarise yesterday."})
def morning(event: Any) -> str:
    return f"the agent is asked: {event.payload['prompt']}"


@schedule(cron="@daily")
def cleanup(fired_at: datetime) -> str:
    return f"cleaned up, as of {fired_at:%A, %d %B, %H:%M} UTC"
