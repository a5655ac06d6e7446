"""What is loaded when: names of timerq cost nothing before they are asked for, and are all there then."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import timerq
import timerq.testing

ROOT = Path(timerq.__file__).parent
MODULES = [timerq, timerq.testing]


def loaded_by(code: str) -> set[str]:
    """What a process has loaded that has run some lines."""
    words = [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_what_type_checkers_see_is_what_there_is(module: ModuleType) -> None:
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    (seen,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    )
    found = {}
    for node in seen.body:
        assert isinstance(node, ast.ImportFrom)
        found[node.module.removeprefix(f"{module.__name__}.")] = sorted(alias.name for alias in node.names)
    assert {room: sorted(names.split()) for room, names in module._ROOMS.items()} == found
    assert sorted(module.__all__) == sorted(name for names in found.values() for name in names)
    for room, names in found.items():
        home = __import__(f"{module.__name__}.{room}", fromlist=names)
        for name in names:
            assert getattr(module, name) is getattr(home, name)
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute 'nothing'"):
        _ = module.nothing


def test_a_room_is_there_by_its_own_name() -> None:
    code = "import timerq\nassert timerq.errors.InvalidSchedule is timerq.InvalidSchedule"
    assert "timerq.errors" in loaded_by(code)


def test_importing_timerq_or_its_pytest_plugin_loads_nothing() -> None:
    loaded = loaded_by("import timerq, timerq.testing.plugin")
    assert {name for name in loaded if name.startswith("timerq")} == {
        "timerq",
        "timerq.testing",
        "timerq.testing.plugin",
    }
    assert "redis" not in loaded


def test_a_blocking_client_loads_no_consumer_and_the_help_no_drawing() -> None:
    loaded = loaded_by("from timerq import Event, TimerQueue")
    assert not {"timerq.consumer", "timerq.async_client", "timerq.declare", "pydantic"} & loaded
    assert not {"rich", "pydantic"} & loaded_by("import timerq.cli")
