"""Every example of the documentation runs: what users copy must work.

``python`` blocks of a page run one after the other, as one program; ``console`` blocks are command lines behind ``$``;
``sh`` blocks hold redis-cli lines, which are sent as they stand. Blocks without a language are not run.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from timerq import TimerQueue

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str]]:
    return [(match[1], match[2]) for match in BLOCK.finditer(page.read_text(encoding="utf-8"))]


def run_command(line: str, env: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    words = shlex.split(line)
    assert words[0] == "timerq", line
    return subprocess.run(
        [sys.executable, "-m", "timerq", *words[1:]],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.one_server
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page, redis_url, redis_client, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)  # examples may leave files
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.setenv("TIMERQ_REDIS_URL", redis_url)
    env = {**os.environ, "TIMERQ_REDIS_URL": redis_url}
    variables: dict[str, object] = {"__name__": "example"}
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text.replace("redis://localhost:6379/0", redis_url), page.name, "exec"), variables)
        elif language == "console":
            for line in text.splitlines():
                if line.startswith("$ timerq"):
                    done = run_command(line[2:], env, tmp_path)
                    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        elif language == "sh":
            for line in text.splitlines():
                words = shlex.split(line)
                if words and words[0] == "redis-cli":
                    assert redis_client.execute_command(*words[1:]), line
    for value in variables.values():
        if isinstance(value, TimerQueue):
            value.close()


def test_links_lead_somewhere():
    for page in (*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
