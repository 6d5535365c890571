"""Writes the result of a command: to the terminal as it can show it, or to files, all of them whole or none."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from traceview.base.errors import OutputExistsError, UsageError
from traceview.base.location import Location
from traceview.document.sanitize import sanitize

if TYPE_CHECKING:
    from traceview.document.model import Section
    from traceview.report.document import Invocation
    from traceview.report.model import Report

MOST_WIDTH: Final = 1000
"""Columns that no terminal and no reader has."""

_WIDTH_WITHOUT_TERMINAL: Final = 100
"""Fits most windows in which a file is read."""
_RECORDED: Final = (".xplane.pb", ".traceview.json")
_ELSEWHERE: Final = "choose another place: traces cannot be made again"
TERMINAL: Final = "terminal"
ENDINGS: Final = {
    ".md": "markdown",
    ".html": "html",
    ".csv": "csv",
    ".json": "json",
    ".parquet": "parquet",
    ".txt": TERMINAL,
}
"""The formats of files by their endings."""


class Target(Struct, frozen=True):
    """A file to write, or standard output where `path` is None. `columns`: the width that is asked for."""

    path: Location | None
    force: bool = False
    columns: int | None = None

    @classmethod
    def of(
        cls, path: Location | None, *sources: Location, force: bool, width: int | None = None
    ) -> Target:
        """The target of `-o PATH`; raises before any work is done if it could not be written anyway.

        `sources`: what the command reads, which must not be replaced by what it makes of it.
        """
        target = cls(None if path is None or str(path) == "-" else path, force, width)
        target.check()
        if target.path is not None:
            _check_apart(target.path, sources)
        return target

    def check(self) -> None:
        """Raise `OutputExistsError` if a file would be lost, `UsageError` if there is no such place."""
        path = self.path
        if path is None:
            if sys.stdout is None:
                raise UsageError("standard output is closed")
            return
        path = checked_place(path)
        if path.is_dir():
            raise UsageError(f"{path} is a directory", hint="name a file in it")
        if path.is_file() and str(path.resolve()).endswith(_RECORDED):
            raise UsageError(f"{path} is a recorded trace", hint=_ELSEWHERE)
        if path.is_file() and not self.force:
            raise OutputExistsError(f"{path} exists", hint="--force replaces it")
        if isinstance(path, Path) and not path.parent.is_dir():
            raise UsageError(f"cannot write {path}: there is no directory {path.parent}")

    @property
    def is_terminal(self) -> bool:
        """Whether the output appears on a terminal."""
        return self.path is None and sys.stdout is not None and sys.stdout.isatty()

    @property
    def has_color(self) -> bool:
        """Whether colours are wanted: on a terminal, unless NO_COLOR or TERM forbid them."""
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        return self.is_terminal and not plain

    @property
    def width(self) -> int:
        """Columns to fill."""
        if self.columns is not None:
            return self.columns
        if self.path is not None:
            return _WIDTH_WITHOUT_TERMINAL
        return min(shutil.get_terminal_size((_WIDTH_WITHOUT_TERMINAL, 24)).columns, MOST_WIDTH)

    def write_report(
        self, report: Report, invocation: Invocation, *, is_full: bool = False
    ) -> None:
        """Write a report as a terminal shows it: its first screen, or all of it if `is_full` and to a file.

        `invocation`: how the commands on the screen name the run.
        """
        from traceview.document.screen import render, render_screen
        from traceview.report.document import document_of, screen_of

        width, color = self.width, self.has_color
        if is_full or self.path is not None:
            document = document_of(report, is_brief=True, invocation=invocation)
            self.write(render(document, width=width, color=color))
        else:
            self.write(render_screen(screen_of(report, invocation), width=width, color=color))

    def write_sections(self, sections: Iterable[Section]) -> None:
        """Write sections as a terminal shows them, one after another."""
        from traceview.document.terminal import render_section

        width, color = self.width, self.has_color
        texts = (render_section(section, width=width, color=color) for section in sections)
        self.write("\n".join(texts))

    def write_record(
        self, record: Any, sections: Sequence[Section], format_: str, *, title: str = ""
    ) -> None:
        """Write a record as JSON, or its sections: as Markdown, as a page with this title, or as a terminal shows them."""
        if format_ == "json":
            from traceview.document.sanitize import dumped

            self.write(dumped(record))
        elif format_ == "html":
            from traceview.document.html.printer import render_sections

            self.write(render_sections(title, sections[0].lead, sections).encode())
        elif format_ == "markdown":
            from traceview.document.markdown import render_section

            self.write("\n".join(map(render_section, sections)).encode())
        else:
            self.write_sections(sections)

    def write(self, content: str | bytes) -> None:
        """Write everything. Data (`bytes`) goes out as it is, text in the encoding of the terminal."""
        self.write_parts((content,))

    def write_parts(self, parts: Iterable[str | bytes]) -> None:
        """Write parts one after another, as they are made; a file appears once all of them are written."""
        self.check()
        if self.path is not None:
            encoded = (part.encode() if isinstance(part, str) else part for part in parts)
            write_file(self.path, encoded)
            return
        try:
            with writing("to standard output"):
                for part in parts:
                    _print(part)
        except UsageError:
            abandon_stdout()
            raise


def checked_place(path: Location) -> Location:
    """The place, with what its store says of it now.

    Raises `UsageError` if nothing can have this name, because it is too long for instance, or can be written there.
    """
    if not isinstance(path, Path):
        from traceview.store.remote import writable

        return writable(path)
    with writing(path), suppress(FileNotFoundError, NotADirectoryError):
        path.lstat()
    return path


@contextmanager
def writing(place: object) -> Iterator[None]:
    """Turns what goes wrong with a file into a `UsageError` that names the place; a closed pipe stays what it is."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(f"cannot write {place}: {error.strerror or error}") from error


