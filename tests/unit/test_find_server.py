"""Which server the embedded Redis runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from timerq.embedded import find, find_server, identify
from timerq.errors import QueueUnavailable
from timerq.settings import Settings


def program(folder: Path, name: str, says: str = "Redis server v=7.2.4 sha=0:0 bits=64") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def test_the_named_server_comes_first(tmp_path: Path) -> None:
    program(tmp_path / "path", "redis-server")
    named = program(tmp_path / "named", "my-redis")
    settings = Settings(redis_server=named, search_path=str(tmp_path / "path"))
    assert find_server(settings) == named


@pytest.mark.parametrize("kind", ["missing", "folder", "text"])
def test_a_named_server_that_cannot_run_is_an_error_and_never_replaced(tmp_path: Path, kind: str) -> None:
    program(tmp_path / "path", "redis-server")
    named = tmp_path / "named"
    if kind == "folder":
        named.mkdir()
    elif kind == "text":
        named.write_text("not a program")
    with pytest.raises(QueueUnavailable, match=r"TIMERQ_REDIS_SERVER.*named"):
        find_server(Settings(redis_server=named, search_path=str(tmp_path / "path")))


def test_the_path_comes_before_wheels_and_its_order_counts(tmp_path: Path) -> None:
    valkey = program(tmp_path / "a", "valkey-server")
    redis = program(tmp_path / "b", "redis-server")
    assert find_server(Settings(search_path=f"{tmp_path}/a:{tmp_path}/b")) == valkey
    assert find_server(Settings(search_path=f"{tmp_path}/empty::{tmp_path}/b:{tmp_path}/a")) == redis


def test_a_wheel_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = program(tmp_path / "site" / "shipped_redis" / "bin", "redis-server")
    wheel.chmod(0o644)  # some installers drop the executable bit
    (tmp_path / "site" / "shipped_redis" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(find, "_WHEELS", (("shipped_redis", "bin/redis-server"),))
    found = find_server(Settings(search_path=str(tmp_path / "empty")))
    assert found == wheel
    assert identify(found) == ("redis", "7.2.4")


def test_without_any_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "_WHEELS", (("no_such_package", "bin/redis-server"),))
    with pytest.raises(QueueUnavailable, match=r"pip install 'timerq\[embedded\]'"):
        find_server(Settings(search_path=str(tmp_path)))


def test_identify_knows_valkey(tmp_path: Path) -> None:
    server = program(tmp_path, "valkey-server", "Valkey server v=9.1.2 sha=0:1 malloc=libc bits=64")
    assert identify(server) == ("valkey", "9.1.2")


def test_identify_refuses_what_is_no_server(tmp_path: Path) -> None:
    with pytest.raises(QueueUnavailable, match="not a redis-server"):
        identify(program(tmp_path, "redis-server", "hello"))
    broken = program(tmp_path, "broken")
    broken.write_text("#!/no/such/interpreter\n")
    with pytest.raises(QueueUnavailable, match="does not run"):
        identify(broken)
