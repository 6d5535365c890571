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
_BINARIES: Final = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
"""How programs for Linux, Windows and macOS begin."""
_LONGEST_LINE: Final = 256
"""Of the first line; the kernel reads no more of it (BINPRM_BUF_SIZE)."""


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
    if path.is_file():
        start = _command_of_file(path)
    else:
        is_script = path.suffix in _PYTHON_SUFFIXES or (path / "__main__.py").is_file()
        start = [name] if not is_script and shutil.which(name) else None
    if start is None:
        _check_script(path, name)
        start = [sys.executable, name]
    return [*start, *arguments]


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


def _command_of_file(path: Path) -> list[str] | None:
    """How to start a file that is not Python; None for Python, and for what cannot be read."""
    try:
        if path.suffix in _PYTHON_SUFFIXES:
            return None
        with path.open("rb") as file:
            first_line = file.readline(_LONGEST_LINE)
    except OSError:
        return None
    runnable = str(path if path.is_absolute() else Path.cwd() / path)
    can_run = os.access(path, os.X_OK)
    if first_line.startswith(b"#!"):
        if can_run:
            # Also where it is Python: a launcher such as `bin/torchrun`, with an environment of its own.
            return [runnable]
        interpreter = first_line[2:].decode("utf-8", "replace").split()
        is_python = any("python" in word for word in interpreter)
        return None if is_python else [*interpreter, runnable]
    if path.suffix in _SHELL_SUFFIXES:
        return ["bash" if shutil.which("bash") else "sh", runnable]
    return [runnable] if can_run and first_line.startswith(_BINARIES) else None
