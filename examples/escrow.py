"""An escrow. What is held for an offer is paid out when the offer is accepted, and refunded after an hour otherwise.

    timerq consume examples.escrow:app      beside a dispatcher (timerq worker), as many of both as you like
    python examples/escrow.py               two offers, and a day that passes in a second

The deadline is a message that is delivered later. It waits in Redis, so it outlives the process that armed it and all
deploys in between, and comes to the lane of its offer like any other message: one at a time, in order.
"""

from __future__ import annotations

from pydantic import BaseModel

from timerq import AsyncContext, Consumer, Event, TimerQueue

app = Consumer(group="escrow", ordered=True)

held: dict[str, tuple[int, str]] = {}
"""Of each offer the amount and the key of its deadline. Yours is a table: it has to outlive deploys too."""


class Hold(BaseModel):
    """An offer for which an amount (cents) is held."""

    offer_id: str
    amount: int


class Offer(BaseModel):
    """An offer."""

    offer_id: str


@app.on("hold")
async def hold(offer: Hold, ctx: AsyncContext) -> None:
    # Run again after a crash, it finds the timer of its first run: its name is the type's, scoped to this event.
    deadline = await ctx.schedule("release", {"offer_id": offer.offer_id}, delay="1h")
    held[offer.offer_id] = offer.amount, deadline.key


@app.on("accept")
async def accept(offer: Offer, ctx: AsyncContext) -> None:
    if offer.offer_id not in held:
        return  # released already
    amount, deadline = held[offer.offer_id]
    pay_out(offer.offer_id, amount, idempotency_key=ctx.event.id)
    await ctx.cancel(deadline)  # left out, it would come, meet the guard of `release`, and do nothing
    del held[offer.offer_id]


@app.on("release")
async def release(offer: Offer, ctx: AsyncContext) -> None:
    if offer.offer_id not in held:
        return  # accepted already
    amount, _ = held[offer.offer_id]
    refund(offer.offer_id, amount, idempotency_key=ctx.event.id)
    del held[offer.offer_id]


def pay_out(offer_id: str, amount: int, *, idempotency_key: str) -> None:  # yours
    print(f"{offer_id}: {amount / 100:.2f} paid out")


def refund(offer_id: str, amount: int, *, idempotency_key: str) -> None:  # yours
    print(f"{offer_id}: {amount / 100:.2f} refunded")


# anywhere on the server -----------------------------------------------------------------------------------------------


def make_offer(queue: TimerQueue, offer_id: str, amount: int) -> None:
    queue.publish(Event("hold", {"offer_id": offer_id, "amount": amount}), key="hold", owner=offer_id)


def accept_offer(queue: TimerQueue, offer_id: str) -> None:
    queue.publish(Event("accept", {"offer_id": offer_id}), key="accept", owner=offer_id)


def expire_offer(queue: TimerQueue, offer_id: str, at: str) -> None:
    queue.upsert("expire-offer", Event("release", {"offer_id": offer_id}), at=at, owner=offer_id)


def main() -> None:
    """Two offers, of which one is accepted."""
    from timerq.testing import TestQueue

    with TestQueue("embedded:", handlers=app) as kit:
        make_offer(kit.queue, "offer-42", 1999)
        make_offer(kit.queue, "offer-43", 500)
        kit.advance("30m")
        accept_offer(kit.queue, "offer-42")
        kit.advance("1d")


if __name__ == "__main__":
    main()
