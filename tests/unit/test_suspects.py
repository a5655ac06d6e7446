"""Events that may have killed a process begin a few at a time, each for a while; the more suspect ones alone."""

from __future__ import annotations

import asyncio

import pytest

from timerq.consumer import suspects
from timerq.consumer.suspects import MOST_S, Suspects, patience_s


def test_the_patience_grows_with_each_death_and_has_an_end() -> None:
    assert [patience_s(attempt) for attempt in (1, 2, 3, 4)] == [0.1, 0.1, 0.4, 1.6]
    assert patience_s(1_000_000) == MOST_S


async def in_turn(
    line: Suspects, story: list[str], name: str, ends: asyncio.Event, alone: bool = True
) -> None:
    async with line.turn(2, alone=alone):
        story.append(name)
        await ends.wait()


def test_the_next_begins_when_one_has_ended_or_has_had_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "MOST_S", 0)  # the time of each is up as soon as the loop turns

    async def run() -> None:
        story: list[str] = []
        line, never, now = Suspects(), asyncio.Event(), asyncio.Event()
        now.set()
        tasks = [
            asyncio.create_task(in_turn(line, story, name, ends))
            for name, ends in (("a", never), ("b", now), ("c", never))
        ]
        await tasks[1]
        tasks[0].cancel()
        tasks.append(asyncio.create_task(in_turn(line, story, "d", now)))
        await tasks[3]
        assert story == ["a", "b", "c", "d"]
        tasks[2].cancel()
        await asyncio.wait(tasks)

    asyncio.run(run())


def test_one_at_a_time_within_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "FIRST_S", 60)
    monkeypatch.setattr(suspects, "MOST_S", 60)

    async def run() -> None:
        story: list[str] = []
        line = Suspects()
        ends = {name: asyncio.Event() for name in "abc"}
        tasks = {name: asyncio.create_task(in_turn(line, story, name, ends[name])) for name in "abc"}
        for name in "ab":
            while story[-1:] != [name]:
                await asyncio.sleep(0)
            for _ in range(5):  # the others have every chance
                await asyncio.sleep(0)
            assert story[-1] == name
            ends[name].set()
            await tasks[name]
        tasks["c"].cancel()  # a turn that is given up is the next one's
        await asyncio.wait(tasks.values())
        async with line.turn(2):
            story.append("d")
        assert (story[:2], story[-1]) == (["a", "b"], "d")

    asyncio.run(run())


async def settle() -> None:
    """Everybody has every chance."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_each_that_ends_well_lets_one_more_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "FIRST_S", 60)
    monkeypatch.setattr(suspects, "MOST_S", 60)

    async def run() -> list[int]:
        story: list[str] = []
        line = Suspects()
        ends = [asyncio.Event() for _ in range(15)]
        tasks = [asyncio.create_task(in_turn(line, story, str(n), ends[n], False)) for n in range(15)]
        rounds = []
        while len(story) < 15:
            before = len(story)
            await settle()
            rounds.append(len(story) - before)
            for n in range(before, len(story)):
                ends[n].set()
        await asyncio.wait(tasks)
        assert story == [str(n) for n in range(15)]
        return rounds

    assert asyncio.run(run()) == [1, 2, 4, 8]


def test_one_that_is_to_be_alone_is_and_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "FIRST_S", 60)
    monkeypatch.setattr(suspects, "MOST_S", 60)

    async def run() -> None:
        story: list[str] = []
        line = Suspects()
        for _ in range(3):
            async with line.turn(2):
                pass
        ends = {name: asyncio.Event() for name in "abcde"}
        tasks = {
            name: asyncio.create_task(in_turn(line, story, name, ends[name], alone=name == "c"))
            for name in "abcde"
        }
        await settle()
        assert story == ["a", "b"]  # d and e would overtake
        tasks["a"].cancel()
        await settle()
        assert story == ["a", "b"]
        ends["b"].set()
        await settle()
        assert story == ["a", "b", "c"]
        ends["c"].set()
        await settle()
        assert story == ["a", "b", "c", "d", "e"]
        for end in ends.values():
            end.set()
        await asyncio.wait(tasks.values())

    asyncio.run(run())
