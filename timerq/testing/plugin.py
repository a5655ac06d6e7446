"""The pytest plugin: fixtures ``timer_queue`` and ``manual_clock``.

It is found by pytest where timerq is installed, and changes nothing for tests that ask for neither: next to nothing of
timerq is loaded before a fixture is asked for, as every run of pytest would have to wait for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from timerq.testing import ManualClock, TestQueue

_HELP = (
    "the Redis of the fixture timer_queue: a URL, or embedded: for a server of its own (default: fakeredis)"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--timerq-url`` and the setting ``timerq_url``."""
    parser.getgroup("timerq").addoption("--timerq-url", metavar="URL", help=_HELP)
    parser.addini("timerq_url", _HELP, default="")


@pytest.fixture(scope="session")
def timer_queue_url(pytestconfig: pytest.Config) -> str | None:
    """The URL of the Redis that `timer_queue` is on, None for fakeredis: a fixture to override."""
    return pytestconfig.getoption("--timerq-url") or pytestconfig.getini("timerq_url") or None


@pytest.fixture
def manual_clock() -> ManualClock:
    """A clock that moves only when told: it starts at 2026-01-01T00:00:00Z. `timer_queue` goes by it."""
    from timerq.testing import ManualClock

    return ManualClock()


@pytest.fixture
def timer_queue(timer_queue_url: str | None, manual_clock: ManualClock) -> Iterator[TestQueue]:
    """A `timerq.testing.TestQueue` in a namespace of its own."""
    from timerq.testing import TestQueue

    with TestQueue(timer_queue_url, clock=manual_clock) as kit:
        yield kit
