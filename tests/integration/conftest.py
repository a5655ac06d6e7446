"""What several of these tests begin with: an open namespace, a reader of its events, the command line, a terminal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cli import Run, run_cli, sit_down
from tests.support.events import Events
from timerq import TimerQueue
from timerq.consumer import loop
from timerq.dispatcher import decide


@pytest.fixture
def queue(redis_url: str) -> Iterator[TimerQueue]:
    with TimerQueue.connect(redis_url) as queue:
        queue.init()
        yield queue


@pytest.fixture
def events(redis_url: str, queue: TimerQueue) -> Iterator[Events]:
    with Events(redis_url, queue.namespace) as events:
        yield events


@pytest.fixture
def only_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody in this process looks by chance: who hears no signal is late by a minute, which no test waits for."""
    for name in ("NEAR_LOOK_US", "FAR_LOOK_US"):
        monkeypatch.setattr(decide, name, 60_000_000)
    monkeypatch.setattr(loop, "LOOK_S", 60.0)


@pytest.fixture
def run(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in this process, on an empty Redis."""
    monkeypatch.setenv("TIMERQ_REDIS_URL", redis_url)
    return run_cli


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody sits there to be asked."""
    sit_down(monkeypatch)


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each of the two clients, as `tests.support.both.Both` names them."""
    which: str = request.param
    return which
