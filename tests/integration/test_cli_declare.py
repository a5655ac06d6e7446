"""plan, apply and crontab on the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Run, objects
from timerq import TimerQueue
from timerq.commands import sets
from timerq.declare import load
from timerq.declare.apply import apply

pytestmark = pytest.mark.one_server

Write = Callable[[str, str], str]

JOBS = """
set: web
schedules:
  morning:
    cron: "0 9 * * MON-FRI"
    timezone: Europe/Paris
    payload: {prompt: Summarise yesterday.}
  cleanup: {cron: "@daily"}
"""


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """In a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return run


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return name

    return write


@pytest.fixture
def queue(redis_url: str) -> Iterator[TimerQueue]:
    with TimerQueue.connect(redis_url) as queue:
        yield queue


def labels(queue: TimerQueue) -> dict[str, str | None]:
    return {schedule.key: schedule.label for schedule in queue.list()}


def test_a_file_is_planned_applied_changed_and_pruned(run: Run, write: Write, queue: TimerQueue) -> None:
    path = write("jobs.yaml", JOBS)
    planned = run("plan", path)
    assert planned.stdout == (
        "+ morning  cron 0 9 * * MON-FRI, timezone Europe/Paris, type morning, "
        'payload {"prompt": "Summarise yesterday."}\n'
        "+ cleanup  cron @daily, type cleanup\n"
        "set web: 2 to create\n"
    )
    assert queue.count() == 0
    assert run("apply", path).stdout == planned.stdout.replace("2 to create", "2 created")
    assert labels(queue) == {"morning": "web", "cleanup": "web"}
    assert run("plan", path).stdout == "= morning\n= cleanup\nset web: 2 unchanged\n"

    queue.pause("cleanup")
    write("jobs.yaml", JOBS.replace("0 9", "0 8").replace("Paris", "Berlin").replace("cleanup", "tidy"))
    planned = run("plan", path)
    assert planned.exit_code == 0
    assert planned.stdout == (
        "~ morning  cron 0 9 * * MON-FRI → 0 8 * * MON-FRI\n"
        "           timezone Europe/Paris → Europe/Berlin\n"
        "+ tidy     cron @daily, type tidy\n"
        "- cleanup  cron @daily, type cleanup\n"
        "set web: 1 to create, 1 to change, 1 to remove\n"
    )
    assert "--prune" in planned.stderr
    before = labels(queue)
    assert run("apply", path, "--dry-run").stdout == planned.stdout
    tried = run("apply", path, "--dry-run", "--prune")
    assert (tried.stdout, tried.stderr, labels(queue)) == (planned.stdout, "", before)
    assert run("apply", path).stdout.endswith("set web: 1 replaced, 1 created\n")
    assert set(labels(queue)) == {"morning", "tidy", "cleanup"}
    pruned = run("apply", path, "--prune")
    assert pruned.stdout.endswith("set web: 2 unchanged, 1 removed\n")
    assert "--prune" not in pruned.stderr
    assert set(labels(queue)) == {"morning", "tidy"}
    assert "pruned from web" in run("why", "cleanup").stdout


def test_json_has_an_object_for_each_schedule(run: Run, write: Write) -> None:
    path = write("jobs.yaml", JOBS)
    planned = objects(run("plan", path, "--json"))
    assert [(one["set"], one["action"], one["key"]) for one in planned] == [
        ("web", "create", "morning"), ("web", "create", "cleanup"),
    ]  # fmt: skip
    assert planned[0]["words"]["cron"] == "0 9 * * MON-FRI"
    assert planned[0]["words"]["event.payload"] == {"prompt": "Summarise yesterday."}
    applied = objects(run("apply", path, "--json"))
    assert [(one["outcome"], one["key"], one["changes"]) for one in applied] == [
        ("CREATED", "morning", {}), ("CREATED", "cleanup", {}),
    ]  # fmt: skip
    write("jobs.yaml", "set: web\nmorning: {every: 5s, payload: {prompt: Summarise yesterday.}}\nold: {every: 5s, "
                       "until: '2020-01-01T00:00:00Z'}")  # fmt: skip
    planned = objects(run("plan", path, "--json"))
    assert [(one["action"], one["key"]) for one in planned] == [
        ("change", "morning"), ("ended", "old"), ("remove", "cleanup"),
    ]  # fmt: skip
    changes = {
        "every": {"old": None, "new": "5s"},
        "cron": {"old": "0 9 * * MON-FRI", "new": None},
        "timezone": {"old": "Europe/Paris", "new": "UTC"},
    }
    assert planned[0]["changes"] == changes
    applied = objects(run("apply", path, "--json", "--prune"))
    assert [(one["outcome"], one["key"]) for one in applied] == [
        ("REPLACED", "morning"), ("ENDED", "old"), ("CANCELLED", "cleanup"),
    ]  # fmt: skip
    assert applied[0]["changes"] == changes


