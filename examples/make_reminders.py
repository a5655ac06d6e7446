"""Makes reminders.jsonl and reminders-changes.jsonl: the timers that a web shop and its help desk arm in a busy minute.

    python examples/make_reminders.py            writes both beside this file; the same bytes each time

``reminders.jsonl`` holds 2,400 one-shots, a line each, for `timerq upsert --file` and `timerq demo`: abandoned carts,
payments that time out, reminders of appointments and reviews, follow-ups, late parcels, and the deadlines of tickets.
Their delays are those of a shop made small: what takes days there is due within about ten seconds here. 200 of them
are due at once, as after a newsletter.

``reminders-changes.jsonl`` is what happens while they wait: ``{"after": "2.4s", "cancel": {"key": …}}`` (paid,
answered, delivered) and ``{"after": "3.1s", "upsert": {…}}`` (the customer came back to the cart, the appointment was
moved). Some come at the very moment at which the timer is due, so that either may win.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

SEED = 20_300_131
FIRST_MS, LAST_MS = 500, 10_500
NEWSLETTER_MS = 6_000

NAMES = (
    "Ada Lovelace",
    "Søren Kjær",
    "Zoë Müller",
    "山田 花子",
    "José Núñez",
    "Nguyễn Thị Ánh",
    "Olena Ковальчук",
)
GOODS = (
    "kettle",
    "tent for two",
    "reading lamp",
    "bicycle bell",
    "chess set",
    "rain jacket 🧥",
    "6 m of rope",
)
CURRENCIES = ("EUR", "USD", "JPY")

dice = random.Random(SEED)


def whole(low: int, high: int) -> int:
    """A number from low to high; made of random(), whose sequence no Python version changes."""
    return low + int(dice.random() * (high - low + 1))


def one_of(things: tuple[Any, ...]) -> Any:
    return things[whole(0, len(things) - 1)]


def customer() -> dict[str, Any]:
    number = whole(1, 900)
    return {"id": number, "name": one_of(NAMES), "vip": dice.random() < 0.05}


def cart(i: int) -> dict[str, Any]:
    items = [
        {"sku": f"S-{whole(100, 999)}", "what": one_of(GOODS), "count": whole(1, 3)}
        for _ in range(whole(1, 4))
    ]
    return timer(f"cart:{i}:abandoned", "cart.abandoned", {"cart": i, "customer": customer(), "items": items})


def payment(i: int) -> dict[str, Any]:
    money = {"cents": whole(199, 250_000), "currency": one_of(CURRENCIES)}
    found = timer(f"payment:order-{i}:timeout", "payment.timed_out", {"order_id": i, "total": money})
    found["event"]["correlation"] = {
        "request": f"req-{whole(0, 16**8 - 1):08x}",
        "checkout": str(whole(1, 4)),
    }
    return found


def review(i: int) -> dict[str, Any]:
    return timer(
        f"reminder:order-{i}:review",
        "order.review_requested",
        {"order_id": i, "what": one_of(GOODS), "stars": None},
    )


def appointment(i: int) -> dict[str, Any]:
    customer_of = customer()
    place = {"shop": one_of(("Lyon", "Kraków", "Århus")), "desk": whole(1, 12), "share": whole(1, 99) / 100}
    return timer(
        "reminder/appointment",
        "appointment.reminder",
        {"appointment": i, "at": place},
        f"customer {customer_of['id']}#{i}",
    )


def parcel(i: int) -> dict[str, Any]:
    found = timer(f"parcel:{i}:late", "parcel.late", {"parcel": i, "route": [whole(1, 40) for _ in range(5)]})
    found["event"]["codec"] = "json"
    return found


def first_response(i: int) -> dict[str, Any]:
    return timer(
        "sla:first-response", "sla.first_response_due", {"ticket": i, "queue": "help"}, f"ticket-{i}"
    )


def resolution(i: int) -> dict[str, Any]:
    levels = [{"after_minutes": 30 * step, "tell": one_of(NAMES)} for step in range(whole(1, 3))]
    return timer("sla:resolution", "sla.resolution_due", {"ticket": i, "escalation": levels}, f"ticket-{i}")


def follow_up(i: int) -> dict[str, Any]:
    return timer(
        "follow-up",
        "ticket.follow_up",
        {"ticket": i, "note": f"ask {one_of(NAMES)} whether it holds"},
        f"ticket-{i}",
    )


def newsletter(i: int) -> dict[str, Any]:
    return timer(
        f"newsletter:2030-01:{i:04}", "newsletter.send", {"to": whole(1, 900)}, delay_ms=NEWSLETTER_MS
    )


def timer(
    key: str, event_type: str, payload: dict[str, Any], owner: str | None = None, delay_ms: int | None = None
) -> dict[str, Any]:
    found: dict[str, Any] = {"key": key}
    if owner is not None:
        found["owner"] = owner
    found["event"] = {"type": event_type, "payload": payload}
    found["delay"] = delay_text(whole(FIRST_MS, LAST_MS) if delay_ms is None else delay_ms)
    return found


def delay_text(ms: int) -> str:
    """As people write them."""
    if ms % 1000 == 0:
        return f"{ms // 1000}s"
    return f"{ms}ms" if ms % 100 else f"{ms / 1000:.1f}s"


def delay_ms(text: str) -> int:
    return int(text[:-2]) if text.endswith("ms") else round(float(text[:-1]) * 1000)


KINDS: tuple[tuple[Callable[[int], dict[str, Any]], int], ...] = (
    (cart, 500),
    (payment, 500),
    (review, 250),
    (appointment, 250),
    (parcel, 200),
    (first_response, 200),
    (resolution, 200),
    (follow_up, 100),
    (newsletter, 200),
)
CANCELLED, REPLACED = 0.14, 0.16


def altered(original: dict[str, Any]) -> dict[str, Any] | None:
    """What happens to a timer while it waits; nothing to most of them."""
    roll = dice.random()
    if roll > CANCELLED + REPLACED:
        return None
    due_ms = delay_ms(original["delay"])
    # Most changes come in good time; every tenth about when the timer is due.
    after_ms = due_ms + whole(-50, 200) if dice.random() < 0.1 else int(due_ms * (0.2 + 0.6 * dice.random()))
    if roll <= CANCELLED:
        cancel = {name: original[name] for name in ("key", "owner") if name in original}
        return {"after": f"{after_ms}ms", "cancel": cancel}
    event = original["event"]
    payload = {**event["payload"], "changed": whole(1, 9)}
    later = {
        **original,
        "event": {**event, "payload": payload},
        "delay": delay_text(max(0, LAST_MS - after_ms) // 2),
    }
    return {"after": f"{after_ms}ms", "upsert": later}


def make() -> tuple[str, str]:
    """The texts of both files."""
    dice.seed(SEED)
    timers = [make_one(number) for make_one, count in KINDS for number in range(1001, 1001 + count)]
    order = sorted(range(len(timers)), key=lambda _: dice.random())
    timers = [timers[place] for place in order]
    changes = [change for found in timers if (change := altered(found)) is not None]
    changes.sort(key=lambda change: delay_ms(change["after"]))
    return lines(timers), lines(changes)


def lines(things: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(thing, ensure_ascii=False) + "\n" for thing in things)


if __name__ == "__main__":
    here = Path(__file__).parent
    for name, text in zip(("reminders", "reminders-changes"), make(), strict=True):
        (here / f"{name}.jsonl").write_text(text, encoding="utf-8")
