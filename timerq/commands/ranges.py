"""Ranges of keys: a prefix is a prefix, never a pattern."""

from __future__ import annotations

from dataclasses import dataclass

from timerq import keys
from timerq.commands.command import Scope
from timerq.errors import InvalidSchedule
from timerq.model import MAX_NAME_BYTES, check_text


@dataclass(frozen=True, slots=True)
class Range:
    """The ids from ``first`` to ``last`` (as ZRANGEBYLEX has them), in these partitions, of an owner or of all."""

    first: bytes
    last: bytes
    partitions: range
    tenant: bytes
    owner: bytes

    def index(self, tag: bytes) -> bytes:
        """The sorted set of a partition that holds them."""
        return keys.owner_index(tag, self.tenant, self.owner) if self.owner else keys.index(tag)


def key_range(scope: Scope, prefix: str = "", owner: str | None = None) -> Range:
    """The ids of the tenant whose key begins with ``prefix``, of ``owner`` alone where one is given."""
    start = scope.tenant_bytes + keys.NUL + prefix_bytes(prefix)
    namespace = scope.namespace
    if owner is None:
        partitions = range(namespace.partitions)
        owner_bytes = b""
    else:
        owner_bytes = check_text("owner", owner)
        partition = namespace.partition_of(scope.tenant_bytes, owner_bytes)
        partitions = range(partition, partition + 1)
    return Range(b"[" + start, b"(" + start + keys.LEX_END, partitions, scope.tenant_bytes, owner_bytes)


def prefix_bytes(prefix: str) -> bytes:
    """The UTF-8 of a prefix, which may be empty; raises `InvalidSchedule`."""
    if prefix == "":
        return b""
    try:
        return check_text("prefix", prefix)
    except InvalidSchedule:
        want = f"want a text of at most {MAX_NAME_BYTES} bytes of UTF-8 without NUL; empty for all"
        raise InvalidSchedule("prefix", prefix, want) from None
