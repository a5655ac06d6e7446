"""The clients of a kit's namespace, and what becomes of it in the end."""

from __future__ import annotations

from timerq.async_client import AsyncTimerQueue
from timerq.client import TimerQueue
from timerq.exchange import unavailable
from timerq.testing.clock import ManualClock
from timerq.testing.server import Place
from timerq.topology import REDIS_FAULTS, Connections

_DELETED_AT_ONCE = 500


class Clients:
    """Makes clients of one namespace, under one clock, and closes them."""

    def __init__(self, place: Place, namespace: str, clock: ManualClock) -> None:
        self._place = place
        self._name = namespace
        self._clock = clock
        self.connections = Connections(place.url, **place.options)
        self._clients: list[TimerQueue] = []
        self._async_clients: list[AsyncTimerQueue] = []

    def connect(self, tenant: str) -> TimerQueue:
        """A blocking one."""
        client = TimerQueue(
            self._place.url, namespace=self._name, tenant=tenant, clock=self._clock, **self._place.options
        )
        self._clients.append(client)
        return client

    def aconnect(self, tenant: str) -> AsyncTimerQueue:
        """An asynchronous one."""
        client = AsyncTimerQueue(
            self._place.url,
            namespace=self._name,
            tenant=tenant,
            clock=self._clock,
            **self._place.async_options,
        )
        self._async_clients.append(client)
        return client

    def close(self) -> None:
        """Closes the blocking ones."""
        while self._clients:
            self._clients.pop().close()
        self.connections.close()

    async def aclose(self) -> None:
        """Closes the asynchronous ones, in their event loop."""
        while self._async_clients:
            try:
                await self._async_clients.pop().close()
            except RuntimeError:
                pass  # it was used in another loop, as of an asyncio.run of the test's, which has ended with all it had

    def forget(self) -> None:
        """Deletes every key of the namespace. Raises `QueueUnavailable`."""
        try:
            client = self.connections.open()
            found: list[bytes] = []
            for key in client.scan_iter(match=f"{{{self._name}*", count=1000):
                found.append(key)
                if len(found) == _DELETED_AT_ONCE:
                    client.unlink(*found)
                    found = []
            if found:
                client.unlink(*found)
        except REDIS_FAULTS as error:
            raise unavailable(error) from error
