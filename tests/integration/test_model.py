"""Random verbs of two tenants against a plain model: after each step the whole state of Redis is the model's.

Time is a manual clock; any reply may be lost and its command sent again; old requests arrive late; streams break and
records are spoilt; calendars answer late, twice, or not at all; events are handed out, handled, fail, are tried again,
given up or forgotten, by several groups; owners are destroyed piece by piece.

The model is tests/support/model.py, the rules are in model_rules_*.py there, and what must hold after each step is in
model_check.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fakeredis
import hypothesis.strategies as st
import pytest
import redis
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import rule, run_state_machine_as_test

from tests.support.model_check import Checked
from tests.support.model_wishes import actions
from timerq.embedded import EmbeddedRedis


class Machine(Checked):
    """The queue on one side, the model on the other."""

    @rule(history=st.lists(actions, min_size=4, max_size=12))
    def go_on(self, history: list[tuple[str, dict[str, Any]]]) -> None:
        for name, given in history:
            getattr(self, name)(**given)
            self.the_whole_state_is_the_models()


SETTINGS = settings(
    stateful_step_count=20,
    deadline=None,
    print_blob=True,
    phases=[Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
SCALE = settings().max_examples / 100  # of the profile; see CONTRIBUTING.md

# A failure is made small before it is shown, which takes up to five minutes.
pytestmark = pytest.mark.timeout(900 * SCALE)


def run(client: Callable[[], Any], partitions: int, examples: float, name: str) -> None:
    machine = type("Run", (Machine,), {"partitions": partitions, "client": staticmethod(client)})
    if settings().derandomize:
        machine = seed(name)(machine)  # the same ones each time, but others on each server
    run_state_machine_as_test(
        machine, settings=settings(SETTINGS, max_examples=max(1, round(examples * SCALE)))
    )


@pytest.mark.parametrize(("partitions", "examples"), [(1, 10), (7, 5)])
def test_any_history_is_the_models_on_fakeredis(
    partitions: int, examples: int, request: pytest.FixtureRequest
) -> None:
    run(
        lambda: fakeredis.FakeRedis(server=fakeredis.FakeServer(version=(7,))),
        partitions,
        examples,
        request.node.name,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("partitions", "examples"), [(1, 220), (7, 110)])
def test_any_history_is_the_models(
    redis_server: EmbeddedRedis, partitions: int, examples: int, request: pytest.FixtureRequest
) -> None:
    """The servers share the examples, however many there are."""
    mine = [item for item in request.session.items if item.name.startswith(f"{request.function.__name__}[")]
    with redis.Redis.from_url(redis_server.url) as client:
        run(lambda: client, partitions, 2 * examples / len(mine), request.node.name)
