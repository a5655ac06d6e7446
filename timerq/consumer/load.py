"""``module:app`` → the Consumer that is meant."""

from __future__ import annotations

from typing import Any

from timerq.consumer.app import Consumer
from timerq.declare.modules import TARGET, imported
from timerq.errors import Fault, InvalidDeclaration


def load_consumer(target: str) -> Consumer:
    """The consumer that ``module:attr`` names, or the only one in ``module``.

    Raises `InvalidDeclaration` where the module cannot be imported, or there is none.
    """
    if not TARGET.fullmatch(target):
        raise _refused(target, "want a module and the consumer in it, as in shop.handlers:app")
    module_name, _, attribute = target.partition(":")
    module = imported(module_name, target)
    if not attribute:
        apps = list(dict.fromkeys(thing for thing in vars(module).values() if isinstance(thing, Consumer)))
        if len(apps) != 1:
            found = "no consumer" if not apps else f"{len(apps)} consumers"
            raise _refused(target, f"there is {found} in it: want module:app")
        return apps[0]
    found_thing: Any = module
    for name in attribute.split("."):
        try:
            found_thing = getattr(found_thing, name)
        except AttributeError:
            raise _refused(target, f"there is no {name} in it") from None
    if not isinstance(found_thing, Consumer):
        raise _refused(target, f"want a timerq.Consumer, not a {type(found_thing).__name__}")
    return found_thing


def _refused(target: str, text: str) -> InvalidDeclaration:
    return InvalidDeclaration([Fault(target, None, "", text)])
