"""A crontab's lines as schedules: what cron would run, when it would, and each line that cannot be used."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from timerq import InvalidDeclaration, Upsert, preview
from timerq.declare.crontab import load_crontab, read_crontab

Words = dict[str, Any]


def read(text: str, **options: Any) -> list[Upsert]:
    return [declared.upsert for declared in read_crontab(text, "tab", **options)]


def one(text: str, **options: Any) -> Upsert:
    (upsert,) = read(text, **options)
    return upsert


def faults(text: str, **options: Any) -> list[str]:
    with pytest.raises(InvalidDeclaration) as caught:
        read_crontab(text, "tab", **options)
    return str(caught.value).split("\n")


# A crontab as they are: comments, blanks before lines, tabs, settings of every kind.
CRONTAB = """\
# m h  dom mon dow   command

SHELL=/bin/sh
  PATH = /usr/local/bin:/usr/bin
MAILTO=""
\t# indented
17 *\t* * *\troot    cd / && run-parts --report /etc/cron.hourly
25 6 * * 7 backup\ttest -x /usr/sbin/anacron || echo "week" % one%two
CRON_TZ = "Europe/Paris"
@Monthly root  date +\\%F
"""


def test_a_system_crontab_is_read_line_by_line() -> None:
    declared = read_crontab(CRONTAB, "tab", system=True)
    assert [(one.name, one.where) for one in declared] == [
        ("cron-1", "tab:7"), ("cron-2", "tab:8"), ("cron-3", "tab:10"),
    ]  # fmt: skip
    environment = {"SHELL": "/bin/sh", "PATH": "/usr/local/bin:/usr/bin", "MAILTO": ""}
    hourly, weekly, monthly = (one.upsert for one in declared)
    assert (hourly.cron, hourly.timezone, hourly.event.type) == ("17 * * * *", None, "crontab")
    assert hourly.event.payload == {
        "command": "cd / && run-parts --report /etc/cron.hourly", "environment": environment, "user": "root",
    }  # fmt: skip
    assert weekly.cron == "25 6 * * 7"
    assert weekly.event.payload == {
        "command": 'test -x /usr/sbin/anacron || echo "week" ', "stdin": " one\ntwo",
        "environment": environment, "user": "backup",
    }  # fmt: skip
    assert (monthly.cron, monthly.timezone) == ("@Monthly", "Europe/Paris")
    assert monthly.event.payload == {"command": "date +%F", "environment": environment, "user": "root"}


def test_there_is_only_what_a_line_has() -> None:
    upsert = one("@daily echo hi\r\n", event_type="shell", prefix="web-")
    assert (upsert.key, upsert.event.type, upsert.event.payload) == (
        "web-cron-1",
        "shell",
        {"command": "echo hi"},
    )
    assert read("") == read("# nothing\n\n \t\n") == []


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("A=b", "A", "b"),
        ("A = b  c \t", "A", "b  c"),
        ("A=", "A", ""),
        ("A =\t' b '", "A", " b "),
        ('"A"="b=c"', "A", "b=c"),
        ("'A_1' = $HOME/x # y", "A_1", "$HOME/x # y"),
        ("A==", "A", "="),
    ],
)
def test_a_setting_is_for_the_lines_below_it(line: str, name: str, value: str) -> None:
    before, after = read(f"@daily x\n{line}\n@daily y")
    assert before.event.payload == {"command": "x"}
    assert after.event.payload == {"command": "y", "environment": {name: value}}


def test_a_line_is_no_setting_because_its_command_has_one() -> None:
    assert one("* * * * * A=b run").event.payload == {"command": "A=b run"}
    assert one("@daily A=b run").event.payload == {"command": "A=b run"}


def test_the_zone_is_that_of_the_last_setting_above() -> None:
    text = """
    @daily a
    TZ=Europe/Berlin
    @daily b
    CRON_TZ=America/New_York
    @daily c
    CRON_TZ=
    @daily d
    TZ=""
    @daily e
    """
    upserts = read(text)
    assert [upsert.timezone for upsert in upserts] == [
        None,
        "Europe/Berlin",
        "America/New_York",
        "Europe/Berlin",
        None,
    ]
    assert not any("environment" in upsert.event.payload for upsert in upserts)


@pytest.mark.parametrize(
    ("text", "command", "stdin"),
    [
        ("a b", "a b", None),
        ("a%", "a", ""),
        ("a%b%%c", "a", "b\n\nc"),
        (r"a \% b%c \% d%e", "a % b", "c % d\ne"),
        (r"a \n \\ b", r"a \n \\ b", None),
        (r"date +\%F\ \%T", r"date +%F\ %T", None),
    ],
)
def test_a_percent_sign_ends_the_command(text: str, command: str, stdin: str | None) -> None:
    payload = {"command": command} | ({} if stdin is None else {"stdin": stdin})
    assert one(f"* * * * * {text}").event.payload == payload


# ------------------------------------------------------------------------------------------------ days


def days(cron: str, after: datetime, n: int) -> list[tuple[int, int]]:
    """The days of month and weekdays (Sunday 0) of the next occurrences of a line."""
    upsert = one(f"{cron} x")
    found = preview(cron=upsert.cron, exclude=upsert.exclude, after=after, n=n)
    assert all(earlier < later for earlier, later in pairwise(found))
    return [(instant.day, instant.isoweekday() % 7) for instant in found]


JANUARY = datetime(2025, 12, 31, tzinfo=UTC)


def test_a_starred_day_field_must_match_beside_the_other() -> None:
    """crontab(5): either is enough only where neither begins with a star."""
    for cron in ("0 9 */2 * 1-5", "0 9 1-31/2 * */2", "0 9 */2 * */3", "0 9 13 * */2"):
        _, _, day, _, weekday = cron.split()
        month_days = {13} if day == "13" else set(range(1, 32, 2))
        weekdays = {"1-5": {1, 2, 3, 4, 5}, "*/2": {0, 2, 4, 6}, "*/3": {0, 3, 6}}[weekday]
        for month_day, week_day in days(cron, JANUARY, 60):
            assert month_day in month_days, cron
            assert week_day in weekdays, cron


def test_plain_day_fields_are_as_they_are() -> None:
    for cron in ("0 9 13 * 5", "0 9 */2 * *", "0 9 * * */2", "0 9 */1 * 1", "0 9 1 * */1", "0 9 * * 1-5"):
        upsert = one(f"{cron} x")
        assert (upsert.cron, upsert.exclude) == (cron, None)
    assert all(day == 13 or weekday == 5 for day, weekday in days("0 9 13 * 5", JANUARY, 40))


# ------------------------------------------------------------------------------------------------ faults


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("@reboot x", "tab:1: @reboot: runs when a machine starts"),
        ("@REBOOT", "tab:1: @reboot"),
        ("@every_minute x", "tab:1: cron: got '@every_minute'"),
        ("* * * *", "tab:1: want five fields"),
        ("hello", "tab:1: want five fields"),
        ("* * * * *", "tab:1: command: want a command"),
        ("* * * * * %x", "tab:1: command: want a command"),
        ("@daily", "tab:1: command: want a command"),
        ("61 * * * * x", "tab:1: cron: got '61 * * * *'; want 0 to 59 in the minute field (position 1)"),
        ("0 0 31 2 * x", "tab:1: cron: got '0 0 31 2 *'; never fires"),
        ("0 0 */2 * 9 x", "tab:1: cron: got '0 0 */2 * 9'"),
        ("-*/5 * * * * x", "tab:1: cron: got '-*/5 * * * *'"),
        ("0~5 * * * * x", "tab:1: cron: got '0~5 * * * *'"),
        ("@daily x\nCRON_TZ=Europe/Pariss\n@daily y", "tab:2: CRON_TZ: got 'Europe/Pariss'"),
        ("TZ=:/etc/localtime\n@daily x", "tab:1: TZ: got ':/etc/localtime'"),
        ("A='b", "tab:1: A: want the closing '"),
        ('A="b" c', 'tab:1: A: want the closing "'),
        ("1A=b", "tab:1: 1A: want a variable's name"),
        ("*=5", "tab:1: want five fields"),
    ],
)
def test_a_line_that_cannot_be_used_is_told_with_its_number(line: str, says: str) -> None:
    (said,) = faults(line)
    assert said.startswith(says), said


def test_a_system_line_has_a_user_and_a_command() -> None:
    assert faults("* * * * *\n* * * * * root\n@daily\n@daily root", system=True) == [
        "tab:1: user: want a user before the command",
        "tab:2: command: want a command behind the time and the user",
        "tab:3: user: want a user before the command",
        "tab:4: command: want a command behind the time and the user",
    ]


def test_all_bad_lines_are_told_at_once() -> None:
    said = faults("@reboot x\n@daily fine\n* * * * 9 x")
    assert [line.split(" ")[0] for line in said] == ["tab:1:", "tab:3:"]


def test_a_crontab_is_a_set() -> None:
    declared = load_crontab(b"\xef\xbb\xbf@daily x\n", "tab", "jobs", prefix="p-")
    assert (declared.label, [one.name for one in declared.schedules]) == ("jobs", ["p-cron-1"])
    for data, label, says in (
        (b"@daily \xff", "jobs", "tab:1: not UTF-8"),
        (b"@daily x", "my jobs", "tab: set: got 'my jobs'; want 1 to 64"),
    ):
        with pytest.raises(InvalidDeclaration) as caught:
            load_crontab(data, "tab", label, hint="--set")
        assert str(caught.value).startswith(says)


def test_no_bytes_are_no_crontab_and_a_comment_is_an_empty_one() -> None:
    with pytest.raises(InvalidDeclaration, match="stdin: nothing came; want a crontab"):
        load_crontab(b"", "stdin", "jobs")
    assert load_crontab(b"# none\n", "stdin", "jobs").schedules == ()
