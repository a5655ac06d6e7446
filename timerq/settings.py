"""The one place that reads the environment.

    TIMERQ_REDIS_URL           where Redis is                       redis://localhost:6379/0
    TIMERQ_NAMESPACE           which timer queue in that Redis      timerq
    TIMERQ_TENANT              which tenant of it                   default
    TIMERQ_MAX_PAYLOAD_BYTES   the largest payload accepted         65536
    TIMERQ_REDIS_SERVER        the redis-server that the embedded Redis runs; unset: looked for
    PATH                       where programs are looked for

An argument given in code or on the command line always wins; an empty variable counts as unset.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from timerq.codec import DEFAULT_LIMIT_BYTES
from timerq.errors import InvalidSchedule

DEFAULT_REDIS_URL = "redis://localhost:6379/0"
DEFAULT_NAMESPACE = "timerq"
DEFAULT_TENANT = "default"
DEFAULT_MAX_PAYLOAD_BYTES = DEFAULT_LIMIT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the environment says, with the defaults filled in. Names are checked where they are used."""

    redis_url: str = DEFAULT_REDIS_URL
    namespace: str = DEFAULT_NAMESPACE
    tenant: str = DEFAULT_TENANT
    max_payload_bytes: int = DEFAULT_MAX_PAYLOAD_BYTES
    redis_server: Path | None = None
    search_path: str = os.defpath

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read `environ`, by default the environment of the process.

        Raises InvalidSchedule, naming the variable, for a number that is none.
        """
        env = os.environ if environ is None else environ
        server = env.get("TIMERQ_REDIS_SERVER")
        return cls(
            redis_url=env.get("TIMERQ_REDIS_URL") or DEFAULT_REDIS_URL,
            namespace=env.get("TIMERQ_NAMESPACE") or DEFAULT_NAMESPACE,
            tenant=env.get("TIMERQ_TENANT") or DEFAULT_TENANT,
            max_payload_bytes=_positive(env, "TIMERQ_MAX_PAYLOAD_BYTES", DEFAULT_MAX_PAYLOAD_BYTES),
            redis_server=Path(server) if server else None,
            search_path=env.get("PATH") or os.defpath,
        )


def _positive(env: Mapping[str, str], name: str, default: int) -> int:
    text = (env.get(name) or "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 12 and int(text) > 0):
        raise InvalidSchedule(name, env[name], "give a whole number above 0, such as 65536")
    return int(text)
