"""Whether Redis answers: said once per change, however many threads find out."""

from __future__ import annotations

import logging
import threading

logger = logging.getLogger("timerq.dispatcher")


class Health:
    """What is failing, by name; logs when the first one fails and when the last one works again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failing: dict[str, str] = {}

    def failed(self, part: str, why: BaseException) -> None:
        """``part`` (a loop) could not do its work."""
        with self._lock:
            first = not self._failing
            self._failing[part] = str(why)
        if first:
            logger.warning("cannot fire: %s; retrying with back-off", why)

    def works(self, part: str) -> None:
        """``part`` did its work."""
        if part not in self._failing:  # the usual case, without the lock
            return
        with self._lock:
            self._failing.pop(part, None)
            last = not self._failing
        if last:
            logger.info("firing again")

    @property
    def failing(self) -> dict[str, str]:
        """What fails, and why; empty when all is well."""
        with self._lock:
            return dict(self._failing)
