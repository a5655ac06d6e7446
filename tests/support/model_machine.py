"""The machine of the model test: the queue on one side, the model on the other, and what its rules have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hypothesis.stateful import RuleBasedStateMachine, initialize

from tests.support.connections import Wire
from tests.support.model import ModelPartition
from tests.support.model_wishes import POOL, START, STATES, TENANTS
from tests.support.model_words import Definition, Handed, Id, Record, Wanted, id_bytes
from timerq import Handle, InvalidSchedule, QueueUnavailable, TimerQueue, Upsert, keys
from timerq.commands.consume import RawDelivery
from timerq.commands.dispatch import Handover
from timerq.model import Backfilled


class Given(NamedTuple):
    """What a dispatcher of one partition was handed, as it is and as the model has it, and when."""

    number: int
    handover: Handover
    handed: Handed
    since: int


class Taken(NamedTuple):
    """An event as a consumer was handed it, and by whom."""

    number: int
    stream: str
    group: str
    consumer: str
    raw: RawDelivery


class Incarnation(NamedTuple):
    """A handle of an owner: whose, and its incarnation."""

    owner: Id
    incarnation: int


class Sweep(NamedTuple):
    """A destroy that has not come to its end: the next piece."""

    owner: Id
    ceiling: int
    after: bytes


class Base(RuleBasedStateMachine):
    """The queue on one side, the model on the other."""

    partitions = 1

    @staticmethod
    def client() -> Any:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.redis = self.client()
        self.redis.flushall()
        self.wire = Wire(self.redis)
        self.queues: dict[str, TimerQueue] = {}
        for tenant in TENANTS:
            queue = TimerQueue("redis://unused", namespace="ns", tenant=tenant, clock=lambda: self.now)
            queue._link.connections = self.wire  # type: ignore[assignment]
            self.queues[tenant] = queue
        self.handed: list[Given] = []
        self.past: list[tuple[Wanted, Upsert, int | None]] = []
        # (id, version) -> its first occurrence
        self.begun: dict[tuple[bytes, int], tuple[int, Definition]] = {}
        self.taken: list[Taken] = []
        self.epochs: dict[tuple[int, str], int] = {}  # (partition, consumer) -> the last lead it had
        self.incarnations: list[Incarnation] = []
        self.sweeps: list[Sweep] = []
        self.destroyed: dict[tuple[str, str], int] = {}  # owner -> up to which version it is dead
        self.focus: Id = POOL[0]

    @initialize()
    def make(self) -> None:
        namespace = self.queues["A"].init(partitions=self.partitions, clock="manual")
        self.namespace = self.queues["B"].init(partitions=self.partitions)
        assert self.namespace == namespace
        self.model = [ModelPartition(p) for p in range(self.partitions)]
        self.metas = [self.redis.hgetall(keys.meta(tag)) for tag in namespace.tags]

    def teardown(self) -> None:
        self.redis.close()

    # ------------------------------------------------------------------------------------------- helpers

    def id(self, who: int, any_below: int = 16, states: str = "achp") -> Id:
        """A schedule: the last recurring one that was upserted, any that exists (in one of these states, where there
        are any), or any.
        """
        stored = {id: r.state for place in self.model for id, r in place.records.items()}
        if self.focus in stored and who % 2 and who >= any_below:
            return self.focus
        existing = sorted(stored, key=id_bytes)
        existing = [id for id in existing if stored[id] in states] or existing
        return existing[who % len(existing)] if existing and who >= any_below else POOL[who % len(POOL)]

    def place(self, id: Id) -> ModelPartition:
        return self.model[keys.partition_of(id[0].encode(), (id[2] or id[1]).encode(), self.partitions)]

    def version(self, id: Id, fence: str | None) -> int | None:
        if fence is None:
            return None
        old = self.place(id).records.get(id)
        current = old.version if old else 0
        return {"current": current, "none": 0, "stale": max(0, current - 1)}[fence]

    def incarnation(self, id: Id) -> int | None:
        """That of the last handle of its owner, alive or gone."""
        mine = [each.incarnation for each in self.incarnations if each.owner == (id[0], "", id[2])]
        return mine[-1] if mine else None

    def answer(self, act: Callable[[], Any]) -> tuple[Any, ...]:
        """What a verb says, as the model's tuples."""
        try:
            return self.tell(act())
        except (InvalidSchedule, QueueUnavailable) as error:
            return self.tell(error)

    def tell(self, result: Any) -> tuple[Any, ...]:
        if isinstance(result, InvalidSchedule):
            return ("INVALID", result.field)
        if isinstance(result, QueueUnavailable):
            assert "Redis refused" in str(result) or "unknown field" in str(result)
            return ("BROKEN",)
        outcome = str(result.outcome)
        if isinstance(result, Backfilled):
            return (
                (outcome, result.version, result.published)
                if outcome == "PUBLISHED"
                else (outcome, result.published)
            )
        if hasattr(result, "replaced_version"):
            self.check_upserted(result)
            if result.at_ms is None:
                return (outcome, result.version)
            state = next(letter for letter, state in STATES.items() if state == result.state)
            answer: tuple[Any, ...] = (outcome, result.version, result.at_ms, state)
            return (
                answer if outcome != "REPLACED" else (*answer, result.replaced_version, result.replaced_at_ms)
            )
        if outcome in ("TRIGGERED", "DUPLICATE", "PUBLISHED"):
            return (outcome, result.version, result.event_id)
        if outcome in ("VERSION_MISMATCH", "OWNER_GONE"):
            return (outcome, result.version)
        return (outcome,) if outcome == "NOT_PENDING" else (outcome, result.version, result.at_ms)

    def check_upserted(self, result: Any) -> None:
        if result.at_ms is None:
            assert result.schedule is None
        elif isinstance(result, Handle):
            schedule = result.schedule
            assert schedule is not None
            assert (schedule.version, schedule.at_ms, schedule.state) == (
                result.version,
                result.at_ms,
                result.state,
            )

    def such(self, wanted: Callable[[Record], bool]) -> Sequence[Id]:
        """The schedules that are like this."""
        found = [id for place in self.model for id, r in place.records.items() if wanted(r)]
        return sorted(found, key=id_bytes)

    def spread(
        self, things: list[Any], id_of: Callable[[Any], Id], act: Callable[[Any, list[Any]], Any]
    ) -> list[Any]:
        """Answers in order of what each partition makes of its share."""
        answers: list[Any] = [None] * len(things)
        shares: dict[int, list[int]] = {}
        for position, thing in enumerate(things):
            shares.setdefault(self.place(id_of(thing)).number, []).append(position)
        for number, positions in shares.items():
            said = act(self.model[number], [things[position] for position in positions])
            for position, answer in zip(positions, said, strict=True):
                answers[position] = answer
        return answers
