"""What the model test wishes for: the strategies of its schedules, and the table of what may happen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st

from tests.support.model_words import Definition
from timerq import Event, Upsert
from timerq.model import Policy, Rule, State

START = 1_750_000_000_000
TENANTS = ["A", "B"]
KEYS = ["a", "a*", "ab", "é:1", "b"]
OWNERS = ["", "o", "o1"]
POOL = [(tenant, key, owner) for key in KEYS for tenant in TENANTS for owner in OWNERS]
STATES = {"a": State.ARMED, "c": State.CLAIMED, "h": State.HELD, "p": State.PAUSED}
WORDS = [name for name in Upsert._fields if name not in ("key", "event")]
EVENTS = [
    Event("t", {"n": 1}),
    Event("t", {"n": 1, "l": [], "é": 1.5}, codec="json", correlation={"trace": "1", "é": "ü"}),
    Event("u", b"x" * 100, stream="audit"),
    Event("v", "y" * 230, stream="bad"),
    Event("w", stream="bad"),
]
CRONS: dict[tuple[str, ...], int] = {
    ("* * * * * *",): 1000,
    ("*/5 * * * * *",): 5000,
    ("0,30 * * * * *", "15-45/30 * * * * *"): 15_000,
}
"""Expressions, and how far (ms) the instants that they name lie apart."""

who = st.integers(0, 63)  # see Machine.id
events = st.sampled_from(EVENTS)
rarely = st.integers(0, 7).map(lambda n: n == 7)
offsets = st.sampled_from([-5000, -1, 0, 1, 2, 10, 250, 1000, 5000, 40_000])
intervals = st.sampled_from([1, 7, 250, 1000, 5000])
fences = st.sampled_from([None] * 9 + ["current", "current", "none", "stale"])
callers = st.sampled_from([None, None, "ann", "é"])


@st.composite
def wishes(draw: Any, kind: str | None = None) -> dict[str, Any]:
    """The words of an upsert; instants as offsets from now."""
    kind = kind or draw(st.sampled_from("ooec"))
    wish: dict[str, Any] = {"who": draw(who), "event": draw(events), "kind": kind, "fence": draw(fences)}
    wish["paused"] = draw(st.sampled_from([None] * 4 + [True, False]))
    wish["token"] = draw(st.sampled_from([None] * 8 + ["x", "y"]))
    wish["incarnation"] = draw(st.sampled_from([None] * 6 + ["old", "new", "handle", "handle"]))
    wish["mode"] = draw(st.sampled_from(["replace"] * 4 + ["keep"]))
    wish["by"] = draw(callers)
    if kind == "o":
        if draw(st.booleans()):
            wish["at"] = draw(offsets)
        else:
            wish["delay"] = draw(offsets.map(abs))
        wish["mode"] = draw(st.sampled_from(["replace"] * 3 + ["keep", "earliest", "latest"]))
        wish["max_wait"] = draw(st.sampled_from([None] * 3 + [0, 300, 2000]))
        return wish
    wish["restart"], wish["reset"] = draw(rarely), draw(rarely)
    wish["policy"] = draw(policies())
    ends = [3000, 20_000] if "fixed_delay" in wish["policy"] else [None] * 4 + [500, 3000, 20_000, 60_000]
    wish["until"] = draw(st.sampled_from([None, *ends]))
    wish["limit"] = draw(st.sampled_from([None] * 4 + [1, 2, 5]))
    if kind == "c":
        wish["cron"] = draw(st.sampled_from([None, None, *CRONS]))
        wish["timezone"] = draw(st.sampled_from([None, "Asia/Kathmandu"]))
        wish["policy"] |= draw(catch_ups)
        # what a client that believes it is earlier says, and one that cannot tell what comes behind the first
        wish["behind"] = draw(st.sampled_from([0] * 5 + [1, 6000]))
        wish["following"] = draw(st.sampled_from([None] * 5 + ["-", "0"]))
    wish["every"] = draw(intervals) if wish.get("cron") is None else CRONS[wish["cron"]]
    start = draw(st.sampled_from(["", "", "start", "initial", "anchor"]))
    if start in ("start", "anchor"):
        wish[start] = draw(offsets)
    elif start == "initial":
        wish["initial"] = draw(offsets.map(abs))
    return wish


@st.composite
def policies(draw: Any) -> dict[str, Any]:
    """The words that say what is to wait for what."""
    style = draw(st.sampled_from(["", "", "skip", "queue", "queue", "failures", "delay", "delay"]))
    if not style:
        return {}
    words: dict[str, Any] = {
        "ack_group": draw(st.sampled_from([None, "g", "g"])),
        "running_timeout": draw(st.sampled_from([None, 300, 2000, 20_000])),
        "pause_after": draw(st.sampled_from([1, 2] if style == "failures" else [None, None, 1, 2])),
    }
    if style == "delay":
        if words["ack_group"] is None and words["pause_after"] is None:
            del words["running_timeout"]
        return words | {"fixed_delay": True}
    return words if style == "failures" else words | {"overlap": style}


catch_ups: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({"misfire": "fire_once"}),
    st.fixed_dictionaries({"misfire": st.just("skip"), "grace": st.sampled_from([None, 0, 300, 2000])}),
    st.fixed_dictionaries({"misfire": st.just("catch_up"), "max_catch_up": st.sampled_from([None, 1, 2, 3])}),
)


def definition(wish: dict[str, Any], now: int) -> tuple[Definition, dict[str, Any]]:
    """What a recurring wish of now is: for the model, and in the words of an upsert."""
    every, policy, cron = wish["every"], dict(wish["policy"]), wish.get("cron")
    kind = wish["kind"]
    if cron is None and policy.get("misfire") == "fire_once":  # the scripts compute it themselves
        kind = "e"
        del policy["misfire"]
    if kind == "c" or "anchor" in wish or cron is not None:
        policy.pop("fixed_delay", None)
    if policy.keys() >= {"ack_group"} and not (
        policy.get("overlap") or policy.get("fixed_delay") or policy.get("pause_after")
    ):
        policy = {name: word for name, word in policy.items() if name in ("misfire", "grace", "max_catch_up")}
    start = None if wish.get("start") is None else now + wish["start"]
    anchor = None if cron or wish.get("anchor") is None else now + wish["anchor"]
    initial = None if cron else wish.get("initial")
    until = None if wish["until"] is None else max(now + wish["until"], start or 0)
    rule = None
    if cron:
        rule = Rule(cron=cron, timezone=wish["timezone"] or "UTC")
    elif anchor is not None:
        rule = Rule(anchor_ms=anchor % every)
    usual = Policy()
    given = Policy(
        misfire=policy.get("misfire", "fire_once"),
        grace_ms=usual.grace_ms if policy.get("grace") is None else policy["grace"],
        max_catch_up=policy.get("max_catch_up") or usual.max_catch_up,
        overlap=policy.get("overlap", "allow"),
        ack_group=policy.get("ack_group"),
        running_timeout_ms=policy.get("running_timeout") or usual.running_timeout_ms,
        fixed_delay=policy.get("fixed_delay", False),
        pause_after=policy.get("pause_after"),
    )
    window = (until, wish["limit"], start, initial)
    made = Definition(wish["event"], kind, every, window, rule, None if given == usual else given)
    named = {"until": until, "limit": wish["limit"], "start": start, **policy}
    if cron:
        return made, named | {"cron": cron, "timezone": wish["timezone"]}
    return made, named | {"every": every, "initial_delay": initial, "anchor": anchor}


GIVEN: dict[str, st.SearchStrategy[dict[str, Any]]] = {}
WEIGHTED: list[str] = []


def action(weight: int, **given: Any) -> Callable[[Any], Any]:
    """One thing that may happen; hypothesis's own rules are too seldom together in one history."""

    def keep(method: Any) -> Any:
        GIVEN[method.__name__] = st.fixed_dictionaries(given)
        WEIGHTED.extend([method.__name__] * weight)
        return method

    return keep


actions = st.deferred(
    lambda: st.sampled_from(WEIGHTED).flatmap(lambda name: st.tuples(st.just(name), GIVEN[name]))
)
