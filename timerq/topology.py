"""A URL → connections: standalone, Sentinel, Cluster, TLS, embedded.

    redis://host:6379/0    rediss://…    unix:///path/redis.sock?db=0
    redis+cluster://host:7000    rediss+cluster://…
    redis+sentinel://host:26379,other:26379/master-name/0
    embedded:///path/to/data    embedded:

Options in the URL's query are those of redis-py (``socket_timeout=2``, ``health_check_interval=10`` …).

The reconnecting and re-sending is redis-py's. A command that is sent again after its reply was lost is recognised by
its session and number, so nothing here needs to know whether the first one arrived.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import RedisClusterException
from redis.retry import Retry

from timerq.embedded import EmbeddedRedis
from timerq.errors import InvalidSchedule, QueueUnavailable
from timerq.packing import TextPacker, packing

logger = logging.getLogger("timerq")

SOCKET_TIMEOUT_S = 5.0
RETRIES = 3
"""How often a command is sent again after a fault of the connection."""
_WANT_URL = (
    "want redis://, rediss://, unix://, redis+cluster://, rediss+cluster://, redis+sentinel:// or embedded: "
    "as in redis://localhost:6379/0"
)


_NODE_OPTIONS = ("username", "password", "socket_timeout", "socket_connect_timeout", "socket_keepalive")


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed URL: ``kind`` is standalone, cluster, sentinel or embedded; ``url`` is what redis-py understands."""

    kind: str
    url: str
    sentinels: tuple[tuple[str, int], ...] = ()
    master: str = ""
    options: dict[str, Any] = field(default_factory=dict)


def parse_url(url: str) -> Target:
    """Raises `InvalidSchedule` naming ``url`` for one that cannot be understood; a password never shows up in it."""
    want = _WANT_URL
    if not isinstance(url, str):  # most often the None of an unset variable
        raise InvalidSchedule("url", url if url is None else type(url), want)
    try:
        parts = urlsplit(url)
        scheme, _, kind = parts.scheme.partition("+")
        if kind == "" and scheme in ("redis", "rediss", "unix"):
            if scheme != "unix" and not parts.path.strip("/").isdecimal() and parts.path.strip("/"):
                raise ValueError("redis-py would take database 0")
            _check_options(url)
            return Target("standalone", url)
        if kind == "cluster" and scheme in ("redis", "rediss"):
            want = "want redis+cluster://host:7000 with one of its nodes; a Cluster has database 0 alone"
            plain = urlunsplit(parts._replace(scheme=scheme))
            if parts.path.strip("/") not in ("", "0"):
                raise ValueError("a database")
            _check_options(plain)
            return Target("cluster", plain)
        if kind == "sentinel" and scheme in ("redis", "rediss"):
            want = "want redis+sentinel://host:26379,other:26379/master-name/0"
            return _parse_sentinel(parts, scheme)
        if scheme == "embedded" and kind == "":
            return Target("embedded", unquote(parts.path))
    except TypeError as error:
        want = f"want only options that redis-py and timerq know behind the ? ({error})"
    except (ValueError, AttributeError, redis.RedisError):
        pass
    raise InvalidSchedule("url", redact(url), want)


def _check_options(url: str) -> None:
    """Raises TypeError for an option of a URL that no connection takes, or that would change what replies look like."""
    try:
        pool = redis.ConnectionPool.from_url(url)
    except ValueError as error:
        if not str(error).startswith("Invalid value for"):
            raise
        raise TypeError(str(error)) from None  # it names the option, not its value
    if pool.connection_kwargs.get("decode_responses"):
        raise TypeError("decode_responses cannot be: payloads are bytes")
    pool.make_connection()  # it connects to nothing yet


def redact(url: str) -> str:
    """A URL as it may be shown: without user, password and options. What cannot be told from them is left out too."""
    before, at, after = url.rpartition("@")
    if not at:
        return url.partition("?")[0]
    scheme = url.partition("://")[0] + "://" if "://" in url else ""
    return scheme + ("…" if "?" in before else "…@" + after.partition("?")[0])


