"""Which signals ask to stop, and which have their way."""

from __future__ import annotations

import signal

from timerq.signals import SAME_S, Heeded


def test_one_that_comes_twice_is_one_and_one_sent_again_is_another() -> None:
    now_s = 7.0
    heeded = Heeded(lambda: now_s)
    assert heeded.heard(signal.SIGTERM) == "first"
    now_s += SAME_S * 0.9
    assert heeded.heard(signal.SIGTERM) == "same"
    assert heeded.heard(signal.SIGINT) == "first"
    now_s += SAME_S * 0.2
    assert heeded.heard(signal.SIGTERM) == "again"
    assert heeded.heard(signal.SIGINT) == "same"
