"""Every Redis key of timerq, one function each.

``ns`` is a namespace, ``t`` a partition's hash tag with its braces (``b"{prod:0}"``), ``id`` a schedule's identity:
tenant NUL key NUL owner, in UTF-8; a lane is written as the owner, or as NUL and the key where there is none. Every key
of a partition starts with its tag, so all of them live in one slot.

==================================  ======  =======================================================================
key                                 type    holds
==================================  ======  =======================================================================
``{ns}:meta``                       hash    layout, schema, clock, partitions, tags, settings: chosen once by `init`
``{ns}:workers``                    zset    dispatcher -> its last heartbeat (ms)
``{t}:meta``                        hash    layout, schema, clock, partition, last version, settings, counters
``{t}:due:<tenant>``                zset    id -> when to look next (ms)
``{t}:heads``                       zset    tenant -> its earliest score
``{t}:sch:<id>``                    hash    the record; its fields: `timerq.commands.record`
``{t}:keys``                        zset    every id, scores 0: a prefix is one range, a count one ZLEXCOUNT
``{t}:own:<tenant NUL owner>``      zset    the ids of that owner, scores 0
``{t}:held``                        zset    id -> how many tries have failed
``{t}:s:<stream>``                  stream  published events
``{t}:streams``                     zset    stream -> when it was last trimmed (ms)
``{t}:wake``                        stream  one entry: "an earlier head has come"
``{t}:log``                         stream  the exceptions: replaced, cancelled, held, dropped, ended ... (capped)
``{t}:req:<session>``               string  the last request's number and reply (ten minutes)
``{t}:once:<tenant NUL lane NUL token>``  hash  idempotent arming: digest of the body, first answer (with a TTL)
``{t}:floor:<tenant NUL owner>``    string  "all versions of this owner up to this are dead"; see `floors`
``{t}:floor:<id>``                  string  the same for one schedule
``{t}:floors``                      zset    what follows ``floor:`` -> when that was left (ms by the server's clock)
``{t}:fired_new``                   list    ids of which an event may be out, and no record tells: a fire's together
``{t}:fired``                       string  the same, from before that: a bitmap by their hashes; see `fired`
``{t}:fired_before``                string  the same, from before that
``{t}:oldest``                      zset    stream -> what its entries are not older than (ms by the server's clock)
``{t}:owners``                      zset    tenant NUL owner -> until when its heartbeat holds (ms); see `owners`
``{t}:set:<tenant NUL set>``        zset    a declared set's ids -> the apply that wrote them; see `declared_set`
``{t}:run:<event id>``              string  the id of the schedule whose handling is waited for (with a TTL)
``{t}:groups``                      zset    stream NUL group -> when somebody last read for it (ms)
``{t}:lease:<stream NUL group>``    zset    entry -> until when (ms) whoever holds it may run it; 0: nobody does
``{t}:retry:<stream NUL group>``    zset    entry -> when it is tried again (ms)
``{t}:hold:<stream NUL group>``     hash    entry -> who holds it: consumer, delivery, attempt, first failure, event
``{t}:reader:<stream NUL group>``   string  who alone reads for an ordered group, and the epoch (with a TTL)
``{t}:sharers:<stream NUL group>``  zset    consumer of an ordered group -> until when it is counted (ms; with a TTL)
``{t}:dead:<stream NUL group>``     stream  dead letters: the event's fields, the error, and what came before it
``{t}:mark:<tenant NUL token>``     string  until when (ms) an effect counts as done (with a TTL)
``{t}:bound:<stream>``              hash    a bounded stream's counters, and how far it is counted anew
``{t}:backlog:<stream NUL group>``  hash    tenant NUL lane -> how many of its events wait; under the empty name, of all
``{t}:recount:<stream NUL group>``  hash    the same, while it is counted anew
``{t}:parked:<stream>``             zset    lanes for whose room something waits (empty: the stream's) -> when looked at
``{t}:waiting:<stream NUL lane>``   zset    ids of what waits for that -> when it was due (ms)
``{t}:never``                       none    nothing, ever: see `never`
==================================  ======  =======================================================================
"""

from __future__ import annotations

import binascii
import zlib

NUL = b"\x00"
SLOTS = 16_384
LEX_END = b"\xff"
"""Follows every UTF-8 byte, so ``prefix + LEX_END`` ends the range of a prefix."""


def namespace_meta(ns: str) -> bytes:
    """The hash that every process reads first."""
    return b"{%b}:meta" % ns.encode()


