"""What a user's pytest run has of timerq: fixtures, an option, and nothing where nobody asks for them."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.support.pytester import SAMPLE, outcome, run_pytest, write

ROOT = Path(__file__).parents[2]


def test_it_is_an_entry_point():
    (found,) = entry_points(group="pytest11", name="timerq")
    assert found.value == "timerq.testing.plugin"


def test_a_project_with_nothing_but_the_fixtures(tmp_path):
    write(tmp_path, SAMPLE.replace("{fake}", "True"))
    assert outcome(run_pytest(tmp_path)) == "3 passed"


def test_the_pages_own_tests_pass(tmp_path):
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    blocks = [
        text for text in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S) if "def test_" in text
    ]
    write(tmp_path, "\n".join(blocks))
    assert outcome(run_pytest(tmp_path)) == "2 passed"


def test_a_failure_shows_the_assertions_message_and_not_its_inside(tmp_path):
    write(
        tmp_path,
        """
        from timerq.testing import assert_scheduled

        def test_it(timer_queue):
            assert_scheduled(timer_queue, "a")
        """,
    )
    done = run_pytest(tmp_path)
    assert outcome(done) == "1 failed"
    assert "E       AssertionError: 'a' is not scheduled\n" in done.stdout
    assert "asserts.py" not in done.stdout.partition("short test summary")[0].replace(
        "timerq/testing/asserts.py:", ""
    )


def test_who_asks_for_nothing_gets_nothing(tmp_path):
    write(tmp_path, "import sys\ndef test_it():\n    assert 'fakeredis' not in sys.modules\n")
    assert outcome(run_pytest(tmp_path)) == "1 passed"
    write(tmp_path, "def test_it(timer_queue): ...\n")
    done = run_pytest(tmp_path, "-p", "no:timerq")
    assert outcome(done) == "1 error"
    assert "fixture 'timer_queue' not found" in done.stdout


@pytest.mark.parametrize("fixture", ["timer_queue", "manual_clock", "timer_queue_url"])
def test_no_other_plugin_here_has_fixtures_of_these_names(fixture, pytestconfig):
    manager = pytestconfig.pluginmanager
    owners = [name for name, plugin in manager.list_name_plugin() if plugin and fixture in vars(plugin)]
    assert owners == ["timerq"]
