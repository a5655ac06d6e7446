"""Files and folders of schedules."""

from __future__ import annotations

from pathlib import Path

from timerq.declare.declared import DeclaredSet, make_set
from timerq.declare.documents import MAX_FILE_BYTES, Document, Unreadable
from timerq.declare.entries import Contents, Naming, read_entries
from timerq.declare.toml_text import read_toml
from timerq.declare.yaml_text import read_yaml
from timerq.errors import Fault, InvalidDeclaration

SUFFIXES = (".yaml", ".yml", ".toml")


def load_files(path: Path, label: str | None = None, hint: str = "set=") -> DeclaredSet:
    """The schedules of a file, or of all files of a folder that end like one (`SUFFIXES`), by their names.

    The set is ``label``, or what the files say under ``set``, or the file's or folder's own name. Raises
    `InvalidDeclaration` with every fault of every file, and OSError.
    """
    files = _files_of(path)
    naming = Naming()
    contents = [_read_file(file, naming) for file in files]
    faults = [fault for one in contents for fault in one.faults]
    names = [(one, file) for one, file in zip(contents, files, strict=True) if one.label is not None]
    for one, file in names:
        if label is None and one.label != names[0][0].label:
            text = f"{one.label!a} here, {names[0][0].label!a} in {names[0][1]}: the files of a folder are one set"
            faults.append(Fault(str(file), one.label_line, "set", text))
    if faults:
        raise InvalidDeclaration(faults)
    if label is None:
        label = names[0][0].label if names else path.resolve().stem
    return make_set(label, [declared for one in contents for declared in one.schedules], str(path), hint)


def _files_of(path: Path) -> list[Path]:
    if not path.is_dir():
        if path.suffix not in SUFFIXES:
            raise InvalidDeclaration([Fault(str(path), None, "", f"want a file that ends in {_SUFFIXES}")])
        return [path]
    files = sorted(
        file
        for file in path.iterdir()
        if file.suffix in SUFFIXES and file.name[0] != "." and not file.is_dir()
    )
    if not files:
        raise InvalidDeclaration([Fault(str(path), None, "", f"no file in it ends in {_SUFFIXES}")])
    return files


_SUFFIXES = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"


def _read_file(path: Path, naming: Naming) -> Contents:
    source = str(path)
    try:
        if path.is_fifo():  # nobody may ever write into it
            raise Unreadable(None, "", "want a regular file")
        text = read_text(path)
        document = (
            Document(source, read_toml(text) or None)  # as an empty YAML file has nothing
            if path.suffix == ".toml"
            else Document(source, *read_yaml(text))
        )
    except Unreadable as error:
        return Contents([], None, None, [Fault(source, error.line, error.key, error.text)])
    return read_entries(document, path.stem, naming)


def read_text(path: Path) -> str:
    """A file's text. Raises `Unreadable` for one that is too large or not UTF-8, and OSError."""
    with path.open("rb") as file:
        return decode(file.read(MAX_FILE_BYTES + 1))


def decode(data: bytes) -> str:
    """The text of a file's bytes. Raises `Unreadable`."""
    if len(data) > MAX_FILE_BYTES:
        raise Unreadable(None, "", f"larger than {MAX_FILE_BYTES:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Unreadable(line, "", "not UTF-8") from None
