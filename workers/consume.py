"""A consumer as a process: ``python -m workers.consume module:app``, set up by the environment (see `timerq.settings`).

SIGTERM and SIGINT read no more, wait for what is in hand, and hand the rest back; after SIGKILL at any instant another
consumer of the group takes over when the leases end.
"""

from __future__ import annotations

import logging
import sys

from timerq.consumer.load import load_consumer
from timerq.errors import InvalidSchedule, NamespaceMismatch


def main(words: list[str]) -> int:
    """Runs until a signal; 0, or 2 for a module or setting that cannot be used."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if len(words) != 1:
        print("usage: python -m workers.consume module:app", file=sys.stderr)
        return 2
    try:
        load_consumer(words[0]).run()
    except (InvalidSchedule, NamespaceMismatch) as error:
        print(f"timerq: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
