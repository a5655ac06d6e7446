"""What a dispatcher sends: fire, advance, trim, and its heartbeat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from timerq import keys
from timerq.commands.command import (
    MAX_ITEMS,
    NAMESPACE,
    Command,
    Namespace,
    Reply,
    Steps,
    command,
    read_lines,
)
from timerq.lua import Word
from timerq.timing import Planner, plan

LEASE_MS = 5000
"""How long a claimed schedule waits for its dispatcher before another one is asked."""

HEARTBEAT_TTL_MS = 6000
"""A dispatcher that was not heard for longer is taken for dead."""


@dataclass(slots=True)
class Handover:
    """A schedule whose calendar must be asked: ``definition`` and ``window`` are its record's fields x and w.

    ``word`` is ``refill`` (it is armed at ``at_ms``: the instant after that is wanted) or ``claimed`` (it is due at
    ``at_ms`` and not yet published: what becomes of it and of what was missed since, and what follows).
    """

    word: Literal["refill", "claimed"]
    id: bytes
    version: str
    n: str
    at_ms: int
    definition: str
    window: str


@dataclass(frozen=True, slots=True)
class Fired:
    """What one call of fire did: counts, µs until the next is due (None: nothing pending), and what it hands over.

    ``refused`` were held back or left out because their stream is full.
    """

    now_us: int
    published: int
    held: int
    dropped: int
    wait_us: int | None
    handovers: list[Handover]
    refused: int = 0


@dataclass(slots=True)
class Advance:
    """What a calendar said of a handover; ``hold`` is why it cannot be asked.

    ``at_ms`` is the occurrence to publish or to arm next (0: the schedule has ended), ``following_ms`` the one after it
    (0: there is none), ``missed`` how many more it stands for, ``skipped`` how many before it are left out and ``why``.
    """

    handover: Handover
    at_ms: int
    following_ms: int
    missed: int = 0
    skipped: int = 0
    hold: str | None = None
    why: str = "too late"


def fire(namespace: Namespace, partition: int, *, batch: int = MAX_ITEMS, lag_ms: int = 0) -> Command[Fired]:
    """Moves up to ``batch`` schedules that are overdue by ``lag_ms`` or more onto their streams."""
    return command(
        "fire",
        namespace,
        partition,
        read_fired,
        own_args={"batch": min(batch, MAX_ITEMS), "lag_ms": lag_ms, "lease_ms": LEASE_MS},
    )


def read_fired(reply: Reply) -> Fired:
    """Reads a reply of fire.lua."""
    now_us, lines = read_lines(reply)
    _, published, held, dropped, wait_us, refused = lines[0].split(" ")
    rest = iter(reply[1:])
    handovers = []
    for line in lines[1:]:
        word, version, n, at = line.split(" ")
        # what is stored may be no text: its calendar then refuses it, and the others of this reply are not lost with it
        id, definition, window = (
            next(rest),
            next(rest).decode(errors="replace"),
            next(rest).decode(errors="replace"),
        )
        kind: Literal["refill", "claimed"] = "refill" if word == "REFILL" else "claimed"
        handovers.append(Handover(kind, id, version, n, int(at), definition, window))
    return Fired(
        now_us,
        int(published),
        int(held),
        int(dropped),
        None if wait_us == "-" else int(wait_us),
        handovers,
        int(refused),
    )


def ask(planner: Planner, handover: Handover, now_ms: int) -> Advance:
    """What the planner says of a handover at ``now_ms`` (epoch ms), as a step for advance.lua."""
    if handover.word == "refill":
        # only what follows is wanted, though it may be due by now: what becomes of it is asked when it is claimed
        now_ms = min(now_ms, handover.at_ms - 1)
    try:
        plan = planner(handover.id, handover.definition, handover.window, handover.at_ms, now_ms)
    except Exception as error:  # a calendar that cannot be read must not stop the others
        return Advance(handover, handover.at_ms, 0, hold=f"{type(error).__name__}: {error}")
    return Advance(handover, plan.at_ms or 0, plan.then_ms or 0, plan.missed, plan.skipped, why=plan.why)


class FiredAll(NamedTuple):
    """What `fire_all` or `fire_partition` did: how many were published and how many held, and µs until the next is due
    (None: nothing is pending)."""

    published: int
    held: int
    wait_us: int | None


def fire_partition(namespace: Namespace, partition: int, planner: Planner = plan) -> Steps[FiredAll]:
    """Fires everything that is due in one partition."""
    published = held = 0
    wait_us: int | None = 0
    while wait_us == 0:
        (fired,) = yield [fire(namespace, partition)]
        published += fired.published
        held += fired.held
        wait_us = fired.wait_us
        if fired.handovers:
            now_ms = fired.now_us // 1000
            yield [advance(namespace, partition, [ask(planner, given, now_ms) for given in fired.handovers])]
            if any(given.word == "claimed" for given in fired.handovers):
                wait_us = 0  # what was asked about may be due
    return FiredAll(published, held, wait_us)


def fire_all(namespace: Namespace, planner: Planner = plan) -> Steps[FiredAll]:
    """Fires everything that is due, partition by partition."""
    found = []
    for partition in range(namespace.partitions):
        found.append((yield from fire_partition(namespace, partition, planner)))
    waits = [fired.wait_us for fired in found if fired.wait_us is not None]
    return FiredAll(
        sum(fired.published for fired in found), sum(fired.held for fired in found), min(waits, default=None)
    )


def advance(namespace: Namespace, partition: int, steps: Sequence[Advance]) -> Command[list[str]]:
    """Tells the scripts what calendars said; reads as ADVANCED, STALE or BROKEN … for each."""
    tag = namespace.tags[partition]
    item_args: list[Word] = []
    for step in steps:
        given = step.handover
        if step.hold is None:
            word, reason = given.word, step.why.encode()
        else:
            word, reason = "hold", step.hold[:200].encode("utf-8", "replace")  # type: ignore[assignment]
        item_args += (
            *(word, given.version, given.n, str(given.at_ms)),
            *(str(step.at_ms), str(step.following_ms), str(step.missed), str(step.skipped)),
            reason,
        )
    return command(
        "advance",
        namespace,
        partition,
        lambda reply: read_lines(reply)[1],
        item_keys=[keys.record(tag, step.handover.id) for step in steps],
        item_args=item_args,
    )


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What one call of trim removed from ``stream``; ``unread`` ones only beyond max_age or max_length.

    ``floors`` are those of cancelled keys and destroyed owners that are of no use any more; with ``more`` there is more
    to do at once.
    """

    stream: str | None
    read: int = 0
    unread: int = 0
    broken: str | None = None
    floors: int = 0
    more: bool = False


