"""An agent that follows up: where nobody answers its message within ten minutes, it says something once more.

    timerq consume examples.follow_up:app   beside a dispatcher (timerq worker), as many of both as you like
    python examples/follow_up.py            two forums, and a day that passes in a second

A message of an agent arms the follow-up, or pushes it back; a message of a human cancels it. The follow-up's own
message is marked, so that it does not arm the next one. `timerq.patterns.follow_up` does the same with its own mark.
"""

from __future__ import annotations

from pydantic import BaseModel

from timerq import AsyncContext, Consumer, Event, TimerQueue

app = Consumer(group="follow-up", ordered=True)

DELAY = "10m"


class Message(BaseModel):
    """Somebody has said something in a forum."""

    forum_id: str
    participant_id: str
    text: str
    follow_up: bool = False


class Due(BaseModel):
    """It is time to follow up."""

    forum_id: str
    participant_id: str


def schedule_key(forum_id: str) -> str:
    return f"follow-up:{forum_id}"


@app.on("agent.message")
async def agent_said(message: Message, ctx: AsyncContext) -> None:
    if message.follow_up:
        return
    due = Due(forum_id=message.forum_id, participant_id=message.participant_id)
    event = Event("assistant.follow_up_due", due.model_dump())
    await ctx.schedule_upsert(schedule_key(message.forum_id), event, delay=DELAY)


@app.on("human.message")
async def human_said(message: Message, ctx: AsyncContext) -> None:
    # Also one that has come due and is not handled yet: cancelled is cancelled.
    await ctx.cancel(schedule_key(message.forum_id))


@app.on("assistant.follow_up_due")
async def follow_up(due: Due, ctx: AsyncContext) -> None:
    message = Message(**due.model_dump(), text="Are you still there?", follow_up=True)
    # A timer without a delay: published at once as by ctx.publish, and only once, should this run again.
    await ctx.schedule("agent.message", message.model_dump(), delay=0)


def say(queue: TimerQueue, type: str, forum_id: str, participant_id: str, text: str) -> None:
    message = Message(forum_id=forum_id, participant_id=participant_id, text=text)
    queue.publish(Event(type, message.model_dump()), key=forum_id)


def main() -> None:
    """Two forums: one human answers, the other does not."""
    from timerq.testing import TestQueue

    with TestQueue("embedded:", handlers=app) as kit:
        say(kit.queue, "agent.message", "forum-1", "agent", "How can I help?")
        say(kit.queue, "agent.message", "forum-2", "agent", "How can I help?")
        events = kit.advance("9m")
        say(kit.queue, "human.message", "forum-1", "ann", "My order is late.")
        for event in events + kit.advance("1d"):
            print(f"{event.fired_at:%H:%M}", event.type, event.payload)


if __name__ == "__main__":
    main()
