"""Rules of the model test: time passes, dispatchers fire what is due, calendars answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st

from tests.support.model import ModelPartition
from tests.support.model_machine import Given
from tests.support.model_rules_owning import Owning
from tests.support.model_wishes import action, rarely
from tests.support.model_words import Definition
from timerq import keys
from timerq.commands.dispatch import Advance, Handover, advance, ask, fire
from timerq.timing import plan


class Firing(Owning):
    """fire, advance."""

    @action(
        10,
        step=st.sampled_from([0, 1, 10, 249, 250, 500, 1000, 2000, 5000, 40_000]),
        batch=st.sampled_from([1, 2, 3, 5, 200, 200]),
        lag=st.sampled_from([0, 0, 0, 100]),
        which=st.integers(0, 6),
        answers=st.integers(0, 2),
        hold=rarely,
    )
    def time_passes_and_what_is_due_fires(
        self, step: int, batch: int, lag: int, which: int, answers: int, hold: bool
    ) -> None:
        self.now += step
        places = self.model
        if batch < 200:
            due = self.due_places() or places
            places = [due[which % len(due)]]
        for place in places:
            self.fire(place, batch, lag, answers, hold)

    def due_places(self) -> Sequence[ModelPartition]:
        return [place for place in self.model if (head := place.head()) is not None and head <= self.now]

    def fire(self, place: ModelPartition, batch: int, lag: int, answers: int, hold: bool = False) -> None:
        self.wire.ran.clear()
        (fired,) = self.queues["A"]._link.send([fire(self.namespace, place.number, batch=batch, lag_ms=lag)])
        for _ in range(self.wire.ran.count("fire")):  # what a lost reply handed over is lost with it
            expected = place.fire(self.now, batch, lag)
        *counts, handed = expected
        assert [fired.published, fired.held, fired.dropped, fired.wait_us] == counts
        assert [self.told(handover) for handover in fired.handovers] == [
            (h.word, h.id, h.version, h.n, h.at, h.definition.calendar, window_of(h.definition))
            for h in handed
        ]
        given = [Given(place.number, *pair, self.now) for pair in zip(fired.handovers, handed, strict=True)]
        self.handed += given
        for turn in range(answers if given else 0):  # calendars answer at once, perhaps twice, and otherwise
            self.ask_calendars(place.number, given, hold and turn == 0)

    @action(
        3,
        step=st.sampled_from([1, 250, 1000, 1000, 2000, 5000]),
        turns=st.integers(2, 14),
        handled=st.sampled_from(["not", "at once", "later", "by a group", "by a group"]),
    )
    def a_while_passes(self, step: int, turns: int, handled: str) -> None:
        """All works as it should: what is due fires, calendars answer, perhaps consumers too."""
        if handled == "by a group":
            turns = min(turns, 5)
        for turn in range(turns):
            self.now += step
            if handled == "later":
                self.handle(turn)
            for _ in range(2):  # what calendars have spoken of is due
                for place in self.due_places():
                    self.fire(place, 200, 0, 1)
            if handled == "at once":
                self.handle(turn)
            elif handled == "by a group":
                self.serve()

    def handle(self, which: int) -> None:
        """A consumer does what it should, where there is something to do."""
        if any(place.run for place in self.model):
            self.done(which, None, stranger=False, twice=False, unknown=False)

    @action(
        4,
        which=st.integers(0, 31),
        how=st.sampled_from(["pause", "resume", "go on", "restart", "restart", "restart"]),
        steps=st.lists(st.sampled_from([0, 1, 250, 1000]), max_size=3),
    )
    def meddle_while_an_event_runs(self, which: int, how: str, steps: Sequence[int]) -> None:
        """Its schedule is paused (and resumed) or upserted, and then its next occurrence may be due."""
        running = self.such(lambda r: r.running is not None and r.running.deadline > self.now)
        waited_for = self.such(lambda r: r.running is not None and r.running.waited_for)
        found = waited_for or running if which % 2 else running
        if not found:
            return
        id = found[which % len(found)]
        if how == "restart":
            self.upsert_as_it_is(id, restart=True)
        else:
            self.change("pause", id)
        for step in steps:
            self.time_passes_and_what_is_due_fires(step, 200, 0, 0, 1, hold=False)
        if how in ("resume", "go on"):
            self.change(how, id)
            self.time_passes_and_what_is_due_fires(0, 200, 0, 0, 1, hold=False)

    def told(self, h: Handover) -> tuple[Any, ...]:
        return (
            *(h.word, keys.split_identity(h.id), int(h.version), int(h.n)),
            *(h.at_ms, h.definition, h.window),
        )

    @action(
        5,
        choose=st.lists(st.integers(0, 30), min_size=1, max_size=4),
        hold=rarely,
        end=rarely,
        late=st.booleans(),
        forget=st.booleans(),
    )
    def advance(self, choose: list[int], hold: bool, end: bool, late: bool, forget: bool) -> None:
        """Calendars answer: what was just handed over, or what is stale, once or many times."""
        if not self.handed:
            return
        chosen = [self.handed[-1 - n % len(self.handed)] for n in choose]
        for number in sorted({given.number for given in chosen}):
            self.ask_calendars(number, [given for given in chosen if given.number == number], hold, end, late)
        if forget:
            del self.handed[:-5]

    def ask_calendars(
        self,
        number: int,
        given: Sequence[Given],
        hold: bool = False,
        end: bool = False,
        late: bool = False,
    ) -> None:
        """What a dispatcher does with what fire hands over; `late` ones were asked when that was."""
        steps, model_steps = [], []
        for _, handover, handed, since in given:
            now = since if late else self.now
            step = ask(plan, handover, now)
            told = handed.plan(now)
            if hold:
                step = Advance(handover, handover.at_ms, 0, hold="no such zone")
            elif end:
                told = (0, 0, 0, 0) if handed.word == "claimed" else (handed.at, 0, 0, 0)
                step = Advance(handover, *told)
            else:
                assert (step.at_ms, step.following_ms, step.missed, step.skipped) == told
            steps.append(step)
            model_steps.append((handed, told, step.hold))
        self.wire.ran.clear()
        (answers,) = self.queues["A"]._link.send([advance(self.namespace, number, steps)])
        for _ in range(self.wire.ran.count("advance")):
            expected = self.model[number].advance(self.now, model_steps)
        assert answers == expected


def window_of(definition: Definition) -> str:
    return definition.fields().get("w", b"").decode()
