"""The laws of the house: who may import whom, what a header promises, and that the two clients are one."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, MemberDescriptorType
from typing import Any

import pytest

import timerq
from timerq.async_client import AsyncHandle, AsyncTimerQueue
from timerq.async_owner import AsyncOwner
from timerq.client import Handle, TimerQueue
from timerq.commands.arming import Upsert
from timerq.commands.owned import OwnedWords
from timerq.lua import _OPTIONAL_KEYS, _PROLOGUE, SCRIPTS, Script, parse, read_prologue
from timerq.owner import Owner

ROOT = Path(timerq.__file__).parent
BELOW_THE_LINE = ("explain", "commands", "lua", "keys", "codec", "timing", "model", "clock", "errors")
FORBIDDEN_BELOW = {
    "redis",
    "asyncio",
    "time",
    "os",
    "socket",
    "threading",
    "subprocess",
    "select",
    "selectors",
}

ROOM_LINES = 330
LARGER_ROOMS = {
    "client.py": (680, "a method a verb; most of it is docstrings"),
    "async_client.py": (700, "the same"),
    "owner.py": (410, "the same verbs for one owner"),
    "async_owner.py": (410, "the same"),
    "consumer/app.py": (350, "the public face of consumers; most of it is docstrings"),
    "topology.py": (350, "connections of every kind of URL, for both clients"),
    "embedded/server.py": (390, "one child process from start to end"),
}


def rooms() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# ------------------------------------------------------------------------------------------------ 1 and 2: imports


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            yield node.module or ""


@pytest.mark.parametrize("room", BELOW_THE_LINE)
def test_law_1_nothing_below_the_line_does_io(room: str) -> None:
    files = sorted((ROOT / room).glob("*.py")) or [ROOT / f"{room}.py"]
    for path in files:
        found = {name.partition(".")[0] for name in imports(path)} & FORBIDDEN_BELOW
        assert not found, f"{named(path)} imports {found}"


def test_law_1_only_settings_reads_the_environment() -> None:
    for path in rooms():
        text = path.read_text(encoding="utf-8")
        if re.search(r"\benviron\b|\bgetenv\b", text):
            assert named(path) == "settings.py" or named(path).startswith(("embedded/", "cli/")), named(path)


def test_law_2_imports_point_down_only() -> None:
    # in a process of its own: the linter sets up logging for the whole process, and silences every other logger
    linter = Path(sys.executable).with_name("lint-imports")
    words = [str(linter), "--config", str(ROOT.parent / "pyproject.toml"), "--no-cache"]
    done = subprocess.run(words, cwd=ROOT.parent, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


# ------------------------------------------------------------------------------------------------ 3: contracts


def code_of(script: Script) -> str:
    """The body without its comments."""
    return "\n".join(line for line in script.body.splitlines() if not line.lstrip().startswith("--"))


@pytest.fixture(params=sorted(SCRIPTS))
def script(request: pytest.FixtureRequest) -> Script:
    return SCRIPTS[request.param]


def test_law_3_every_lua_file_is_a_script_with_a_contract() -> None:
    files = {path.stem for path in (ROOT / "lua").glob("*.lua")}
    assert files == set(SCRIPTS)
    assert {path.stem for path in (ROOT / "lua" / "prologue").iterdir()} == set(_PROLOGUE)


def test_law_3_a_script_opens_with_one_sentence(script: Script) -> None:
    header = script.body.split("--\n", 1)[0]
    sentence = " ".join(line.removeprefix("--").strip() for line in header.splitlines())
    assert re.fullmatch(r"[A-Z][^.]*\.", sentence), sentence


# What a helper of the prologue needs, so that a script which calls it must declare it.
HELPERS = {
    "log": {"log"},
    "forget": {"keys", "held"},
    "settle": {"heads"},
    "earliest": {"heads"},
    "wake_if_earlier": {"heads", "wake"},
    "remember": {"req"},
    "emit": {"streams"},
    "leave_floor": {"floors"},
    "note_fired": {"fired_new"},
    "mark_fired": {"fired_new", "fired"},
    "may_be_out": {"fired_new", "fired", "fired_before"},
    "bury": {"held", "floors", "fired_new", "fired", "fired_before"},
    "report": {"streams"},
    "finish": {"heads", "keys", "held", "wake", "log", "streams", "fired_new"},
    "count_out": {"heads", "wake"},
    "let_go": {"heads"},
    "offer": {"streams", "log"},
    "shed": {"streams", "log"},
    "tell_full": {"streams", "log"},
    "finish_for": {"heads", "keys", "held", "wake", "log", "streams", "fired_new"},
}
# What the prologue itself uses wherever it is declared, and what is only declared.
FRONT_KEYS, FRONT_ARGS = {"meta", "req", "never"}, {"layout", "schema", "now_ms", "seq"}


def keys_used(code: str) -> set[str]:
    used = set(re.findall(r"\bk_(\w+)", code))
    for helper, needs in HELPERS.items():
        if re.search(rf"\b{helper}\b", code):
            used |= needs
    return used


def test_law_3_what_a_header_declares_the_code_uses(script: Script) -> None:
    code = code_of(script)
    assert set(script.keys) - FRONT_KEYS <= keys_used(code)
    assert set(script.args) - FRONT_ARGS <= set(re.findall(r"\ba_(\w+)", code))
    # (the keys of publish's items are only declared: emit makes their names)
    if script.repeats_keys and script.name != "publish":
        assert "first_item_key" in code
    if script.repeats_args:
        assert "first_item_arg" in code


def test_a_script_that_touches_what_it_cannot_declare_runs_in_no_slot_on_the_move(script: Script) -> None:
    code = code_of(script)
    derives = "PREFIX .." in code or re.search(r"\b(emit|offer|bound_of|BOUNDS)\b", code)
    assert ("never" in script.keys) == bool(derives)


def test_law_3_what_the_code_uses_a_header_declares(script: Script) -> None:
    code = code_of(script)
    assert keys_used(code) <= set(script.keys)
    own = set(re.findall(r"\ba_(\w+)", " ".join(re.findall(r"\blocal (.+?)=", code))))
    assert set(re.findall(r"\ba_(\w+)", code)) - own <= set(script.args)
    assert set(re.findall(r"\bk_(\w+)", read_prologue())) <= {"meta", *_OPTIONAL_KEYS}


def test_law_3_a_body_never_counts_positions(script: Script) -> None:
    assert not re.search(r"\b(KEYS|ARGV)\[\s*\d", code_of(script))
    assert not re.search(r"\b(KEYS|ARGV)\[\s*\d", read_prologue())


def test_law_3_scripts_use_plain_commands_only(script: Script) -> None:
    text = script.text
    for word in ("cjson", "cmsgpack", "bit.", "math.random", "os.time", "redis.setresp", "SCAN", "KEYS *"):
        assert word not in text, word


def test_law_3_a_header_declares_every_status_word_of_its_code(script: Script) -> None:
    """Words at the start of a text, as in `'CREATED ' ..`; the head words are the prologue's."""
    said = {
        match
        for match in re.findall(r"'(?:\\n)?([A-Z][A-Z_]{3,}|ID)\b[ ']", code_of(script))
        if match in script.statuses or not re.search(rf"call\('{match}'", code_of(script))
    }
    redis_words = {
        "WITHSCORES", "LIMIT", "MAXLEN", "MINID", "GROUPS", "WRONGTYPE", "XINFO", "XTRIM", "XPENDING", "XLEN",
        "HGETALL", "HGET", "COUNT", "CREATE", "JUSTID", "STREAMS",
        "GROUP", "NOGROUP", "XGROUP", "CONSUMERS", "DELCONSUMER",
    }  # fmt: skip
    assert said - redis_words <= script.statuses


