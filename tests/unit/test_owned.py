"""What a handle of an owner knows of itself."""

from __future__ import annotations

from timerq.commands.owned import Life
from timerq.commands.owner import Destroyed
from timerq.model import Swept


def test_a_beat_that_is_heard_late_brings_no_owner_back() -> None:
    life = Life.of("session-7", "30s")
    life.began(5)
    assert life.beaten(5, None)
    life.ended(Destroyed(Swept(), 9, False))
    assert not life.beaten(5, None)
    assert life.is_gone


def test_a_beat_tells_that_the_owner_is_gone_unless_the_handle_has_begun_anew() -> None:
    life = Life.of("session-7", "30s")
    life.began(5)
    assert not life.beaten(5, 9)
    assert life.is_gone
    life.began(10)
    assert not life.beaten(5, 9)
    assert not life.is_gone
