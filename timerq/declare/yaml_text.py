"""YAML as its core schema reads it (YAML 1.2.2, chapter 10.3): no surprising booleans, octals, dates, base-60 numbers.

What is refused besides what is no YAML: a key that comes twice in a mapping, more than one document, tags that are not
of the core schema, an alias of a value inside itself, and aliases that make more than `MAX_VALUES` values.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any, TypeAlias

import yaml

from timerq.declare.documents import Path, Unreadable, written

MAX_VALUES = 500_000
MAX_DEPTH = 100
_MAX_DIGITS = 100
_TAG = "tag:yaml.org,2002:"

_SCALARS = {
    "null": re.compile(r"~|null|Null|NULL|"),
    "bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    "int": re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"),
    "float": re.compile(
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
    ),
}


class _Core:
    """Says what a plain scalar is; the loaders below read a text into nodes and no further."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> str:
        if kind is yaml.ScalarNode:
            if implicit[0]:
                for name, pattern in _SCALARS.items():
                    if pattern.fullmatch(value):
                        return _TAG + name
            return _TAG + "str"
        return _TAG + ("seq" if kind is yaml.SequenceNode else "map")


class SlowLoader(_Core, yaml.SafeLoader):
    """The one that there always is."""


if TYPE_CHECKING:
    _Libyaml = yaml.SafeLoader
else:
    _Libyaml = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # PyYAML may have been built without it


class FastLoader(_Core, _Libyaml):
    """By libyaml, where there is one: seven times as fast."""


_LOADER: type[SlowLoader | FastLoader] = FastLoader


def read_yaml(text: str) -> tuple[Any, dict[Path, int]]:
    """The value in a text, and the line (from 1) of each path of it. Raises `Unreadable` with the line of a fault."""
    try:
        loader = _LOADER(text)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = min(mark.line, text.rstrip("\n").count("\n")) + 1 if mark else None
        if "nesting" in str(error.problem):  # libyaml's own bound
            raise Unreadable(line, "", "nested too deeply") from None
        slip = "" if line is None else _slip(text.splitlines()[line - 1])
        raise Unreadable(line, "", f"not YAML: {error.problem or error.context}{slip}") from None
    except yaml.reader.ReaderError as error:
        by_bytes = _LOADER is FastLoader and yaml.__with_libyaml__
        before = text.encode()[: error.position] if by_bytes else text[: error.position].encode()
        line = before.count(b"\n") + 1
        raise Unreadable(
            line, "", f"not YAML: the character {chr(error.character)!a} may not stand there"
        ) from None
    except RecursionError:
        raise Unreadable(None, "", "nested too deeply") from None
    if root is None:
        return None, {(): 1}
    reading = _Reading()
    return reading.value(root, (), root.start_mark.line + 1), reading.lines


def _slip(line: str) -> str:
    """What most often is wrong on a line that is no YAML."""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "; indent with blanks, not with tabs"
    match = _UNQUOTED.match(line)
    if match is None:
        return ""
    return f'; want it in quotes: "{match[1].strip()[:60]}"'


_UNQUOTED = re.compile(r"""[^"'#]*?(?:[:,\[{-]\s+|\[)([@*`%][^"'\]},#]*)""")
"""A value that begins with a sign which means something else to YAML: ``cron: @daily``, ``- * * * * *``."""

_Pairs: TypeAlias = "dict[Any, tuple[int, yaml.Node]]"


class _Reading:
    """Nodes to values, with the lines that they stand on."""

    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}
        self._open: set[int] = set()
        self._pairs_of: dict[int, _Pairs | None] = {}  # None: they are being read
        self._count = 0

    def value(self, node: yaml.Node, path: Path, line: int) -> Any:
        """The value of a node; ``line`` is where its key, or it itself, stands."""
        self.lines[path] = line
        self._count += 1
        if self._count > MAX_VALUES:
            raise Unreadable(line, written(path), f"more than {MAX_VALUES:,} values")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path, line)
        if id(node) in self._open:
            raise Unreadable(line, written(path), "an alias of the value that it stands in")
        if len(self._open) >= MAX_DEPTH:
            raise Unreadable(line, written(path), "nested too deeply")
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
                return [
                    self.value(item, (*path, i), item.start_mark.line + 1)
                    for i, item in enumerate(node.value)
                ]
            if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
                return self._mapping(node, path)
        finally:
            self._open.discard(id(node))
        raise Unreadable(line, written(path), f"the tag {_shown(node.tag)} is not known here")

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[Any, Any]:
        return {
            key: self.value(value, (*path, key), line)
            for key, (line, value) in self._pairs(node, path).items()
        }

    def _pairs(self, node: yaml.MappingNode, path: Path) -> _Pairs:
        """Each key's line and value; those of mappings behind << stand below what is written here."""
        if id(node) in self._pairs_of:
            if (known := self._pairs_of[id(node)]) is None:
                raise Unreadable(node.start_mark.line + 1, written(path), "a mapping that merges itself")
            return known
        self._pairs_of[id(node)] = None
        found: _Pairs = {}
        merged: list[yaml.MappingNode] = []
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise Unreadable(line, written(path), "want a key that is a text or a number")
            if key_node.value == "<<" and not key_node.style:
                merged += _mappings(value_node, path, line)
                continue
            key = self._scalar(key_node, path, line)
            if key in found:
                where = written((*path, key if isinstance(key, int) else str(key)))
                raise Unreadable(line, where, f"the key comes twice; first on line {found[key][0]}")
            found[key] = (line, value_node)
        for mapping in merged:
            for key, pair in self._pairs(mapping, path).items():
                found.setdefault(key, pair)
        self._pairs_of[id(node)] = found
        return found

    def _scalar(self, node: yaml.ScalarNode, path: Path, line: int) -> Any:
        text = node.value
        kind = node.tag.removeprefix(_TAG)
        if kind == "str":
            return text
        if kind == "binary":
            try:
                return base64.b64decode("".join(text.split()), validate=True)
            except (binascii.Error, ValueError):
                raise Unreadable(line, written(path), "not base64") from None
        if kind not in _SCALARS:
            raise Unreadable(line, written(path), f"the tag {_shown(node.tag)} is not known here")
        if not _SCALARS[kind].fullmatch(text):
            raise Unreadable(line, written(path), f"{text[:40]!a} is no {kind}")
        if kind == "null":
            return None
        if kind == "bool":
            return text[0] in "tT"
        if kind == "float":
            return float(text.replace(".", "", 1) if text.lower().endswith(("inf", "nan")) else text)
        if len(text) > _MAX_DIGITS:
            raise Unreadable(line, written(path), f"a number of {len(text):,} digits is too large")
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))


def _mappings(node: yaml.Node, path: Path, line: int) -> list[yaml.MappingNode]:
    nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
    if not all(isinstance(inner, yaml.MappingNode) for inner in nodes):
        raise Unreadable(line, written(path), "want a mapping, or a list of them, behind <<")
    return list(nodes)


def _shown(tag: str) -> str:
    return ascii(tag.replace(_TAG, "!!"))[:60]
