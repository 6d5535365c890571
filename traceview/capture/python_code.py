"""Tells the user's Python files from those of libraries, and shortens their paths."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

_LIBRARY_FOLDERS: Final = ("site-packages", "dist-packages")
_CAPTURE: Final = Path(__file__).parent


class CodePlaces:
    """Where code lies. `user_folders`: those of the script, whose code is the user's wherever it is installed.

    An environment in such a folder, as `.venv` often is, holds packages all the same.
    """

    def __init__(self, user_folders: Sequence[Path]) -> None:
        self._user = _beginnings(
            folder for folder in user_folders if folder.name not in _LIBRARY_FOLDERS
        )
        paths = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
        self._standard = _beginnings(Path(path) for path in paths if path)
        self._traceview = _beginnings([_CAPTURE.parent])
        # The demo is a script like any other, although it is ours.
        self._demo = _beginnings([_CAPTURE / "demo"])

    def is_standard(self, file: str) -> bool:
        """Whether it is a module of the standard library."""
        is_below = file.startswith(("<frozen", *self._standard))
        return is_below and _in_library_folder(file) is None

    def is_user(self, file: str) -> bool:
        """Whether it is neither of the standard library, nor of an installed package, nor of traceview."""
        if file.startswith(self._traceview):
            return not self.is_own(file)
        is_installed = self.is_standard(file) or _in_library_folder(file) is not None
        return self._folder_of_script(file) is not None or not is_installed

    def is_own(self, file: str) -> bool:
        """Whether it is a module of traceview, other than the script of the demo."""
        return file.startswith(self._traceview) and not file.startswith(self._demo)

    def shown(self, file: str) -> str:
        """The path within the folder of the script, of packages or of the standard library; else the name.

        No part of it says whose machine it is.
        """
        if file.startswith(self._traceview):
            return file.removeprefix(f"{_CAPTURE.parent.parent}{os.sep}")
        folder = self._folder_of_script(file)
        if folder is not None:
            return file.removeprefix(folder)
        inside = _in_library_folder(file)
        if inside is not None:
            return inside
        for folder in self._standard:
            if file.startswith(folder):
                return file.removeprefix(folder)
        return Path(file).name

    def _folder_of_script(self, file: str) -> str | None:
        """The folder of the script that a file is in; None for one of an environment within that folder."""
        for folder in self._user:
            is_standard = any(
                part.startswith(folder) and file.startswith(part) for part in self._standard
            )
            in_environment = _in_library_folder(f"{os.sep}{file.removeprefix(folder)}") is not None
            if file.startswith(folder) and not is_standard and not in_environment:
                return folder
        return None


def folders_of_script() -> list[Path]:
    """The folder of the script that runs; of a module within packages, that of the outermost package."""
    main: Any = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if not file:
        return [Path.cwd()]
    package = getattr(main, "__package__", None) or ""
    depth = package.count(".")
    return [(Path.cwd() / file).parents[depth]]


def _beginnings(folders: Iterable[Path]) -> tuple[str, ...]:
    """What the paths of files in these folders begin with."""
    return tuple(f"{folder}{os.sep}" for folder in folders)


def _in_library_folder(file: str) -> str | None:
    """The path within a folder of installed packages; None outside of such folders."""
    for name in _LIBRARY_FOLDERS:
        _, separator, inside = file.rpartition(f"{os.sep}{name}{os.sep}")
        if separator:
            return inside
    return None
