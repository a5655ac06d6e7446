"""keys.py: every key in its slot, partitions spread evenly, ids taken apart as they were made."""

from __future__ import annotations

import inspect
import re
import zlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timerq import keys

TAG = b"{prod:3}"
TEXT = st.text(min_size=1).filter(lambda text: "\0" not in text and text.isprintable())


def test_every_key_of_a_partition_starts_with_its_tag_and_is_in_the_table() -> None:
    table = keys.__doc__ or ""
    made = {
        "{t}:meta": keys.meta(TAG),
        "{t}:due:<tenant>": keys.due(TAG, b"acme"),
        "{t}:heads": keys.heads(TAG),
        "{t}:sch:<id>": keys.record(TAG, b"acme\0k\0"),
        "{t}:keys": keys.index(TAG),
        "{t}:own:<tenant NUL owner>": keys.owner_index(TAG, b"acme", b"o"),
        "{t}:held": keys.held(TAG),
        "{t}:s:<stream>": keys.stream(TAG, b"events"),
        "{t}:streams": keys.streams(TAG),
        "{t}:wake": keys.wake(TAG),
        "{t}:log": keys.log(TAG),
        "{t}:req:<session>": keys.request(TAG, b"s"),
        "{t}:once:<tenant NUL lane NUL token>": keys.once(TAG, b"acme", b"k", b"", b"token"),
        "{t}:floor:<tenant NUL owner>": keys.owner_floor(TAG, b"acme", b"o"),
        "{t}:floor:<id>": keys.id_floor(TAG, b"acme\0k\0"),
        "{t}:floors": keys.floors(TAG),
        "{t}:fired_new": keys.fired_new(TAG),
        "{t}:fired": keys.fired(TAG),
        "{t}:fired_before": keys.fired_before(TAG),
        "{t}:oldest": keys.oldest(TAG),
        "{t}:owners": keys.owners(TAG),
        "{t}:set:<tenant NUL set>": keys.declared_set(TAG, b"acme", b"jobs"),
        "{t}:run:<event id>": keys.run(TAG, b"3-5-1"),
        "{t}:groups": keys.groups(TAG),
        "{t}:lease:<stream NUL group>": keys.lease(TAG, b"events", b"g"),
        "{t}:retry:<stream NUL group>": keys.retry(TAG, b"events", b"g"),
        "{t}:hold:<stream NUL group>": keys.hold(TAG, b"events", b"g"),
        "{t}:reader:<stream NUL group>": keys.reader(TAG, b"events", b"g"),
        "{t}:sharers:<stream NUL group>": keys.sharers(TAG, b"events", b"g"),
        "{t}:dead:<stream NUL group>": keys.dead(TAG, b"events", b"g"),
        "{t}:mark:<tenant NUL token>": keys.mark(TAG, b"acme", b"token"),
        "{t}:bound:<stream>": keys.bound(TAG, b"events"),
        "{t}:backlog:<stream NUL group>": keys.backlog(TAG, b"events", b"g"),
        "{t}:recount:<stream NUL group>": keys.recount(TAG, b"events", b"g"),
        "{t}:parked:<stream>": keys.parked(TAG, b"events"),
        "{t}:waiting:<stream NUL lane>": keys.waiting(TAG, b"events", b"acme\0k"),
        "{t}:never": keys.never(TAG),
    }
    for pattern, key in made.items():
        assert f"``{pattern}``" in table
        assert key.startswith(TAG + b":" + pattern[4:].partition("<")[0].encode())
    assert len({*made.values()}) == len(made)
    rows = re.findall(r"^``(\{t\}[^`]+)``", table, re.MULTILINE)
    assert sorted(rows) == sorted(made)
    assert keys.namespace_meta("prod") == b"{prod}:meta"
    assert keys.workers("prod") == b"{prod}:workers"


def test_an_owners_floor_is_no_schedules_floor() -> None:
    assert keys.owner_floor(TAG, b"t", b"o") != keys.id_floor(TAG, keys.identity(b"t", b"o", b""))


@given(TEXT, TEXT, st.just("") | TEXT)
def test_an_identity_reads_as_what_it_was_made_of(tenant: str, key: str, owner: str) -> None:
    id = keys.identity(tenant.encode(), key.encode(), owner.encode())
    assert keys.split_identity(id) == (tenant, key, owner)


def test_a_cluster_slot_is_that_of_the_specification() -> None:
    assert keys.slot(b"123456789") == 0x31C3  # the example of the Redis Cluster specification
    assert keys.slot(b"foo") == 12182


def test_a_partition_is_the_crc_of_tenant_and_lane() -> None:
    assert keys.partition_of(b"t", b"lane", 7) == zlib.crc32(b"t\0lane") % 7
    assert keys.partition_of(b"t", b"lane", 1) == 0
    spread = Counter(keys.partition_of(b"t", b"order-%d" % i, 7) for i in range(7000))
    assert min(spread.values()) > 850
    assert max(spread.values()) < 1150


@pytest.mark.parametrize("partitions", [1, 2, 3, 6, 7, 16, 100, 1024])
def test_tags_spread_evenly_over_the_slots(partitions: int) -> None:
    tags = keys.choose_tags("prod", partitions)
    assert len(set(tags)) == partitions
    for p, tag in enumerate(tags):
        assert p * keys.SLOTS // partitions <= keys.slot(tag.encode()) < (p + 1) * keys.SLOTS // partitions
        assert tag == f"prod:{p}" or re.fullmatch(rf"prod:{p}-[0-9]+", tag)
    for masters in (2, 3, 6):
        held = Counter(keys.slot(tag.encode()) * masters // keys.SLOTS for tag in tags)
        # a partition whose part lies across two masters may be on either
        assert max(held.values()) - min(held[m] for m in range(masters)) <= (
            0 if partitions % masters == 0 else 2
        )


def test_tags_are_the_same_each_time() -> None:
    assert keys.choose_tags("prod", 12) == keys.choose_tags("prod", 12)
    assert not set(keys.choose_tags("prod", 3)) & set(keys.choose_tags("test", 3))


@given(
    st.text(alphabet="ab\x7f\u00e9\u20ac\U0010ffff", max_size=4),
    st.text(alphabet="ab\u00e9\U0010ffff", max_size=3),
)
def test_the_end_of_a_prefix_range_is_behind_every_key_of_it(prefix: str, rest: str) -> None:
    assert prefix.encode() <= (prefix + rest).encode() < prefix.encode() + keys.LEX_END


def test_every_function_is_documented() -> None:
    for name, value in vars(keys).items():
        if inspect.isfunction(value):
            assert value.__doc__, name
