"""What several of these tests begin with: an open namespace, and a reader of its events."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.events import Events
from timerq import TimerQueue


@pytest.fixture
def queue(redis_url: str) -> Iterator[TimerQueue]:
    with TimerQueue.connect(redis_url) as queue:
        queue.init()
        yield queue


@pytest.fixture
def events(redis_url: str, queue: TimerQueue) -> Iterator[Events]:
    with Events(redis_url, queue.namespace) as events:
        yield events
