"""The Redis behind a kit: fakeredis in this process, a server of its own, or one by its URL."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from timerq.embedded import EmbeddedRedis
from timerq.errors import QueueUnavailable
from timerq.topology import parse_url

_FAKE_URL = "redis://fakeredis:6379/0"
"""Only a name: no connection of fakeredis leaves the process."""

_FAKE_VERSION = (7,)

_WITHOUT = (
    "TestQueue needs fakeredis with Lua: pip install 'timerq[testing]'; or give it the URL of a Redis, as in "
    'TestQueue("redis://localhost:6379/0"), or "embedded:" for a server of its own'
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a kit's clients connect; ``options`` are the blocking ones' (redis-py's), ``async_options`` the others'."""

    url: str
    is_fake: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    async_options: dict[str, Any] = field(default_factory=dict)
    embedded: EmbeddedRedis | None = None

    def close(self) -> None:
        """Stops the server where it was started for the kit."""
        if self.embedded is not None:
            self.embedded.stop()


def place_of(url: str | None, options: dict[str, Any]) -> Place:
    """The place that a URL names; None: a fakeredis of its own, empty.

    Raises `InvalidSchedule` for a bad URL, `QueueUnavailable` where there is no fakeredis, or no server to start.
    """
    if url is None:
        return _fake(options)
    target = parse_url(url)
    if target.kind != "embedded":
        return Place(url, options=options, async_options=options)
    server = EmbeddedRedis(target.url or None)  # the kit's clients share it: each would start one of its own
    server.start()
    return Place(server.url, options=options, async_options=options, embedded=server)


def _fake(options: dict[str, Any]) -> Place:
    try:
        import fakeredis
    except ImportError as error:
        raise QueueUnavailable(_WITHOUT) from error
    if find_spec("lupa") is None:  # without it, fakeredis is there and has no EVAL
        raise QueueUnavailable(_WITHOUT)
    server = fakeredis.FakeServer(version=_FAKE_VERSION)
    return Place(
        _FAKE_URL,
        is_fake=True,
        options={**options, "connection_class": fakeredis.FakeRedisConnection, "server": server},
        async_options={**options, "connection_class": fakeredis.FakeAsyncRedisConnection, "server": server},
    )
