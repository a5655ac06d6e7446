"""Files and folders of schedules: their shapes, names and words, and every fault with its file, line and key."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from timerq import InvalidDeclaration, InvalidSchedule, Upsert
from timerq.commands.arming import EVENT_WORDS
from timerq.declare import DeclaredSet, load
from timerq.declare.documents import MAX_FILE_BYTES
from timerq.declare.entries import ENTRY_WORDS, TIMING_WORDS

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def names(declared: DeclaredSet) -> list[str]:
    return [one.name for one in declared.schedules]


def faults(path: Path | str, label: str | None = None) -> list[str]:
    """What is wrong, a line each, without the folder."""
    with pytest.raises(InvalidDeclaration) as caught:
        load(path, label)
    folder = f"{Path(path).parent}/"
    return [line.replace(folder, "") for line in str(caught.value).split("\n")]


# ------------------------------------------------------------------------------------------------ shapes and names

CRON = "{cron: '0 9 * * *'}"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("cron: 0 9 * * *", ["jobs"]),
        ("{every: {minutes: 5}}", ["jobs"]),
        ("{every: {minutes: 5}, name: beat}", ["beat"]),
        (f"every: {CRON}", ["every"]),
        (f"{{payload: {CRON}, limit: {CRON}}}", ["payload", "limit"]),
        (f"a: {CRON}\nb: {CRON}", ["a", "b"]),
        (f"a: {CRON}\nb: {{cron: '@daily', name: other}}", ["a", "other"]),
        (f"- {CRON}\n- {{cron: '@daily', name: n}}\n- {CRON}", ["cron-1", "n", "cron-2"]),
        (f"schedules: {CRON}", ["jobs"]),
        (f"schedules: [{CRON}, {CRON}]", ["cron-1", "cron-2"]),
        (f"schedules: {{a: {CRON}, set: {CRON}}}", ["a", "set"]),
        (f"set: {CRON}\nschedules: {CRON}", ["set", "schedules"]),
        (f"set: web\na: {CRON}", ["a"]),
        ("set: web\nevery: {minutes: 5}", ["jobs"]),
        ("schedules: []", []),
        ("schedules: {}", []),
        ("{}", []),
        ("[]", []),
    ],
)
def test_a_file_holds_one_entry_or_a_list_or_a_mapping_of_names(
    write: Write, text: str, wanted: list[str]
) -> None:
    assert names(load(write("jobs.yaml", text))) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('cron = "0 9 * * *"', ["jobs"]),
        ('[a]\ncron = "0 9 * * *"\n[b]\nevery = "5s"', ["a", "b"]),
        ('set = "web"\n[schedules.a]\ncron = "0 9 * * *"', ["a"]),
        ('[[schedules]]\ncron = "0 9 * * *"\n[[schedules]]\nname = "n"\nevery = "5s"', ["cron-1", "n"]),
    ],
)
def test_toml_has_the_same_shapes(write: Write, text: str, wanted: list[str]) -> None:
    assert names(load(write("jobs.toml", text))) == wanted


def test_a_folder_is_all_its_files_in_order(write: Write, tmp_path: Path) -> None:
    write("s/b.yaml", f"- {CRON}\n- {CRON}")
    write("s/a.yml", "cron: 0 9 * * *")
    write("s/c.toml", '[[schedules]]\nevery = "5s"')
    write("s/.hidden.yaml", "nonsense")
    write("s/readme.md", "nonsense")
    (tmp_path / "s" / "deeper.yaml").mkdir()
    declared = load(tmp_path / "s")
    assert names(declared) == ["a", "cron-1", "cron-2", "cron-3"]
    assert declared.label == "s"
    assert [one.where.removeprefix(f"{tmp_path}/s/") for one in declared.schedules] == [
        "a.yml:1", "b.yaml:1", "b.yaml:2", "c.toml",
    ]  # fmt: skip


def test_the_sets_name_is_given_or_declared_or_the_files_own(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("f/jobs.v2.yaml", f"set: web\na: {CRON}")
    assert load(path).label == "web"
    assert load(path, "mine").label == "mine"
    assert load(tmp_path / "f").label == "web"
    write("f/jobs.v2.yaml", f"a: {CRON}")
    assert load(path).label == "jobs.v2"
    assert load(str(path)).label == "jobs.v2"
    monkeypatch.chdir(tmp_path / "f")
    assert load(".").label == "f"


def test_files_of_a_folder_that_name_different_sets_are_refused(write: Write, tmp_path: Path) -> None:
    write("f/a.yaml", f"set: web\na: {CRON}")
    write("f/b.yaml", f"b: {CRON}")
    write("f/c.yaml", f"# other\nset: api\nc: {CRON}")
    (said,) = faults(tmp_path / "f")
    assert "c.yaml:2: set: 'api' here, 'web' in" in said
    assert load(tmp_path / "f", "mine").label == "mine"


@pytest.mark.parametrize("label", ["", "two words", "ü", 5, ["a"], None, "x" * 65])
def test_a_sets_name_is_a_plain_name(write: Write, label: Any) -> None:
    path = write("jobs.yaml", f"set: {label!r}\na: {CRON}".replace("None", "null"))
    (said,) = faults(path)
    assert "set" in said
    assert "want" in said
    (said,) = faults(write("two words.yaml", f"a: {CRON}"))
    assert said.endswith("give another with set=")


# ------------------------------------------------------------------------------------------------ words


def one(path: Path) -> Upsert:
    (declared,) = load(path).schedules
    return declared.upsert


def test_the_event_is_called_like_the_schedule_unless_it_says_otherwise(write: Write) -> None:
    upsert = one(write("jobs.yaml", "morning: {cron: '0 9 * * *', payload: [1, {a: b}]}"))
    assert (upsert.key, upsert.event.type, upsert.event.payload) == (
        "morning",
        "morning",
        [1, {"a": b"b".decode()}],
    )
    text = """
    morning:
      cron: 0 9 * * *
      event: {type: report.due, stream: reports, correlation: {a: b}, codec: json, payload: 5}
    """
    event = one(write("jobs.yaml", text)).event
    assert (event.type, event.payload, event.stream, event.correlation, event.codec) == (
        "report.due", 5, "reports", {"a": "b"}, "json",
    )  # fmt: skip
    event = one(write("jobs.yaml", "m: {cron: '0 9 * * *', payload: 5, event: {stream: s}}")).event
    assert (event.type, event.payload, event.stream) == ("m", 5, "s")
    assert one(write("jobs.yaml", "m: {cron: '0 9 * * *', payload: null}")).event.payload is None


def test_every_word_reaches_the_schedule(write: Write) -> None:
    text = """
    a:
      cron: ["0 9 * * *", "30 2 * * *"]
      timezone: Europe/Paris
      dst_gap: skip
      dst_overlap: both
      exclude: [2026-12-25, 2026-12-24/2026-12-26, "* * * 8 *"]
      jitter: 30s
      start: 2026-01-01T00:00:00+01:00
      until: 2030-01-01T00:00:00Z
      limit: 7
      misfire: catch_up
      max_catch_up: 5
      overlap: skip
      ack_group: workers
      running_timeout: 5m
      pause_after: 3
      paused: true
    """
    a = one(write("jobs.yaml", text))
    assert (a.cron, a.timezone, a.dst_gap, a.dst_overlap) == (
        ["0 9 * * *", "30 2 * * *"], "Europe/Paris", "skip", "both",
    )  # fmt: skip
    assert a.exclude == ["2026-12-25", "2026-12-24/2026-12-26", "* * * 8 *"]
    assert (a.jitter, a.start, a.until, a.limit) == (
        "30s",
        "2026-01-01T00:00:00+01:00",
        "2030-01-01T00:00:00Z",
        7,
    )
    assert (a.misfire, a.max_catch_up, a.overlap, a.ack_group) == ("catch_up", 5, "skip", "workers")
    assert (a.running_timeout, a.pause_after, a.paused) == ("5m", 3, True)
    b = one(write("jobs.yaml", "{every: 5m, anchor: clock, misfire: skip, grace: 1s}"))
    assert (b.every, b.anchor, b.misfire, b.grace) == ("5m", "clock", "skip", "1s")
    c = one(write("jobs.yaml", "{every: 5m, initial_delay: 0, ack_group: g, fixed_delay: true}"))
    assert (c.initial_delay, c.ack_group, c.fixed_delay) == (0, "g", True)
    seen = {word for upsert in (a, b, c) for word in TIMING_WORDS if getattr(upsert, word) is not None}
    assert seen == set(TIMING_WORDS)


@pytest.mark.parametrize("text", ["", "\n", "# a file that was cut short\n"])
@pytest.mark.parametrize(("ending", "none"), [("yaml", "schedules: []"), ("toml", "schedules = []")])
def test_an_empty_file_does_not_mean_no_schedules(write: Write, text: str, ending: str, none: str) -> None:
    (said,) = faults(write(f"f.{ending}", text))
    assert said.endswith(f"where there are none, {none}")
    assert names(load(write(f"g.{ending}", none))) == []


def test_toml_dates_are_dates(write: Write) -> None:
    text = 'cron = "0 9 * * *"\nexclude = [2026-12-25]\nstart = 2026-01-01T00:00:00Z\n'
    upsert = one(write("jobs.toml", text))
    assert upsert.exclude == [date(2026, 12, 25)]
    assert upsert.start == datetime(2026, 1, 1, tzinfo=UTC)


def test_the_words_are_those_of_upsert() -> None:
    others = {
        "key",
        "event",
        "owner",
        "mode",
        "max_wait",
        "restart",
        "reset",
        "if_version",
        "idempotency_key",
        "by",
    }
    assert {*TIMING_WORDS} | others | {"at", "delay"} == set(Upsert._fields)
    assert {*ENTRY_WORDS} == {*TIMING_WORDS, "name", "event", "payload"}
    assert {*EVENT_WORDS} == {"type", "payload", "stream", "correlation", "codec"}


# ------------------------------------------------------------------------------------------------ faults


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "j.yaml:1: want schedules"),
        ("# nothing\n", "j.yaml:1: want schedules"),
        ("5", "j.yaml:1: want schedules"),
        ("schedules:", "j.yaml:1: schedules: want schedules"),
        (f"schedules: {{a: {CRON}}}\nsett: web", "j.yaml:2: sett: unknown word; did you mean set?"),
        ("set: web", "j.yaml:1: j: want cron or every"),
        ("a: 5", "j.yaml:1: a: want a mapping with cron or every"),
        ("[5]", "j.yaml:1: [0]: want a mapping with cron or every"),
        ("a:\n  payload: 5", "j.yaml:1: a: want cron or every"),
        ("a:\n  cron:\n", "j.yaml:1: a: want cron or every"),
        ("a:\n  cron: '@daily'\n  timezone:\n", "j.yaml:3: a.timezone: want a value, or the word left out"),
        ("a:\n  cron: '@daily'\n  every: 5s", "j.yaml:3: a.every: want either cron or every"),
        ("a:\n  at: 2030-01-01T00:00:00Z", "j.yaml:2: a.at: a one-shot is not declared"),
        ("a:\n  cron: '@daily'\n  timezon: UTC", "j.yaml:3: a.timezon: unknown word; did you mean timezone?"),
        ("a:\n  cron: '@daily'\n  owner: x", "j.yaml:3: a.owner: unknown word; want only name, event"),
        ("a:\n  cron: '@daily'\n  7: x", "j.yaml:3: a.7: unknown word"),
        ("a:\n  cron: '@daily'\n  event: x", "j.yaml:3: a.event: want a mapping with type"),
        (
            "a:\n  cron: '@daily'\n  event:\n    typ: x",
            "j.yaml:4: a.event.typ: unknown word; did you mean type?",
        ),
        ("a:\n  cron: '@daily'\n  event:\n    type: 5", "j.yaml:4: a.event.type: got 5; want a text"),
        ("a:\n  cron: '@daily'\n  event:\n    stream: a b", "j.yaml:4: a.event.stream: got 'a b'"),
        ("a:\n  cron: '@daily'\n  event: {\n codec: x}", "j.yaml:4: a.event.codec: got 'x'"),
        ("a:\n  cron: '@daily'\n  event:\n    correlation: {a: 1}", "j.yaml:4: a.event.correlation: got"),
        ("a:\n  cron: '@daily'\n  payload: {a: 99999999999999999999}", "j.yaml:3: a.payload: got 'a value"),
        (
            "a:\n  cron: '@daily'\n  payload: 1\n  event:\n    payload: 2",
            "j.yaml:5: a.event.payload: want payload or event.payload, not both",
        ),
        ("a:\n  cron: 61 9 * * *", "j.yaml:2: a.cron: got '61 9 * * *'; want 0 to 59"),
        (
            "a:\n  cron:\n    - 0 9 * * *\n    - 0 25 * * *",
            "j.yaml:4: a.cron[1]: got '0 25 * * *'; want 0 to 23",
        ),
        ("a:\n  cron: 0 0 30 2 *", "j.yaml:2: a.cron: got '0 0 30 2 *'; never fires"),
        ("a:\n  cron: '@daily'\n  timezone: Europe/Pariss", "j.yaml:3: a.timezone: got 'Europe/Pariss'"),
        ("a:\n  cron: '@daily'\n  exclude: ['2026-02-30']", "j.yaml:3: a.exclude[0]: got '2026-02-30'"),
        ("a:\n  every: 5", "fine"),
        ("a:\n  every: '5'", "j.yaml:2: a.every: got '5'"),
        ("a:\n  every: 5m\n  jitter: 5m", "j.yaml:3: a.jitter: got '5m'"),
        ("a:\n  every: 5m\n  limit: 0", "j.yaml:3: a.limit: got 0"),
        ("a:\n  every: 5m\n  paused: yes", "j.yaml:3: a.paused: got 'yes'; want true or false"),
        (
            "a:\n  every: 5m\n  start: 2026-01-02T00:00:00Z\n  until: 2026-01-01T00:00:00Z",
            "j.yaml:4: a.until: got",
        ),
        (f"5: {CRON}", "j.yaml:1: [5].name: got 5; want a text"),
        (f"a: {CRON}\n'': {CRON}", "j.yaml:2: name: got ''; want a text"),
        (f"- {CRON}\n- cron: '@daily'\n  name: [x]", "j.yaml:2: [1].name: got ['x']; want a text"),
        (f"a: {CRON}\nb: {{cron: '@daily', name: a}}", "j.yaml:2: a: the name is declared twice; first at"),
        (f"- {CRON}\n- {{cron: '@daily', name: cron-1}}", "j.yaml:2: cron-1: the name is declared twice"),
        (f"a: {CRON}\na: {CRON}", "j.yaml:2: a: the key comes twice; first on line 1"),
        ("a: [", "j.yaml:1: not YAML"),
    ],
)
def test_a_fault_names_file_line_and_key(write: Write, text: str, wanted: str) -> None:
    path = write("j.yaml", text)
    if wanted == "fine":
        assert one(path).every == 5
        return
    (said,) = faults(path)
    assert said.startswith(wanted), said


def test_all_faults_of_all_files_are_told_at_once(write: Write, tmp_path: Path) -> None:
    write("f/a.yaml", "a: {cron: 61 * * * *}\nb: {every: 5s, limt: 3, until: x}\nc: {every: 5s}")
    write("f/b.toml", "a = ")
    write("f/c.toml", '[x]\ncron = "@dayly"\n[y]\nevery = "5 parsecs"')
    write("f/d.yaml", "d: {every: 5s}")
    said = faults(tmp_path / "f")
    assert [line.split(": ")[0:2] for line in said] == [
        ["f/a.yaml:1", "a.cron"],
        ["f/a.yaml:2", "b.limt"],
        ["f/a.yaml:2", "b.until"],
        ["f/b.toml:1", "not TOML"],
        ["f/c.toml", "x.cron"],
        ["f/c.toml", "y.every"],
    ]


def test_names_must_differ_in_a_whole_folder(write: Write, tmp_path: Path) -> None:
    write("f/a.yaml", "cron: '@daily'")
    write("f/b.toml", '\n[a]\ncron = "@daily"')
    (said,) = faults(tmp_path / "f")
    assert said.startswith("f/b.toml: a: the name is declared twice; first at ")
    assert said.endswith("f/a.yaml:1")


def test_what_is_no_file_of_schedules_is_refused(write: Write, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert faults(tmp_path / "empty") == ["empty: no file in it ends in .yaml, .yml or .toml"]
    assert faults(write("x.json", "{}")) == ["x.json: want a file that ends in .yaml, .yml or .toml"]
    assert "by its module" in faults(write("x.py", ""))[0]
    assert faults(tmp_path / "none.yaml") == ["none.yaml: no such file or folder"]
    (tmp_path / "latin.yaml").write_bytes(b"a: 1\nb: \xe9\n")
    assert faults(tmp_path / "latin.yaml") == ["latin.yaml:2: not UTF-8"]
    (tmp_path / "large.yaml").write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    assert faults(tmp_path / "large.yaml") == ["large.yaml: larger than 4,194,304 bytes"]


def test_a_fault_is_a_bad_schedule_and_survives_a_pickle(write: Write) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        load(write("j.yaml", "a: {cron: x}\nb: 5"))
    error = caught.value
    assert isinstance(error, InvalidDeclaration)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert (again.field, again.faults) == ("a.cron", error.faults)
    assert [fault.line for fault in again.faults] == [1, 2]


def test_a_fifo_in_a_folder_is_a_fault_and_no_wait(write: Write, tmp_path: Path) -> None:
    write("a.yaml", "{cron: '@daily'}")
    os.mkfifo(tmp_path / "b.yaml")
    with pytest.raises(InvalidDeclaration, match=r"b\.yaml: want a regular file"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "a:\n  cron:\n    - 61 * * * *\n    - 5 99 * * *\n  timezone: Europe/P\n  grace: 5x\n  misfire: s\n  x: 1",
            ["3: a.cron[0]", "4: a.cron[1]", "5: a.timezone", "6: a.grace", "7: a.misfire", "8: a.x"],
        ),
        ("a:\n  timezone: X\n  limit: 0", ["1: a", "2: a.timezone", "3: a.limit"]),
        ("a:\n  cron: '@daily'\n  every: 5x\n  jitter: 5x", ["3: a.every", "3: a.every", "4: a.jitter"]),
        (
            "a:\n  every: 5s\n  event:\n    type: 5\n    stream: a b\n  overlap: x\n  ack_group: a b",
            ["4: a.event.type", "5: a.event.stream", "6: a.overlap", "7: a.ack_group"],
        ),
    ],
)
def test_all_faults_of_an_entry_are_told_at_once(write: Write, text: str, wanted: list[str]) -> None:
    said = faults(write("j.yaml", text))
    assert [": ".join(line.removeprefix("j.yaml:").split(": ")[:2]) for line in said] == wanted


def test_a_jitter_as_long_as_the_period_has_its_place(write: Write) -> None:
    text = "a:\n  cron: '0 9 * * *'\n  timezone: UTC\n  jitter: 1d"
    want = "want a jitter shorter than the shortest period, 1d"
    assert faults(write("j.yaml", text)) == [f"j.yaml:4: a.jitter: got '1d'; {want}"]
    beside = text.replace("1d", "23h").replace("UTC", "Mars/Phobos")
    assert [line.split(": ")[1] for line in faults(write("j.yaml", beside))] == ["a.timezone"]


def test_schedules_that_are_misspelt_are_not_a_schedule(write: Write) -> None:
    for text in (f"schedule:\n  a: {CRON}", f"Schedules:\n- {CRON}", f"set: x\nshedules: {{a: {CRON}}}"):
        (said,) = faults(write("j.yaml", text))
        assert said.endswith(": unknown word; did you mean schedules?")
    assert one(write("j.yaml", f"schedule: {CRON}")).key == "schedule"  # one that is called so
