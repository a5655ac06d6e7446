"""The tools that the other tests trust: the fault proxy, the Cluster, the choice of servers."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import AskError, MovedError, TryAgainError
from redis.retry import Retry

from tests.support.cluster import LocalCluster
from tests.support.proxy import Frames, Proxy, wait_for, words
from tests.support.servers import choose, discover


def one_try(url: str, **arguments: Any) -> redis.Redis:
    """A client that repeats nothing by itself."""
    return redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **arguments)


@pytest.mark.parametrize("piece", [1, 2, 7, 1000])
def test_frames_are_cut_at_their_ends(piece: int) -> None:
    frames = [
        b"+OK\r\n",
        b"$-1\r\n",
        b"$0\r\n\r\n",
        b"$6\r\na\r\nb\r\n\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*2\r\n*1\r\n:1\r\n*2\r\n$1\r\nx\r\n-ERR no\r\n",
        b"%1\r\n+key\r\n~2\r\n#t\r\n,1.5\r\n",
        b"|1\r\n+ttl\r\n:3\r\n*1\r\n_\r\n",
        b">2\r\n+invalidate\r\n*0\r\n",
        b"=7\r\ntxt:a\r\n\r\n",
        b"PING now\r\n",
    ]
    stream = b"".join(frames)
    reader = Frames()
    cut = [frame for at in range(0, len(stream), piece) for frame in reader.feed(stream[at : at + piece])]
    assert cut == frames


def test_words_of_a_command() -> None:
    assert words(b"*2\r\n$3\r\nGET\r\n$4\r\n\r\n\r\n\r\n") == [b"GET", b"\r\n\r\n"]
    assert words(b"PING now\r\n") == [b"PING", b"now"]


def test_the_proxy_is_transparent(proxy: Proxy, redis_client: redis.Redis) -> None:
    with one_try(proxy.url) as client:
        big = b"\r\n" * 300_000
        client.set("key", big)
        assert client.get("key") == big == redis_client.get("key")
        with client.pipeline() as pipe:
            for _ in range(500):
                pipe.incr("n")
            assert pipe.execute()[-1] == 500
    assert [b"GET", b"key"] in proxy.seen


@pytest.mark.one_server
def test_a_swallowed_reply_has_run(proxy: Proxy, redis_client: redis.Redis) -> None:
    with one_try(proxy.url) as client:
        assert client.incr("n") == 1
        fault = proxy.swallow_reply(lambda command: command[:2] == [b"INCRBY", b"n"])
        with pytest.raises(redis.ConnectionError):
            client.incr("n")
        assert fault.struck == 1
        assert redis_client.get("n") == b"2"
        assert client.incr("n") == 3  # it strikes once


@pytest.mark.one_server
def test_a_silent_one_too(proxy: Proxy, redis_client: redis.Redis) -> None:
    with one_try(proxy.url, socket_timeout=1) as client:
        fault = proxy.swallow_reply("INCRBY", then="silence")
        with pytest.raises(redis.TimeoutError):
            client.incr("n")
        fault.wait()
        assert redis_client.get("n") == b"1"


@pytest.mark.one_server
def test_a_client_that_repeats_runs_it_twice(proxy: Proxy, redis_client: redis.Redis) -> None:
    proxy.swallow_reply("INCRBY")
    with redis.Redis(port=proxy.port) as client:  # from_url() repeats nothing, the constructor does
        assert client.incr("n") == 2  # the trap every writing call must be safe from
    assert redis_client.get("n") == b"2"


@pytest.mark.one_server
@pytest.mark.parametrize("then", ["close", "silence"])
def test_a_dropped_command_has_not_run(proxy: Proxy, redis_client: redis.Redis, then: str) -> None:
    with one_try(proxy.url, socket_timeout=1) as client:
        client.ping()
        fault = proxy.drop_command("INCRBY", then=then)  # type: ignore[arg-type]
        with pytest.raises((redis.ConnectionError, redis.TimeoutError)):
            client.incr("n")
        fault.wait()
        assert redis_client.get("n") is None


@pytest.mark.one_server
def test_a_held_reply_comes_when_released(proxy: Proxy, redis_client: redis.Redis) -> None:
    fault = proxy.hold_reply("INCRBY")
    answers: list[object] = []
    with one_try(proxy.url) as client:
        thread = threading.Thread(target=lambda: answers.append(client.incr("n")))
        thread.start()
        fault.wait()
        assert redis_client.get("n") == b"1"
        assert answers == []
        fault.release()
        thread.join(30)
    assert answers == [1]


@pytest.mark.one_server
def test_a_one_way_cut(proxy: Proxy, redis_client: redis.Redis) -> None:
    with one_try(proxy.url, socket_timeout=1) as client:
        client.ping()
        proxy.cut("to_client")
        with pytest.raises(redis.TimeoutError):
            client.incr("n")
        wait_for(lambda: redis_client.get("n") == b"1", "it has run")
        proxy.heal()
        client.ping()
        proxy.cut("to_server")
        with pytest.raises(redis.TimeoutError):
            client.incr("n")
        assert redis_client.get("n") == b"1"
        proxy.heal()
        wait_for(lambda: redis_client.get("n") == b"2", "what was on its way arrives late")


@pytest.mark.one_server
@pytest.mark.parametrize("unix_socket", [False, True])
def test_refusing(redis_url: str, unix_socket: bool) -> None:
    with Proxy(redis_url, unix_socket=unix_socket) as proxy, one_try(proxy.url) as client:
        client.ping()
        proxy.refuse()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        assert proxy.connections == 0
        proxy.accept()
        assert client.ping()


def test_the_cluster_serves_every_slot(cluster: LocalCluster) -> None:
    with redis.RedisCluster.from_url(cluster.seed_url) as client:
        for number in range(200):
            client.set(f"key-{number}", number)
        assert [client.get(f"key-{number}") for number in range(200)] == [
            b"%d" % number for number in range(200)
        ]
    assert sorted(cluster.on_every_node("DBSIZE"))[0] > 0


def test_the_cluster_answers_moved_ask_and_tryagain(cluster: LocalCluster) -> None:
    slot = key_slot(b"{tag}a")
    source = cluster.owner_of(slot)
    target = (source + 1) % 3
    with cluster.client(source) as old, cluster.client(target) as new:
        old.set("{tag}a", 1)
        with pytest.raises(MovedError):
            new.get("{tag}a")
        assert cluster.begin_move(slot, target) == source
        with pytest.raises(AskError):
            old.get("{tag}b")
        with pytest.raises(TryAgainError):
            old.mget("{tag}a", "{tag}b")
        assert cluster.move_keys(slot, source, target) == 1
        cluster.end_move(slot, target)
        assert new.get("{tag}a") == b"1"
        with pytest.raises(MovedError):
            old.get("{tag}a")
        cluster.begin_move(slot, source)
        cluster.move_keys(slot, target, source)
        cluster.end_move(slot, source)
        assert old.get("{tag}a") == b"1"


def test_any_url_is_empty_everywhere(any_url: str) -> None:
    if any_url.startswith("redis+cluster://"):
        seed = any_url.replace("redis+cluster://", "redis://")
        with redis.RedisCluster.from_url(seed) as client:
            assert client.dbsize() == 0
            client.set("left", "behind")
    else:
        with redis.Redis.from_url(any_url) as client:
            assert client.dbsize() == 0
            client.set("left", "behind")


def test_fakeredis_runs_scripts(fake_redis: redis.Redis) -> None:
    assert fake_redis.eval("return redis.call('INCR', KEYS[1])", 1, "n") == 1


def test_servers_are_chosen_by_word() -> None:
    servers, cluster = choose(["all"])
    assert (tuple(servers), cluster) == (discover(), True)
    assert choose(["newest"]) == (list(discover()[:1]), False)
    assert choose(["cluster"]) == ([], True)
    for server in discover():
        assert server in choose([server.name])[0]
        assert choose([server.version_text, server.name])[0][0].version == server.version
    with pytest.raises(ValueError, match="found here"):
        choose(["3.2"])
