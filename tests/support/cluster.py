"""A Redis Cluster of local processes: three masters, no replicas, made without redis-cli."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import redis

from tests.support.servers import Server
from timerq.embedded import EmbeddedRedis

SLOTS = 16_384
_BUS_OFFSET = 10_000
_DEADLINE_S = 30.0


class LocalCluster:
    """`masters` servers on loopback ports that share the slots evenly; a context manager.

    It writes nothing outside temporary folders. `nodes` are the EmbeddedRedis children, to be killed and started at
    will; the node table survives their restart.
    """

    def __init__(self, server: Server, masters: int = 3, *, node_timeout_ms: int = 15_000) -> None:
        """``node_timeout_ms``: a machine may stand still for so long without a node's being taken for gone."""
        self.server = server
        self._masters = masters
        self.node_timeout_ms = node_timeout_ms
        self.nodes: list[EmbeddedRedis] = []

    @property
    def url(self) -> str:
        """What timerq connects to: `redis+cluster://` and the first node, from which a client finds the others."""
        return f"redis+cluster://127.0.0.1:{self.nodes[0].port}"

    @property
    def seed_url(self) -> str:
        """The same for `redis.RedisCluster.from_url`."""
        return self.nodes[0].tcp_url

    def start(self) -> LocalCluster:
        """Start the nodes, join them, give out the slots, and wait until every node says that all is well."""
        try:
            for _ in range(self._masters):
                self.nodes.append(self._start_node())
            self._join()
            self.wait_until_ok()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End every node. Idempotent."""
        for node in self.nodes:
            node.kill()  # there is nothing to save
            node.stop()
        self.nodes.clear()

    def __enter__(self) -> LocalCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def client(self, index: int) -> redis.Redis:
        """A plain connection to one node (no redirection is followed)."""
        return redis.Redis(host="127.0.0.1", port=self.nodes[index].port, socket_timeout=10, protocol=2)

    def on_every_node(self, *command: str | int) -> list[Any]:
        """Run one command on each node."""
        return [self._on(index, *command) for index in range(len(self.nodes))]

    def flush(self) -> None:
        """Empty every node, its scripts too."""
        self.on_every_node("FLUSHALL")
        self.on_every_node("SCRIPT", "FLUSH")

    def slot_ranges(self, index: int) -> tuple[int, int]:
        """First and last slot that a node was given at the start."""
        return index * SLOTS // self._masters, (index + 1) * SLOTS // self._masters - 1

    def owner_of(self, slot: int) -> int:
        """The index of the node that owns a slot now, as the first node sees it."""
        for entry in self._on(0, "CLUSTER", "SLOTS"):
            if int(entry[0]) <= slot <= int(entry[1]):
                ports = [node.port for node in self.nodes]
                return ports.index(int(entry[2][1]))
        raise LookupError(f"no node owns slot {slot}")

    def begin_move(self, slot: int, to: int) -> int:
        """Open a slot's migration: its owner answers ASK for keys it lacks, TRYAGAIN for half. Returns the owner."""
        owner = self.owner_of(slot)
        self._on(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", self._id(owner))
        self._on(owner, "CLUSTER", "SETSLOT", slot, "MIGRATING", self._id(to))
        return owner

    def move_keys(self, slot: int, source: int, to: int, count: int = 1_000) -> int:
        """Move up to `count` keys of an open slot; returns how many."""
        keys = self._on(source, "CLUSTER", "GETKEYSINSLOT", slot, count)
        if keys:
            port = self.nodes[to].port
            with self.client(source) as client:
                client.execute_command("MIGRATE", "127.0.0.1", port, "", 0, 5_000, "KEYS", *keys)
        return len(keys)

    def end_move(self, slot: int, to: int) -> None:
        """Close the migration: from now on the other nodes answer MOVED. The new owner learns it first."""
        for index in sorted(range(len(self.nodes)), key=lambda index: index != to):
            self._on(index, "CLUSTER", "SETSLOT", slot, "NODE", self._id(to))

    def abandon_move(self, slot: int) -> None:
        """Close an open migration where it stands, with the old owner."""
        self.on_every_node("CLUSTER", "SETSLOT", slot, "STABLE")

    def wait_until_ok(self) -> None:
        """Wait until every node sees every node and serves every slot. Raises TimeoutError after 30 s."""
        _until(self._is_ok, "the cluster is not ready")

    # ------------------------------------------------------------------------------------------- how

    def _start_node(self) -> EmbeddedRedis:
        config = {
            "cluster-enabled": "yes",
            "cluster-config-file": "nodes.conf",
            "cluster-node-timeout": str(self.node_timeout_ms),
        }
        for attempts_left in (4, 3, 2, 1, 0):
            node = self.server.run(port=_free_port_pair(), config=config)
            try:
                return node.start()
            except Exception:  # another process took one of the two ports first
                if not attempts_left:
                    raise
        raise AssertionError("unreachable")

    def _join(self) -> None:
        for index in range(self._masters):
            first, last = self.slot_ranges(index)
            self._on(index, "CLUSTER", "ADDSLOTS", *range(first, last + 1))  # ADDSLOTSRANGE came with 7.0
            self._on(index, "CLUSTER", "SET-CONFIG-EPOCH", index + 1)
        for index in range(1, self._masters):
            self._on(0, "CLUSTER", "MEET", "127.0.0.1", self.nodes[index].port)

    def _is_ok(self) -> bool:
        for index in range(len(self.nodes)):
            if b"cluster_state:ok" not in self._on(index, "CLUSTER", "INFO"):
                return False
            if len({entry[2][1] for entry in self._on(index, "CLUSTER", "SLOTS")}) != len(self.nodes):
                return False
        return True

    def _id(self, index: int) -> str:
        return bytes(self._on(index, "CLUSTER", "MYID")).decode()

    def _on(self, index: int, *command: str | int) -> Any:
        with self.client(index) as client:
            client.response_callbacks.clear()  # answers as they came, whatever the client would make of them
            return client.execute_command(*command)


def _until(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{otherwise} after {_DEADLINE_S:.0f} s")
        time.sleep(0.02)  # nodes gossip among themselves; there is no signal to wait for


def _free_port_pair() -> int:
    """A port that is free, and free 10,000 above too, where the nodes talk to each other."""
    for _ in range(200):
        with socket.socket() as low, socket.socket() as high:
            low.bind(("127.0.0.1", 0))
            port = int(low.getsockname()[1])
            if port + _BUS_OFFSET > 65_535:
                port -= 20_000
            try:
                if port != low.getsockname()[1]:
                    with socket.socket() as probe:
                        probe.bind(("127.0.0.1", port))
                high.bind(("127.0.0.1", port + _BUS_OFFSET))
            except OSError:
                continue
            return port
    raise OSError("no pair of free ports found")
