"""From where schedules are declared to a `DeclaredSet`."""

from __future__ import annotations

import os
from pathlib import Path

from timerq.declare.declared import DeclaredSet
from timerq.declare.files import load_files
from timerq.declare.modules import TARGET, load_module
from timerq.errors import Fault, InvalidDeclaration


def load(where: str | os.PathLike[str], label: str | None = None, hint: str = "set=") -> DeclaredSet:
    """The schedules of a YAML or TOML file, a folder of them, or a ``module`` or ``module:attr``; a file comes first.

    ``label`` names the set; without one it is what a file says under ``set``, or the file's, folder's or module's name.
    ``hint`` is how a caller may give another, for messages.

    Raises `InvalidDeclaration` with all that is wrong, and OSError for a file that cannot be read.
    """
    path = Path(where)
    if path.exists():
        if path.suffix == ".py":
            text = "want a Python file by its module, as in examples.schedules.jobs"
            raise InvalidDeclaration([Fault(str(path), None, "", text)])
        return load_files(path, label, hint)
    if isinstance(where, str) and TARGET.fullmatch(where):
        return load_module(where, label, hint)
    raise InvalidDeclaration([Fault(str(where), None, "", "no such file or folder")])
