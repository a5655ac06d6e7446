"""TOML 1.0 (https://toml.io/en/v1.0.0), by the standard library."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from timerq.declare.documents import Unreadable

_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


def read_toml(text: str) -> dict[str, Any]:
    """The table in a text. Raises `Unreadable` with the line of a fault; a table or a key that comes twice is one."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = _PLACE.search(str(error))
        if place is None:
            raise Unreadable(None, "", f"not TOML: {error}") from None
        line = int(place[1]) if place[1] else len(text.splitlines())
        raise Unreadable(line, "", f"not TOML: {_PLACE.sub('', str(error))}") from None
    except RecursionError:
        raise Unreadable(None, "", "nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits
        raise Unreadable(None, "", f"not TOML: {error}") from None
