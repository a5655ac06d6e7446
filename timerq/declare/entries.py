"""What a document declares: one entry, a list of them, or a mapping of names to them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from timerq import codec
from timerq.commands.arming import EVENT_WORDS, Upsert, timing_of
from timerq.commands.phrasing import for_file, unknown_word
from timerq.declare.declared import Declared
from timerq.declare.documents import Document, Path, written
from timerq.errors import Fault, InvalidSchedule
from timerq.model import Event, check_text
from timerq.timing import Words, first_instants, is_asked

TIMING_WORDS = (
    *("every", "initial_delay", "start", "until", "limit"),
    *Words._fields,
    "paused",
)
"""The words of `Upsert` that a declared schedule may have; an event's are `EVENT_WORDS`."""

ENTRY_WORDS = ("name", "event", "payload", *TIMING_WORDS)

_HOW_OFTEN = ("cron", "every")
_ONCE = ("at", "delay")
_WHY_NOT_ONCE = "a one-shot is not declared, as each apply would arm it anew: want cron or every"
_UNBOUNDED = 2**40  # how large a payload may be is the queue's to say


COUNTED_NAME = re.compile(r".*cron-[1-9][0-9]*", re.DOTALL)
"""What `Naming` calls entries."""


class Naming:
    """Names for the entries of a set that have none: cron-1, cron-2, … counted among themselves."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._count = 0

    def next(self) -> str:
        """The next one."""
        self._count += 1
        return f"{self._prefix}cron-{self._count}"


class Contents(NamedTuple):
    """What a document declares: its schedules, the set's name where it gives one, and what is wrong with it."""

    schedules: list[Declared]
    label: Any
    label_line: int | None
    faults: list[Fault]


def read_entries(document: Document, stem: str, naming: Naming) -> Contents:
    """The schedules of a document; a single one without a name has that of its file, ``stem``."""
    contents = Contents([], *_label(document), [])
    base, top = _top(document)
    faults = contents.faults
    if contents.label is None and contents.label_line is not None:
        faults.append(document.fault(("set",), "want a name, or the word left out"))
    if base:
        faults += [
            document.fault((key,), _unknown(key, ("schedules", "set")))
            for key in document.value
            if key not in ("schedules", "set")
        ]
    if not base and isinstance(top, dict):
        for key in top:
            if _is_misspelt_top(key, top[key]):
                faults.append(document.fault((key,), _unknown(key, ("schedules",))))
                return contents
    if isinstance(top, dict):
        names = [key for key in top if base or not _is_label(document, key)]
        if _are_names(top, names):
            found: Iterable[tuple[str | None, Path]] = [(name, (*base, name)) for name in names]
        else:
            found = [(stem, base)]
    elif isinstance(top, list):
        found = [(None, (*base, i)) for i in range(len(top))]
    else:
        none = "schedules = []" if document.source.endswith(".toml") else "schedules: []"
        want = f"want schedules: a mapping of names, a list, or a single one; where there are none, {none}"
        faults.append(document.fault(base, want))
        found = []
    for name, path in found:
        _read_entry(document, path, name, naming, contents)
    return contents


def _top(document: Document) -> tuple[Path, Any]:
    """The path and the value that hold the schedules: the top key ``schedules`` is optional."""
    value = document.value
    if isinstance(value, dict) and "schedules" in value:
        inner = value["schedules"]
        is_alone = value.keys() <= {"schedules", "set"} and not isinstance(value.get("set"), dict)
        if is_alone or not _is_entry(inner):
            return ("schedules",), inner
    return (), value


def _is_misspelt_top(key: object, value: object) -> bool:
    """Whether a top key was meant to be ``schedules``: almost called so, and with entries in it."""
    if not isinstance(key, str) or unknown_word(key.lower(), ("schedules",)).startswith("want"):
        return False
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return not _is_entry(value) and any(map(_is_entry, inside))


def _is_label(document: Document, key: object) -> bool:
    """Whether a top key is the set's name, and no schedule that is called "set"."""
    return key == "set" and not isinstance(document.value["set"], dict)


