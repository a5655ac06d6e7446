"""page.lua, agenda.lua, count.lua, read.lua: pages that stay right while schedules come and go."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support.partition import EVENT, NOW, Partition
from timerq import Event, Upsert
from timerq.commands import read, upsert
from timerq.commands.items import many
from timerq.embedded import EmbeddedRedis

ODD_KEYS = [
    "a",
    "B",
    "Z",
    "_",
    "a*",
    "a?",
    "[a]",
    "a\\",
    "é",
    "É",
    "ab",
    "aB",
    "a b",
    "10",
    "9",
    "\x7f",
    "\x01",
    "🎉",
    "zz",
]


def fill(partition: Partition, keys: list[str], **words: Any) -> None:
    words = words or {"delay": 100}
    items = [Upsert(key, EVENT, **words) for key in keys]
    partition.run(many(partition.scope, lambda thing: upsert.item(partition.scope, thing), items))


def pages(partition: Partition, limit: int, prefix: str = "") -> list[list[str]]:
    found, cursor = [], None
    while True:
        page = partition.run(read.list_page(partition.scope, prefix, None, cursor, limit))
        found.append([schedule.key for schedule in page.items])
        if (cursor := page.cursor) is None:
            return found


def agenda(partition: Partition, limit: int, **words: Any) -> list[list[str]]:
    found, place = [], None
    first, last = words.get("first"), words.get("last")
    while True:
        items, place = partition.run(read.due_page(partition.scope, first, last, place, limit))
        found.append([schedule.key for schedule in items])
        if place is None:
            return found


def flat(lists: list[list[str]]) -> list[str]:
    return [key for keys in lists for key in keys]


@pytest.mark.parametrize("partitions", [1, 7])
@pytest.mark.parametrize("limit", [1, 2, 7, 18, 19, 20, 200])
def test_pages_are_in_the_order_of_bytes_and_whole(client: Any, partitions: int, limit: int) -> None:
    partition = Partition(client, partitions=partitions)
    fill(partition, ODD_KEYS)
    found = pages(partition, limit)
    assert flat(found) == sorted(ODD_KEYS, key=str.encode)
    assert all(len(page) == limit for page in found[:-1])
    assert flat(agenda(partition, limit)) == sorted(ODD_KEYS, key=str.encode)
    for key in ODD_KEYS:
        expected = sorted((k for k in ODD_KEYS if k.startswith(key)), key=str.encode)
        assert flat(pages(partition, limit, key)) == expected
        assert partition.run(read.count(partition.scope, key)) == len(expected)


@pytest.mark.parametrize("partitions", [1, 7])
def test_a_page_is_right_while_keys_come_and_go(client: Any, partitions: int) -> None:
    partition = Partition(client, partitions=partitions)
    stay = [f"stay{i:03}" for i in range(60)]
    come_and_go = [f"stay{i:03}x" for i in range(60)]
    fill(partition, stay + come_and_go)
    luck = random.Random(5)
    for list_pages in (pages, agenda):
        assert set(flat(list_pages(partition, 7))) >= set(stay)
    found: list[str] = []
    cursor = None
    while True:
        page = partition.run(read.list_page(partition.scope, "", None, cursor, 7))
        found += [schedule.key for schedule in page.items]
        for key in luck.sample(come_and_go, 10):
            if luck.random() < 0.5:
                partition.cancel(key)
            else:
                fill(partition, [key])
        if (cursor := page.cursor) is None:
            break
    assert len(found) == len(set(found))
    assert [key for key in found if len(key) == 7] == stay


def test_a_due_page_is_right_while_others_in_its_millisecond_come_and_go(partition: Partition) -> None:
    stay = [f"{i:04}" for i in range(0, 400, 2)]
    fill(partition, [f"{i:04}" for i in range(400)])
    luck = random.Random(7)
    found: list[str] = []
    place = None
    while True:
        items, place = partition.run(read.due_page(partition.scope, None, None, place, 9))
        found += [schedule.key for schedule in items]
        for i in luck.sample(range(1, 400, 2), 20):
            partition.cancel(f"{i:04}")
        if place is None:
            break
    assert len(found) == len(set(found))
    assert [key for key in found if int(key) % 2 == 0] == stay


def test_thousands_in_one_millisecond_are_paged_in_bounded_steps(partition: Partition) -> None:
    keys = [f"{i:05}" for i in range(5000)]
    fill(partition, keys)
    fill(partition, ["later"], delay=101)
    fill(partition, ["before"], delay=99)
    assert flat(agenda(partition, 200)) == ["before", *keys, "later"]
    assert flat(agenda(partition, 200, first=NOW + 101)) == ["later"]
    assert flat(agenda(partition, 200, last=NOW + 99)) == ["before"]
    assert flat(agenda(partition, 200, first=NOW + 100, last=NOW + 100)) == keys
    for after in (b"acme\x0004999\x00", b"acme\x0004999\x01", b"acme\x0004998\x00\x00"):
        items, _ = partition.run(read.due_page(partition.scope, None, None, (NOW + 100, after), 3))
        assert [schedule.key for schedule in items] == (["04999", "later"] if b"4998" in after else ["later"])


def test_a_due_page_shows_what_is_looked_at_next_and_never_paused_ones(partition: Partition) -> None:
    fill(partition, ["a", "b", "c"], delay=5)
    partition.edit("pause", "b")
    assert flat(agenda(partition, 10)) == ["a", "c"]
    assert flat(pages(partition, 10)) == ["a", "b", "c"]


def test_a_tenant_sees_its_own_and_an_owner_is_no_prefix(partition: Partition) -> None:
    other = partition.of("acm")
    partition.upsert("k", owner="o", delay=5)
    partition.upsert("k", owner="ox", delay=5)
    partition.upsert("k", delay=5, scope=other)
    for scope, owner, expected in (
        (partition.scope, None, 2),
        (partition.scope, "o", 1),
        (other, None, 1),
        (other, "o", 0),
    ):
        assert partition.run(read.count(scope, "", owner)) == expected
        assert len(partition.run(read.list_page(scope, "", owner)).items) == expected


def test_a_cursor_never_leads_outside_its_prefix(partition: Partition) -> None:
    fill(partition, ["a1", "b1", "b2", "c1"])
    for key, expected in (("a1", ["b1", "b2"]), ("b1", ["b2"]), ("c1", [])):
        cursor = read.encode_cursor(f"acme\0{key}\0".encode())
        page = partition.run(read.list_page(partition.scope, "b", None, cursor, 5))
        assert [schedule.key for schedule in page.items] == expected


@pytest.mark.parametrize("partitions", [1, 3])
def test_pages_of_large_records_are_bounded_and_whole(client: Any, partitions: int) -> None:
    partition = Partition(client, partitions=partitions)
    large = Event("t", "x" * 65_000)
    for i in range(15):
        partition.upsert(f"k{i:02}", large, delay=5)
    found = pages(partition, 200)
    assert flat(found) == [f"k{i:02}" for i in range(15)]
    if partitions == 1:
        assert max(map(len, found)) <= 6
    assert flat(agenda(partition, 200)) == flat(found)


def test_a_record_that_cannot_be_read_hides_no_other(partition: Partition) -> None:
    fill(partition, ["a", "b", "c", "d"])
    partition.client.hset(partition.record_key("b"), "s", "rubbish")
    partition.client.delete(partition.record_key("c"))
    partition.client.rpush(partition.record_key("c"), "not a record")
    assert flat(pages(partition, 2)) == ["a", "d"]
    assert flat(agenda(partition, 2)) == ["a", "d"]


def test_the_order_of_pages_is_not_the_servers_locale(
    make_redis: Callable[..., EmbeddedRedis], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lua compares texts by the locale's alphabet, sorted sets by their bytes."""
    localedef = shutil.which("localedef")
    made = localedef and subprocess.run(
        [localedef, "-i", "en_US", "-f", "UTF-8", tmp_path / "en_US.UTF-8"], capture_output=True
    )
    if not made or not (tmp_path / "en_US.UTF-8").exists():
        pytest.skip("this machine cannot make a locale")
    monkeypatch.setenv("LOCPATH", str(tmp_path))
    monkeypatch.setenv("LC_ALL", "en_US.UTF-8")
    with redis.Redis.from_url(make_redis().url) as client:
        assert client.eval("return 'a' < 'B' and 1 or 0", 0) == 1, "the locale has not taken"
        partition = Partition(client)
        fill(partition, ODD_KEYS)
        for limit in (1, 2, 5):
            assert flat(agenda(partition, limit)) == sorted(ODD_KEYS, key=str.encode)