def test_a_module_of_this_folder_is_found(
    run: Run, write: Write, queue: TimerQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    write("jobs_here.py", "import timerq\n\n@timerq.schedule(every='5m')\ndef beat(): ...\n")
    assert (
        run("apply", "jobs_here:beat").stdout
        == "+ beat  every 5m, type beat\nset jobs_here.beat: 1 created\n"
    )
    assert run("plan", "jobs_here", "--set", "jobs_here.beat").stdout.startswith("= beat\n")
    assert labels(queue) == {"beat": "jobs_here.beat"}


def test_the_sets_name_can_be_given(run: Run, write: Write, queue: TimerQueue) -> None:
    run("apply", write("jobs.yaml", JOBS), "--set", "mine")
    assert set(labels(queue).values()) == {"mine"}
    said = run("apply", write("two words.yaml", "every: 5s"))
    assert (said.exit_code, "give another with --set" in said.stderr) == (2, True)


def test_bad_files_end_with_code_2_and_every_fault(run: Run, write: Write, queue: TimerQueue) -> None:
    write("bad.yaml", "a: {cron: 61 * * * *}\nb: {every: 5s, limt: 5}\nc: {every: 5s}")
    for verb in ("plan", "apply"):
        said = run(verb, "bad.yaml")
        assert (said.exit_code, said.stdout) == (2, "")
        assert said.stderr.startswith("Error: bad.yaml:1: a.cron: got '61 * * * *'; want 0 to 59")
        assert "\nbad.yaml:2: b.limt: unknown word; did you mean limit?\n" in said.stderr
    assert queue.count() == 0
    for where, says in (
        ("nowhere", "no file, folder or module: nowhere"),
        ("./none.yaml", "no such file or folder"),
    ):
        said = run("apply", where)
        assert (said.exit_code, says in said.stderr) == (2, True)


def test_another_sets_schedule_is_refused_until_it_is_taken_over(
    run: Run, write: Write, queue: TimerQueue
) -> None:
    path = write("jobs.yaml", JOBS)
    run("apply", path)
    planned = run("plan", path, "--set", "api")
    assert "~ morning  set web → api" in planned.stdout
    assert "--take-over" in planned.stderr
    said = run("apply", path, "--set", "api")
    assert (said.exit_code, "a schedule of set web" in said.stderr) == (2, True)
    assert set(labels(queue).values()) == {"web"}
    assert "want another name, or --take-over to take it from that set" in said.stderr
    taken = run("apply", path, "--set", "api", "--take-over")
    assert (taken.exit_code, taken.stderr) == (0, "")
    assert set(labels(queue).values()) == {"api"}


def test_what_could_not_be_stored_is_told_with_its_place(
    run: Run, write: Write, queue: TimerQueue, redis_client: Any
) -> None:
    namespace = queue.init()
    redis_client.rpush(namespace.tags[0] + b":sch:default\0morning\0", "not a record")
    for words, out in (((), "set web: 1 created, 1 failed"), (("--json",), '"outcome":"FAILED"')):
        said = run("apply", write("jobs.yaml", JOBS), *words)
        assert said.exit_code == 4
        assert out in said.stdout
        assert "jobs.yaml:4: morning: Redis refused: WRONGTYPE" in said.stderr


def test_an_apply_that_is_overtaken_says_so(
    run: Run, write: Write, queue: TimerQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("jobs.yaml", JOBS)
    declared = load(path)
    many: Any = vars(sets)["many"]
    seen: list[Any] = []

    def overtake(*args: Any, **words: Any) -> Any:
        monkeypatch.setattr(sets, "many", many)
        seen.append(apply(queue, declared))
        return many(*args, **words)

    monkeypatch.setattr(sets, "many", overtake)
    said = run("apply", path)
    assert said.exit_code == 3
    assert "set web: SUPERSEDED: a later apply of it has begun" in said.stderr
    assert seen[0]


def test_names_and_payloads_are_shown_escaped(run: Run, write: Write) -> None:
    said = run("plan", write("jobs.yaml", 'set: web\n"a\\e[31m": {every: 5s, event: {type: "x\\ny"}}'))
    assert said.stdout == "+ a\\x1b[31m  every 5s, type x\\ny\nset web: 1 to create\n"


# ------------------------------------------------------------------------------------------------ crontab

TAB = "CRON_TZ=Europe/Paris\nA=b\n17 * * * * run % in\n@daily other\n"


def test_faults_are_shown_escaped(run: Run, write: Write) -> None:
    write("jobs.yaml", '"\\a\\u202Ejob": {tyme: 1}\n')
    write("night\u202ely.yaml", "a: 1\n")
    wrong = run("apply", "jobs.yaml")
    assert wrong.exit_code == 2
    assert r"jobs.yaml:1: \x07\u202ejob.tyme: unknown word" in wrong.stderr
    wrong = run("plan", "night\u202ely.yaml")
    assert wrong.exit_code == 2
    assert wrong.stderr.startswith(r"Error: night\u202ely.yaml:1: a: want")
    assert wrong.stderr.rstrip("\n").isprintable()


def test_a_crontab_is_imported(run: Run, write: Write, queue: TimerQueue) -> None:
    path = write("tab", TAB)
    planned = run("crontab", path, "--dry-run")
    assert planned.stdout.endswith("set tab: 2 to create\n")
    assert queue.count() == 0
    assert run("crontab", path).stdout == planned.stdout.replace("2 to create", "2 created")
    first, second = queue.list()
    assert first.event.payload == {"command": "run ", "stdin": " in", "environment": {"A": "b"}}
    assert (first.key, first.event.type, first.label) == ("cron-1", "crontab", "tab")
    assert second.event.payload == {"command": "other", "environment": {"A": "b"}}
    assert run("crontab", path).stdout.endswith("set tab: 2 unchanged\n")
    write("tab", "@daily root other")
    said = run("crontab", path, "--system", "--type", "shell", "--prune", "--json")
    assert [(one["key"], one["outcome"]) for one in objects(said)] == [
        ("cron-1", "REPLACED"),
        ("cron-2", "CANCELLED"),
    ]
    (left,) = queue.list()
    assert (left.event.type, left.event.payload) == ("shell", {"command": "other", "user": "root"})


def test_a_crontab_comes_through_a_pipe_too(run: Run, queue: TimerQueue) -> None:
    assert run("crontab", "-", "--prefix", "alice-", input=TAB).exit_code == 0
    assert labels(queue) == {"alice-cron-1": "crontab", "alice-cron-2": "crontab"}
    said = run("crontab", "-", input="@reboot x\n")
    assert (said.exit_code, said.stderr) == (
        2, "Error: stdin:1: @reboot: runs when a machine starts, and there is none here: want a time\n",
    )  # fmt: skip


def test_plans_of_a_dry_run_have_the_same_json(run: Run, write: Write) -> None:
    said = run("crontab", write("tab", TAB), "--dry-run", "--json")
    assert [json.loads(line)["action"] for line in said.stdout.splitlines()] == ["create", "create"]


def test_a_crontab_says_how_its_counted_names_can_be_others(run: Run, write: Write) -> None:
    run("crontab", write("one", TAB))
    said = run("crontab", write("two", TAB))
    assert (said.exit_code, "--prefix" in said.stderr) == (2, True)
    assert run("crontab", "two", "--prefix", "two-").exit_code == 0


def test_paused_and_not_paused_is_a_change(run: Run, write: Write, queue: TimerQueue) -> None:
    run("apply", write("jobs.yaml", "set: web\na: {every: 5s}"))
    assert run("apply", write("jobs.yaml", "set: web\na: {every: 5s, paused: true}")).stdout == (
        "~ a  paused false → true\nset web: 1 paused\n"
    )
    (said,) = objects(run("apply", write("jobs.yaml", "set: web\na: {every: 5s, paused: false}"), "--json"))
    assert (said["outcome"], said["state"], said["changes"]) == (
        "RESUMED", "armed", {"paused": {"old": True, "new": False}},
    )  # fmt: skip
    assert run("apply", "jobs.yaml").stdout.endswith("set web: 1 unchanged\n")


def test_who_applies_is_who_sets_it(run: Run, write: Write, queue: TimerQueue) -> None:
    run("apply", write("jobs.yaml", JOBS), "--by", "ann")
    assert {schedule.by for schedule in queue.list()} == {"ann"}
    run("crontab", write("tab", TAB), "--by", "bob")
    assert queue.get("cron-1").by == "bob"
    run("apply", write("more.yaml", "every: 5s"))
    assert "@" in (queue.get("more").by or "")


def test_an_empty_set_is_told_in_a_sentence(run: Run, write: Write) -> None:
    for verb in ("plan", "apply"):
        said = run(verb, write("none.yaml", "schedules: []"))
        assert said.stdout == "set none: nothing is declared in it, and nothing of it is stored\n"
    run("apply", write("some.yaml", "set: none\na: {every: 5s}"))
    assert run("plan", "none.yaml").stdout == "- a  every 5s, type a\nset none: 1 to remove\n"
    assert run("apply", "none.yaml").stdout.endswith("set none: nothing was changed\n")


def test_who_prunes_is_told(run: Run, write: Write, queue: TimerQueue) -> None:
    run("apply", write("jobs.yaml", JOBS))
    run("apply", write("jobs.yaml", "{set: web, schedules: []}"), "--prune", "--by", "ann")
    assert queue.why("cleanup").entries[-1].by == "ann"
    assert "by ann" in run("why", "cleanup").stdout
