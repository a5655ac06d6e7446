"""The embedded Redis: what survives, what does not, and that nothing is left behind."""

from __future__ import annotations

import os
import select
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import redis

from tests.support.proxy import wait_for
from tests.support.servers import Server
from timerq.embedded import EmbeddedRedis
from timerq.errors import InvalidSchedule, QueueUnavailable

MakeRedis = Callable[..., EmbeddedRedis]


def connect(server: EmbeddedRedis) -> redis.Redis:
    return redis.Redis.from_url(server.url)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    if not Path("/proc/self/stat").exists():
        return True
    try:
        # A zombie is dead, but only when its other threads have let go of its files.
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z" or len(os.listdir(f"/proc/{pid}/task")) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_runs_the_version_it_says(make_redis: MakeRedis, redis_spec: Server) -> None:
    server = make_redis()
    assert (server.kind, server.version) == (redis_spec.kind, redis_spec.version_text)
    with connect(server) as client:
        info = client.info("server")
        assert info["process_id"] == server.pid
        assert str(info.get("valkey_version") or info["redis_version"]) == server.version
        config = client.config_get("*")
        assert config["maxmemory-policy"] == "noeviction"
        assert config["protected-mode"] == "yes"
        assert config["save"] == ""
        assert config["appendonly"] == "no"


