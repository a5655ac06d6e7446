"""What to do about a schedule that is held."""

from __future__ import annotations

from timerq.model import Schedule

_HELP = (
    ("WRONGTYPE", "what lies under the name of its stream in Redis is no stream: rename that, or delete it"),
    ("timezone", "install newer time zones (tzdata) where the dispatchers run, or set it with another zone"),
    ("OOM", "give Redis more memory"),
    ("NOPERM", "let the user of the dispatchers write there (Redis's ACL rules)"),
)


def mending(schedule: Schedule) -> str:
    """How to mend what holds it, and what ends that in any case."""
    for word, text in _HELP:
        if schedule.held is not None and word in schedule.held:
            return f"To mend it, {text}; it then fires by itself."
    return "Once the cause is gone it fires by itself; setting it again or cancelling it ends that too."
