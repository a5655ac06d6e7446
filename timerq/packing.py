"""How commands are written to connections of redis-py: in C, and without numbers."""

from __future__ import annotations

from typing import Any, TypeVar

from redis.connection import HiredisRespSerializer

C = TypeVar("C")


class TextPacker(HiredisRespSerializer):
    """Writes commands as redis-py does, but numbers as texts: `timerq.commands.command.Command.call` says why."""

    def pack(self, *args: Any) -> Any:
        """A command's words as what goes over the wire."""
        texts: list[Any] = [str(word) if type(word) is int else word for word in args]
        return super().pack(*texts)


_PACKER = TextPacker()


class Packing:
    """Makes an asynchronous connection, which would do it word by word in Python, write as the blocking ones do."""

    def pack_command(self, *args: Any) -> Any:
        """A command's words as what goes over the wire."""
        return _PACKER.pack(*args)


def packing(client: C) -> C:
    """The same asynchronous client of redis-py, whose connections are `Packing`."""
    pool: Any = client.connection_pool  # type: ignore[attr-defined]
    pool.connection_class = type("PackingConnection", (Packing, pool.connection_class), {})
    return client
