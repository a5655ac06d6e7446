"""done, backfill, next, resume from now: what only recurring schedules have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from timerq import keys
from timerq.commands import edit
from timerq.commands.cancel import locate
from timerq.commands.command import (
    MAX_ITEMS,
    Command,
    Durability,
    Reply,
    Scope,
    Steps,
    command,
    read_lines,
)
from timerq.commands.items import one
from timerq.commands.read import get
from timerq.errors import BacklogFull, ContractBroken, InvalidSchedule, QueueUnavailable
from timerq.model import Backfilled, Change, Outcome, Schedule, State, check_text, to_datetime
from timerq.timing import (
    MAX_INSTANT_MS,
    Instant,
    is_asked,
    occurrences_of,
    resolve_instant,
)
from timerq.timing.occurrences import Occurrences

MAX_NEXT = 1000
"""The largest ``n`` of `next`."""

MAX_BACKFILL = 100_000
"""The most occurrences that one backfill publishes."""

_MAX_ERROR = 1000  # characters; the script keeps 200 bytes


def done(scope: Scope, event_id: str, error: str | None) -> Steps[Change]:
    """Says that an event is handled, or that handling it has failed; raises `InvalidSchedule` for a bad id."""
    event = check_text("event_id", event_id)
    partition_text, _, rest = event_id.partition("-")
    known = partition_text.isascii() and partition_text.isdigit() and len(partition_text) <= 4 and rest
    if not known or int(partition_text) >= scope.namespace.partitions:
        raise InvalidSchedule("event_id", event_id, "want the id of an event of this namespace")
    partition = int(partition_text)
    tag = scope.namespace.tags[partition]

    def read(reply: Reply) -> Change:
        _, lines = read_lines(reply)
        words = lines[0].split(" ")
        key, owner = "", None
        if len(reply) > 1:
            _, key, owner_text = keys.split_identity(reply[1])
            owner = owner_text or None
        if words[0] == "NOT_PENDING":
            return Change(Outcome.NOT_PENDING, key, owner)
        return Change(Outcome(words[0]), key, owner, int(words[1]), int(words[2]), event_id)

    (change,) = yield [
        command(
            "done",
            scope.namespace,
            partition,
            read,
            own_keys={"run": keys.run(tag, event)},
            own_args={
                "tenant": scope.tenant_bytes,
                "event": event,
                "error": b"" if error is None else _error_bytes(error),
            },
        )
    ]
    return change  # type: ignore[no-any-return]


def _error_bytes(error: object) -> bytes:
    """Why handling failed, as it is kept: any text will do, though a record has no room for NUL."""
    text = str(error)[:_MAX_ERROR].replace("\0", "\ufffd") or "failed"
    return text.encode("utf-8", "replace")


def _recurring(schedule: Schedule) -> Occurrences:
    """The occurrences of a stored recurring schedule; raises `InvalidSchedule` for what it cannot be asked."""
    timing = schedule.timing
    if timing.kind == "once":
        raise InvalidSchedule("key", schedule.key, "want a recurring schedule; this one fires once")
    if timing.policy is not None and timing.policy.fixed_delay:
        raise InvalidSchedule(
            "key",
            schedule.key,
            "want a schedule with a grid; with fixed_delay only the next occurrence is known",
        )
    return occurrences_of(timing, _id(schedule), schedule.at_ms)


def _id(schedule: Schedule) -> bytes:
    return keys.identity(schedule.tenant.encode(), schedule.key.encode(), (schedule.owner or "").encode())


def upcoming(schedule: Schedule, n: int) -> list[datetime]:
    """The next ``n`` instants of a stored schedule, the armed one first; fewer where it ends before.

    Raises `InvalidSchedule` for an ``n`` that is not 1 to 1,000, and for a zone or expression not known here.
    """
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= MAX_NEXT:
        raise InvalidSchedule("n", n, f"want a number from 1 to {MAX_NEXT:,}")
    timing = schedule.timing
    if timing.limit is not None:
        n = min(n, max(0, timing.limit - schedule.fired_total))
    instants = [to_datetime(schedule.at_ms)][:n]
    if timing.kind == "once" or (timing.policy is not None and timing.policy.fixed_delay):
        return instants
    occurrences = occurrences_of(timing, _id(schedule), schedule.at_ms)
    at_ms: int | None = schedule.at_ms
    while len(instants) < n:
        assert at_ms is not None
        at_ms = occurrences.next_ms(at_ms)
        if at_ms is None:
            break
        instants.append(to_datetime(at_ms))
    return instants


def next_of(scope: Scope, key: str, owner: str | None, n: int) -> Steps[list[datetime]]:
    """The next ``n`` instants of the stored schedule; none where there is no such schedule."""
    schedule = yield from get(scope, key, owner)
    return [] if schedule is None else upcoming(schedule, n)


def resume_from_now(
    scope: Scope,
    key: str,
    owner: str | None,
    if_version: int | None,
    by: str | None,
    now: Callable[[], int],
    durable: Durability | None,
    incarnation: int | None = None,
) -> Steps[Change]:
    """Arms a paused schedule for its next occurrence after now; what was missed is left out and counted.

    The instants are computed here from what is stored; its version and occurrence fence them: where they change
    meanwhile, again.
    """
    while True:
        schedule = yield from get(scope, key, owner)
        now_ms = now()
        overdue = schedule is not None and schedule.state is State.PAUSED and schedule.at_ms <= now_ms
        if schedule is None or not overdue or schedule.timing.kind == "once":
            plain = edit.item(scope, "resume", key, owner, if_version, by=by, incarnation=incarnation)
            return (yield from one(scope, plain, durable))
        if if_version is not None and if_version != schedule.version:
            return Change(Outcome.VERSION_MISMATCH, key, owner, schedule.version)
        going = _going(schedule, now_ms)
        skip = edit.item(
            scope, "skip", key, owner, schedule.version, by=by, going=going, incarnation=incarnation
        )
        change = yield from one(scope, skip, durable)
        again = if_version in (None, change.version)
        if change.outcome is not Outcome.VERSION_MISMATCH or not again:
            return change


def _going(schedule: Schedule, now_ms: int) -> edit.Going:
    timing = schedule.timing
    following_ms: int | None = None
    skipped = 0
    if timing.policy is not None and timing.policy.fixed_delay:
        next_ms: int | None = now_ms + (timing.every_ms or 0)
        if timing.until_ms is not None and now_ms + (timing.every_ms or 0) > timing.until_ms:
            next_ms = None
    else:
        occurrences = _recurring(schedule)
        next_ms = occurrences.next_ms(now_ms)
        skipped = 1 + occurrences.count(schedule.at_ms, now_ms)
        if next_ms is not None and is_asked(timing):
            following_ms = occurrences.next_ms(next_ms) or 0
    if next_ms is None:
        raise InvalidSchedule(
            "from_now",
            True,
            "want a schedule that has occurrences left; resume it without from_now, or cancel it",
        )
    return edit.Going(schedule.at_ms, next_ms, following_ms, skipped)


def backfill(
    scope: Scope, key: str, owner: str | None, start: Instant, end: Instant, by: str | None, now_ms: int
) -> Steps[Backfilled]:
    """Publishes the occurrences from ``start`` to ``end``, both included, marked as such, in bounded pieces."""
    start_ms, end_ms = past_range(start, end, now_ms)
    by_bytes = b"" if by is None else check_text("by", by)
    schedule = yield from get(scope, key, owner)
    if schedule is None:
        return Backfilled(Outcome.NOT_PENDING, key, owner, 0, 0)
    instants = occurrences_between(schedule, start_ms, end_ms)
    done = dropped = 0
    while done < len(instants):
        piece = instants[done : done + MAX_ITEMS]
        (words,) = yield [_backfill_command(scope, key, owner, schedule.version, by_bytes, piece)]
        if words[0] == "VERSION_MISMATCH":
            return Backfilled(Outcome.VERSION_MISMATCH, key, owner, int(words[1]), done - dropped, dropped)
        done += int(words[1])
        if words[0] == "BROKEN":
            raise QueueUnavailable(f"Redis refused after {done} of {len(instants)} events: {words[2]}")
        dropped += int(words[2].partition(" ")[0])
        if words[0] == "FULL":
            raise BacklogFull(words[2].partition(" ")[2], done - dropped)
        if words[0] != "BACKFILLED":
            raise ContractBroken(f"unexpected answer {words[0]!r}")
    return Backfilled(Outcome.PUBLISHED, key, owner, schedule.version, done - dropped, dropped)


def _backfill_command(
    scope: Scope, key: str, owner: str | None, version: int, by: bytes, instants: Sequence[int]
) -> Command[list[str]]:
    partition, tag, id, _ = locate(scope, key, owner)
    return command(
        "backfill",
        scope.namespace,
        partition,
        lambda reply: read_lines(reply)[1][0].split(" ", 2),
        own_keys={"record": keys.record(tag, id)},
        own_args={"version": version, "by": by},
        item_args=list(map(str, instants)),
    )


def past_range(start: Instant, end: Instant, now_ms: int) -> tuple[int, int]:
    """The first and the last instant of a range to backfill (epoch ms); raises `InvalidSchedule`."""
    start_ms, end_ms = resolve_instant(start, field="start"), resolve_instant(end, field="end")
    if end_ms < start_ms:
        raise InvalidSchedule("end", end, "want end= at or after start=")
    if end_ms > now_ms:
        raise InvalidSchedule("end", end, "want a range of the past: what is to come fires by itself")
    return start_ms, end_ms


def occurrences_between(schedule: Schedule, start_ms: int, end_ms: int) -> list[int]:
    """The occurrences of a stored schedule from ``start_ms`` to ``end_ms``, both included (all epoch ms).

    Raises `InvalidSchedule` where there are more than one backfill publishes, and for a schedule without a grid.
    """
    return list(_between(_recurring(schedule), start_ms, end_ms))


def _between(occurrences: Occurrences, start_ms: int, end_ms: int) -> Iterator[int]:
    at_ms = occurrences.next_ms(start_ms - 1)
    count = occurrences.count(start_ms - 1, min(end_ms, MAX_INSTANT_MS))
    if count > MAX_BACKFILL:
        raise InvalidSchedule(
            "start", start_ms, f"want at most {MAX_BACKFILL:,} occurrences; these are {count:,}"
        )
    while at_ms is not None and at_ms <= end_ms:
        yield at_ms
        at_ms = occurrences.next_ms(at_ms)