def trim(
    namespace: Namespace, partition: int, *, every_ms: int = 10_000, limit: int = 1000
) -> Command[Trimmed]:
    """Trims one stream that was not trimmed for ``every_ms``, by up to ``limit`` entries, and as many floors."""

    def read(reply: Reply) -> Trimmed:
        _, lines = read_lines(reply)
        word, _, rest = lines[0].partition(" ")
        _, count, more_word = lines[1].split(" ")
        floors, more = int(count), more_word == "1"
        if word == "IDLE":
            return Trimmed(None, floors=floors, more=more)
        stream = reply[1].decode()
        if word == "BROKEN":
            return Trimmed(stream, broken=rest, floors=floors, more=more)
        gone, unread = rest.split(" ")
        return Trimmed(stream, int(gone), int(unread), floors=floors, more=more)

    return command(
        "trim",
        namespace,
        partition,
        read,
        own_keys={"owners": keys.owners(namespace.tags[partition])},
        own_args={"every_ms": every_ms, "limit": limit},
    )


def beat(namespace: Namespace, dispatcher: str, *, leaving: bool = False) -> Command[list[str]]:
    """Says that ``dispatcher`` lives, or leaves; reads as the names of those that live."""

    def read(reply: Reply) -> list[str]:
        read_lines(reply)
        return [name.decode() for name in reply[1:]]

    return command(
        "beat",
        namespace,
        NAMESPACE,
        read,
        own_keys={"workers": keys.workers(namespace.name)},
        own_args={"dispatcher": dispatcher, "ttl_ms": HEARTBEAT_TTL_MS, "leaving": int(leaving)},
    )


def alive_dispatchers(namespace: Namespace) -> Command[list[str]]:
    """Reads as the names of the live dispatchers."""
    return beat(namespace, "")
