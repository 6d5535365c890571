"""Makes a command of what the user names: a Python script, a module, or a program that starts one, such as a shell."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from traceview.base.errors import UsageError
from traceview.base.text import shell_path

_SHELL_SUFFIXES: Final = (".sh", ".bash")
_PYTHON_SUFFIXES: Final = (".py", ".pyw", ".pyz")


def command_of(name: str, arguments: Sequence[str], *, is_module: bool = False) -> list[str]:
    """The command to run for `name` and its arguments. `is_module`: it is the name of a Python module.

    Raises `UsageError` if there is nothing of this name, and for a notebook, with the command that runs it.
    """
    if is_module:
        return [sys.executable, "-m", name, *arguments]
    path = Path(name)
    if path.suffix == ".ipynb" and (path.exists() or not shutil.which(name)):
        raise UsageError(
            f"{name} is a notebook",
            hint=f"traceview capture -- jupyter execute {shell_path(name)}; or, in the notebook, %load_ext traceview and "
            "%%traceview in the cell that trains",
        )
    if path.suffix not in _PYTHON_SUFFIXES:
        file = str(Path.cwd() / path)
        if path.is_file() and os.access(path, os.X_OK):
            # Also where it is Python: a launcher such as `bin/torchrun`, with an environment of its own.
            return [file, *arguments]
        if path.is_file() and path.suffix in _SHELL_SUFFIXES:
            return ["bash", file, *arguments]
        if not path.is_file() and not (path / "__main__.py").is_file() and shutil.which(name):
            return [name, *arguments]
    _check_script(path, name)
    return [sys.executable, name, *arguments]


def _check_script(path: Path, name: str) -> None:
    if not path.exists():
        hint = "give the path of a Python file"
        if name.startswith("-"):
            hint = "put options of traceview capture before the script"
        elif not name.endswith(".py") and all(part.isidentifier() for part in name.split(".")):
            hint = f"to run a module: traceview capture -m {name}; no program of this name is installed"
        raise UsageError(f"script not found: {name}", hint=hint)
    if path.is_file() and not os.access(path, os.R_OK):
        raise UsageError(f"script cannot be read: {name}")
    if path.is_dir() and not (path / "__main__.py").is_file():
        raise UsageError(f"{name} is a directory without a __main__.py")
