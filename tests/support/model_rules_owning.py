"""Rules of the model test: handles of owners, and owners that are destroyed piece by piece."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st

from tests.support.model_machine import Incarnation, Sweep
from tests.support.model_rules_consuming import Consuming
from tests.support.model_wishes import POOL, action, who
from tests.support.model_words import Edit, Id
from timerq.commands import edit as editing
from timerq.commands.command import Command
from timerq.commands.items import one
from timerq.commands.owner import Owned, Piece, destroy_piece, live, locate_owner

limits = st.sampled_from([1, 1, 2, 200])


class Owning(Consuming):
    """live, destroy."""

    def owned(self, owner: Id, incarnation: int | None) -> Owned:
        return locate_owner(self.queues[owner[0]]._open(), owner[2], incarnation)

    def owner(self, who: int) -> Id:
        """An owner, rather one that has several schedules."""
        found = self.such(lambda r: True)
        counts = {id: sum((id[0], id[2]) == (o[0], o[2]) for o in found) for id in found if id[2]}
        most = [id for id, count in counts.items() if count == max(counts.values())]
        tenant, _, owner = most[who % len(most)] if most and who % 4 else POOL[who % len(POOL)]
        return tenant, "", owner or "o"

    def handle_of(self, owner: Id, which: int | None) -> int | None:
        """The incarnation of one of its handles, alive or gone; None for whoever has none."""
        mine = [each.incarnation for each in self.incarnations if each.owner == owner]
        return None if which is None or not mine else mine[-1 - which % len(mine)]

    @action(2, who=who, which=st.sampled_from([None, None, 0, 1]))
    def live(self, who: int, which: int | None) -> None:
        """A handle begins, or asks whether it is gone."""
        owner = self.owner(who)
        incarnation = self.handle_of(owner, which)
        self.wire.ran.clear()
        (lived,) = self.queues["A"]._link.send([live(self.namespace, self.owned(owner, incarnation))])
        for _ in range(self.wire.ran.count("live")):  # one that nobody heard of is never heard of again
            expected = self.place(owner).live(self.now, owner, incarnation)
        assert lived == expected
        if incarnation is None:
            self.incarnations.append(Incarnation(owner, lived.incarnation))

    @action(
        3, who=who, which=st.sampled_from([None, 0, 0, 1]), limit=limits, pieces=st.sampled_from([0, 0, 1, 2])
    )
    def destroy(self, who: int, which: int | None, limit: int, pieces: int) -> None:
        """The floor and a first piece; the rest at once, or later, or never."""
        owner = self.owner(who)
        self.sweep(owner, self.handle_of(owner, which), None, limit)
        for _ in range(pieces):
            self.sweep_on(0, limit)

    @action(3, which=st.integers(0, 5), limit=limits)
    def sweep_on(self, which: int, limit: int) -> None:
        """The next piece of a destroy, or one that ran before: who began it, or a dispatcher, goes on."""
        if self.sweeps:
            owner, ceiling, after = self.sweeps[-1 - which % len(self.sweeps)]
            self.sweep(owner, None, (ceiling, after), limit)

    def sweep(self, owner: Id, incarnation: int | None, begun: tuple[int, bytes] | None, limit: int) -> None:
        ceiling, after = begun or (None, None)
        command = destroy_piece(self.namespace, self.owned(owner, incarnation), ceiling=ceiling, after=after)
        (piece,) = self.queues["A"]._link.send([with_arg(command, "limit", limit)])
        expected = self.place(owner).destroy(self.now, owner, incarnation, begun, limit)
        assert piece == expected
        name = owner[0], owner[2]
        self.destroyed[name] = max(piece.ceiling, self.destroyed.get(name, -1))
        if piece.after is not None:
            self.sweeps.append(Sweep(owner, piece.ceiling, piece.after))

    @action(2, who=who, verb=st.sampled_from(["pause", "resume", "trigger"]))
    def change_by_handle(self, who: int, verb: Any) -> None:
        """What a handle of its owner asks for, which may be gone."""
        owned = self.such(lambda r: True)
        owned = [id for id in owned if self.incarnation(id) is not None]
        if not owned:
            return
        id = owned[who % len(owned)]
        queue, incarnation = self.queues[id[0]], self.incarnation(id)
        item = editing.item(queue._open(), verb, id[1], id[2], incarnation=incarnation)
        real = self.answer(lambda: queue._link.run(one(queue._open(), item)))
        assert real == self.expect_edit(Edit(verb, id, incarnation=incarnation), from_now=False)


def with_arg(command: Command[Piece], name: str, value: int) -> Command[Piece]:
    """The same with another argument: pieces of the size that the library uses would never be needed here."""
    count = command.words[0]
    assert isinstance(count, int)
    command.words[count + 1 + command.script.args.index(name)] = value
    return command
