"""One namespace whose scripts a test calls directly, by what the builders make of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from redis.exceptions import NoScriptError

from tests.support.state import State, check_structure, dump
from timerq import Change, Event, Upsert
from timerq.commands import cancel, edit, recurring, upsert
from timerq.commands.arming import Upserted
from timerq.commands.command import Command, Scope, Steps
from timerq.commands.dispatch import Advance, Fired, advance, fire, fire_all
from timerq.commands.items import Item, gather
from timerq.commands.namespace import open_namespace
from timerq.commands.options import options_of
from timerq.lua import Word
from timerq.model import Timing
from timerq.timing import Planner, plan

NOW = 1_750_000_000_000
EVENT = Event("t", {"n": 1})


class Partition:
    """A namespace, by default of one partition and with a manual clock that shows `now`.

    `raw` sends a command and gives its reply as it came; `ask` reads it; `do` is for items. `seen` collects the status
    words of each script.
    """

    def __init__(
        self, client: Any, *, partitions: int = 1, manual: bool = True, tenant: str = "acme", **settings: Any
    ) -> None:
        self.client = client
        self.manual = manual
        self.now = NOW
        self.seq = 0
        self.session = b"test"
        self.seen: dict[str, set[str]] = defaultdict(set)
        clock = "manual" if manual else "redis"
        self.namespace = self.run(open_namespace("ns", partitions=partitions, clock=clock, **settings))
        self.scope = Scope(self.namespace, tenant, tenant.encode())
        self.tag = self.namespace.tags[0]

    def of(self, tenant: str) -> Scope:
        """The same namespace for another tenant."""
        return Scope(self.namespace, tenant, tenant.encode())

    # ------------------------------------------------------------------------------------------- sending

    def evaluate(self, command: Command[Any]) -> list[bytes]:
        """The words as they are, without a stamp: what a client sends again after a lost reply."""
        try:
            reply = self.client.execute_command("EVALSHA", command.script.sha, *command.words)
        except NoScriptError:
            reply = self.client.execute_command("EVAL", command.script.text, *command.words)
        if command.script.name != "make":
            lines = reply[0].decode().split("\n") if reply else []
            self.seen[command.script.name] |= {line.split(" ")[0] for line in lines[1:]}
        return list(reply)

    def raw(self, command: Command[Any]) -> list[bytes]:
        """A new request."""
        self.seq += 1
        command.stamp(self.session, self.seq, self.now if self.manual else None)
        return self.evaluate(command)

    def ask(self, command: Command[Any]) -> Any:
        """A new request, read."""
        return command.read(self.raw(command))

    def run(self, steps: Steps[Any]) -> Any:
        """A verb of several steps."""
        try:
            commands = next(steps)
            while True:
                commands = steps.send([self.ask(command) for command in commands])
        except StopIteration as done:
            return done.value

    def all(self, items: Sequence[Item[Any]], scope: Scope | None = None) -> list[Any]:
        """One command of these items; a result or an exception each."""
        results: list[Any] = self.ask(gather(scope or self.scope, items))
        return results

    def do(self, item: Item[Any], scope: Scope | None = None) -> Any:
        """One item; raises its exception."""
        (result,) = self.all([item], scope)
        if isinstance(result, Exception):
            raise result
        return result

    # ------------------------------------------------------------------------------------------- verbs

    def upsert(
        self, key: str = "k", event: Event = EVENT, *, scope: Scope | None = None, **words: Any
    ) -> Any:
        """The verb; `incarnation` is an owner handle's, `member` a declared set's."""
        incarnation, member = words.pop("incarnation", None), words.pop("member", None)
        scope = scope or self.scope
        wanted = Upsert(key, event, **words)
        item = upsert.item(scope, wanted, incarnation=incarnation, member=member, now=lambda: self.now)
        return self.do(item, scope)

    def calendar(
        self,
        key: str = "k",
        *,
        at: int,
        following: int | None,
        x: str = '{"cron":"* * * * *"}',
        w: str | None = None,
        o: str | None = None,
        owner: str | None = None,
        **words: Any,
    ) -> Any:
        """A schedule whose instants the scripts cannot compute; its record has x, w and o as given."""
        wanted = Upsert(key, EVENT, owner=owner, **words)
        definition: list[Word] = ["d", "c events m t", "p", b"\xc0", "x", x]
        for name, value in (("w", w), ("o", o)):
            definition += () if value is None else (name, value)
        options = options_of(wanted, Timing("cron"), None, following, None)
        return self.do(upsert._assemble(self.scope, wanted, f"@{at}", options, definition, Upserted))

    def cancel(
        self,
        key: str = "k",
        owner: str | None = None,
        if_version: int | None = None,
        by: str | None = None,
    ) -> Any:
        return self.do(cancel.item(self.scope, key, owner, if_version, by))

    def edit(
        self, verb: Any, key: str = "k", owner: str | None = None, if_version: int | None = None, **more: Any
    ) -> Any:
        """`more` is `by`, `note` and `going`."""
        return self.do(edit.item(self.scope, verb, key, owner, if_version, **more))

    def done(self, event_id: str, error: str | None = None, *, scope: Scope | None = None) -> Change:
        change: Change = self.run(recurring.done(scope or self.scope, event_id, error))
        return change

    def fire(self, *, partition: int = 0, batch: int = 200, lag_ms: int = 0) -> Fired:
        fired: Fired = self.ask(fire(self.namespace, partition, batch=batch, lag_ms=lag_ms))
        return fired

    def advance(self, *steps: Advance, partition: int = 0) -> list[str]:
        answers: list[str] = self.ask(advance(self.namespace, partition, steps))
        return answers

    def drain(self, planner: Planner = plan) -> tuple[int, int]:
        """All that a dispatcher would do now, its calendars asked; how many were published and how many held."""
        fired = self.run(fire_all(self.namespace, planner))
        return fired.published, fired.held

    # ------------------------------------------------------------------------------------------- looking

    def key(self, name: str) -> bytes:
        """A key of the first partition."""
        return self.tag + b":" + name.encode()

    def record(self, key: str = "k", owner: str = "", tenant: str = "acme") -> dict[bytes, bytes]:
        record: dict[bytes, bytes] = self.client.hgetall(self.record_key(key, owner, tenant))
        return record

    def record_key(self, key: str = "k", owner: str = "", tenant: str = "acme") -> bytes:
        return self.key(f"sch:{tenant}\0{key}\0{owner}")

    def events(self, stream: str = "events") -> list[dict[str, str]]:
        """What is on a stream, as texts, without the payload."""
        return [
            {name.decode(): value.decode() for name, value in fields.items() if name != b"payload"}
            for _, fields in self.client.xrange(self.key(f"s:{stream}"))
        ]

    def log(self) -> list[tuple[str, str]]:
        """(what, note) of every entry."""
        return [(entry["what"], entry["note"]) for entry in self.entries()]

    def entries(self) -> list[dict[str, str]]:
        """All that the log says."""
        return [
            {name.decode(): value.decode() for name, value in fields.items()}
            for _, fields in self.client.xrange(self.key("log"))
        ]

    def state(self) -> State:
        return dump(self.client)

    def check(self) -> None:
        """The structure holds."""
        check_structure(self.state(), self.namespace.tags)
