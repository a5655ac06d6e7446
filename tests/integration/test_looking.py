"""Looking makes nothing: the number of partitions is chosen for good, and not by who only asks."""

from __future__ import annotations

import pytest

from timerq import Event, InvalidSchedule, Page, TimerQueue


def test_a_namespace_that_is_not_there_reads_as_empty(redis_url, redis_client):
    with TimerQueue.connect(redis_url, namespace="typo") as queue:
        assert queue.get("k") is None
        assert queue.count() == 0
        assert list(queue.list()) == []
        assert list(queue.list(due_to="2030-01-01T00:00:00Z")) == []
        assert queue.list_page() == Page([], None)
        assert (queue.stats().schedules, queue.stats().partitions) == (0, 0)
        with pytest.raises(InvalidSchedule):
            queue.get("")
        assert redis_client.keys() == []
        queue.init(partitions=3)
        assert queue.upsert("k", Event("t"), delay="1h").version
        assert queue.count() == 1