def test_law_3_a_missing_or_extra_name_fails_at_once() -> None:
    count = SCRIPTS["count"]
    keys: dict[str, Any] = dict.fromkeys(count.keys, b"k")
    args: dict[str, Any] = dict.fromkeys(count.args, b"a")
    assert count.order(keys, args)[0] == len(keys)
    wrong: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({**keys, "due": b""}, args),
        ({"meta": b""}, args),
        ({"meta": b"", "due": b""}, args),
        (keys, {**args, "more": b""}),
        (keys, {name: value for name, value in args.items() if name != "from"}),
        (keys, {"since" if name == "from" else name: value for name, value in args.items()}),
    ]
    for some_keys, some_args in wrong:
        with pytest.raises(KeyError):
            count.order(some_keys, some_args)
    with pytest.raises(KeyError, match="no items"):
        count.order(keys, args, item_keys=[b"x"])
    with pytest.raises(KeyError, match="no items"):
        count.order(keys, args, item_args=[b"x"])


@pytest.mark.parametrize(
    "body",
    ["", "return 1", "-- A sentence.\nreturn 1", "-- A sentence.\n--\n-- KEYS meta hash – x\nreturn 1"],
)
def test_law_3_a_script_without_a_contract_is_refused(body: str) -> None:
    with pytest.raises(ValueError, match="header"):
        parse("bad", body, "")


def test_comments_do_not_travel_and_lines_keep_their_numbers() -> None:
    for script in SCRIPTS.values():
        assert "\n--" not in script.text
        front = 1 if script.name == "make" else 1 + len(read_prologue().splitlines())
        assert len(script.text.splitlines()) == front + len(script.body.splitlines()) + (
            script.name == "make"
        )


def test_a_script_carries_the_part_of_the_prologue_that_it_uses() -> None:
    front = "local a = 1\n\n-- Why.\nlocal function used()\n  -- a comment inside\n  return a\nend\n\n"
    front += "local function idle()\n  -- another\n  return 2\nend\n"
    text = parse(
        "x", "-- A sentence.\n--\n-- KEYS meta hash – x\n--\n-- RETURN x\nreturn used()\n", front
    ).text
    assert "local function used()\n\n  return a\nend" in text
    assert "idle" not in text
    assert "return 2" not in text


