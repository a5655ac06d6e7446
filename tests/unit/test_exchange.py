"""exchange.py: what is sent again, and what no longer is."""

from __future__ import annotations

from typing import Any

import pytest
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError
from redis.retry import Retry

from timerq import QueueUnavailable
from timerq.exchange import REMEMBERED_S, exchange


class Deaf:
    """A connection on which the first answer is lost."""

    def __init__(self) -> None:
        self.retry = Retry(NoBackoff(), 3)
        self.is_connected = False
        self.sent = 0

    def connect(self) -> None:
        self.is_connected = True

    def disconnect(self) -> None:
        self.is_connected = False

    def send_packed_command(self, command: Any) -> None:
        assert self.is_connected
        self.sent += 1

    def read_response(self) -> str:
        if self.sent == 1:
            raise ConnectionError("reset")
        return "answer"


@pytest.mark.parametrize("late", [False, True])
def test_a_request_is_sent_again_only_while_it_is_remembered(
    monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    now = 1000.0
    monkeypatch.setattr("timerq.exchange.time.monotonic", lambda: now)
    connection = Deaf()

    def meanwhile() -> None:
        nonlocal now
        now += REMEMBERED_S + (1 if late else -1)

    if late:
        with pytest.raises(QueueUnavailable, match="too late"):
            exchange(connection, [("PING",)], meanwhile)
        assert connection.sent == 1
        assert not connection.is_connected
    else:
        assert exchange(connection, [("PING",)], meanwhile) == ["answer"]
        assert connection.sent == 2
