"""The environment is read in one place, and an empty variable is an unset one."""

from __future__ import annotations

from pathlib import Path

import pytest

from timerq.errors import InvalidSchedule
from timerq.settings import Settings


def test_defaults() -> None:
    settings = Settings.from_environment({})
    assert settings.redis_url == "redis://localhost:6379/0"
    assert (settings.namespace, settings.tenant) == ("timerq", "default")
    assert settings.max_payload_bytes == 65_536
    assert settings.redis_server is None
    assert settings.search_path


def test_every_variable_is_read() -> None:
    settings = Settings.from_environment(
        {
            "TIMERQ_REDIS_URL": "unix:///run/redis.sock",
            "TIMERQ_NAMESPACE": "prod",
            "TIMERQ_TENANT": "acme",
            "TIMERQ_MAX_PAYLOAD_BYTES": "1024",
            "TIMERQ_REDIS_SERVER": "/opt/redis-server",
            "PATH": "/opt/bin",
        }
    )
    assert settings == Settings(
        redis_url="unix:///run/redis.sock",
        namespace="prod",
        tenant="acme",
        max_payload_bytes=1024,
        redis_server=Path("/opt/redis-server"),
        search_path="/opt/bin",
    )


def test_empty_counts_as_unset() -> None:
    names = (
        "TIMERQ_REDIS_URL",
        "TIMERQ_NAMESPACE",
        "TIMERQ_TENANT",
        "TIMERQ_MAX_PAYLOAD_BYTES",
        "TIMERQ_REDIS_SERVER",
    )
    assert Settings.from_environment(dict.fromkeys(names, "")) == Settings.from_environment({})


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "64k", "٣", "9" * 13, "nan"])
def test_a_number_that_is_none_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidSchedule, match="TIMERQ_MAX_PAYLOAD_BYTES"):
        Settings.from_environment({"TIMERQ_MAX_PAYLOAD_BYTES": text})
