"""What a URL is understood as, and what is said of one that cannot be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from redis.asyncio.cluster import ClusterNode
from redis.sentinel import MasterNotFoundError

from timerq.errors import InvalidSchedule
from timerq.exchange import unavailable
from timerq.packing import Packing
from timerq.topology import AsyncConnections, parse_url


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://h:1/x", "as in redis://localhost:6379/0"),  # redis-py would take database 0
        ("redis://u:secret@h:1?socket_timeout=abc", "Invalid value for 'socket_timeout'"),
        ("redis+cluster://h:1/3", "database 0 alone"),
        ("redis+cluster://h1:1,h2:2", "one of its nodes"),
        ("redis+cluster://h:1?foo=1", "'foo'"),
        ("redis+sentinel://h:1", "/master-name/0"),
        ("redis+sentinel://h:1/name/x", "/master-name/0"),
        ("redis+sentinel://h:1/name?foo=1", "'foo'"),
        ("redis+sentinel://h:1/name?decode_responses=true", "payloads are bytes"),
        (None, "got None; want redis://"),  # an unset variable
        (b"redis://:secret@h:1/0", "got <class 'bytes'>; want redis://"),
    ],
)
def test_a_bad_url_is_refused_with_what_would_be_right(url: Any, said: str) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        parse_url(url)
    assert caught.value.field == "url"
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_sentinel_url_is_read_whole() -> None:
    target = parse_url("rediss+sentinel://u:p%40@h:1,other/name/3?ssl_cert_reqs=none")
    assert (target.kind, target.sentinels, target.master) == (
        "sentinel",
        (("h", 1), ("other", 26379)),
        "name",
    )
    assert target.options == {
        "db": 3,
        "ssl": True,
        "username": "u",
        "password": "p@",
        "ssl_cert_reqs": "none",
    }


def test_tls_options_reach_the_nodes_of_a_cluster() -> None:
    async def main() -> None:
        connections = AsyncConnections("rediss+cluster://h:1?ssl_ca_certs=/ca.pem&ssl_check_hostname=false")
        cluster = connections._make()
        node = next(iter(cluster.nodes_manager.startup_nodes.values()))
        assert isinstance(node, ClusterNode)

        class Manager:
            async def aclose(self, attribute: str = "nodes_cache") -> None:
                pass

        class Opened(Manager):
            nodes_manager = Manager()

            def get_node_from_key(self, key: str) -> ClusterNode:
                return node

        connections.client = Opened()
        client = await connections.node_of(b"key")
        made = client.connection_pool.make_connection()
        assert made.ssl_context.ca_certs == "/ca.pem"
        assert made.ssl_context.check_hostname is False
        await connections.close()

    asyncio.run(main())


def test_a_master_nobody_knows_is_told_without_the_objects_of_the_client() -> None:
    error = MasterNotFoundError(
        "No master found for 'name' : <redis.client.Redis(<…password…>)> - ConnectionError"
    )
    assert str(unavailable(error)) == (
        "Redis is away or refuses: No master found for 'name': no Sentinel that answers knows it"
    )


@pytest.mark.parametrize("url", ["redis://h:1", "rediss://h:1", "unix:///s", "redis+sentinel://h:1/name"])
def test_an_asynchronous_connection_writes_commands_as_a_blocking_one(url: str) -> None:
    pool = AsyncConnections(url).client.connection_pool
    connection = pool.connection_class(**pool.connection_kwargs)
    packed = b"".join(connection.pack_command("CONFIG GET", b"\xff", "\u00e4", 17))
    assert packed == b"*5\r\n$6\r\nCONFIG\r\n$3\r\nGET\r\n$1\r\n\xff\r\n$2\r\n\xc3\xa4\r\n$2\r\n17\r\n"
    assert isinstance(connection, Packing)
