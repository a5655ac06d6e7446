"""scripts/redis: a server, or a Cluster, in the foreground."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys

from tests.support.cluster import LocalCluster
from tests.support.servers import choose
from timerq.errors import InvalidSchedule, TimerqError


def main() -> int:
    """Run until Ctrl-C or SIGTERM. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/redis", description="A redis-server in the foreground.")
    parser.add_argument("--port", type=int, help="loopback port (0: a free one; default: a unix socket)")
    parser.add_argument("--data-dir", help="keep the data in this folder, with an append-only file")
    parser.add_argument("--which", default="newest", help="6.2, 7.0, 8.2, valkey, newest")
    parser.add_argument("--cluster", action="store_true", help="a Cluster of three masters")
    arguments = parser.parse_args()
    if arguments.cluster and (arguments.port is not None or arguments.data_dir):
        parser.error("a Cluster chooses its ports and keeps nothing")
    try:
        servers, _ = choose([arguments.which])
    except ValueError as error:
        parser.error(str(error))
    if not servers:
        print("no redis-server found; see docs/embedded.md", file=sys.stderr)
        return 4

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server = servers[0]
    with contextlib.suppress(KeyboardInterrupt):
        try:
            running = (
                LocalCluster(server)
                if arguments.cluster
                else server.run(data_dir=arguments.data_dir, port=arguments.port)
            )
            with running:
                what = "Cluster of three masters, " if arguments.cluster else ""
                print(f"{what}{server.kind} {server.version_text}; Ctrl-C ends it", file=sys.stderr)
                print(running.url, flush=True)
                signal.pause()
        except TimerqError as error:
            print(error, file=sys.stderr)
            return 2 if isinstance(error, InvalidSchedule) else 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
