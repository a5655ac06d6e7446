"""Takes what has come the moment the bell rings, for a reader of a group without order."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from timerq.commands.consume import Received
from timerq.consumer.desk import LATE_S

if TYPE_CHECKING:
    from timerq.commands.command import Command
    from timerq.consumer.asking import Asking
    from timerq.consumer.service import Service

logger = logging.getLogger("timerq.consumer")


class Hand:
    """Where the order counts there is none: two answers on their way may overtake each other."""

    def __init__(
        self,
        service: Service,
        asking: Asking,
        most: int,
        take: Callable[[Received, int], int],
        wake: Callable[[], None],
    ) -> None:
        self._service = service
        self._asking = asking
        self._most = most
        self._take = take
        self._wake = wake
        self._brought: Received | None = None
        self._is_unsure = False

    def wish(self) -> Command[Received] | None:
        """What to take when the bell rings: what finds places now. None where that is to be asked for then."""
        service = self._service
        # a manual clock may go on until then
        if service.is_stopping or service.app.place.clock() is not None:
            return None
        return self._asking.command(max(1, min(self._most, service.slots.free)))

    def bring(self, received: Received) -> None:
        """Starts what was taken."""
        if received.again:
            self.lose()
            return
        slots = self._service.slots
        age_s = max(0.0, self._service.now_ms() / 1000 - received.now_us / 1e6)
        for raw in received.deliveries:
            raw.fresh_until_s = time.monotonic() - age_s + LATE_S
        places = slots.take_now(len(received.deliveries))
        try:
            places -= self._take(received, places)
        except Exception:
            logger.exception("a fault of timerq's own")
            self.lose()  # what was not begun is held, and told of anew
        else:
            self._brought = received
        finally:
            slots.give(places)

    def lose(self) -> None:
        """What may have been taken did not arrive: it is held under this consumer's name."""
        self._is_unsure = True
        self._wake()

    def brought(self) -> Received | None:
        """What was taken since this was asked last."""
        found, self._brought = self._brought, None
        return found

    def is_unsure(self) -> bool:
        """Whether something was lost since this was asked last."""
        found, self._is_unsure = self._is_unsure, False
        return found
