"""A Redis of our own: a real redis-server as a child process, for a laptop and for tests.

    with EmbeddedRedis() as redis:
        queue = TimerQueue.connect(redis.url)

    find_server()      which program would be run             (find)
    identify()         what that program is: ("redis", "8.2.3")
    EmbeddedRedis      the child: start, stop, kill, restart  (server; watcher: what ends it with its parent)

It is an ordinary server with ordinary guarantees, but nobody watches over it: for production run Redis as a service.
"""

from __future__ import annotations

from timerq.embedded.find import find_server, identify
from timerq.embedded.server import EmbeddedRedis

__all__ = ["EmbeddedRedis", "find_server", "identify"]