def _parse_sentinel(parts: Any, scheme: str) -> Target:
    credentials, _, hosts = parts.netloc.rpartition("@")
    sentinels = []
    for host in hosts.split(","):
        name, _, port = host.rpartition(":")
        sentinels.append((name, int(port)) if name else (port, 26379))
    master, _, db = parts.path.strip("/").partition("/")
    if not master:
        raise ValueError("no master name")
    options: dict[str, Any] = {"db": int(db or 0), "ssl": scheme == "rediss"}
    if credentials:
        username, _, password = credentials.partition(":")
        options["password"] = unquote(password)
        if username:
            options["username"] = unquote(username)
    query = urlencode(parse_qsl(parts.query))
    _check_options(f"{scheme}://h/0?{query}")
    options.update(redis.connection.parse_url(f"redis://h/0?{query}") if query else {})
    for name in ("host", "port"):
        options.pop(name, None)
    options["db"] = int(db or 0)
    return Target("sentinel", "", tuple(sentinels), master, options)


def _connection_options(options: dict[str, Any]) -> dict[str, Any]:
    if options.get("decode_responses"):
        raise InvalidSchedule("decode_responses", True, "want it left out: payloads are bytes")
    return {
        "socket_timeout": SOCKET_TIMEOUT_S,
        "socket_connect_timeout": SOCKET_TIMEOUT_S,
        "decode_responses": False,
        "max_connections": 10_000,  # as many as calls at once; redis-py's own cap of 100 would fail the rest
        **options,
    }


def _target(url: str) -> tuple[Target, EmbeddedRedis | None]:
    """Where a URL leads, and the server that was started for it."""
    target = parse_url(url)
    if target.kind != "embedded":
        return target, None
    server = EmbeddedRedis(target.url or None)
    server.start()
    return Target("standalone", server.url), server


def _backoff() -> ExponentialWithJitterBackoff:
    return ExponentialWithJitterBackoff(cap=1.0, base=0.02)


REDIS_FAULTS = (redis.RedisError, RedisClusterException, OSError)
"""All that redis-py raises where Redis is away or refuses."""


class Connections:
    """The connections of a blocking client; ``nodes`` differ only on a Cluster."""

    def __init__(self, url: str, *, retries: int = RETRIES, **options: Any) -> None:
        """``retries`` is how often a command is sent again after a fault of the connection; ``options`` are redis-py's.

        Nothing is sent yet; raises `InvalidSchedule` for a bad URL.
        """
        target, self.embedded = _target(url)
        self._options = {
            "retry": Retry(_backoff(), retries),
            "command_packer": TextPacker(),
            **_connection_options(options),
        }
        self._target = target
        self._making = threading.Lock()
        self._sentinel: Any = None
        self.is_cluster = target.kind == "cluster"
        self.client: Any = None if self.is_cluster else self._make()

    def _make(self) -> Any:
        if self._target.kind == "standalone":
            return redis.Redis.from_url(self._target.url, **self._options)
        if self._target.kind == "sentinel":
            sentinel = redis.Sentinel(list(self._target.sentinels), sentinel_kwargs={"socket_timeout": 1.0})
            self._sentinel = sentinel
            return sentinel.master_for(self._target.master, **{**self._options, **self._target.options})
        return redis.RedisCluster.from_url(self._target.url, **self._options)

    def open(self) -> Any:
        """The redis-py client; a Cluster's is made here, since making it already asks the nodes."""
        if self.client is None:
            with self._making:  # threads that come together must not make one each
                if self.client is None:
                    self.client = self._make()
        return self.client

    def node_of(self, key: bytes) -> tuple[Any, Any]:
        """The node that holds a key, as (something to group by, a redis-py client)."""
        client = self.open()
        if not self.is_cluster:
            return None, client
        node = client.get_node_from_key(key)
        if node is None:
            raise QueueUnavailable("no node of the Cluster holds this slot")
        return node.name, client.get_redis_connection(node)

    def forget_after(self, error: BaseException) -> None:
        """Forgets what the fault shows to be no longer so: that this server is the one to ask. Never raises."""
        if self.client is None:
            return
        if not self.is_cluster:
            if isinstance(error.__cause__ or error, redis.ReadOnlyError):
                self.client.connection_pool.disconnect(inuse_connections=False)
        elif isinstance(error, (redis.RedisError, OSError)):
            # What is sent through the Cluster's client follows its slot; a read that stands open on a node does not.
            try:
                self.client.nodes_manager.initialize(disconnect_startup_nodes_pools=False)
            except REDIS_FAULTS:
                pass  # nobody can be asked now; the next fault asks again

    def eviction_policies(self) -> dict[str, str]:
        """Each server's maxmemory-policy; empty where it may not be asked. Raises `QueueUnavailable`."""
        client = self.open()
        try:
            if self.is_cluster:
                infos = client.info("memory", target_nodes=redis.RedisCluster.PRIMARIES)
                return {str(node): info.get("maxmemory_policy", "noeviction") for node, info in infos.items()}
            return {"this Redis": client.info("memory").get("maxmemory_policy", "noeviction")}
        except redis.ResponseError:  # NOPERM, or a server that hides it
            return {}
        except REDIS_FAULTS as error:
            raise QueueUnavailable(f"Redis is away or refuses: {error}") from error

    def close(self) -> None:
        """Closes every connection, also those in use; an embedded server stops."""
        if self.client is not None:
            clients = [self.client]
            if self.is_cluster:
                clients = [node.redis_connection for node in self.client.get_nodes() if node.redis_connection]
            for client in clients:
                client.connection_pool.disconnect(inuse_connections=True)
            self.client.close()
        if self._sentinel is not None:
            self._sentinel.close()
        if self.embedded is not None:
            self.embedded.stop()


