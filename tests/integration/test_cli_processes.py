"""The command line as processes: signals, pipes, a Redis that goes away, and the demo."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
import redis

from tests.support.cli import Program
from timerq import Event, TimerQueue
from timerq.embedded import EmbeddedRedis
from timerq.tail import Tail

pytestmark = pytest.mark.one_server


@pytest.fixture
def queue(redis_url: str) -> Iterator[TimerQueue]:
    with TimerQueue.connect(redis_url) as queue:
        yield queue


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_fires_and_leaves_when_asked(redis_url: str, queue: TimerQueue, how: int) -> None:
    with (
        Program("worker", "--name", "w", url=redis_url) as worker,
        Program("tail", "--json", url=redis_url) as tail,
    ):
        assert " fires timerq at unix://" in worker.line()
        assert [name[:2] for name in queue.stats().dispatchers] == ["w-"]
        queue.upsert("k", Event("t", {"n": 1}), every="20ms")  # goes on until the tail has opened
        event = json.loads(tail.line())
        assert (event["key"], event["payload"]) == ("k", {"n": 1})
        assert event["fired_ms"] >= event["at_ms"]
        code, _, said = worker.end(how)
        assert (code, "Traceback" in said) == (0, False)
        assert queue.stats().dispatchers == []


def test_a_worker_waits_for_redis_and_can_be_stopped_meanwhile() -> None:
    with Program("worker", url="redis://:s3cret@127.0.0.1:1/0") as worker:
        said = worker.error_until("cannot fire")
        code, out, more = worker.end(signal.SIGTERM)
        assert (code, out) == (0, "")
        assert "s3cret" not in said + more


def test_a_worker_ends_with_its_stdin_where_that_is_wanted(redis_url: str) -> None:
    with Program("worker", "--while-stdin", url=redis_url) as worker:
        assert "fires" in worker.line()
        assert worker.stdin is not None
        worker.stdin.close()
        assert worker.wait(timeout=20) == 0


@pytest.mark.parametrize("settled", [False, True])
def test_a_worker_of_a_cluster_leaves_at_once(cluster_url: str, settled: bool) -> None:
    with TimerQueue.connect(cluster_url) as queue, Program("worker", url=cluster_url) as worker:
        queue.init(partitions=5)
        assert "fires" in worker.line()
        if settled:  # every partition has its listener by then
            for i in range(20):
                queue.upsert(f"k{i}", Event("t"), delay=0)
            with Tail(cluster_url, queue.init(), from_start=True) as tail:
                assert len(list(islice(tail, 20))) == 20
        assert worker.end(signal.SIGTERM, timeout_s=8)[0] == 0  # the reads stand open for ten


def test_a_worker_says_that_redis_evicts(make_redis: Callable[..., EmbeddedRedis]) -> None:
    server = make_redis(config={"maxmemory-policy": "allkeys-lru"})
    with Program("worker", url=server.url) as worker:
        assert "noeviction" in worker.error_until("evicts")
        assert "fires" in worker.line()
        assert worker.end(signal.SIGTERM)[0] == 0


def test_tail_outlives_redis(make_redis: Callable[..., EmbeddedRedis], tmp_path: Path) -> None:
    server = make_redis(data_dir=tmp_path / "data", appendfsync="always")
    with TimerQueue.connect(server.url) as queue:
        queue.publish(Event("t", 1), key="k")
        with Program("tail", "--from-start", "--json", url=server.url) as tail:
            assert json.loads(tail.line())["payload"] == 1
            server.kill()
            tail.error_until("trying again")
            server.start()
            assert tail.error_until("back").count("trying again") == 0  # said once
            queue.publish(Event("t", 2), key="k")
            assert json.loads(tail.line())["payload"] == 2
            assert tail.end(signal.SIGINT)[0] == 0


def test_tail_ends_in_order_also_before_there_is_anything(redis_url: str) -> None:
    with Program("tail", url=redis_url) as tail:
        tail.error_until("waiting for it")
        code, out, said = tail.end(signal.SIGINT)
        assert (code, out, "Traceback" in said) == (0, "", False)


def test_a_reader_that_leaves_ends_it_quietly(redis_url: str, queue: TimerQueue) -> None:
    queue.upsert_many({"key": f"{'k' * 400}{i}", "event": Event("t"), "delay": "1h"} for i in range(2000))
    for words in (["list"], ["list", "--json"]):
        with Program(*words, url=redis_url) as program:
            assert program.line()
            assert program.stdout is not None
            program.stdout.close()
            assert program.stderr is not None
            assert program.stderr.read() == ""
            assert program.wait(timeout=20) == 141


def test_lines_of_an_open_pipe_are_served_as_they_come(redis_url: str) -> None:
    with Program("upsert", "--file", "-", "--json", url=redis_url) as program:
        assert program.stdin is not None
        for number in (1, 2):
            program.stdin.write(f'{{"key": "k{number}", "event": {{"type": "t"}}, "delay": "1h"}}\n')
            program.stdin.flush()
            assert program.stdout is not None
            assert json.loads(program.line())["key"] == f"k{number}"
        code, out, said = program.end()
        assert (code, out, said) == (0, "", "stdin: 2 created\n")


def test_a_terminal_of_another_encoding_is_no_reason_to_fail(redis_url: str, queue: TimerQueue) -> None:
    queue.upsert("é🧥", Event("t"), delay="1h")
    for words in (["list"], ["list", "--json"], ["get", "é🧥"]):
        with Program(*words, url=redis_url, PYTHONIOENCODING="latin-1") as program:
            code, out, said = program.end()
        assert (code, said) == (0, "")
        assert "é\\U0001f9e5" in out or "\\u00e9\\ud83e\\udde5" in out


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("words", "code"), [("upsert k --type t --delay 1h", 0), ("list", 0), ("get no", 3)])
def test_streams_that_are_closed_are_no_reason_to_fail(
    redis_url: str, closed: str, words: str, code: int
) -> None:
    run = subprocess.run(
        ["sh", "-c", f'exec "$0" -m timerq {words} {closed}', sys.executable],
        env={**os.environ, "TIMERQ_REDIS_URL": redis_url},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert (run.returncode, "Traceback" in run.stderr) == (code, False)
    if code and "2>" in closed:
        assert run.stdout == ""


def test_dev_keeps_its_data_and_cleans_up(tmp_path: Path) -> None:
    data = tmp_path / "data"
    words = ("dev", "--data", str(data), "--port", "0")
    with Program(*words) as dev:
        url = dev.line().partition(" at ")[2].partition(",")[0]
        with TimerQueue.connect(url) as queue:
            handle = queue.upsert("k", Event("t"), delay="1h")
            queue.upsert("now", Event("t"), delay=0)
        with Program("tail", "--from-start", "--count", "1", "--json", url=url) as tail:
            assert json.loads(tail.line())["key"] == "now"
        with Program(*words) as second:
            code, _, said = second.end()
            assert (code, "in use" in said, "Traceback" in said) == (4, True, False)
        assert dev.end(signal.SIGINT)[0] == 0
    with pytest.raises(redis.ConnectionError), redis.Redis.from_url(url) as client:
        client.ping()
    with Program(*words) as dev:
        url = dev.line().partition(" at ")[2].partition(",")[0]
        with TimerQueue.connect(url) as queue:
            schedule = queue.get("k")
        assert schedule is not None
        assert schedule.version == handle.version
        assert dev.end(signal.SIGTERM)[0] == 0


def test_dev_on_a_port_or_a_folder_that_it_cannot_have(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with Program("dev", "--data", str(tmp_path / "data"), "--port", port) as dev:
            code, _, said = dev.end()
        assert (code, "in use" in said, "Traceback" in said) == (4, True, False)
    (tmp_path / "file").write_text("")
    with Program("dev", "--data", str(tmp_path / "file" / "x"), "--port", "0") as dev:
        code, _, said = dev.end()
    assert (code, "cannot be used" in said, "Traceback" in said) == (4, True, False)


def test_dev_ends_when_its_redis_does(tmp_path: Path) -> None:
    with Program("dev", "--data", str(tmp_path / "data"), "--port", "0") as dev:
        url = dev.line().partition(" at ")[2].partition(",")[0]
        with redis.Redis.from_url(url) as client:
            pid = client.info("server")["process_id"]
        os.kill(pid, signal.SIGKILL)
        code, _, said = dev.end()
    assert (code, "The Redis has ended" in said) == (4, True)


# ------------------------------------------------------------------------------------------------------------ demo


def demo_files(folder: Path) -> Path:
    path = folder / "timers.jsonl"
    timers = [  # those that change are due long after that
        {
            "key": f"k{i}",
            "event": {"type": "t", "payload": {"i": i}},
            "delay": 300 + 15 * i + (2000 if 40 <= i < 60 else 0),
        }
        for i in range(100)
    ]
    path.write_text("".join(json.dumps(timer) + "\n" for timer in timers))
    changes = [{"after": "100ms", "cancel": {"key": f"k{i}"}} for i in range(40, 50)]
    for i in range(50, 60):
        changes.append({"after": "200ms", "upsert": {**timers[i], "event": {"type": "t", "payload": "new"}}})
    changes.append({"after": "1.9s", "cancel": {"key": "k0"}})
    (folder / "timers-changes.jsonl").write_text("".join(json.dumps(change) + "\n" for change in changes))
    return path


def test_the_demo_counts_what_it_promised(tmp_path: Path) -> None:
    with Program("demo", "--file", str(demo_files(tmp_path)), "--json") as demo:
        code, out, said = demo.end(timeout_s=60)
    assert code == 0, said
    report = json.loads(out)
    assert (report["due"], report["fired"], report["replaced"], report["cancelled"]) == (90, 90, 10, 10)
    assert report["cancelled_too_late"] == 1
    assert [
        report[name] for name in ("duplicated", "lost", "early", "wrong_payload", "revived", "unknown")
    ] == [0] * 6
    assert report["kept"] is True
    assert "killed" in said


@pytest.mark.parametrize(
    "bad",
    [
        '{"key": "k", "event": {"type": "t"}, "every": "1s"}',
        '{"key": "k", "event": {"type": "t", "stream": "other"}, "delay": "1s"}',
        '{"key": "k", "event": {"type": "t"}, "delay": "soon"}',
        "nonsense",
    ],
)
def test_the_demo_refuses_what_it_cannot_count(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "timers.jsonl"
    path.write_text(f"\n{bad}\n")
    with Program("demo", "--file", str(path)) as demo:
        code, _, said = demo.end(timeout_s=60)
    assert (code, f"{path}:2: " in said, "Traceback" in said) == (2, True, False)


def test_completion_knows_the_commands() -> None:
    environ = {
        **os.environ,
        "_TIMERQ_COMPLETE": "bash_complete",
        "COMP_WORDS": "timerq ca",
        "COMP_CWORD": "1",
    }
    # argv[0] is what click names the variable after
    code = "import sys; sys.argv = ['timerq']; from timerq.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False
    )
    assert done.stdout == "plain,cancel\n"
