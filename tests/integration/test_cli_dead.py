"""The command line and dead letters, the stream errors, and the end of an owner."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest
import redis
from click.testing import Result

import timerq.cli.ask
from tests.support.cli import Run, objects, upsert
from tests.support.dead import give_up
from timerq import Consumer, Context, Delivery, Event, Incomplete, TimerQueue, Which
from timerq.cli.base import Failure
from timerq.cli.table import Rows
from timerq.cli.values import Age, age_or_instant
from timerq.commands.command import Steps
from timerq.commands.consume import Settlement, receive, settle
from timerq.testing import TestQueue

pytestmark = pytest.mark.one_server

ERROR = "ValueError: no such account\nas 'x'"


@pytest.fixture
def queue(redis_url: str) -> Iterator[TimerQueue]:
    """Two partitions; of the group mails, twelve events are dead."""
    with TimerQueue.connect(redis_url) as queue:
        queue.init(partitions=2)
        for n in range(12):
            kind = "sms" if n % 4 == 0 else "mail"
            correlation = {"request": "r-1"} if n == 1 else None
            queue.publish(
                Event(kind, {"n": n}, correlation=correlation),
                key=f"{'order' if n % 2 else 'cart'}:{n}",
                owner="shop" if n == 3 else None,
            )
        assert queue.run(give_up(queue.namespace, "mails", error=ERROR)) == 12
        yield queue


def fine(result: Result) -> Result:
    assert result.exit_code == 0, result.output
    return result


def refused(result: Result, *said: str, code: int = 2) -> None:
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    assert result.stdout == ""
    for text in said:
        assert text in result.stderr


def listed(run: Run, *words: str) -> list[str]:
    return sorted(letter["key"] for letter in objects(fine(run("dead", "list", *words, "--json"))))


# ------------------------------------------------------------------------------------------------ looking


def test_a_table_says_which_how_often_when_and_why(run: Run, queue: TimerQueue) -> None:
    head, *lines = fine(run("dead", "list")).stdout.splitlines()
    assert re.split(r"  +", head) == ["EVENT", "TYPE", "KEY", "OWNER", "ATTEMPTS", "FAILED LAST", "ERROR"]
    assert len(lines) == 12
    letter = next(letter for letter in queue.dead_list("mails") if letter.owner == "shop")
    (line,) = [line for line in lines if letter.id in line]
    words = re.split(r"  +", line)
    assert words[:5] == [letter.id, "mail", "order:3", "shop", "1"]
    assert words[6] == r"ValueError: no such account\nas 'x'"
    assert "OWNER" not in fine(run("dead", "list", "--prefix", "cart:")).stdout


def test_on_a_terminal_the_error_is_cut_to_the_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def drawn(width: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        rows = Rows("event", "error", whole=("event",), cut=("error",))
        rows._on_terminal = True
        rows.add([["0-1796045445210355-1", "why " * 50], ["0-1-1", "short"]])
        return capsys.readouterr().out.splitlines()

    _, long, short = drawn(60)
    assert (len(long), long[-1]) == (60, "…")
    assert short.split() == ["0-1-1", "short"]
    assert max(map(len, drawn(20))) <= 20 + 2 + 30  # it says something, however narrow that is


def test_they_are_found_by_event_prefix_type_and_age(run: Run, queue: TimerQueue) -> None:
    assert len(listed(run)) == 12
    assert listed(run, "--prefix", "cart:", "--type", "sms") == ["cart:0", "cart:4", "cart:8"]
    letter = queue.dead_list_page("mails", limit=1).letters[0]
    assert listed(run, "--id", letter.id) == listed(run, "--id", letter.place) == [letter.key]
    assert len(listed(run, "--since", "1h")) == 12
    assert listed(run, "--older", "1h") == []
    assert len(listed(run, "--older", "2100-01-01T00:00:00Z", "--since", "1000000000000")) == 12
    assert listed(run, "--since", str(letter.last_failed_ms + 60_000)) == []
    refused(run("dead", "list", "--since", "90"), "has no unit")
    refused(run("dead", "list", "--since", "1796045445"), "epoch seconds")
    refused(run("dead", "list", "--older", "yesterday"), "--older")
    refused(run("dead", "list", "--older", "2026-01-01"), "older: got '2026-01-01'")


def test_ages_and_instants_are_told_apart() -> None:
    assert age_or_instant("1h30m") == Age("1h30m")
    assert age_or_instant("PT1H") == Age("PT1H")
    assert age_or_instant("1796045445210") == 1796045445210
    assert age_or_instant("2026-01-01T00:00:00Z") == "2026-01-01T00:00:00Z"


def test_a_list_goes_on_where_it_ended(run: Run, queue: TimerQueue) -> None:
    seen: list[str] = []
    more: list[str] = []
    while True:
        *letters, last = objects(fine(run("dead", "list", "--limit", "5", "--json", *more)))
        seen += [letter["key"] for letter in letters]
        if "cursor" not in last:
            seen.append(last["key"])
            break
        more = ["--after", last["cursor"]]
    assert sorted(seen) == listed(run)
    assert "--after" in fine(run("dead", "list", "--limit", "5")).stderr
    assert fine(run("dead", "list", "--limit", "12")).stderr == ""
    refused(run("dead", "list", "--limit", "0"), "--limit")
    refused(run("dead", "list", "--after", "x"), "--after")


def test_show_tells_the_failures_before(run: Run, queue: TimerQueue) -> None:
    queue.publish(Event("mail"), key="late")

    def fails() -> Steps[None]:
        place = (queue.namespace, queue.namespace.partition_of(b"default", b"late"), "events", "mails", "c1")
        for error in ("a\x1b[31m", "b"):
            ((raw,),) = [(yield [receive(*place, count=1, lease_ms=60_000)])[0].deliveries]
            yield [settle(*place, [Settlement(raw.entry, raw.delivery, "retry", at_ms=1, error=error)])]

    queue.run(fails())
    assert queue.run(give_up(queue.namespace, "mails")) == 1
    (letter,) = queue.dead_list("mails", Which(prefix="late"))
    lines = fine(run("dead", "show", letter.id)).stdout.splitlines()
    first, second = (line for line in lines if line.startswith("attempt "))
    assert (first.startswith("attempt 1 "), first.endswith(r": a\x1b[31m")) == (True, True)
    assert (second.startswith("attempt 2 "), second.endswith(": b")) == (True, True)
    (told,) = objects(fine(run("dead", "show", letter.id, "--json")))
    assert [(past["attempt"], past["failed_ms"], past["error"]) for past in told["history"]] == [
        (past.attempt, past.failed_ms, past.error) for past in letter.history
    ]
    assert letter.attempts == 3


def test_show_tells_all_that_is_known_and_what_can_be_done(run: Run, queue: TimerQueue) -> None:
    letter = next(letter for letter in queue.dead_list("mails") if letter.key == "order:1")
    result = fine(run("dead", "show", letter.id))
    about, traceback = result.stdout.split("\n\n")
    lines = dict(re.split(r"  +", line, maxsplit=1) for line in about.splitlines())
    assert lines["event"] == letter.id
    assert (lines["type"], lines["key"], lines["tenant"]) == ("mail", "order:1", "default")
    assert (lines["group"], lines["attempts"]) == ("mails of stream events", "1")
    assert lines["error"] == r"ValueError: no such account\nas 'x'"
    assert (lines["payload"], lines["correlation"]) == ('{"n": 1}', '{"request": "r-1"}')
    assert lines["last failed"].endswith(" ago)")
    assert not any(line.startswith("attempt ") for line in lines)
    assert traceback.splitlines()[0] == "Traceback:"
    hints = [line.partition("timerq ")[2] for line in result.stderr.splitlines()]
    assert hints == [
        "tail --stream errors --no-follow --key order:1",
        f"dead replay --id {letter.id} --group mails",
        f"dead discard --id {letter.id} --group mails",
    ]
    elsewhere = fine(run("dead", "show", letter.id, "--namespace", "timerq", "--tenant", "default")).stderr
    assert all(line.endswith(" --namespace timerq --tenant default") for line in elsewhere.splitlines())
    for hint in hints:
        fine(run(*shlex.split(hint)))  # what it names can be done: the last two settle it, each in its turn
        if "replay" in hint:
            queue.run(give_up(queue.namespace, "mails", error=ERROR))
    assert queue.dead_show("mails", letter.id) is None


def test_show_as_json(run: Run, queue: TimerQueue) -> None:
    letter = queue.dead_list_page("mails", Which(prefix="order:3"), limit=1).letters[0]
    (words,) = objects(fine(run("dead", "show", letter.id, "--json")))
    assert words["last_failed_ms"] == letter.last_failed_ms
    assert words["last_failed"].endswith("Z")
    assert {name: words[name] for name in ("id", "owner", "payload", "unreadable", "error", "place")} == {
        "id": letter.id,
        "owner": "shop",
        "payload": {"n": 3},
        "unreadable": None,
        "error": ERROR,
        "place": letter.place,
    }
    assert "fields" not in words


def test_what_cannot_be_read_is_shown_by_its_place(
    run: Run, queue: TimerQueue, redis_client: redis.Redis
) -> None:
    redis_client.xadd(queue.namespace.tags[1] + b":s:events", {"hello": b"\xff\x00"})
    queue.run(give_up(queue.namespace, "mails", error="unreadable"))
    (letter,) = [letter for letter in queue.dead_list("mails") if not letter.id]
    assert letter.place in fine(run("dead", "list")).stdout
    result = fine(run("dead", "show", letter.place))
    assert re.search(r"^event +cannot be read$", result.stdout, re.MULTILINE)
    assert '{"hello": {"base64": "/wA="}}' in result.stdout
    assert f"--id {letter.place}" in result.stderr
    (words,) = objects(run("dead", "show", letter.place, "--json"))
    assert words["payload"] is None
    assert words["fields"] == {"hello": {"base64": "/wA="}}
    assert fine(run("dead", "discard", "--id", letter.place)).stdout == "1 discarded\n"


def test_which_group_is_found_where_there_is_one_and_asked_for_where_there_are_more(
    run: Run, queue: TimerQueue
) -> None:
    refused(run("dead", "show", "0-1-1", "--group", "other"), "group other of stream events", code=3)
    assert (
        "No group other reads stream events. There are: mails"
        in fine(run("dead", "list", "--group", "other")).stderr
    )
    assert "has no such" in fine(run("dead", "list", "--prefix", "zzz")).stderr
    queue.run(give_up(queue.namespace, "audit"))
    for words in (["list"], ["show", "x"], ["replay", "--all"], ["discard", "--id", "x"]):
        refused(run("dead", *words), "audit (12), mails (12)", "--group")
    assert len(listed(run, "--group", "audit")) == 12
    result = fine(run("dead", "list", "--stream", "other"))
    assert (result.stdout, result.stderr) == (
        "",
        "No group of stream other has dead letters. Elsewhere: events (group audit, 12), events (group mails, 12)\n",
    )
    refused(run("dead", "list", "--stream", "a b"), "stream")


def test_looking_makes_no_namespace(run: Run, redis_client: redis.Redis) -> None:
    assert "No group of stream events" in fine(run("dead", "list", "--since", "1h")).stderr
    assert fine(run("dead", "replay", "--all", "--yes")).stdout == "0 replayed\n"
    refused(run("dead", "show", "0-1-1"), "no group of stream events", code=3)
    refused(run("dead", "discard", "--id", "0-1-1"), "no group of stream events", code=3)
    assert redis_client.keys() == []


def test_stats_point_to_them(run: Run, queue: TimerQueue) -> None:
    result = fine(run("stats"))
    assert re.search(r"dead letters +12$", result.stdout, re.MULTILINE)
    assert "timerq dead list" in result.stderr


# ------------------------------------------------------------------------------------------------ settling


def test_one_is_settled_without_a_question(run: Run, queue: TimerQueue) -> None:
    first, second = queue.dead_list_page("mails", limit=2).letters
    assert fine(run("dead", "replay", "--id", first.id)).stdout == "1 replayed\n"
    assert objects(fine(run("dead", "discard", "--id", second.id, "--json"))) == [{"discarded": 1}]
    assert queue.dead_count("mails") == 10
    refused(run("dead", "replay", "--id", first.id), "no dead letter of it", "timerq dead list", code=3)
    assert queue.run(give_up(queue.namespace, "mails")) == 1


def test_many_are_counted_and_asked_about(run: Run, queue: TimerQueue, terminal: None) -> None:
    result = run("dead", "replay", "--prefix", "cart:", "--type", "sms", "--since", "1h", input="n\n")
    assert result.exit_code == 1
    assert (
        "Replay 3 dead letters of group mails, of type sms, whose key begins with 'cart:', failed since 1h ago?"
        in result.stderr
    )
    assert "nothing was replayed" in result.stderr
    assert queue.dead_count("mails") == 12
    assert fine(run("dead", "replay", "--type", "sms", input="y\n")).stdout == "3 replayed\n"
    assert fine(run("dead", "discard", "--all", "--limit", "4", input="y\n")).stdout == "4 discarded\n"
    assert queue.dead_count("mails") == 5
    assert fine(run("dead", "discard", "--type", "none")).stdout == "0 discarded\n"


@pytest.mark.parametrize(("pressed", "raised"), [(KeyboardInterrupt, KeyboardInterrupt), (EOFError, Failure)])
def test_a_question_is_left_by_ctrl_c_as_all_else_is(
    terminal: None, monkeypatch: pytest.MonkeyPatch, pressed: type[BaseException], raised: type[BaseException]
) -> None:
    def press(prompt: str) -> str:
        raise pressed

    monkeypatch.setattr("click.termui.visible_prompt_func", press)
    with pytest.raises(raised):
        timerq.cli.ask.confirm("Replay them?", "replay them", "nothing was replayed")


def test_without_a_terminal_it_wants_yes(run: Run, queue: TimerQueue) -> None:
    refused(run("dead", "discard", "--all"), "would discard 12 dead letters of group mails", "--yes")
    assert fine(run("dead", "discard", "--all", "--dry-run")).stdout == "12 would be discarded\n"
    assert objects(run("dead", "replay", "--all", "--limit", "5", "--dry-run", "--json")) == [
        {"would_replay": 5}
    ]
    assert fine(run("dead", "replay", "--older", "1h", "--dry-run")).stdout == "0 would be replayed\n"
    assert queue.dead_count("mails") == 12
    assert fine(run("dead", "replay", "--all", "-y")).stdout == "12 replayed\n"
    assert queue.run(give_up(queue.namespace, "mails")) == 12


def test_all_must_be_said(run: Run, queue: TimerQueue) -> None:
    for verb in ("replay", "discard"):
        refused(run("dead", verb), "--all")
        refused(run("dead", verb, "--all", "--type", "sms"), "--all")
        refused(run("dead", verb, "--all", "--limit", "0"), "--limit")
    assert queue.dead_count("mails") == 12


def test_what_is_mistyped_is_told_as_it_was_typed(run: Run, queue: TimerQueue) -> None:
    refused(run("dead", "replay", "--older", "2 weekz", "--yes"), "--older: got '2 weekz'")
    result = run("dead", "replay", "--all", "--yes", "--group", "a b")
    refused(result, "--group: got 'a b'")
    assert "before that" not in result.stderr


@pytest.mark.parametrize("more", [("--yes",), ("--dry-run",)])
def test_a_group_that_is_none_is_told_from_one_without_letters(
    run: Run, queue: TimerQueue, more: tuple[str, ...]
) -> None:
    nobody = fine(run("dead", "replay", "--all", "--group", "mail", *more))
    assert nobody.stdout.startswith("0 ")
    assert "No group mail reads stream events. There are: mails" in nobody.stderr
    none = fine(run("dead", "discard", "--type", "fax", "--group", "mails", *more, "--json"))
    assert objects(none) in ([{"discarded": 0}], [{"would_discard": 0}])
    assert "Group mails of stream events has no such dead letters." in none.stderr


def test_a_replay_that_is_cut_short_says_how_far_it_came(
    run: Run, queue: TimerQueue, redis_client: redis.Redis
) -> None:
    redis_client.delete(queue.namespace.tags[1] + b":s:events")
    redis_client.set(queue.namespace.tags[1] + b":s:events", "not a stream")
    there = len([letter for letter in queue.dead_list("mails") if letter.partition == 0])
    result = run("dead", "replay", "--all", "--yes", "--group", "mails")
    refused(result, f"{there} replayed before that", "WRONGTYPE", code=4)
    assert queue.dead_count("mails") == 12 - there


def test_every_command_has_an_example(run: Run) -> None:
    for words in ("list", "show", "replay", "discard"):
        assert f"timerq dead {words}" in fine(run("dead", words, "--help")).stdout
    assert "timerq owner destroy" in fine(run("owner", "destroy", "-h")).stdout
    help_ = fine(run("dead", "--help")).stdout
    assert re.findall(r"^  (\w+)  ", help_.partition("Commands:")[2], re.MULTILINE) == [
        "list", "show", "replay", "discard",
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------ the stream errors


def test_a_tail_of_errors_can_be_read(run: Run, redis_url: str) -> None:
    with TestQueue(url=redis_url) as kit:
        app = Consumer(kit.aqueue, group="shop")

        @app.on("order", attempts=2, backoff="1s")
        def order(event: Delivery, ctx: Context) -> Incomplete:
            return Incomplete("no paper\nleft")

        kit.queue.publish(Event("order"), key="order:1", owner="shop")
        kit.advance("1m", app)
        first, second = fine(
            run("tail", "--stream", "errors", "--no-follow", "--namespace", kit.queue.namespace.name)
        ).stdout.splitlines()
    words = re.split(r"  +", first)
    assert words[1:4] == ["handler.failed", "order:1 of shop", r"Incomplete: no paper\nleft"]
    assert re.fullmatch(r"event \S+ \(order\), group shop of events, attempt 1 of 2, again at .*", words[4])
    words = re.split(r"  +", second)
    assert words[1] == "handler.dead"
    assert words[4].endswith("attempt 2 of 2")
    assert "raceback" not in first + second


def test_a_tail_of_errors_tells_of_schedules_and_of_what_others_put_there(run: Run, redis_url: str) -> None:
    with TestQueue(url=redis_url) as kit:
        kit.queue.upsert("sync", Event("sync"), every="1s", overlap="skip", owner="shop")
        kit.advance("2s")
        kit.queue.publish(Event("note", ["of", 1], stream="errors"), key="by hand")
        where = ("--namespace", kit.queue.namespace.name)
        skipped, note = fine(run("tail", "--stream", "errors", "--no-follow", *where)).stdout.splitlines()
    words = re.split(r"  +", skipped)
    assert words[1:3] == ["schedule.skipped", "sync of shop"]
    assert re.fullmatch(r"0-\S+.*", words[3])
    assert words[4].startswith("due 20")
    assert re.split(r"  +", note)[1:] == ["note", "by hand", '["of", 1]']


# ------------------------------------------------------------------------------------------------ owners


def test_an_owner_is_destroyed_with_its_timers_and_handles(
    run: Run, queue: TimerQueue, terminal: None
) -> None:
    handle = queue.owner("session-7").open()
    for n in range(3):
        upsert(run, f"k{n}", "--owner", "session-7")
    upsert(run, "k0", "--owner", "other")
    result = run("owner", "destroy", "session-7", input="n\n")
    assert result.exit_code == 1
    assert "Destroy owner 'session-7' with its 3 timers?" in result.stderr
    assert fine(run("owner", "destroy", "session-7", "--dry-run")).stdout == (
        "would destroy owner 'session-7' with its 3 timers\n"
    )
    assert objects(run("owner", "destroy", "session-7", "--dry-run", "--json")) == [
        {"owner": "session-7", "would_destroy": 3}
    ]
    assert handle.count() == 3
    assert fine(run("owner", "destroy", "session-7", input="y\n")).stdout == "3 destroyed\n"
    assert (handle.count(), handle.is_gone, queue.count(owner="other")) == (0, True, 1)
    assert objects(run("owner", "destroy", "session-7", "--yes", "--json")) == [
        {"owner": "session-7", "destroyed": 0, "durable": "accepted"}
    ]


def test_destroying_wants_a_name_and_an_answer(run: Run, queue: TimerQueue) -> None:
    upsert(run, "k", "--owner", "o")
    refused(run("owner", "destroy", "o"), "would destroy owner 'o' with its 1 timer", "--yes")
    refused(run("owner", "destroy", ""), "owner: got")
    assert queue.count(owner="o") == 1
