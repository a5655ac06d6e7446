"""Destroys owners whose heartbeat has stopped, and ends the sweeps that their destroyers did not."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from timerq.commands.command import Namespace
from timerq.commands.owner import Found, destroy_piece, find_silent
from timerq.link import Link

logger = logging.getLogger("timerq.owner")

CALM_S = 10.0
"""How long Redis must have answered before silence means anything: a heartbeat that was not heard while it was away is
sent again within a second or two, and owners must not die of that."""

UNSWEPT_S = 60.0
"""How long a sweep is left to who began it; two at once would each tell only its own part."""


class Undertaker:
    """The part of a dispatcher that looks after owners; called with each of its heartbeats."""

    def __init__(self, link: Link, namespace: Namespace) -> None:
        self._link = link
        self._namespace = namespace
        self._calm_since_s = time.monotonic()
        # sweeps that others have begun, and since when they are known (s)
        self._begun: dict[Found, float] = {}

    def redis_failed(self) -> None:
        """Redis did not answer."""
        self._calm_since_s = time.monotonic()

    def look(self, partitions: Sequence[int], until_s: float) -> None:
        """Destroys what is to be destroyed in ``partitions``, up to ``until_s`` (monotonic); the rest keeps its place.

        Raises `QueueUnavailable`.
        """
        if not partitions:
            return
        answers: list[list[Found]] = self._link.send([find_silent(self._namespace, p) for p in partitions])
        found = [each for answer in answers for each in answer]
        now_s = time.monotonic()
        self._begun = {each: self._begun.get(each, now_s) for each in found if each.ceiling}
        for each in found:
            if time.monotonic() > until_s:
                return
            if each.ceiling:
                if now_s - self._begun[each] >= UNSWEPT_S:
                    self._destroy(each, until_s)
            elif now_s - self._calm_since_s >= CALM_S:
                self._destroy(each, until_s)

    def _destroy(self, each: Found, until_s: float) -> None:
        """Its sweep; where the time is up, the next look finds it marked and goes on."""
        if each.ceiling:
            piece = destroy_piece(self._namespace, each.owned, ceiling=each.ceiling)
        else:
            piece = destroy_piece(self._namespace, each.owned, silent=True)
        (done,) = self._link.send([piece])
        if done.word == "ALIVE":
            return
        swept = done.swept
        while done.after is not None and time.monotonic() < until_s:
            piece = destroy_piece(self._namespace, each.owned, ceiling=done.ceiling, after=done.after)
            (done,) = self._link.send([piece])
            swept += done.swept
        if done.after is not None:
            # it is this one's own, and need not wait
            left = Found(each.owned, ceiling=done.ceiling)
            self._begun[left] = time.monotonic() - UNSWEPT_S
        tenant = each.owned.tenant.decode(errors="replace")
        why = "went on with the sweep of" if each.ceiling else "its heartbeat stopped: destroyed"
        logger.info(
            "%s owner %s of tenant %s: %d timer%s%s",
            *(why, each.name, tenant, swept, "" if swept == 1 else "s"),
            "" if done.after is None else " so far",
        )
