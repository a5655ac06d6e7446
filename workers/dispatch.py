"""A dispatcher as a process: ``python -m workers.dispatch``, set up by the environment (see `timerq.settings`).

SIGTERM and SIGINT finish the call in hand and leave; SIGKILL at any instant loses and repeats nothing.
"""

from __future__ import annotations

import logging
import signal
import sys

from timerq.dispatcher import Dispatcher
from timerq.errors import InvalidSchedule, NamespaceMismatch
from timerq.settings import Settings


def main() -> int:
    """Runs until a signal; 0, or 2 for a setting that cannot be used."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        settings = Settings.from_environment()
        dispatcher = Dispatcher(settings.redis_url, namespace=settings.namespace)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: dispatcher.request_stop())
        dispatcher.run()
    except (InvalidSchedule, NamespaceMismatch) as error:
        print(f"timerq: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
