"""YAML and TOML texts: what values they hold, on which lines, and what is refused."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from timerq.declare import yaml_text
from timerq.declare.documents import Unreadable
from timerq.declare.toml_text import read_toml
from timerq.declare.yaml_text import MAX_VALUES, read_yaml


@pytest.fixture(autouse=True, params=[yaml_text.SlowLoader, yaml_text.FastLoader])
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to read a text."""
    monkeypatch.setattr(yaml_text, "_LOADER", request.param)


def value(text: str) -> Any:
    return read_yaml(text)[0]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", None),
        ("~", None),
        ("a:", {"a": None}),
        ("[true, False, TRUE]", [True, False, True]),
        ("[yes, no, on, off, y, N]", ["yes", "no", "on", "off", "y", "N"]),
        ("[1, -2, +3, 010, 0o17, 0xff]", [1, -2, 3, 10, 15, 255]),
        ("[1.5, 1e3, .5, 2., -1.5e-2]", [1.5, 1000.0, 0.5, 2.0, -0.015]),
        ("[.inf, -.INF]", [math.inf, -math.inf]),
        ("[1:30, 12:00:00, 1_000]", ["1:30", "12:00:00", "1_000"]),
        ("[2026-12-25, 2026-01-01T00:00:00Z]", ["2026-12-25", "2026-01-01T00:00:00Z"]),
        ("['1', \"true\", !!str 5]", ["1", "true", "5"]),
        ("!!int '7'", 7),
        ("!!float 7", 7.0),
        ("!!binary aGk=", b"hi"),
        ("{1: a, true: b, ~: c}", {1: "a", None: "c"}),
        ("- 0 9 * * MON-FRI\n- '*/5 * * * *'", ["0 9 * * MON-FRI", "*/5 * * * *"]),
        ("&a {x: 1}", {"x": 1}),
        ("[&a {x: 1}, *a]", [{"x": 1}, {"x": 1}]),
        ("\ufeffa: 1", {"a": 1}),
    ],
)
def test_a_plain_value_is_what_the_core_schema_says(text: str, wanted: Any) -> None:
    if text == "{1: a, true: b, ~: c}":  # Python takes True for 1
        with pytest.raises(Unreadable, match="twice"):
            value(text)
        return
    found = value(text)
    assert found == wanted
    assert repr(found) == repr(wanted)


def test_not_a_number_is_one() -> None:
    assert math.isnan(value(".nan"))


def test_a_merge_stands_below_what_is_written_beside_it() -> None:
    text = """
    base: &base {timezone: Europe/Paris, jitter: 5s, payload: {a: 1}}
    other: &other {jitter: 9s, limit: 3}
    job:
      <<: [*base, *other]
      timezone: UTC
    """
    found, lines = read_yaml(text)
    assert found["job"] == {"timezone": "UTC", "jitter": "5s", "payload": {"a": 1}, "limit": 3}
    assert (lines["job", "timezone"], lines["job", "jitter"], lines["job", "limit"]) == (6, 2, 3)


def test_lines_are_those_of_the_keys_and_of_the_items() -> None:
    _, lines = read_yaml("# comment\nschedules:\n  - name: a\n    cron:\n      - x\n      - y\n  - b: c\n")
    assert lines["schedules",] == 2
    assert lines["schedules", 0] == 3
    assert lines["schedules", 0, "cron"] == 4
    assert lines["schedules", 0, "cron", 1] == 6
    assert lines["schedules", 1, "b"] == 7


@pytest.mark.parametrize(
    ("text", "line", "key", "says"),
    [
        ("a: 1\nb: [1, 2\nc: 3\n", 3, "", "not YAML"),
        ("a: 1\n\tb: 2\n", 2, "", "not YAML"),
        ("a: b: c", 1, "", "not YAML"),
        ("a: 'open", 1, "", "not YAML"),
        ("a:\n  cron: @daily", 2, "", 'in quotes: "@daily"'),
        ("a:\n  cron: * * * * *", 2, "", 'in quotes: "* * * * *"'),
        ("a:\n  cron:\n  - */5 * * * *", 3, "", 'in quotes: "*/5 * * * *"'),
        ("a: {cron: @daily, limit: 3}", 1, "", 'in quotes: "@daily"'),
        ("a:\n\tcron: x", 2, "", "indent with blanks"),
        ("a: 1\n---\nb: 2\n", 2, "", "not YAML"),
        ("a: *nowhere", 1, "", "not YAML"),
        ("a: 1\nb: \x07\n", 2, "", "character '\\x07'"),
        ("a: 1\nb: 2\na: 3\n", 3, "a", "the key comes twice; first on line 1"),
        ("x:\n  a: 1\n  b: 2\n  'a': 3\n", 4, "x.a", "the key comes twice; first on line 2"),
        ("a: !!python/object:os.system x", 1, "a", "tag"),
        ("a: !thing {x: 1}", 1, "a", "tag '!thing'"),
        ("a:\n  - !!set {x, y}", 2, "a[0]", "tag '!!set'"),
        ("a: !!int x", 1, "a", "no int"),
        ("a: !!binary '*'", 1, "a", "base64"),
        ("a: " + "9" * 5000, 1, "a", "5,000 digits"),
        ("a: &x [1, *x]", 1, "a[1]", "alias of the value that it stands in"),
        ("a: &x {<<: *x}", 1, "a", "merges itself"),
        ("a: {<<: 5}", 1, "a", "behind <<"),
        ("? [1, 2]\n: 3", 1, "", "want a key that is a text or a number"),
        ("[" * 150 + "]" * 150, None, "", "nested too deeply"),
        ("[" * 50_000, None, "", "nested too deeply"),
    ],
)
def test_what_is_refused_says_where(text: str, line: int | None, key: str, says: str) -> None:
    with pytest.raises(Unreadable) as caught:
        read_yaml(text)
    assert says in caught.value.text
    if line is not None:
        assert (caught.value.line, caught.value.key) == (line, key)


@pytest.mark.parametrize("merge", [False, True])
def test_aliases_of_aliases_make_no_end_of_values(merge: bool) -> None:
    lines = ["a0: &a0 {x: 1}"]
    for i in range(40):
        inner = f"[*a{i}, *a{i}, *a{i}]"
        lines.append(f"a{i + 1}: &a{i + 1} " + (f"{{<<: {inner}, y{i}: 1}}" if merge else inner))
    text = "\n".join(lines)
    if merge:  # the same few keys, however often
        assert len(value(text)["a40"]) == 41
    else:
        with pytest.raises(Unreadable, match=f"{MAX_VALUES:,}"):
            value(text)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (read_yaml, read_toml):
        with contextlib.suppress(Unreadable):
            read(text)  # anything else would be raised here


def test_toml_says_the_line_of_a_fault() -> None:
    for text, line in (("a = 1\nb = \n", 2), ("a = 1\na = 2\n", 2), ("[x]\n[x]\n", 2), ("x", 1)):
        with pytest.raises(Unreadable, match="not TOML") as caught:
            read_toml(text)
        assert caught.value.line == line
        assert "line" not in caught.value.text
    with pytest.raises(Unreadable):
        read_toml("a = " + "9" * 5000)
    with pytest.raises(Unreadable, match="deeply"):
        read_toml("a = " + "[" * 50_000)
