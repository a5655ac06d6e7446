"""A schedule in the words that ask for it, and which of them differ between a stored one and a wanted one."""

from __future__ import annotations

from typing import Any, NamedTuple

from timerq import codec
from timerq.model import Event, Policy, Rule, Timing, to_datetime
from timerq.timing.texts import exact

_UNBOUNDED = 2**40

USUAL: dict[str, Any] = {
    "timezone": "UTC",
    "dst_gap": "shift",
    "dst_overlap": "first",
    "misfire": "fire_once",
    "overlap": "allow",
    "fixed_delay": False,
    "event.stream": "events",
    "event.codec": "msgpack",
    "event.payload": None,
}
"""What a word is where it is not given."""


class Difference(NamedTuple):
    """A word that is ``old`` in what is stored and ``new`` in what is wanted; None where it is not there."""

    word: str
    old: Any
    new: Any


def words_of(event: Event, timing: Timing) -> dict[str, Any]:
    """The words of a schedule: durations and instants as texts, what is not given left out.

    The event's stand behind ``event.``, and so does its payload, which is any value.
    """
    rule = timing.rule or Rule()
    words: dict[str, Any] = {}
    if rule.cron:
        words["cron"] = _one_or_many(rule.cron)
        words["timezone"] = rule.timezone
        words["dst_gap"] = rule.dst_gap
        words["dst_overlap"] = rule.dst_overlap
        words["exclude"] = _one_or_many(rule.exclude)
    elif timing.kind == "every":
        words["every"] = _duration(timing.every_ms)
        words["initial_delay"] = _duration(timing.initial_delay_ms)
        words["anchor"] = "clock" if rule.anchor_ms == 0 else _instant(rule.anchor_ms)
    else:
        words["at"] = _instant(timing.at_ms)
        words["delay"] = _duration(timing.delay_ms)
    words["jitter"] = _duration(rule.jitter_ms or None)
    words["start"] = _instant(timing.start_ms)
    words["until"] = _instant(timing.until_ms)
    words["limit"] = timing.limit
    if timing.kind != "once":
        words |= _policy_words(timing.policy or Policy())
    words["event.type"] = event.type
    words["event.payload"] = event.payload
    words["event.stream"] = event.stream
    words["event.correlation"] = dict(event.correlation) if event.correlation else None
    words["event.codec"] = event.codec
    return {word: value for word, value in words.items() if value is not None or word == "event.payload"}


def told(words: dict[str, Any]) -> dict[str, Any]:
    """Those that are worth telling: all but the usual ones."""
    return {word: value for word, value in words.items() if word not in USUAL or value != USUAL[word]}


def differences(old: dict[str, Any], new: dict[str, Any]) -> tuple[Difference, ...]:
    """The words that differ, in the order of `words_of`."""
    order = [*new, *(word for word in old if word not in new)]
    return tuple(
        Difference(word, old.get(word, USUAL.get(word)), new.get(word, USUAL.get(word)))
        for word in order
        if not _same(word, old, new)
    )


def _same(word: str, old: dict[str, Any], new: dict[str, Any]) -> bool:
    if word != "event.payload":
        return bool(old.get(word, USUAL.get(word)) == new.get(word, USUAL.get(word)))
    # by their bytes: True is 1 to Python, but not to who reads the event
    return _encoded(old) == _encoded(new)


def _encoded(words: dict[str, Any]) -> bytes:
    return codec.encode(words.get("event.payload"), words["event.codec"], limit_bytes=_UNBOUNDED)[1]


def _policy_words(policy: Policy) -> dict[str, Any]:
    waits = policy.fixed_delay and policy.ack_group is not None
    tracked = policy.overlap != "allow" or waits or policy.pause_after is not None
    return {
        "misfire": policy.misfire,
        "grace": _duration(policy.grace_ms) if policy.misfire == "skip" else None,
        "max_catch_up": policy.max_catch_up if policy.misfire == "catch_up" else None,
        "overlap": policy.overlap,
        "ack_group": policy.ack_group,
        "running_timeout": _duration(policy.running_timeout_ms) if tracked else None,
        "fixed_delay": policy.fixed_delay,
        "pause_after": policy.pause_after,
    }


def _one_or_many(texts: tuple[str, ...]) -> str | list[str] | None:
    return texts[0] if len(texts) == 1 else list(texts) or None


def _duration(ms: int | None) -> str | None:
    return None if ms is None else exact(ms)


def _instant(ms: int | None) -> str | None:
    if ms is None:
        return None
    parts = "milliseconds" if ms % 1000 else "seconds"
    return to_datetime(ms).isoformat(timespec=parts).replace("+00:00", "Z")
