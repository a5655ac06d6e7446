"""The command line under bad input: words, payloads, URLs and files. Each ends with its exit code and a message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support.cli import Run, objects, upsert
from timerq import TimerQueue
from timerq.cli import lines

pytestmark = pytest.mark.one_server


@pytest.fixture
def queue(redis_url: str) -> Iterator[TimerQueue]:
    with TimerQueue.connect(redis_url) as queue:
        yield queue


BAD_WAITS = (
    "nan",
    "NaN",
    "Infinity",
    "-Infinity",
    "inf",
    "1e999",
    "true",
    "-1s",
    "-5",
    "90",
    "1.5",
    "",
    " 1s",
    "1 s",
)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        (option, text)
        for option in ("--delay", "--every", "--at")
        for text in BAD_WAITS
        if (option, text) != ("--at", "90")  # an instant in ms
    ],
)
def test_b76_no_number_that_is_none(run: Run, option: str, text: str) -> None:
    result = run("upsert", "k", "--type", "t", option, text)
    assert result.exit_code == 2
    assert option.strip("-") in result.stderr
    assert "Traceback" not in result.output
    assert run("count").stdout == "0\n"


@pytest.mark.parametrize(
    "text", ["NaN", "Infinity", "-Infinity", "1e999", "true", '"nan"', '"1e999"', "[]", "1.5", "-1"]
)
def test_b76_nor_in_a_file(run: Run, text: str) -> None:
    text_lines = "".join(
        f'{{"key": "k", "event": {{"type": "t"}}, "{word}": {text}}}\n' for word in ("delay", "every", "at")
    )
    result = run("upsert", "--file", "-", input=text_lines)
    assert result.exit_code == 2
    assert [line.partition(": ")[0] for line in result.stderr.splitlines()] == [
        "stdin:1",
        "stdin:2",
        "stdin:3",
    ]
    assert "3 bad" in result.stdout
    assert run("count").stdout == "0\n"


@pytest.mark.parametrize(
    "words",
    [
        ("upsert",),
        ("upsert", "k"),
        ("upsert", "k", "--type", "t"),
        ("upsert", "k", "--type", "t", "--delay", "1s", "--every", "1s"),
        ("upsert", "", "--type", "t", "--delay", "1s"),
        ("upsert", "k" * 513, "--type", "t", "--delay", "1s"),
        ("upsert", "\udcff", "--type", "t", "--delay", "1s"),
        ("upsert", "k", "--type", "", "--delay", "1s"),
        ("upsert", "k", "--type", "t", "--delay", "1s", "--owner", ""),
        ("upsert", "k", "--type", "t", "--delay", "1s", "--stream", "a b"),
        ("upsert", "k", "--type", "t", "--delay", "1s", "--correlation", "x"),
        ("upsert", "k", "--type", "t", "--delay", "1s", "--correlation", "x=1", "--correlation", "x=2"),
        ("upsert", "k", "--type", "t", "--delay", "1s", "--limit", "2"),
        ("upsert", "k", "--type", "t", "--every", "1s", "--limit", "0"),
        ("upsert", "k", "--type", "t", "--every", "1s", "--limit", "-1"),
        ("upsert", "k", "--type", "t", "--every", "1s", "--limit", "1_0"),
        ("upsert", "k", "--type", "t", "--every", "1s", "--limit", "٣"),
        ("upsert", "k", "--type", "t", "--every", "0ms"),
        ("upsert", "k", "--type", "t", "--every", "1s", "--mode", "earliest"),
        ("upsert", "k", "--type", "t", "--at", "2030-01-01T00:00:00"),
        ("upsert", "k", "--type", "t", "--at", "1969-12-31T23:59:59Z"),
        ("upsert", "k", "--type", "t", "--at", "10000-01-01T00:00:00Z"),
        ("upsert", "k", "--type", "t", "--at", "253402300800000"),
        ("upsert", "k", "--type", "t", "--delay", "1s", "--mode", "sometimes"),
        ("upsert", "k", "--type", "t", "--delay", "1s", "--durable", "very"),
        ("upsert", "k", "--type", "t", "--delay", "1s", "--payload", "1", "--payload-file", "-"),
        ("upsert", "k", "--type", "t", "--delay", "1s", "--payload-file", "/no/such/file"),
        ("upsert", "k", "--type", "t", "--delay", "1s", "--payload-file", "/"),
        ("upsert", "k", "--file", "-"),
        ("upsert", "--file", "-", "--delay", "1s"),
        ("upsert", "--file", "/no/such/file"),
        ("cancel",),
        ("cancel", "k", "--prefix", "k"),
        ("cancel", "--all"),
        ("cancel", "--prefix", "k", "--yes", "--if-version", "1"),
        ("list", "--limit", "0"),
        ("list", "--after", "nonsense"),
        ("list", "--due-to", "tomorrow"),
        ("init", "--partitions", "0"),
        ("init", "--partitions", "99999"),
        ("init", "--retention", "1"),
        ("tail", "--stream", "a/b", "--no-follow"),
        ("publish", "--key", "k"),
        ("publish", "--type", "t"),
        ("worker", "--batch", "0"),
        ("dev", "--redis", "redis://localhost"),
        ("demo", "--redis", "redis://localhost"),
        ("--namespace", "a b", "count"),
        ("--tenant", "", "count"),
        ("--redis", "http://localhost", "count"),
        ("no-such-command",),
    ],
    ids=" ".join,
)
def test_bad_words_are_refused_before_anything_is_written(
    run: Run, redis_client: redis.Redis, words: tuple[str, ...]
) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert result.stderr.strip()
    assert "Traceback" not in result.output
    assert not list(redis_client.keys("*:sch:*"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nan",
        "NaN",
        '{"a": 1, "a": 2}',
        "[" * 5000,
        "1" * 5000,
        "1e400",
        "'a'",
        '"\\ud800"',
        '{"a": 1} x',
    ],
    ids=lambda text: text[:16] or "empty",
)
def test_a_payload_that_is_no_json_is_refused(run: Run, text: str) -> None:
    result = run("upsert", "k", "--type", "t", "--delay", "1h", "--payload", text)
    assert result.exit_code == 2
    assert "payload" in result.stderr
    assert run("count").stdout == "0\n"


def test_a_payload_over_the_limit_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    payload = json.dumps("x" * 70_000)
    assert run("upsert", "k", "--type", "t", "--delay", "1h", "--payload", payload).exit_code == 2
    monkeypatch.setenv("TIMERQ_MAX_PAYLOAD_BYTES", "100000")
    assert run("upsert", "k", "--type", "t", "--delay", "1h", "--payload", payload).exit_code == 0
    monkeypatch.setenv("TIMERQ_MAX_PAYLOAD_BYTES", "many")
    result = run("count")
    assert result.exit_code == 2
    assert "TIMERQ_MAX_PAYLOAD_BYTES" in result.stderr


def test_what_is_not_there_is_3(run: Run) -> None:
    for verb in ("get", "cancel", "trigger", "pause", "resume"):
        result = run(verb, "nothing")
        assert result.exit_code == 3
        assert "nothing" in result.stderr
    assert objects(run("cancel", "nothing", "--json"))[0]["outcome"] == "NOT_PENDING"


def test_a_lost_race_is_3(run: Run) -> None:
    made = upsert(run, "k")
    stale = str(made["version"] - 1)
    for verb in ("cancel", "trigger", "pause", "resume"):
        result = run(verb, "k", "--if-version", stale)
        assert result.exit_code == 3
        assert f"version {made['version']}" in result.stderr
    result = run("upsert", "k", "--type", "t", "--delay", "1h", "--if-version", stale, "--json")
    assert (result.exit_code, objects(result)[0]["outcome"]) == (3, "VERSION_MISMATCH")
    assert run("cancel", "k", "--if-version", str(made["version"])).exit_code == 0


def test_redis_away_is_4_and_says_what_to_do(run: Run) -> None:
    for words in (["count"], ["tail"], ["upsert", "k", "--type", "t", "--delay", "1s"]):
        result = run("--redis", "redis://someone:s3cret@127.0.0.1:1/0", *words)
        assert result.exit_code == 4
        assert "127.0.0.1:1/0" in result.stderr
        assert "timerq dev" in result.stderr
        assert "s3cret" not in result.output
        assert "Traceback" not in result.output


def test_a_password_is_asked_for_and_never_shown(run: Run, make_redis: Any) -> None:
    server = make_redis(config={"requirepass": "s3cret"})
    result = run("--redis", server.url, "count")
    assert result.exit_code == 4
    assert "password" in result.stderr
    result = run("--redis", f"{server.url}&password=wr0ng", "count")
    assert result.exit_code == 4
    assert "wr0ng" not in result.output
    assert run("--redis", f"{server.url}&password=s3cret", "count").stdout == "0\n"


@pytest.mark.parametrize(
    "url",
    [
        "redis//:s3cret@host",
        "redis://u:s3c?s3cret@localhost:1/0",
        "foo://u:s3cret@host",
        "redis://u:s3cret@localhost:1/0?colour=red",
        "unix:///tmp/no.sock?password=s3cret&x=1",
        "redis://localhost:1/0?decode_responses=yes&password=s3cret",
    ],
)
def test_a_bad_url_is_2_and_keeps_its_password(run: Run, url: str) -> None:
    result = run("--redis", url, "count")
    assert result.exit_code == 2
    assert "s3cret" not in result.output
    assert result.stderr.startswith("Error: url:")


# ------------------------------------------------------------------------------------------------------------ files


def line(key: str, **words: Any) -> str:
    return json.dumps({"key": key, "event": {"type": "t"}, "delay": "1h", **words}, ensure_ascii=False)


def test_a_file_goes_on_behind_bad_lines(run: Run, queue: TimerQueue, tmp_path: Path) -> None:
    path = tmp_path / "timers.jsonl"
    good = [line("é🧥*", owner="o"), line("n", delay=None, every=1000, limit=3), line("last")]
    bad = [
        "{",
        '{"key": "k"}',
        "[1]",
        line("k", delay="90"),
        line("k", colour="red"),
        line("k", event={"type": "t", "size": 1}),
        '{"key": "a", "key": "b"}',
        line(""),
        line("k" * 2_000_000),
    ]
    data = "\ufeff" + "\r\n".join([good[0], "", *bad, "  ", good[1]]) + "\r\n"
    path.write_bytes(data.encode() + b'{"key": "\xff"}\n\x00\n' + good[2].encode())
    result = run("upsert", "--file", str(path))
    assert result.exit_code == 2
    numbers = [int(text.split(":")[1]) for text in result.stderr.splitlines()]
    assert numbers == [*range(3, 12), 14, 15]
    assert all(text.startswith(f"{path}:") for text in result.stderr.splitlines())
    assert f"{path}:6: delay: got '90'" in result.stderr
    assert result.stdout == f"{path}: 3 created, 11 bad\n"
    assert [schedule.key for schedule in queue.list()] == ["last", "n", "é🧥*"]


def test_a_file_of_good_lines_is_0_and_may_be_loaded_again(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "timers.jsonl"
    path.write_text("\n".join(line(f"k{i}", every="5s", delay=None) for i in range(3000)))
    assert run("upsert", "--file", str(path)).stdout == f"{path}: 3,000 created\n"
    assert run("upsert", "--file", str(path)).stdout == f"{path}: 3,000 unchanged\n"
    results = objects(run("upsert", "--file", str(path), "--json"))
    assert [result["line"] for result in results] == list(range(1, 3001))


def test_lost_races_in_a_file_are_3_and_nothing_is_0(run: Run) -> None:
    result = run("upsert", "--file", "-", input=line("k", if_version=7))
    assert result.exit_code == 3
    assert "stdin:1: VERSION_MISMATCH" in result.stderr
    assert run("upsert", "--file", "-", input="\n\n").stdout == "stdin: nothing to do\n"


def test_a_file_is_read_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    with open(path, "wb") as file:
        for i in range(20_000):
            file.write(b'{"n": %d, "text": "%b"}\n' % (i, b"x" * (i % 100)))
    with open(path, "rb") as file:
        pieces = list(lines.read_pieces(file, 1000))
        assert lines.size_of(file) == path.stat().st_size == sum(piece.size for piece in pieces)
    assert max(len(piece.lines) for piece in pieces) < 20_000
    found = [one for piece in pieces for one in piece.lines]
    assert [one.number for one in found] == list(range(1, 20_001))
    assert [one.value["n"] for one in found] == list(range(20_000))


def test_lines_are_refused_in_their_own_words(run: Run) -> None:
    rest = '"key": "k", "event": {"type": "t"}'
    text = f'{{{rest}, "at": 5, "delay": 5}}\n{{{rest}, "every": "5m", "grace": "1s"}}\n{{{rest}, "dely": "5m"}}\n'
    assert run("upsert", "--file", "-", input=text).stderr.splitlines() == [
        "stdin:1: want exactly one of at, delay, every, cron; there are at and delay",
        "stdin:2: grace: got '1s'; want grace only together with misfire: \"skip\"",
        "stdin:3: dely: got '5m'; did you mean delay?",
    ]