def _label(document: Document) -> tuple[Any, int | None]:
    value = document.value
    if isinstance(value, dict) and "set" in value and _is_label(document, "set"):
        return value["set"], document.line(("set",))
    return None, None


def _are_names(mapping: Mapping[Any, Any], keys: list[Any]) -> bool:
    """Whether the keys are names of entries, not words of one.

    Words of timing tell: ``{"every": {"minutes": 5}}`` is an entry, ``{"every": {"cron": "…"}}`` one that is named so.
    """
    if all(_is_entry(mapping[key]) for key in keys):
        return len(keys) == len(mapping) or bool(keys)  # a set's name alone declares nothing
    if any(key in mapping and not _is_entry(mapping[key]) for key in (*_HOW_OFTEN, *_ONCE)):
        return False
    return not all(key in ENTRY_WORDS for key in keys)


def _is_entry(value: object) -> bool:
    return isinstance(value, dict) and any(word in value for word in (*_HOW_OFTEN, *_ONCE))


def _read_entry(document: Document, path: Path, name: str | None, naming: Naming, contents: Contents) -> None:
    """Adds an entry's schedule, or what is wrong with it."""
    value = document.at(path)
    if not isinstance(value, dict):
        contents.faults.append(document.fault(path, "want a mapping with cron or every"))
        return
    words = {word: inner for word, inner in value.items() if path or not _is_label(document, word)}
    given = words.pop("name", name)
    if given is None:
        given = naming.next()
    try:
        check_text("name", given)
    except InvalidSchedule as error:
        contents.faults.append(document.fault(path, _told(error), _key(written(path), "name")))
        return
    faults = list(_misspelt(document, path, given, words))
    known = {word: inner for word, inner in words.items() if word in ENTRY_WORDS and _is_told(word, inner)}
    is_whole = sum(word in known for word in _HOW_OFTEN) == 1
    try:
        if is_whole:
            upsert = make_upsert(given, known)
            contents.schedules.append(Declared(upsert, document.source, document.line(path)))
            contents.faults.extend(faults)
            return
        errors: list[InvalidSchedule] = []
    except InvalidSchedule as error:
        errors = [error]
    faults += [
        _fault_of(document, path, given, known, error) for error in (*errors, *_each_wrong(given, known))
    ]
    contents.faults.extend(sorted(dict.fromkeys(faults), key=lambda fault: fault.line or 0))


def _misspelt(document: Document, path: Path, name: str, words: Mapping[Any, Any]) -> Iterator[Fault]:
    """What can be said of an entry's words without reading their values."""
    for word, value in words.items():
        if word in _ONCE:
            yield document.fault((*path, word), _WHY_NOT_ONCE, f"{name}.{word}")
        elif word not in ENTRY_WORDS:
            yield document.fault((*path, word), _unknown(word, ENTRY_WORDS), f"{name}.{word}")
        elif value is None and word not in ("payload", *_HOW_OFTEN):
            yield document.fault((*path, word), "want a value, or the word left out", f"{name}.{word}")
    if all(words.get(word) is None for word in _HOW_OFTEN) and not any(word in words for word in _ONCE):
        yield document.fault(path, "want cron or every", name)
    if all(word in words for word in _HOW_OFTEN):
        yield document.fault((*path, "every"), "want either cron or every", f"{name}.every")
    event = words.get("event")
    if isinstance(event, dict):
        for word in event:
            if word not in EVENT_WORDS:
                where = (*path, "event", word)
                yield document.fault(where, _unknown(word, EVENT_WORDS), f"{name}.event.{word}")
        if "payload" in words and "payload" in event:
            text = "want payload or event.payload, not both"
            yield document.fault((*path, "event", "payload"), text, f"{name}.event.payload")
    elif event is not None:
        text = f"want a mapping with {', '.join(EVENT_WORDS)}"
        yield document.fault((*path, "event"), text, f"{name}.event")


def _is_told(word: str, value: object) -> bool:
    return value is not None or word == "payload"


