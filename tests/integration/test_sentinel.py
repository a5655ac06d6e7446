"""Behind a Sentinel: clients and dispatchers follow the master when it dies, and when it is changed on purpose."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support.events import Events
from tests.support.proxy import wait_for
from timerq import AsyncTimerQueue, Event, Outcome, QueueUnavailable, TimerQueue
from timerq.dispatcher import Dispatcher
from timerq.embedded import EmbeddedRedis

EVENT = Event("t")
REPLICA = "replicas=1,timeout=4s"
MakeRedis = Callable[..., EmbeddedRedis]


class Sentinel:
    """A master, a replica, and the Sentinel that watches over them."""

    def __init__(self, make_redis: MakeRedis, folder: Path) -> None:
        self.master = make_redis(port=0, config={"repl-diskless-sync-delay": "0"})
        self.replica = make_redis(port=0, config={"replicaof": f"127.0.0.1 {self.master.port}"})
        wait_for(lambda: self._info(self.replica)["master_link_status"] == "up", "the replica follows")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        settings = folder / "sentinel.conf"
        settings.write_text(
            f"port {port}\ndir {folder}\nsentinel monitor mm 127.0.0.1 {self.master.port} 1\n"
            "sentinel down-after-milliseconds mm 1500\nsentinel failover-timeout mm 3000\n"
        )
        self._process = subprocess.Popen(
            [self.master.server, settings, "--sentinel"], stdout=subprocess.DEVNULL
        )
        self.client = redis.Redis(port=port)
        wait_for(self._knows_the_replica, "the Sentinel knows both")
        self.url = f"redis+sentinel://127.0.0.1:{port}/mm/0"

    def master_port(self) -> int:
        """Where the Sentinel says that the master is."""
        address: Any = self.client.sentinel_get_master_addr_by_name("mm")
        return int(address[1])

    def stop(self) -> None:
        self.client.close()
        self._process.kill()
        self._process.wait()

    def _knows_the_replica(self) -> bool:
        try:
            return any(not one["is_disconnected"] for one in self.client.sentinel_slaves("mm"))
        except redis.RedisError:
            return False

    @staticmethod
    def _info(server: EmbeddedRedis) -> Any:
        with redis.Redis(port=server.port) as client:
            return client.info("replication")


@pytest.fixture
def sentinel(make_redis: MakeRedis, tmp_path: Path) -> Iterator[Sentinel]:
    made = Sentinel(make_redis, tmp_path)
    yield made
    made.stop()


def test_all_follow_a_master_that_dies(sentinel: Sentinel) -> None:
    with TimerQueue.connect(sentinel.url) as queue, Dispatcher(sentinel.url) as dispatcher:
        for n in range(20):
            assert queue.upsert(f"k{n}", EVENT, delay=2500, durable=REPLICA).durable == "replicas=1"
        with Events(sentinel.url, queue.namespace) as events:
            sentinel.master.kill()
            wait_for(lambda: sentinel.master_port() == sentinel.replica.port, "the replica is the master", 30)

            def works() -> bool:
                try:
                    return queue.upsert("after", EVENT, delay=1).outcome is Outcome.CREATED
                except QueueUnavailable:
                    return False

            wait_for(works, "the client that was here before has followed")
            events.wait(21)
            events.check()
        wait_for(lambda: not dispatcher.health.failing, "the dispatcher is well")


def test_the_other_client_follows_too(sentinel: Sentinel) -> None:
    async def main() -> None:
        async with AsyncTimerQueue.connect(sentinel.url) as queue:
            await queue.upsert("k", EVENT, delay="1h", durable=REPLICA)
            sentinel.master.kill()
            async with asyncio.timeout(30):
                while True:
                    try:
                        handle = await queue.upsert("k", EVENT, delay="1h")
                        break
                    except QueueUnavailable:
                        await asyncio.sleep(0.05)
            assert handle.outcome is Outcome.REPLACED

    asyncio.run(main())
