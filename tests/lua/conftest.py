"""Every script test runs on each chosen server, and on fakeredis.

client       a flushed Redis: each server, then fakeredis
real_client  each server only: for what fakeredis does otherwise
partition    a namespace of one partition with a manual clock on `client`
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fakeredis
import pytest
import redis

from tests.support.partition import Partition
from tests.support.servers import Server, choose
from timerq.embedded import EmbeddedRedis


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "lua_server" not in metafunc.fixturenames:
        return
    servers, _ = choose(metafunc.config.getoption("--redis") or ["newest"])
    params: list[Any] = [pytest.param(server, id=server.name) for server in servers]
    if "real_client" not in metafunc.fixturenames:
        params.append(pytest.param(None, id="fakeredis"))
    metafunc.parametrize("lua_server", params, indirect=True, scope="session")


@pytest.fixture(scope="session")
def lua_server(request: pytest.FixtureRequest) -> Iterator[EmbeddedRedis | None]:
    spec: Server | None = request.param
    if spec is None:
        yield None
    else:
        with spec.run(port=0, unix_socket=True) as server:
            yield server


@pytest.fixture
def client(lua_server: EmbeddedRedis | None) -> Iterator[Any]:
    if lua_server is None:
        with fakeredis.FakeRedis(server=fakeredis.FakeServer(version=(7,))) as fake:
            yield fake
    else:
        with redis.Redis.from_url(lua_server.url) as real:
            real.flushall()
            yield real


@pytest.fixture
def real_client(client: Any) -> Any:
    return client


@pytest.fixture
def partition(client: Any) -> Partition:
    return Partition(client)
