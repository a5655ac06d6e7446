"""timerq.testing where fakeredis, Lua for it, or pytest are not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

for name in {absent!r}:
    sys.modules[name] = None
"""


def run(absent: list[str], code: str) -> str:
    program = WITHOUT.format(absent=absent) + code
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


USE = """
from timerq import Event, QueueUnavailable
from timerq.testing import *
assert ManualClock().now_ms
try:
    TestQueue()
except QueueUnavailable as error:
    print(error)
"""


@pytest.mark.parametrize("absent", ["fakeredis", "lupa"])
def test_without_fakeredis_the_extra_is_named_where_it_is_needed(absent):
    said = run([absent, "pytest"], USE)
    assert "pip install 'timerq[testing]'" in said
    assert "embedded:" in said


def test_importing_it_imports_neither():
    code = "import timerq.testing; print(sorted({'fakeredis', 'lupa', 'pytest'} & set(sys.modules)))"
    assert run([], code) == "[]\n"