# ------------------------------------------------------------------------------------------------ 4: two clients


def public(thing: type) -> dict[str, Any]:
    return {
        name: value
        for name in dir(thing)
        if not name.startswith("_") and (value := inspect.getattr_static(thing, name)) is not None
    }


def plain(value: Any) -> Callable[..., Any]:
    if isinstance(value, property):
        assert value.fget is not None
        return value.fget
    if isinstance(value, (classmethod, staticmethod)):
        return value.__func__
    assert isinstance(value, FunctionType), value
    return value


def shape(value: Any) -> list[tuple[str, Any, Any, str]]:
    """What a caller sees of a signature: names, kinds, defaults, and annotations."""
    return [
        (p.name, p.kind, p.default, str(p.annotation))
        for p in inspect.signature(plain(value)).parameters.values()
    ]


PAIRS = [(TimerQueue, AsyncTimerQueue), (Handle, AsyncHandle), (Owner, AsyncOwner)]
SENDS_NOTHING = {"owner"}


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_law_4_the_clients_have_the_same_methods(one: type, other: type) -> None:
    assert set(public(one)) == set(public(other))
    for name, mine in public(one).items():
        theirs = public(other)[name]
        assert type(mine) is type(theirs), name
        if isinstance(mine, MemberDescriptorType):
            continue  # a plain attribute
        assert shape(mine) == shape(theirs), name
        assert plain(mine).__doc__ == plain(theirs).__doc__, name
    ours = inspect.signature(one).parameters
    others = inspect.signature(other).parameters
    if one is TimerQueue:
        assert str(ours) == str(others)


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_law_4_what_blocks_in_one_is_awaited_in_the_other(one: type, other: type) -> None:
    for name, mine in public(one).items():
        if isinstance(mine, (property, classmethod, MemberDescriptorType)) or name in SENDS_NOTHING:
            continue
        theirs = plain(public(other)[name])
        if inspect.isgeneratorfunction(plain(mine)):
            assert inspect.isasyncgenfunction(theirs), name
        else:
            assert inspect.iscoroutinefunction(theirs), name


def test_law_4_an_owner_has_the_words_of_upsert_but_its_own() -> None:
    words, mine = (
        {name: kind.__forward_arg__ for name, kind in of.__annotations__.items()}
        for of in (Upsert, OwnedWords)
    )
    del words["key"], words["event"], words["owner"]
    assert mine == words


def test_law_4_the_verbs_are_all_there() -> None:
    verbs = (
        "upsert upsert_many cancel cancel_many cancel_prefix cancel_owner get list list_page count trigger pause "
        "resume publish stats init connect close backfill done next why"
    )
    assert set(verbs.split()) <= set(public(TimerQueue))


# ------------------------------------------------------------------------------------------------ 5: docstrings


def undocumented(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if not ast.get_docstring(tree):
        yield "the module"

    def walk(nodes: list[ast.stmt], where: str) -> Iterator[str]:
        for node in nodes:
            if (
                not isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
                or node.name[0] == "_"
            ):
                continue
            marks = [ast.unparse(decorator) for decorator in node.decorator_list]
            overload = any("setter" in mark or mark == "overload" for mark in marks)
            if not ast.get_docstring(node) and not overload:
                yield where + node.name
            if isinstance(node, ast.ClassDef):
                yield from walk(node.body, f"{where}{node.name}.")

    yield from walk(tree.body, "")


@pytest.mark.parametrize("path", rooms(), ids=named)
def test_law_5_every_public_name_has_a_docstring(path: Path) -> None:
    assert not list(undocumented(path))


def test_law_5_what_is_exported_exists_is_documented_and_sorted() -> None:
    assert sorted(timerq.__all__) == timerq.__all__
    for name in timerq.__all__:
        value = getattr(timerq, name)
        if isinstance(value, (type, FunctionType)):
            assert value.__doc__, name


@pytest.mark.parametrize("folder", [path.parent for path in rooms() if path.name == "__init__.py"], ids=named)
def test_a_folder_says_what_its_rooms_are_for(folder: Path) -> None:
    if folder in (ROOT, ROOT / "lua"):  # the tour; and a folder of scripts, each with its own first sentence
        return
    told = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    assert {path.stem for path in folder.glob("*.py")} - {"__init__"} <= {*re.findall(r"\w+", told)}


def test_the_map_of_the_house_has_every_room() -> None:
    text = (ROOT.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    drawn = re.findall(r"\w+", " ".join(re.findall(r"^    timerq/(.+?)  ", text, re.MULTILINE)))
    there = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert {name for name in there if not name.startswith("__")} == {*drawn}


@pytest.mark.parametrize("path", rooms(), ids=named)
def test_rooms_stay_small(path: Path) -> None:
    limit, _ = LARGER_ROOMS.get(named(path), (ROOM_LINES, ""))
    assert len(path.read_text(encoding="utf-8").splitlines()) <= limit


def test_the_exceptions_are_still_needed() -> None:
    for name in LARGER_ROOMS:
        assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) > ROOM_LINES, name