def workers(ns: str) -> bytes:
    """The heartbeats of the dispatchers."""
    return b"{%b}:workers" % ns.encode()


def meta(t: bytes) -> bytes:
    """KEYS[1] of every script of a partition."""
    return t + b":meta"


def due(t: bytes, tenant: bytes) -> bytes:
    """A tenant's pending ids by the instant to look next."""
    return t + b":due:" + tenant


def heads(t: bytes) -> bytes:
    """The tenants by their earliest pending instant."""
    return t + b":heads"


def record(t: bytes, id: bytes) -> bytes:
    """One schedule."""
    return t + b":sch:" + id


def identity_of(record: bytes) -> bytes:
    """The id in a record's key."""
    return record.partition(b"}:sch:")[2]


def index(t: bytes) -> bytes:
    """Every id of the partition, in key order."""
    return t + b":keys"


def owner_index(t: bytes, tenant: bytes, owner: bytes) -> bytes:
    """Every id of one owner, in key order."""
    return t + b":own:" + tenant + NUL + owner


def held(t: bytes) -> bytes:
    """The ids that could not be fired."""
    return t + b":held"


def stream(t: bytes, name: bytes) -> bytes:
    """Published events, oldest first."""
    return t + b":s:" + name


def streams(t: bytes) -> bytes:
    """The names of the partition's streams."""
    return t + b":streams"


def wake(t: bytes) -> bytes:
    """What sleeping dispatchers listen to."""
    return t + b":wake"


def log(t: bytes) -> bytes:
    """The exceptions, capped."""
    return t + b":log"


def request(t: bytes, session: bytes) -> bytes:
    """The memory of one session's last request."""
    return t + b":req:" + session


def once(t: bytes, tenant: bytes, key: bytes, owner: bytes, token: bytes) -> bytes:
    """The memory of an idempotency key of a lane: the owner, or the key where there is none (never mixed up)."""
    return t + b":once:" + tenant + NUL + (owner or NUL + key) + NUL + token


def owner_floor(t: bytes, tenant: bytes, owner: bytes) -> bytes:
    """The version up to which everything of an owner is dead."""
    return t + b":floor:" + tenant + NUL + owner


def id_floor(t: bytes, id: bytes) -> bytes:
    """The version up to which everything of one schedule is dead."""
    return t + b":floor:" + id


def floors(t: bytes) -> bytes:
    """When each floor was left.

    A floor has no TTL: it stays until twice the retention has passed *and* every entry that is older, by more than the
    retention, has gone from the partition's streams (but ``errors``, whose reports no floor touches): a group that is
    behind, or one that is made later, could still be handed it. (By more than the retention: a server's clock that is
    set back leaves the ids of entries ahead of it.) While a destroyed owner is not swept to the end, none goes.
    trim.lua takes them away. Dead letters do not hold them: whoever replays one after that wants it to be handled.
    """
    return t + b":floors"


def fired_new(t: bytes) -> bytes:
    """The ids of what has fired and gone, as fire.lua writes them down; trim.lua and cancels mark them in `fired`."""
    return t + b":fired_new"


def fired(t: bytes) -> bytes:
    """Of which ids an event may be on a stream though no record tells: a bitmap by a hash of them.

    Who cancels a one-shot that was armed anew leaves a floor where its bit is set: the event of the time before may be
    unread. A bit set for another id costs no more than an idle floor. It begins with 128 KiB, and is followed by one of
    up to 2 MiB where it was filled by more than an eighth. It becomes `fired_before` as soon as the events of which
    that tells have left the streams, and not before twice the retention.
    """
    return t + b":fired"


def fired_before(t: bytes) -> bytes:
    """What `fired` was before."""
    return t + b":fired_before"


def oldest(t: bytes) -> bytes:
    """How old the oldest entry of each stream is at the most, as trim.lua last saw it."""
    return t + b":oldest"


def owners(t: bytes) -> bytes:
    """The owners that have a heartbeat, by the time (ms) at which they are destroyed unless they are heard before.

    An owner whose sweep has begun and not yet ended is in it too: with one more NUL behind it, and its floor as a
    negative number, so that both kinds are found by their scores and a new incarnation can live meanwhile.
    """
    return t + b":owners"


def declared_set(t: bytes, tenant: bytes, label: bytes) -> bytes:
    """The ids that a declared set may hold, and under the empty id the latest `apply` of it that was announced.

    Each is scored by the generation of the apply that wrote it. The records' labels are the truth; this is where to
    look for them.
    """
    return t + b":set:" + tenant + NUL + label


