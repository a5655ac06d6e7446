"""A way to Redis for a `TimerQueue` that leads to any client, fakeredis too, and on which replies get lost.

queue = TimerQueue("redis://unused", clock=…)
wire = Wire(client)
queue._link.connections = wire       # what a Link asks of timerq.topology.Connections
wire.lose = 2                        # the next two replies are lost on the way: sent again, as redis-py does
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.proxy import Frames
from tests.support.proxy import words as split
from timerq.lua import SCRIPTS

_NAMES = {script.sha.encode(): name for name, script in SCRIPTS.items()} | {
    script.text.encode(): name for name, script in SCRIPTS.items()
}


class Wire:
    """Connections, client, pool and connection in one: commands run when they arrive, replies are read later."""

    is_cluster = False
    is_connected = True

    def __init__(self, client: Any) -> None:
        self.inner = client
        self.lose = 0
        """How many of the next script replies are lost."""
        self.ran: list[str] = []
        """The scripts that ran, in order; a test clears it."""
        self.writes: list[tuple[bytes, ...]] = []
        """The words of every writing script, in the order in which they first ran."""
        self.retry = Retry(NoBackoff(), 10)
        self._first: dict[tuple[bytes, ...], Any] = {}
        self._replies: deque[Any] = deque()

    # what a Link asks of its connections

    def open(self) -> Any:
        return self

    def node_of(self, key: bytes) -> tuple[Any, Any]:
        return None, self

    def forget_after(self, error: BaseException) -> None:
        """No connection is worse than another."""

    def close(self) -> None:
        self.inner.close()

    # what it asks of a redis-py client

    @property
    def connection_pool(self) -> Any:
        return self

    # what it asks of a pool and of a connection

    def get_connection(self) -> Any:
        return self

    def release(self, connection: Any) -> None:
        assert not self._replies, "a connection went back with replies unread"

    def can_read(self) -> bool:
        return bool(self._replies)

    def send_packed_command(self, commands: Sequence[bytes], check_health: bool = True) -> None:
        for frame in Frames().feed(b"".join(commands)):
            self._replies.append(self._run(tuple(split(frame))))

    def read_response(self, *args: Any, **options: Any) -> Any:
        reply = self._replies.popleft()
        if self.lose and not isinstance(reply, Exception):
            self.lose -= 1
            raise redis.ConnectionError("the reply was lost")
        if isinstance(reply, Exception):
            raise reply
        return reply

    def disconnect(self, *args: Any) -> None:
        self._replies.clear()

    # how

    def _run(self, words: tuple[bytes, ...]) -> Any:
        try:
            reply = self.inner.execute_command(*words)
        except redis.ResponseError as error:
            return error
        name = _NAMES.get(words[1], "") if words[0] in (b"EVALSHA", b"EVAL") else ""
        if name:
            self.ran.append(name)
            if SCRIPTS[name].writes:
                sent = words[2:]
                if sent in self._first:
                    assert reply == self._first[sent], f"{name} answered otherwise when it was sent again"
                else:
                    # what receive hands out is too large to be kept: only that it was answered is remembered
                    again = [reply[0].split(b"\n")[0] + b"\nAGAIN"] if name == "receive" else reply
                    self._first[sent] = again
                    self.writes.append(words)
        return reply

    def send_again(self, words: tuple[bytes, ...]) -> tuple[Any, Any]:
        """An old request that was on its way all the time arrives: (what it should be told, what it is told now)."""
        return self._first[words[2:]], self.inner.execute_command(
            "EVAL", SCRIPTS[_NAMES[words[1]]].text, *words[2:]
        )
