"""What is started, and what is refused before anything is."""

from __future__ import annotations

from pathlib import Path

import pytest

from timerq import Event, InvalidSchedule, TimerQueue, Upsert, schedule
from timerq.commands.calling import Task, call_every, call_later
from timerq.consumer import Consumer
from timerq.declare import DeclaredSet
from timerq.declare.declared import make_set
from timerq.errors import InvalidDeclaration, InvalidPayload
from timerq.running import lifespan, run
from timerq.running.schedules import attach, gather

URL = "redis://127.0.0.1:1/0"


@schedule(every="1m")
def poll() -> None: ...


@schedule(cron="0 9 * * *")
def morning() -> None: ...


def consumer() -> Consumer:
    return Consumer(URL, group="g")


def keys(declared: DeclaredSet | None) -> tuple[str, list[str]]:
    assert declared is not None
    return declared.label, [upsert.key for upsert in declared.upserts]


# ------------------------------------------------------------------------------------------------ schedules


def test_schedules_of_every_kind_become_one_set(tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text("nightly: {cron: '0 3 * * *'}\n")
    own = make_set("own", [morning.declared], "here")
    assert gather(None, None, "g") == (None, [])
    assert keys(gather([], None, "g")[0]) == ("g", [])
    declared, functions = gather(poll, None, "g")
    assert (keys(declared), functions) == (("g", ["poll"]), [poll])
    assert keys(gather(own, None, "g")[0]) == ("own", ["morning"])
    assert keys(gather(path, None, "g")[0]) == ("jobs", ["nightly"])
    declared, functions = gather([poll, own, str(path)], None, "g")
    assert (keys(declared), functions) == (("g", ["poll", "morning", "nightly"]), [poll])
    assert keys(gather([poll, path], "mine", "g")[0]) == ("mine", ["poll", "nightly"])


def test_a_module_brings_its_functions_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobs_of_a_run.py").write_text(
        "import timerq\n\n@timerq.schedule(every='1h')\ndef hourly(): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    declared, functions = gather("jobs_of_a_run", None, "g")
    assert keys(declared) == ("jobs_of_a_run", ["hourly"])
    app = consumer()
    attach(app, functions)
    attach(app, functions)  # once more is nothing new
    handler = app.handler_of("hourly")
    assert handler is not None
    assert handler.function is functions[0]


@pytest.mark.parametrize("thing", [7, [7], [poll, None], lambda: None])
def test_what_is_no_schedule_is_refused(thing: object) -> None:
    with pytest.raises(InvalidSchedule, match="functions under"):
        gather(thing, None, "g")  # type: ignore[arg-type]


def test_a_name_declared_twice_and_a_file_that_is_not_there_are_refused() -> None:
    with pytest.raises(InvalidDeclaration, match="declared twice"):
        run(
            None,
            consumer(),
            [
                poll,
                make_set("own", [poll.declared], "here"),
                schedule(every="1h", name="poll")(poll.__wrapped__),
            ],
        )
    with pytest.raises(InvalidDeclaration, match="no such file"):
        run(None, consumer(), "missing/jobs.yaml")


def test_a_function_whose_events_go_elsewhere_is_refused() -> None:
    taken = consumer()
    taken.on("poll")(lambda event: None)
    with pytest.raises(InvalidSchedule, match="already"):
        run(None, taken, [poll])
    other = schedule(every="1m", name="other", stream="elsewhere")(poll.__wrapped__)
    with pytest.raises(InvalidSchedule, match="stream"):
        run(None, consumer(), [other])


def test_a_queue_that_is_not_the_apps_is_refused_and_passwords_stay_secret() -> None:
    app = Consumer("redis://:s3cret@127.0.0.1:1/0", group="g")
    with pytest.raises(InvalidSchedule, match="queue") as raised:
        run("redis://:s3cret@127.0.0.1:2/0", app)
    assert "s3cret" not in str(raised.value)
    with pytest.raises(InvalidSchedule, match="queue"):
        run(TimerQueue.connect(URL, namespace="other"), consumer())
    with pytest.raises(InvalidSchedule, match="queue"):
        lifespan("redis://127.0.0.1:2/0", consumer())


# ------------------------------------------------------------------------------------------------ calls by name


def test_what_is_no_consumer_is_refused() -> None:
    for app in (None, "shop.handlers:app", URL):
        with pytest.raises(InvalidSchedule, match=r"app: .*; want a timerq\.Consumer"):
            run(URL, app)  # type: ignore[arg-type]


def test_a_task_is_called_with_what_was_stored_of_its_arguments() -> None:
    app = consumer()
    seen: list[tuple[object, ...]] = []

    @app.task
    def send(to: str, *more: int, loud: bool = False) -> str:
        seen.append((to, *more))
        return to

    assert isinstance(send, Task)
    assert send("ann", 1) == "ann"  # itself, here and now
    assert seen == [("ann", 1)]
    assert send.event("bob", 2) == Event("send", ["bob", 2])
    handler = app.handler_of("send")
    assert handler is not None
    assert (handler.takes, handler.is_async) == (("event",), False)


def test_keys_of_calls() -> None:
    task = Task(lambda a=1: None, name="t", stream="s")
    first, second = call_later(task, [2], None), call_later(task, [2], None)
    assert first[0] != second[0]
    assert first[0].startswith("t:")
    assert first[1] == second[1] == Event("t", [2], stream="s")
    assert call_later(task, [2], "k")[0] == "k"
    assert call_every(task, [], None)[0] == "t"
    assert call_every(task, [2], None) == call_every(task, (2,), None)
    assert call_every(task, [2], None)[0] != call_every(task, [3], None)[0]
    assert call_every(task, [3], "k")[0] == "k"


def needs_names(*, to: str) -> None: ...


def test_what_cannot_be_called_by_name_is_refused() -> None:
    app = consumer()
    with pytest.raises(InvalidSchedule, match=r"under @app\.task"):
        TimerQueue.connect(URL).call_later("1s", morning)
    with pytest.raises(InvalidSchedule, match=r"under @app\.task"):
        TimerQueue.connect(URL).call_every("1s", print, "x")
    with pytest.raises(InvalidSchedule, match="naming"):
        app.task(needs_names)
    with pytest.raises(InvalidSchedule, match="function"):
        app.task(TimerQueue)
    with pytest.raises(InvalidSchedule, match="name="):
        app.task(__import__("functools").partial(print))
    task = app.task(name="t")(lambda one: None)
    with pytest.raises(InvalidSchedule, match="missing a required argument"):
        TimerQueue.connect(URL).call_later("1s", task)
    with pytest.raises(InvalidSchedule, match="has one already"):
        app.task(name="t")(lambda: None)


@pytest.mark.parametrize("payload", [None, {"one": 1}, [], [1, 2]])
def test_arguments_that_do_not_fit_are_no_reason_to_try_again(payload: object) -> None:
    task = Task(lambda one: None, name="t")
    event = Upsert("k", Event("t", payload)).event
    with pytest.raises(InvalidPayload):
        task.handler()(event)
