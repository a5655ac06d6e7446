"""Every redis-server this machine can run: PATH, installed wheels, and the wheels unpacked by scripts/bootstrap."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timerq.embedded import EmbeddedRedis, identify
from timerq.embedded.find import candidates, server_in
from timerq.errors import QueueUnavailable
from timerq.settings import Settings


@dataclass(frozen=True, slots=True)
class Server:
    """One server program. `name` is what `--redis` matches and what test ids show: `redis-7.0`, `valkey-9.1`."""

    path: Path
    kind: str
    version: tuple[int, int, int]

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.version[0]}.{self.version[1]}"

    @property
    def version_text(self) -> str:
        return ".".join(map(str, self.version))

    def config(self, **more: str) -> dict[str, str]:
        """What tests want on: DEBUG (for sleeping and for failing on purpose), and `more`."""
        guarded = self.kind == "valkey" or self.version >= (7, 0, 0)
        debug = {"enable-debug-command": "local"} if guarded else {}
        return debug | {name.replace("_", "-"): value for name, value in more.items()}

    def run(self, **arguments: Any) -> EmbeddedRedis:
        """An EmbeddedRedis of this version (not started), with DEBUG allowed."""
        config = self.config() | dict(arguments.pop("config", {}))
        return EmbeddedRedis(server=self.path, config=config, **arguments)


def _paths() -> Iterator[Path]:
    settings = Settings.from_environment()
    if settings.redis_server is not None:
        yield settings.redis_server
    yield from candidates(settings)
    for unpacked in sorted(Path(sys.prefix).glob("servers/*/*")):
        yield from server_in(unpacked)


@functools.cache
def discover() -> tuple[Server, ...]:
    """All servers, one of each minor version, newest first; Redis before Valkey."""
    found: dict[str, Server] = {}
    for path in _paths():
        try:
            kind, version = identify(path)
        except QueueUnavailable:
            continue
        major, minor, patch = map(int, version.split("."))
        server = Server(path, kind, (major, minor, patch))
        found.setdefault(server.name, server)
    by_age = sorted(found.values(), key=lambda server: server.version, reverse=True)
    return tuple(sorted(by_age, key=lambda server: server.kind != "redis"))


def choose(wanted: list[str]) -> tuple[list[Server], bool]:
    """What `--redis` asks for → (servers, whether the Cluster too).

    Words: `all`, `newest`, `cluster`, or a version or name such as `6.2`, `7`, `8.2.3`, `valkey`. Raises ValueError
    for a word that matches nothing here.
    """
    servers: list[Server] = []
    cluster = False
    for word in wanted:
        if word == "cluster":
            cluster = True
        elif word == "all":
            cluster = True
            servers += discover()
        elif word == "newest":
            servers += discover()[:1]
        else:
            matches = [server for server in discover() if _matches(server, word)]
            if not matches:
                known = ", ".join(server.name for server in discover()) or "none"
                raise ValueError(f"no redis-server matches {word!r}; found here: {known}")
            servers += matches
    return list(dict.fromkeys(servers)), cluster


def _matches(server: Server, word: str) -> bool:
    numbers = word.removeprefix(f"{server.kind}-")
    return word == server.kind or f"{server.version_text}.".startswith(f"{numbers}.")
