"""Writes several files into one folder: all of them or none."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from traceview.base.errors import OutputExistsError, UsageError
from traceview.base.location import Location
from traceview.cli.output import checked_place, write_beside
from traceview.cli.private_folder import private_folder


class Bundle(Struct, frozen=True):
    """A folder to write, and the names, relative to it, that files of such a folder may have.

    With `force`, files of those names that are not written again are removed: they belong to another report. All
    other files in the folder stay. In a store, which knows no folders, the files appear one after another.
    """

    folder: Location
    names: Collection[str]
    force: bool

    def check(self) -> None:
        """Raise `OutputExistsError` if a file would be lost, `UsageError` if there is no such place."""
        folder = checked_place(self.folder)
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder} is a file", hint="-o DIR names a folder")
        existing = [name for name in self.names if (folder / name).exists()]
        if existing and not self.force:
            raise OutputExistsError(
                f"{self.folder / existing[0]} exists", hint="--force replaces it"
            )
        if isinstance(folder, Path) and not folder.parent.is_dir():
            raise UsageError(
                f"cannot write {self.folder}: there is no directory {self.folder.parent}"
            )

    def write(self, files: Mapping[str, Iterable[bytes]]) -> None:
        """Write everything, each file given in parts, beside the folder, then put it in place."""
        self.check()
        try:
            if isinstance(self.folder, Path):
                self._write_folder(self.folder, files)
                return
            from traceview.store.writing import write_folder

            write_folder(self.folder, files, others=set(self.names) - set(files))
        except OSError as error:
            raise UsageError(f"cannot write {self.folder}: {error.strerror or error}") from error

    def _write_folder(self, place: Path, files: Mapping[str, Iterable[bytes]]) -> None:
        with private_folder(place) as folder:
            # Not the private folder itself: this one gets the permissions of any new folder.
            partial = folder / "whole"
            for name, parts in files.items():
                path = partial / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("xb") as file:
                    write_beside(file, parts)
            self._put_in_place(partial, place, files)

    def _put_in_place(
        self, partial: Path, place: Path, files: Mapping[str, Iterable[bytes]]
    ) -> None:
        if not place.exists():
            partial.rename(place)
            return
        for name in files:
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            (partial / name).replace(path)
        for name in set(self.names) - set(files):
            (place / name).unlink(missing_ok=True)