class AsyncConnections:
    """The connections of an asynchronous client."""

    def __init__(self, url: str, *, retries: int = RETRIES, **options: Any) -> None:
        """``retries`` is how often a command is sent again after a fault of the connection; ``options`` are redis-py's.

        Nothing is sent yet; raises `InvalidSchedule` for a bad URL.
        """
        target, self.embedded = _target(url)
        self._nodes: dict[str, Any] = {}
        self._opening = asyncio.Lock()
        self._options = {"retry": AsyncRetry(_backoff(), retries), **_connection_options(options)}
        self._target = target
        self._sentinel: Any = None
        self.is_cluster = target.kind == "cluster"
        self.client: Any = None if self.is_cluster else self._make()

    def _make(self) -> Any:
        if self._target.kind == "standalone":
            return packing(redis.asyncio.Redis.from_url(self._target.url, **self._options))
        if self._target.kind == "sentinel":
            sentinel = redis.asyncio.Sentinel(
                list(self._target.sentinels), sentinel_kwargs={"socket_timeout": 1.0}
            )
            self._sentinel = sentinel
            options = {**self._options, **self._target.options}
            return packing(sentinel.master_for(self._target.master, **options))
        return redis.asyncio.RedisCluster.from_url(self._target.url, **self._options)

    async def open(self) -> Any:
        """The redis-py client, ready to send."""
        if self.client is None:
            async with self._opening:  # tasks that come together must not make a client each
                if self.client is None:
                    client = self._make()
                    await client.initialize()
                    self.client = client
        return self.client

    async def node_of(self, key: bytes) -> Any:
        """A client of the node that holds a key, whose pipeline is one connection."""
        client = await self.open()
        if not self.is_cluster:
            return client
        node = client.get_node_from_key(key.decode("latin-1") if isinstance(key, bytes) else key)
        if node is None:
            raise QueueUnavailable("no node of the Cluster holds this slot")
        if node.name not in self._nodes:
            tls = redis.connection.parse_url(self._target.url).get("connection_class") is not None
            kwargs = {
                name: value
                for name, value in node.connection_kwargs.items()
                if name in _NODE_OPTIONS or (tls and name.startswith("ssl_"))
            }
            retry = self._options["retry"]
            self._nodes[node.name] = redis.asyncio.Redis(
                host=node.host, port=node.port, ssl=tls, retry=retry, **kwargs
            )
        return self._nodes[node.name]

    async def forget_after(self, error: BaseException) -> None:
        """Forgets what the fault shows to be no longer so; what `Connections.forget_after` says. Never raises."""
        if self.client is None:
            return
        try:
            if self.is_cluster:
                await self.client.nodes_manager.initialize()
            elif isinstance(error.__cause__ or error, redis.ReadOnlyError):
                await self.client.connection_pool.disconnect(inuse_connections=False)
        except REDIS_FAULTS:
            pass  # nobody can be asked now; the next fault asks again

    async def close(self) -> None:
        """Closes every connection; an embedded server stops."""
        for node in self._nodes.values():
            await node.aclose()
        if self.client is not None:
            await self.client.aclose()
            if self.is_cluster:
                # after a fault it holds itself closed, though `forget_after` has asked its nodes since
                await self.client.nodes_manager.aclose()
                await self.client.nodes_manager.aclose("startup_nodes")
        if self._sentinel is not None:
            for watcher in self._sentinel.sentinels:
                await watcher.aclose()
        if self.embedded is not None:
            self.embedded.stop()
