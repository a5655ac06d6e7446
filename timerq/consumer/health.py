"""Whether Redis answers: said once per change, however many loops find out."""

from __future__ import annotations

import logging

logger = logging.getLogger("timerq.consumer")


class Health:
    """What is failing, by name; logs when the first one fails and when the last one works again."""

    def __init__(self) -> None:
        self._failing: dict[str, str] = {}

    def failed(self, part: str, why: BaseException) -> None:
        """``part`` could not do its work."""
        if not self._failing:
            logger.warning("cannot read events: %s; retrying with back-off", why)
        self._failing[part] = str(why)

    def works(self, part: str) -> None:
        """``part`` did its work."""
        if self._failing.pop(part, None) is not None and not self._failing:
            logger.info("reading events again")

    @property
    def failing(self) -> dict[str, str]:
        """What fails, and why; empty when all is well."""
        return dict(self._failing)
