"""Fixtures for every test: real servers of each version, a Cluster, and fakeredis.

    redis_url      a flushed Redis; the test runs once for each server that --redis chose
    redis_client   a client of it (bytes in, bytes out)
    redis_server   the server itself (EmbeddedRedis, without persistence; do not kill it)
    make_redis     makes servers of the same version that a test may kill, restart, or give a data folder
    proxy          a fault proxy before redis_url (tests/support/proxy.py)
    cluster        a flushed three-master Cluster (LocalCluster), cluster_url its URL
    any_url        redis_url for each server, then cluster_url: for what must hold on both
    fake_server    fakeredis: a server, and fake_redis, a client of it

Markers: `one_server` runs on the newest chosen server only; `cluster` is set by the fixtures above.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import fakeredis
import hypothesis
import pytest
import redis

from tests.support.cluster import LocalCluster
from tests.support.proxy import Proxy
from tests.support.servers import Server, choose, discover
from timerq.embedded import EmbeddedRedis

_CLUSTER = "cluster"
# A slow machine is not a bug: how long an example takes is nobody's promise. The examples are the same each time: what
# fails is then what was changed. Those that nobody has seen yet are for the long profile.
hypothesis.settings.register_profile("timerq", deadline=None, print_blob=True, derandomize=True)
hypothesis.settings.register_profile(
    "long", hypothesis.settings.get_profile("timerq"), max_examples=1000, derandomize=False
)
hypothesis.settings.load_profile("timerq")

_chosen = pytest.StashKey[tuple[list[Server], bool]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--redis",
        action="append",
        metavar="WHICH",
        help="which servers: a version such as 6.2 or 7, valkey, newest, cluster, all (may be repeated; "
        "default: newest and cluster)",
    )


def pytest_configure(config: pytest.Config) -> None:
    wanted = config.getoption("--redis") or ["newest", _CLUSTER]
    try:
        config.stash[_chosen] = choose(wanted)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_report_header(config: pytest.Config) -> str:
    servers, cluster = config.stash[_chosen]
    names = [f"{server.kind} {server.version_text}" for server in servers]
    if cluster and discover():
        names.append(f"cluster of three ({_cluster_server(config).name})")
    return f"servers: {', '.join(names) or 'none'}"


def _cluster_server(config: pytest.Config) -> Server:
    servers, _ = config.stash[_chosen]
    return (servers or list(discover()))[0]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    servers, cluster = metafunc.config.stash[_chosen]
    if metafunc.definition.get_closest_marker("one_server"):
        servers = servers[:1]
    params: list[Any] = [pytest.param(server, id=server.name) for server in servers]
    if "redis_place" in metafunc.fixturenames:
        if cluster:
            params.append(pytest.param(_CLUSTER, id=_CLUSTER, marks=pytest.mark.cluster))
        metafunc.parametrize("redis_place", params, indirect=True, scope="session")
    elif "redis_spec" in metafunc.fixturenames:
        metafunc.parametrize("redis_spec", params, indirect=True, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _, cluster = config.stash[_chosen]
    dropped: list[pytest.Item] = []
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()) and "redis_place" not in getattr(
            item, "fixturenames", ()
        ):
            item.add_marker(pytest.mark.cluster)
            if not cluster:
                dropped.append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in dropped]
    # the files of the slow ones first, so that no process of several is left alone with them at the end
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


# ------------------------------------------------------------------------------------------------ standalone


@pytest.fixture(scope="session")
def redis_spec(request: pytest.FixtureRequest) -> Server:
    """The server program of this run of the test."""
    server: Server = request.param
    return server


@pytest.fixture(scope="session")
def running() -> Iterator[Callable[[Server], EmbeddedRedis]]:
    """Starts a server of that version unless it runs already; all run until the end, whichever file needs them."""
    servers: dict[str, EmbeddedRedis] = {}
    with ExitStack() as stack:

        def run(spec: Server) -> EmbeddedRedis:
            if spec.name not in servers:
                servers[spec.name] = stack.enter_context(spec.run(port=0, unix_socket=True))
            return servers[spec.name]

        yield run


@pytest.fixture(scope="session")
def redis_server(redis_spec: Server, running: Callable[[Server], EmbeddedRedis]) -> EmbeddedRedis:
    """A running server without persistence, on a unix socket and a loopback port, shared by the tests."""
    return running(redis_spec)


@pytest.fixture
def redis_url(redis_server: EmbeddedRedis) -> str:
    """The URL of a Redis with no keys and no scripts."""
    _flush(redis_server)
    return redis_server.url


@pytest.fixture
def redis_client(redis_url: str) -> Iterator[redis.Redis]:
    """A client of redis_url."""
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def make_redis(redis_spec: Server) -> Iterator[Callable[..., EmbeddedRedis]]:
    """Start a server of the test's own: `make_redis(data_dir=…, port=…, appendfsync=…, config=…)`."""
    made: list[EmbeddedRedis] = []

    def make(*args: Any, **kwargs: Any) -> EmbeddedRedis:
        if args:
            kwargs["data_dir"] = args[0]
        server = redis_spec.run(**kwargs)
        made.append(server)
        return server.start()

    yield make
    for server in made:
        server.stop()


@pytest.fixture
def proxy(redis_url: str) -> Iterator[Proxy]:
    """A fault proxy before redis_url."""
    with Proxy(redis_url) as proxy:
        yield proxy


# ------------------------------------------------------------------------------------------------ cluster


@pytest.fixture(scope="session")
def running_cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Three masters of the newest chosen version, shared by the tests."""
    with LocalCluster(_cluster_server(request.config)) as cluster:
        yield cluster


@pytest.fixture
def cluster(running_cluster: LocalCluster) -> LocalCluster:
    """The Cluster, with no keys and no scripts."""
    running_cluster.flush()
    return running_cluster


@pytest.fixture
def cluster_url(cluster: LocalCluster) -> str:
    """Its URL for timerq (`redis+cluster://`); `cluster.seed_url` is the one for redis-py."""
    return cluster.url


# ------------------------------------------------------------------------------------------------ both


@pytest.fixture(scope="session")
def redis_place(
    request: pytest.FixtureRequest, running: Callable[[Server], EmbeddedRedis]
) -> EmbeddedRedis | LocalCluster:
    """A server of each version, then the Cluster."""
    if request.param == _CLUSTER:
        cluster: LocalCluster = request.getfixturevalue("running_cluster")
        return cluster
    return running(request.param)


@pytest.fixture
def any_url(redis_place: EmbeddedRedis | LocalCluster) -> str:
    """The URL, for timerq, of an empty Redis: each standalone version, then the Cluster."""
    if isinstance(redis_place, LocalCluster):
        redis_place.flush()
    else:
        _flush(redis_place)
    return redis_place.url


def _flush(server: EmbeddedRedis) -> None:
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        client.script_flush()


# ------------------------------------------------------------------------------------------------ fakeredis


@pytest.fixture
def fake_server() -> fakeredis.FakeServer:
    """A fakeredis server; clients made of it share its keys."""
    return fakeredis.FakeServer(version=(7,))


@pytest.fixture
def fake_redis(fake_server: fakeredis.FakeServer) -> Iterator[fakeredis.FakeRedis]:
    """A client of fake_server."""
    with fakeredis.FakeRedis(server=fake_server) as client:
        yield client