def run(t: bytes, event_id: bytes) -> bytes:
    """Whose event it is that has to be handled before something goes on."""
    return t + b":run:" + event_id


def groups(t: bytes) -> bytes:
    """The groups that read here, as stream NUL group."""
    return t + b":groups"


def lease(t: bytes, stream: bytes, group: bytes) -> bytes:
    """Until when each event that a group's consumers were handed is theirs."""
    return t + b":lease:" + stream + NUL + group


def retry(t: bytes, stream: bytes, group: bytes) -> bytes:
    """The events that wait to be tried again; they stay in the group's pending list."""
    return t + b":retry:" + stream + NUL + group


def hold(t: bytes, stream: bytes, group: bytes) -> bytes:
    """Who holds each pending event: the fence of what is said of it."""
    return t + b":hold:" + stream + NUL + group


def reader(t: bytes, stream: bytes, group: bytes) -> bytes:
    """The lease of an ordered group's only reader."""
    return t + b":reader:" + stream + NUL + group


def sharers(t: bytes, stream: bytes, group: bytes) -> bytes:
    """The consumers of an ordered group that share the leads of its partitions."""
    return t + b":sharers:" + stream + NUL + group


def dead(t: bytes, stream: bytes, group: bytes) -> bytes:
    """What a group has given up."""
    return t + b":dead:" + stream + NUL + group


def mark(t: bytes, tenant: bytes, token: bytes) -> bytes:
    """That an effect has happened."""
    return t + b":mark:" + tenant + NUL + token


def bound(t: bytes, stream: bytes) -> bytes:
    """What is kept of a bounded stream besides its counts."""
    return t + b":bound:" + stream


def backlog(t: bytes, stream: bytes, group: bytes) -> bytes:
    """How many events wait, by lane."""
    return t + b":backlog:" + stream + NUL + group


def recount(t: bytes, stream: bytes, group: bytes) -> bytes:
    """The same, while it is counted anew."""
    return t + b":recount:" + stream + NUL + group


def parked(t: bytes, stream: bytes) -> bytes:
    """The lanes for whose room something waits; the empty one stands for the stream."""
    return t + b":parked:" + stream


def waiting(t: bytes, stream: bytes, lane: bytes) -> bytes:
    """What waits for room in a lane (tenant NUL its name), or on the stream (empty)."""
    return t + b":waiting:" + stream + NUL + lane


def never(t: bytes) -> bytes:
    """A key that is never made, declared by scripts that touch keys which they cannot declare.

    While a Cluster's slot moves, part of its keys lies here and part there, and on the importing node a key that has
    not come yet looks like one that is not: a script would take a pending schedule for an orphan. A declared key that
    is missing makes both nodes answer TRYAGAIN instead, until the slot has moved.
    """
    return t + b":never"


def identity(tenant: bytes, key: bytes, owner: bytes) -> bytes:
    """A schedule's id; none of the parts holds a NUL."""
    return tenant + NUL + key + NUL + owner


def split_identity(id: bytes) -> tuple[str, str, str]:
    """The (tenant, key, owner) of an id."""
    tenant, key, owner = id.split(NUL)
    return tenant.decode(), key.decode(), owner.decode()


def partition_of(tenant: bytes, lane: bytes, partitions: int) -> int:
    """The partition of a lane (its owner, or its key where there is no owner)."""
    return zlib.crc32(tenant + NUL + lane) % partitions if partitions > 1 else 0


def slot(tag: bytes) -> int:
    """The Cluster slot of a hash tag without braces: CRC16-XMODEM, as the Redis Cluster specification has it."""
    return binascii.crc_hqx(tag, 0) % SLOTS


def choose_tags(ns: str, partitions: int) -> list[str]:
    """One hash tag for each partition, evenly over the slots: partition p's slot lies in the p-th of equal parts.

    Chosen once when a namespace is made and read from ``{ns}:meta`` ever after, never computed again.
    """
    tags = []
    for p in range(partitions):
        low, high = p * SLOTS // partitions, (p + 1) * SLOTS // partitions
        attempt = 0
        while True:
            tag = f"{ns}:{p}" if attempt == 0 else f"{ns}:{p}-{attempt}"
            if low <= slot(tag.encode()) < high:
                break
            attempt += 1
        tags.append(tag)
    return tags
