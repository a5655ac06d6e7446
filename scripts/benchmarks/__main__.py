"""scripts/bench: measures, prints the table, writes the JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from scripts.benchmarks import calendars, consuming, firing, owners, standing, writing
from scripts.benchmarks.rig import Rig
from scripts.benchmarks.table import Row, render
from tests.support.servers import Server, choose

FIGURES: dict[str, tuple[str, Callable[[Rig], list[Row]]]] = {
    "upsert_many": ("many schedules a call", writing.many),
    "upsert": ("one schedule a call", writing.single),
    "concurrent": ("64 asyncio tasks", writing.concurrent),
    "drain": ("a backlog through one dispatcher", firing.drain),
    "scripts": ("how long one script holds Redis", firing.scripts),
    "lag": ("from due to a reader, quiet and under load", firing.lag),
    "cron": ("the next instant of an expression", calendars.next_instants),
    "calendars": ("calendars through one dispatcher", calendars.drain),
    "consume": ("a backlog through one consumer", consuming.consume),
    "ordered": ("what the order of lanes costs", consuming.ordered),
    "start": ("from due to a handler, quiet", consuming.start),
    "owners": ("destroy an owner with 100,000 timers", owners.destroy),
    "idle": ("what 100,000 pending schedules cost", standing.idle),
    "memory": ("bytes a schedule", standing.memory),
    "list": ("a page of a million keys", standing.listing),
}


def main() -> int:
    """0; with ``--strict`` 1 where a target is missed."""
    names = "\n".join(f"  {name:12} {what}" for name, (what, _) in FIGURES.items())
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measures timerq beside bare scripts that do the same Redis work.",
        epilog=f"figures:\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default="", metavar="FIGURE,…", help="these figures")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller backlogs: a first look")
    parser.add_argument(
        "--server", default="newest", metavar="VERSION", help="6.2, 7.0, 8.2, valkey, newest (the default)"
    )
    parser.add_argument("--json", metavar="FILE", help="write the figures there, too")
    parser.add_argument("--strict", action="store_true", help="exit code 1 where a target is missed")
    arguments = parser.parse_args()
    wanted = [name for name in arguments.only.split(",") if name] or list(FIGURES)
    if unknown := [name for name in wanted if name not in FIGURES]:
        parser.error(f"no figure {unknown[0]!r}; there are {', '.join(FIGURES)}")
    try:
        server = find(arguments.server)
    except ValueError as error:
        parser.error(str(error))
    rig = Rig(server, memory_server(server), arguments.quick)

    about = describe(rig)
    rows: list[Row] = []
    began = time.monotonic()
    for name in wanted:
        start = time.monotonic()
        rows += (replace(row, figure=name) for row in FIGURES[name][1](rig))
        print(f"{name}: {time.monotonic() - start:.0f} s", file=sys.stderr)
    print(f"{time.monotonic() - began:.0f} s in all\n", file=sys.stderr)
    print(", ".join(f"{key} {value}" for key, value in about.items()) + "\n")
    print(render(rows))
    if arguments.json:
        record = {**about, "quick": arguments.quick, "figures": [row.as_json() for row in rows]}
        Path(arguments.json).write_text(
            json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    return int(arguments.strict and any(row.verdict == "MISSED" for row in rows))


def find(word: str) -> Server:
    """The newest server that a word matches; raises ValueError."""
    servers, _ = choose([word])
    if not servers:
        raise ValueError(f"no redis-server for {word!r} found; see docs/embedded.md")
    return servers[0]


def memory_server(server: Server) -> Server:
    """The promised bytes are those of Redis 7.0, where there is one."""
    try:
        return find("7.0")
    except ValueError:
        return server


def describe(rig: Rig) -> dict[str, str]:
    """What the figures depend on."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "server": f"{rig.server.kind} {rig.server.version_text}",
        "python": platform.python_version(),
        "redis-py": version("redis"),
        "hiredis": version("hiredis"),
        "cores": str(os.cpu_count()),
        "machine": platform.machine(),
        "kernel": platform.release(),
    }


if __name__ == "__main__":
    sys.exit(main())