_WITH: dict[str, dict[str, Any]] = {
    "grace": {"misfire": "skip"},
    "max_catch_up": {"misfire": "catch_up"},
    "ack_group": {"overlap": "skip"},
    "running_timeout": {"overlap": "skip"},
}  # the words that some need beside them
_ANY_CRON, _ANY_EVERY = {"cron": "* * * * * *"}, {"every": "99999d"}
_RARE_CRON = {"cron": "0 0 29 2 *"}  # beside which a jitter is short


def _each_wrong(name: str, words: Mapping[str, Any]) -> Iterator[InvalidSchedule]:
    """What is wrong with each of an entry's words, read for itself beside others that are right."""
    kinds = [kind for word, kind in (("cron", _ANY_CRON), ("every", _ANY_EVERY)) if word in words]
    for word, value in words.items():
        if word in ("cron", "exclude") and isinstance(value, list):
            readings: list[dict[str, Any]] = [{word: [one]} for one in value]
        elif word == "event" and isinstance(value, dict):
            readings = [{word: {inner: one}} for inner, one in value.items()]
        else:
            readings = [{word: value}]
        for reading in readings:
            errors = []
            for kind in kinds or (_ANY_CRON, _ANY_EVERY):
                if word == "jitter" and kind is _ANY_CRON:
                    kind = _RARE_CRON
                alone = reading if word in _HOW_OFTEN else {**kind, **_WITH.get(word, {}), **reading}
                try:
                    make_upsert(name, alone)
                except InvalidSchedule as error:
                    errors.append(error)
            if len(errors) == len(kinds or (1, 2)):
                yield min(errors, key=lambda error: "only together" in error.want)


def make_upsert(name: str, words: Mapping[str, Any]) -> Upsert:
    """The schedule of an entry's words, unknown ones left aside; an event without a type has the name as its type.

    Raises `InvalidSchedule` naming the word.
    """
    plain = {word: value for word, value in words.items() if word in TIMING_WORDS}
    event = words.get("event")
    event_words: dict[str, Any] = {"type": name}
    if isinstance(event, dict):
        event_words |= {word: value for word, value in event.items() if word in EVENT_WORDS}
    if "payload" in words:
        event_words["payload"] = words["payload"]
    upsert = Upsert(key=name, event=Event(**event_words), **plain)
    check(upsert)
    return upsert


def check(upsert: Upsert) -> None:
    """All that can be said against it without a queue. Raises `InvalidSchedule`."""
    check_text("name", upsert.key)
    timing = timing_of(upsert)
    if is_asked(timing):
        try:
            first_instants(timing, b"", 0)  # a jitter as long as the period, and what never fires
        except InvalidSchedule as error:
            if error.field != "until":  # that it has ended is no fault of a declared schedule
                raise
    if upsert.paused not in (None, True, False):
        raise InvalidSchedule("paused", upsert.paused, "want true or false")
    codec.encode(upsert.event.payload, upsert.event.codec, limit_bytes=_UNBOUNDED)
    if upsert.event.correlation is not None:
        codec.encode_correlation(upsert.event.correlation)


def _fault_of(
    document: Document, path: Path, name: str, words: Mapping[str, Any], error: InvalidSchedule
) -> Fault:
    """What a value was refused for, with the line of its word, or of its place in a list."""
    field = error.field
    inside: Path = (field,)
    if field not in words and field in EVENT_WORDS and "event" in words:
        inside = ("event", field)
    value = words.get(field)
    if isinstance(value, list) and error.got in value:
        inside = (field, value.index(error.got))
    if field == "timing" or (field not in words and len(inside) == 1):
        inside = ()
    return document.fault((*path, *inside), for_file(error, words), _key(name, written(inside) or field))


def _key(name: str, word: str) -> str:
    return f"{name}.{word}" if name else word


def _told(error: InvalidSchedule) -> str:
    return str(error).removeprefix(f"{error.field}: ")


def _unknown(word: object, known: tuple[str, ...]) -> str:
    return f"unknown word; {unknown_word(word, known)}"