def test_is_reachable_by_this_user_alone(make_redis: MakeRedis) -> None:
    path = unquote(urlsplit(make_redis().url).path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700


def test_a_port_is_on_loopback_only(make_redis: MakeRedis) -> None:
    server = make_redis(port=0)
    assert server.url == f"redis://127.0.0.1:{server.port}/0"
    with connect(server) as client:
        assert client.config_get("bind")["bind"] == "127.0.0.1"


def test_leaves_nothing_behind(make_redis: MakeRedis) -> None:
    server = make_redis()
    pid, folder = server.pid, server.log.parent
    server.stop()
    assert not alive(pid)
    assert not folder.exists()
    assert not server.running
    with pytest.raises(QueueUnavailable):
        _ = server.pid
    server.stop()  # once more is harmless
    server.start()
    assert alive(server.pid)


def test_data_survives_restart_and_kill(make_redis: MakeRedis, tmp_path: Path) -> None:
    server = make_redis(tmp_path / "data", appendfsync="always")
    url = server.url
    with connect(server) as client:
        assert client.config_get("appendfsync")["appendfsync"] == "always"
        client.set("timer", "1")
        server.restart()
        assert client.incr("timer") == 2
        old = server.pid
        server.kill()
        assert not alive(old)
        server.start()
        assert (server.url, client.get("timer")) == (url, b"2")


def test_without_a_folder_a_kill_forgets_but_the_address_stays(make_redis: MakeRedis) -> None:
    for server in (make_redis(), make_redis(port=0)):
        url = server.url
        with connect(server) as client:
            client.set("timer", "1")
        server.kill()
        server.start()
        assert server.url == url
        with connect(server) as client:
            assert client.get("timer") is None


def test_a_folder_in_use_is_refused_by_name_and_pid(make_redis: MakeRedis, tmp_path: Path) -> None:
    server = make_redis(tmp_path)
    second = EmbeddedRedis(tmp_path, server=server.server)
    with pytest.raises(QueueUnavailable) as refusal:
        second.start()
    for part in (str(tmp_path), str(os.getpid()), str(server.pid)):
        assert part in str(refusal.value)
    with connect(server) as client:
        assert client.ping()
    server.stop()
    with second:  # free again
        pass


def test_a_folder_stays_locked_as_long_as_the_server_lives(make_redis: MakeRedis, tmp_path: Path) -> None:
    server = make_redis(tmp_path)
    os.kill(server.pid, signal.SIGSTOP)
    with pytest.raises(QueueUnavailable, match="in use"):
        EmbeddedRedis(tmp_path, server=server.server).start()
    server.kill()
    EmbeddedRedis(tmp_path, server=server.server).start().stop()


@pytest.mark.one_server
@pytest.mark.parametrize("name", ["with space", "quo'te\"s", "ünï-☃", "glob*[x]", "x" * 90])
def test_any_folder_name_will_do(make_redis: MakeRedis, tmp_path: Path, name: str) -> None:
    server = make_redis(tmp_path / name)
    with connect(server) as client:
        client.set("timer", "1")
    server.restart()
    with connect(server) as client:
        assert client.get("timer") == b"1"
    assert len(os.fsencode(unquote(urlsplit(server.url).path))) <= 100


@pytest.mark.one_server
def test_a_folder_that_cannot_be_made_is_an_error(redis_spec: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(QueueUnavailable, match="file"):
        redis_spec.run(data_dir=tmp_path / "file" / "data").start()


def test_a_refusal_gives_the_words_of_the_server(redis_spec: Server) -> None:
    server = redis_spec.run(config={"no-such-directive": "1"})
    with pytest.raises(QueueUnavailable, match="no-such-directive"):
        server.start()
    assert not server.running


@pytest.mark.one_server
def test_a_taken_port_is_an_error_unless_it_was_ours_to_choose(
    make_redis: MakeRedis, redis_spec: Server
) -> None:
    taken = make_redis(port=0).port
    with pytest.raises(QueueUnavailable, match="already in use"):
        redis_spec.run(port=taken).start()


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_that_cannot_be_one_is_refused(port: int) -> None:
    with pytest.raises(InvalidSchedule, match="port"):
        EmbeddedRedis(port=port)


@pytest.mark.one_server
def test_a_program_that_is_no_server_is_an_error(tmp_path: Path) -> None:
    script = tmp_path / "redis-server"
    script.write_text("#!/bin/sh\necho I am not Redis\nexit 3\n")
    script.chmod(0o755)
    with pytest.raises(QueueUnavailable, match="I am not Redis"):
        EmbeddedRedis(server=script).start()
    script.write_text("#!/no/such/interpreter\n")
    with pytest.raises(QueueUnavailable, match="cannot run"):
        EmbeddedRedis(server=script).start()


@pytest.mark.one_server
def test_one_that_never_answers_is_given_up(tmp_path: Path) -> None:
    script = tmp_path / "redis-server"
    script.write_text(f"#!{sys.executable}\nimport signal\nprint('thinking', flush=True)\nsignal.pause()\n")
    script.chmod(0o755)
    server = EmbeddedRedis(server=script, start_timeout_ms=300)
    with pytest.raises(QueueUnavailable, match="did not answer within 300 ms"):
        server.start()
    assert not server.running


# ------------------------------------------------------------------------------- ends with its parent

PARENT = """
import os, sys, time
from timerq.embedded import EmbeddedRedis
server = EmbeddedRedis(sys.argv[2] or None, server=sys.argv[1]).start()
print(server.pid, server.log.parent, flush=True)
if sys.argv[3] == "fork":
    if os.fork() == 0:      # a child that keeps every descriptor open, and outlives its parent
        os.close(1)
        sys.stdin.read()
        os._exit(0)
if sys.argv[3] == "thread":
    import threading
    second = []
    def start():
        second.append(EmbeddedRedis(server=sys.argv[1]).start())
    thread = threading.Thread(target=start); thread.start(); thread.join()
    del thread
    time.sleep(0.2)         # the thread that started it has gone; the server has not
    assert second[0].running
    print(second[0].pid, flush=True)
sys.stdin.read()
"""


def spawn(server: Server, data_dir: str = "", how: str = "") -> tuple[subprocess.Popen[str], int, Path]:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(server.path), data_dir, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pid, folder = parent.stdout.readline().split(maxsplit=1)
    return parent, int(pid), Path(folder.strip())


def finish(parent: subprocess.Popen[str]) -> None:
    with parent:
        assert parent.stdin is not None
        parent.stdin.close()


@pytest.mark.parametrize("how", ["", "fork"])
def test_ends_when_its_parent_is_killed(redis_spec: Server, how: str) -> None:
    parent, pid, folder = spawn(redis_spec, how=how)
    parent.kill()
    wait_for(lambda: not alive(pid), "the server ends with its parent")
    wait_for(lambda: not folder.exists(), "the temporary folder is removed")
    finish(parent)


@pytest.mark.one_server
def test_ends_when_its_parent_leaves_without_stopping_it(redis_spec: Server, tmp_path: Path) -> None:
    parent, pid, _ = spawn(redis_spec, str(tmp_path))
    finish(parent)
    wait_for(lambda: not alive(pid), "the server ends with its parent")
    assert (tmp_path / "redis.log").exists()  # a data folder is kept
    with redis_spec.run(data_dir=tmp_path):
        pass


@pytest.mark.one_server
def test_ends_even_when_it_is_stopped(redis_spec: Server) -> None:
    parent, pid, _ = spawn(redis_spec)
    os.kill(pid, signal.SIGSTOP)
    parent.kill()
    wait_for(lambda: not alive(pid), "the server ends with its parent")
    finish(parent)


@pytest.mark.one_server
def test_outlives_the_thread_that_started_it(redis_spec: Server) -> None:
    parent, pid, _ = spawn(redis_spec, how="thread")
    assert parent.stdout is not None
    second = int(parent.stdout.readline())
    assert alive(pid)
    assert alive(second)
    parent.kill()
    wait_for(lambda: not alive(pid) and not alive(second), "both end with their parent")
    finish(parent)


@pytest.mark.one_server
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")
def test_ends_with_its_watcher(redis_spec: Server) -> None:
    parent, pid, _ = spawn(redis_spec)
    watcher = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(watcher, signal.SIGKILL)
    wait_for(lambda: not alive(pid), "the server ends with its watcher")
    finish(parent)


@pytest.mark.one_server
def test_a_crash_is_seen(make_redis: MakeRedis) -> None:
    server = make_redis()
    os.kill(server.pid, signal.SIGKILL)
    wait_for(lambda: not server.running, "the crash is seen")
    server.start()
    with connect(server) as client:
        assert client.ping()


@pytest.mark.one_server
def test_ctrl_c_is_for_the_program_not_for_the_server(redis_spec: Server) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(redis_spec.path), "", ""],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline().split()[0])
    assert os.getpgid(pid) != os.getpgid(parent.pid)
    os.killpg(parent.pid, signal.SIGINT)
    ended, _, _ = select.select([parent.stdout], [], [], 30)  # the end of its output: it has ended
    assert ended
    wait_for(lambda: not alive(pid), "the server ends with its parent")
    finish(parent)


@pytest.mark.one_server
def test_a_long_temporary_folder_still_gives_a_short_socket(
    redis_spec: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with redis_spec.run() as server:
        assert len(os.fsencode(unquote(urlsplit(server.url).path))) <= 100
