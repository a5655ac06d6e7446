"""Which heartbeats are sent when, and with which others."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from timerq import QueueUnavailable
from timerq.beats import Beat, News, Rounds
from timerq.commands.command import Command, Namespace
from timerq.commands.owned import Life
from timerq.commands.owner import Owned
from timerq.heartbeat import AsyncHeartbeats, Heartbeats, Pulse

NAMESPACE = Namespace("ns", "1", 2, (b"{ns:0}", b"{ns:1}"), False)


class Handle:
    """Somebody has it."""


def begun(name: str = "o", ttl_ms: int = 3000) -> Life:
    life = Life.of(name, ttl_ms)
    life.began(5)
    return life


def place(name: str = "o", partition: int = 0) -> Owned:
    return Owned(b"acme", name.encode(), partition, 5)


def add(rounds: Rounds, handle: Handle, now_s: float, partition: int = 0, ttl_ms: int = 3000) -> Beat:
    beat = Beat(begun(ttl_ms=ttl_ms), NAMESPACE, place(partition=partition))
    beat.of(handle, lambda beat: rounds.take(News("drop", beat), 0.0))
    rounds.take(News("add", beat), now_s)
    return beat


def sizes(rounds: Rounds, now_s: float) -> list[list[int]]:
    return [[len(load.beats) for load in loads] for loads in rounds.due(now_s)]


def test_nothing_is_sent_before_something_is_due_and_then_with_what_is_due_soon() -> None:
    rounds, handle = Rounds(), Handle()
    first = add(rounds, handle, 0.0)
    second = add(rounds, handle, 0.2)
    third = add(rounds, handle, 0.5)
    assert rounds.wait_s(0.4) == pytest.approx(0.6)
    assert rounds.due(0.99) == []
    ((load,),) = rounds.due(1.0)
    assert load.beats == [first, second]
    assert rounds.wait_s(1.0) == pytest.approx(0.5)
    rounds.heard(load, [None, None], 1.1)
    assert rounds.due(1.2) == []
    ((load,),) = rounds.due(1.5)
    assert load.beats == [third]
    ((load,),) = rounds.due(2.1)
    assert load.beats == [first, second]


def test_a_call_is_of_one_partition_and_bounded() -> None:
    rounds, handle = Rounds(), Handle()
    for n in range(450):
        add(rounds, handle, 0.0, partition=n % 2)
    add(rounds, handle, 0.0, ttl_ms=30_000)
    assert sizes(rounds, 1.0) == [[200, 25], [200, 25]]


def test_what_is_on_its_way_is_not_sent_again_and_what_was_not_heard_soon_is() -> None:
    rounds, handle = Rounds(), Handle()
    add(rounds, handle, 0.0, ttl_ms=30_000)
    ((load,),) = rounds.due(10.0)
    assert rounds.due(20.0) == []
    rounds.missed(load, QueueUnavailable("away"), 20.0)
    assert rounds.wait_s(20.0) == 1.0
    ((load,),) = rounds.due(21.0)
    rounds.heard(load, [QueueUnavailable("broken")], 21.0)
    assert sizes(rounds, 22.0) == [[1]]


def test_who_is_gone_stopped_or_nobodys_is_not_heard_any_more(caplog: pytest.LogCaptureFixture) -> None:
    rounds, kept, lost = Rounds(), Handle(), Handle()
    gone, stopped, nobodys, lives = (add(rounds, of, 0.0) for of in (kept, kept, lost, kept))
    ((load,),) = rounds.due(1.0)
    stopped.stop()
    del lost
    gc.collect()
    rounds.heard(load, [9, 9, 9, None], 1.0)
    assert [*rounds.beats] == [lives]
    assert gone.life.is_gone
    assert caplog.text.count("is gone") == 1  # the others' handles are nobody's, who could be told
    assert not nobodys.is_wanted
    stopped.stop()
    rounds.take(News("close"), 1.0)
    assert not rounds.beats


def test_a_missed_beat_names_a_few_of_those_it_was_of(caplog: pytest.LogCaptureFixture) -> None:
    rounds, handle = Rounds(), Handle()
    for _ in range(5):
        add(rounds, handle, 0.0)
    ((load,),) = rounds.due(1.0)
    rounds.missed(load, QueueUnavailable("away"), 1.0)
    assert caplog.messages == ["the heartbeats of 5 owners (o, o, o, …) were not heard: away"]


def test_a_node_that_does_not_answer_makes_no_others_beats_late() -> None:
    stuck, freed, heard = threading.Event(), threading.Event(), threading.Semaphore(0)

    def send(commands: Sequence[Command[Any]]) -> list[Any]:
        (command,) = commands
        if command.tag == NAMESPACE.tags[0]:
            stuck.set()
            assert freed.wait(10)
        else:
            heard.release()
        return [[None]]

    beats, handle = Heartbeats(send, lambda tag: tag), Handle()
    try:
        beats.start(handle, begun("a", 300), NAMESPACE, place("a", 0))
        assert stuck.wait(10)
        beats.start(handle, begun("b", 300), NAMESPACE, place("b", 1))
        for _ in range(3):
            assert heard.acquire(timeout=10)
    finally:
        freed.set()
        beats.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "timerq-owner"]


def test_a_partition_that_does_not_answer_makes_no_others_beats_late_in_a_loop() -> None:
    async def main() -> None:
        stuck, freed, heard = asyncio.Event(), asyncio.Event(), asyncio.Semaphore(0)

        async def send(commands: Sequence[Command[Any]]) -> list[Any]:
            (command,) = commands
            if command.tag == NAMESPACE.tags[0]:
                stuck.set()
                await freed.wait()
            else:
                heard.release()
            return [[None]]

        beats, handle = AsyncHeartbeats(send), Handle()
        beats.start(handle, begun("a", 300), NAMESPACE, place("a", 0))
        beats.start(handle, begun("b", 300), NAMESPACE, place("b", 1))
        async with asyncio.timeout(10):
            await stuck.wait()
            for _ in range(3):
                await heard.acquire()
        freed.set()
        await beats.close()
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("timerq-owner")]

    asyncio.run(main())


def test_an_error_of_one_is_asked_about_again_alone() -> None:
    sent: list[int] = []
    done = threading.Event()

    def send(commands: Sequence[Command[Any]]) -> list[Any]:
        sent.append(len(commands))
        if len(commands) == 2:
            raise QueueUnavailable("one of them")
        if commands[0].tag == NAMESPACE.tags[0]:
            raise QueueUnavailable("this one")
        done.set()
        return [[9]]

    pulse, handle, lives = Pulse(send), Handle(), [begun("a", 300), begun("b", 300)]
    thread = pulse._thread = threading.Thread(target=pulse._run, name="timerq-owner")
    for partition, life in enumerate(lives):
        pulse.add(Beat(life, NAMESPACE, place(life.owner, partition)), handle)
    thread.start()  # only now: both begin at once
    try:
        assert done.wait(10)
    finally:
        pulse.close()
        thread.join(10)
    assert [life.is_gone for life in lives] == [False, True]
    assert sent[:3] == [2, 1, 1]
