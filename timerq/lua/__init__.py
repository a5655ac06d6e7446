"""The scripts, and the loader that holds each to its contract.

A script's header *is* its contract: one sentence, then ``KEYS name type – meaning``, ``ARGV name type – meaning`` and
``RETURN`` with every status word. The loader reads it at import and puts names in front of the body: ``k_<name>`` for a
key, ``a_<name>`` for an argument, ``first_item_key`` and ``first_item_arg`` for where the repeated ones (``item*``)
begin. So a body never counts positions, and neither does a builder: it gives names, and a missing or an extra one
fails at once.

The prologue (``prologue/``, a room each) stands in front of every script but ``make``, which has nothing to check yet.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

Word = bytes | str | int
"""What travels to Redis as one argument."""

_KEYS = re.compile(r"-- KEYS (\w+)(\*?)\s")
_ARGV = re.compile(r"-- ARGV (\w+)(\*?)\s")
_DEFINITION = re.compile(r"local (?:function (?P<function>\w+)|(?P<table>[A-Z]+) = \{)")
_WORD = re.compile(r"\w+")
_STATUS = re.compile(r"--   ([A-Z_]{2,})\b")
_OPTIONAL_KEYS = (
    "req",
    "heads",
    "keys",
    "held",
    "wake",
    "log",
    "streams",
    "floors",
    "fired_new",
    "fired",
    "fired_before",
)
_WITHOUT_PROLOGUE = frozenset({"make"})
_PROLOGUE = ("start", "records", "places", "bounds", "events", "floors", "handled")


@dataclass(frozen=True, slots=True)
class Script:
    """One script: its text as Redis gets it, its SHA-1, and its contract."""

    name: str
    text: str
    body: str
    sha: str
    summary: str
    keys: tuple[str, ...]
    args: tuple[str, ...]
    repeats_keys: bool
    repeats_args: bool
    statuses: frozenset[str]

    @property
    def writes(self) -> bool:
        """Whether it remembers its last reply: such a script is sent with a session."""
        return "req" in self.keys

    def order(
        self,
        keys: Mapping[str, Word],
        args: Mapping[str, Word],
        item_keys: Sequence[Word] = (),
        item_args: Sequence[Word] = (),
    ) -> list[Word]:
        """``[number of keys, key …, argument …]`` from names. Raises KeyError for a missing or an extra name."""
        if len(keys) != len(self.keys) or len(args) != len(self.args):
            raise KeyError(
                f"{self.name}.lua takes KEYS {self.keys} and ARGV {self.args}: got {[*keys]} and {[*args]}"
            )
        if (item_keys and not self.repeats_keys) or (item_args and not self.repeats_args):
            raise KeyError(f"{self.name}.lua takes no items")
        return [
            len(keys) + len(item_keys),
            *[keys[name] for name in self.keys],
            *item_keys,
            *[args[name] for name in self.args],
            *item_args,
        ]


def parse(name: str, body: str, prologue: str) -> Script:
    """Reads a script's header and names what it declares; raises ValueError for a header without a contract."""
    header = []
    for line in body.splitlines():
        if not line.startswith("--"):
            break
        header.append(line)
    found_keys = [match for line in header if (match := _KEYS.match(line))]
    found_args = [match for line in header if (match := _ARGV.match(line))]
    if not header or not found_keys or "-- RETURN" not in "\n".join(header):
        raise ValueError(f"{name}.lua: the header must have a sentence, KEYS and RETURN")
    keys = tuple(match[1] for match in found_keys if not match[2])
    args = tuple(match[1] for match in found_args if not match[2])
    binding = [f"local k_{key}=KEYS[{i}]" for i, key in enumerate(keys, 1)]
    binding += [f"local a_{arg}=ARGV[{i}]" for i, arg in enumerate(args, 1)]
    binding += [f"local k_{key}=nil" for key in _OPTIONAL_KEYS if key not in keys]
    binding += [f"local first_item_key,first_item_arg={len(keys) + 1},{len(args) + 1}"]
    code = _without_comments(body)
    front = "" if name in _WITHOUT_PROLOGUE else _used_part(prologue, code)
    text = ";".join(binding) + "\n" + front + "\n" + code
    return Script(
        name=name,
        text=text,
        body=body,
        sha=hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(),
        summary=header[0].removeprefix("--").strip(),
        keys=keys,
        args=args,
        repeats_keys=any(match[2] for match in found_keys),
        repeats_args=any(match[2] for match in found_args),
        statuses=frozenset(match[1] for line in header if (match := _STATUS.match(line))),
    )


def _without_comments(text: str) -> str:
    """Whole-line comments blanked, so that line numbers in Redis's error messages stay those of the file."""
    return "\n".join("" if line.lstrip().startswith("--") else line for line in text.splitlines())


def _used_part(prologue: str, body: str) -> str:
    """The prologue with the definitions blanked that neither the body nor another kept paragraph names.

    A paragraph ends at an empty line of the file; one left by a comment is none.
    """
    kept = []
    names = set(_WORD.findall(body))
    for paragraph in reversed(_paragraphs(prologue)):
        if paragraph.defines is not None and paragraph.defines not in names:
            kept.append("\n" * paragraph.text.count("\n"))
        else:
            kept.append(paragraph.text)
            names |= paragraph.names
    return "\n\n".join(reversed(kept))


class _Paragraph(NamedTuple):
    """A part of the prologue: its text, what it defines (None: nothing that could be left out), the words in it."""

    text: str
    defines: str | None
    names: frozenset[str]


@lru_cache(maxsize=1)
def _paragraphs(prologue: str) -> list[_Paragraph]:
    found = []
    for paragraph in prologue.split("\n\n"):
        text = _without_comments(paragraph)
        definition = _DEFINITION.match(text.lstrip("\n"))
        defines = definition and (definition["function"] or definition["table"])
        found.append(_Paragraph(text, defines, frozenset(_WORD.findall(text))))
    return found


def read_prologue() -> str:
    """Its rooms, each of which uses only what stands in those before it."""
    folder = files(__package__).joinpath("prologue")
    return "\n".join(folder.joinpath(f"{name}.lua").read_text(encoding="utf-8") for name in _PROLOGUE)


def _load() -> dict[str, Script]:
    folder = files(__package__)
    prologue = read_prologue()
    found = {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        name = file.name.removesuffix(".lua")
        if file.name.endswith(".lua"):
            found[name] = parse(name, file.read_text(encoding="utf-8"), prologue)
    return found


SCRIPTS: dict[str, Script] = _load()
"""Every script by its name."""
