"""Tells the user's Python files from those of libraries, shortens their paths, and finds the lines of code that AutoGraph wrote.

TensorFlow turns a function that it traces into Python of its own, in a temporary file that is gone when the script ends.
What converts functions keeps, with each, a map from the lines of that file to those of the script (TensorFlow 2.15 to
2.21). It is no public API: where it is another one, the line is not known.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

_LIBRARY_FOLDERS: Final = ("site-packages", "dist-packages")
_CAPTURE: Final = Path(__file__).parent.parent


class CodePlaces:
    """Where code lies. `user_folders`: those of the script that runs, whose code is the user's wherever it is installed.

    An environment in such a folder, as `.venv` often is, holds packages all the same.
    """

    def __init__(self, user_folders: Sequence[Path] | None = None) -> None:
        user_folders = [_folder_of_script()] if user_folders is None else user_folders
        self._user = _beginnings(
            folder for folder in user_folders if folder.name not in _LIBRARY_FOLDERS
        )
        # `pip install --target`, and what builds images and bundles, installs elsewhere.
        self._installed = _beginnings(
            Path(folder).absolute() for folder in sys.path if any(Path(folder).glob("*.dist-info"))
        )
        paths = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
        self._standard = _beginnings(Path(path) for path in paths if path)
        self._traceview = _beginnings([_CAPTURE.parent])
        # The demo is a script like any other, although it is ours.
        self._demo = _beginnings([_CAPTURE.parent / "demo"])

    def is_standard(self, file: str) -> bool:
        """Whether it is a module of the standard library."""
        is_below = file.startswith(("<frozen", *self._standard))
        return is_below and _in_library_folder(file) is None

    def is_user(self, file: str) -> bool:
        """Whether it is neither of the standard library, nor of an installed package, nor of traceview."""
        if file.startswith(self._traceview):
            return not self.is_own(file)
        is_installed = self.is_standard(file) or self._in_packages(file) is not None
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
        inside = self._in_packages(file)
        if inside is not None:
            return inside
        for folder in self._standard:
            if file.startswith(folder):
                return file.removeprefix(folder)
        return Path(file).name

    def _in_packages(self, file: str) -> str | None:
        """The path within a folder of installed packages; None outside of such folders."""
        inside = _in_library_folder(file)
        if inside is None:
            for folder in self._installed:
                if file.startswith(folder):
                    return file.removeprefix(folder)
        return inside

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


def callers(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame, and those that led to it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _folder_of_script() -> Path:
    """The folder of the script that runs; of a module within packages, that of the outermost package."""
    main: Any = sys.modules.get("__main__")
    file: str | None = getattr(main, "__file__", None)
    if not file:
        return Path().absolute()
    package = getattr(main, "__package__", None) or ""
    return Path(file).absolute().parents[package.count(".")]


def _beginnings(folders: Iterable[Path]) -> tuple[str, ...]:
    """What the paths of files in these folders begin with."""
    return tuple(f"{folder}{os.sep}" for folder in folders)


def _in_library_folder(file: str) -> str | None:
    """The same by the names that such folders have."""
    for name in _LIBRARY_FOLDERS:
        _, separator, inside = file.rpartition(f"{os.sep}{name}{os.sep}")
        if separator:
            return inside
    return None


_CONVERSION: Final = "tensorflow.python.autograph.impl.api"
_FILE: Final = "__autograph_generated_file"
_FUNCTION: Final = "tf__"
SHOWN_FILE: Final = "code generated by AutoGraph"
"""Instead of the temporary file."""


@dataclass(frozen=True)
class Origin:
    """The function that code was made from; no file where the map from generated code was not found.

    `generated`, `lines`: lines of the generated file, rising, and the line of `file` that each stands for.
    """

    file: str | None
    function: str
    generated: Sequence[int] = ()
    lines: Sequence[int] = ()

    def line_of(self, line: int) -> int:
        """The line of the script: that of the nearest generated line before it, where it has none itself."""
        if not self.generated:
            return line
        return self.lines[max(bisect_right(self.generated, line) - 1, 0)]

    def shown(self, places: CodePlaces) -> str:
        """The file as it is shown."""
        return SHOWN_FILE if self.file is None else places.shown(self.file)

    def is_user(self, places: CodePlaces) -> bool:
        """Whether it is code of the user."""
        return self.file is not None and places.is_user(self.file)


def origin_of(code: CodeType) -> Origin:
    """Where generated code comes from; code that a person wrote comes from itself."""
    if not Path(code.co_filename).name.startswith(_FILE):
        return Origin(code.co_filename, code.co_name)
    known = None
    # Whatever another version keeps there, what is known of the code is its name.
    with suppress(Exception):
        known = _known(code.co_filename)
    return known or Origin(None, code.co_name.removeprefix(_FUNCTION))


def _known(file: str) -> Origin | None:
    conversion: Any = sys.modules.get(_CONVERSION)
    if conversion is None:
        return None
    # A copy: another thread may convert a function meanwhile.
    for written, factories in list(conversion._TRANSPILER._cache._cache.items()):
        for factory in list(factories.values()):
            if factory.module.__file__ != file:
                continue
            known = {made.lineno: from_.loc.lineno for made, from_ in factory.source_map.items()}
            generated = sorted(known) or [0]
            lines = [known.get(line, written.co_firstlineno) for line in generated]
            return Origin(written.co_filename, written.co_name, generated, lines)
    return None