def _check_apart(path: Location, sources: Iterable[Location]) -> None:
    """Raise `UsageError` for a file or folder that the command reads."""
    for source in sources:
        is_same = path == source
        if isinstance(path, Path) and isinstance(source, Path):
            is_same = path.exists() and source.exists() and path.samefile(source)
        if is_same:
            raise UsageError(f"{path} is what the command reads", hint=_ELSEWHERE)


def format_of(asked: str | None, path: Location | None, formats: Sequence[str]) -> str:
    """The format asked for, else that of a file by its ending: text without one or for `.txt`.

    Raises `UsageError` for an ending that is none of these formats.
    """
    if asked is not None:
        return asked
    suffix = "" if path is None else path.suffix.lower()
    known = {end: name for end, name in ENDINGS.items() if name in formats}
    if suffix and suffix not in known:
        hint = f"known endings: {', '.join(known)}; --format chooses a format for any name"
        if ENDINGS.get(suffix) in ("html", "markdown"):
            hint += f"; traceview report LOGDIR -o FILE{suffix} writes a page"
        raise UsageError(f"{path}: no format has the ending {suffix}", hint=hint)
    return known.get(suffix, TERMINAL)


def abandon_stdout() -> None:
    """Let the interpreter flush into nothing at its end, instead of a closed pipe or a full disk."""
    try:
        number = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def _print(content: str | bytes) -> None:
    raw = getattr(sys.stdout, "buffer", None)
    if raw is None:
        # What captures the output of a cell, or of a test.
        sys.stdout.write(content if isinstance(content, str) else content.decode())
        return
    if isinstance(content, str):
        content = content.encode(sys.stdout.encoding or "utf-8", "backslashreplace")
    sys.stdout.flush()
    raw.write(content)
    sys.stdout.flush()


def write_file(path: Location, parts: Iterable[bytes]) -> None:
    """Write a file, whole or not at all; raises `UsageError` and `StoreError`."""
    with writing(path):
        if isinstance(path, Path) and path.exists() and not path.is_file():
            # A pipe or a device has no content to keep, and no file must replace it.
            with path.open("wb") as file:
                file.writelines(parts)
            return
        with _private_folder(path) as folder:
            partial = folder / "whole"
            with partial.open("xb") as file:
                file.writelines(parts)
            if isinstance(path, Path):
                # Behind a link the file is replaced, not the link.
                partial.replace(os.path.realpath(path))
            else:
                from traceview.store.remote import put_file

                put_file(path, partial)


@contextmanager
def _private_folder(target: Location) -> Iterator[Path]:
    """A new folder, on the disk of `target` if that is no store, which only this user can enter; it is removed in the end.

    Its name cannot be foreseen, so nobody can put a link in its place. SIGTERM and SIGHUP end the process after the
    folder is removed. Raises `OSError` if it cannot be made.
    """
    import tempfile

    with terminable():
        beside = Path(os.path.realpath(target)).parent if isinstance(target, Path) else None
        folder = Path(tempfile.mkdtemp(prefix=".traceview_partial-", dir=beside))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def check_folder(folder: Location, names: Sequence[str], *sources: Location, force: bool) -> None:
    """Raise `OutputExistsError` if a file of these names in a folder would be lost, `UsageError` if there is no such place.

    `sources`: as of `Target.of`.
    """
    place = checked_place(folder)
    for path in (folder, *(folder / name for name in names)):
        _check_apart(path, sources)
    if place.exists() and not place.is_dir():
        raise UsageError(f"{folder} is a file", hint="-o DIR names a folder")
    existing = next((name for name in names if (place / name).exists()), None)
    if existing and not force:
        raise OutputExistsError(f"{folder / existing} exists", hint="--force replaces it")
    if isinstance(place, Path) and not place.parent.is_dir():
        raise UsageError(f"cannot write {folder}: there is no directory {place.parent}")


def write_folder(folder: Location, files: Mapping[str, Iterable[bytes]]) -> None:
    """Write files into a folder, one after another, each given in parts."""
    if isinstance(folder, Path):
        with writing(folder):
            folder.mkdir(exist_ok=True)
    for name, parts in files.items():
        write_file(folder / name, parts)


# What a batch system ends cleans up as after Ctrl-C

_SIGNALLED: Final = 128
"""A shell reports a process that died of a signal with this plus the number of the signal."""
_ENDING_SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)


@contextmanager
def terminable() -> Iterator[None]:
    """Turn SIGTERM and the end of the terminal into `SystemExit(128 + number)`, unless they are handled already."""

    def terminate(number: int, _frame: FrameType | None) -> Any:
        raise SystemExit(_SIGNALLED + number)

    handled = []
    # No thread but the main one may handle signals.
    with suppress(ValueError):
        for number in _ENDING_SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, terminate)
                handled.append(number)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)


def say(text: str) -> None:
    """Write one line to the error stream, whatever a trace has in its names."""
    warn(f"traceview: {sanitize(text)}")


def warn(line: str) -> None:
    """Write a line to the error stream as it is."""
    # A script that was recorded may have closed it.
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            sys.stderr.write(f"{line}\n")
