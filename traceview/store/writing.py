"""Writes files to a store: each is made whole on this machine first, and a store shows a file when it has all of it."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from traceview.base.errors import StoreError, TraceNotFoundError, UsageError
from traceview.base.location import Location
from traceview.store.address import is_remote
from traceview.store.remote import RemotePath
from traceview.store.schemes import SCHEMES


def writable(place: Location) -> RemotePath:
    """The place, with what the store says of it now; raises `UsageError` if nothing can be written there."""
    assert is_remote(place)
    if SCHEMES[place.scheme].is_web:
        raise UsageError(
            f"cannot write {place}: a web server takes no files",
            hint="write to a folder, or to a store such as s3://",
        )
    try:
        return place.asked()
    except FileNotFoundError:
        # Nothing is there, and nothing lies below it.
        return place.vacant()
    except TraceNotFoundError as error:
        raise UsageError(f"cannot write {error.message}") from None


def write(place: Location, parts: Iterable[bytes]) -> None:
    """Write a file, whole or not at all. Raises `StoreError`."""
    path = writable(place)
    with tempfile.TemporaryDirectory(prefix="traceview-") as made_in:
        partial = Path(made_in) / "whole"
        with partial.open("xb") as file:
            file.writelines(parts)
        _put(path, str(partial))


def _put(path: RemotePath, file: str) -> None:
    try:
        path.put(file)
    except FileNotFoundError:
        raise UsageError(f"cannot write {path}: there is no {path.parents[-1]}") from None


def write_folder(
    place: Location, files: Mapping[str, Iterable[bytes]], *, others: Collection[str]
) -> None:
    """Write several files, given in parts, below a place, and remove `others` there, which belong to another report.

    If a file cannot be written, those that are new are removed. Raises `StoreError`.
    """
    folder = writable(place)
    is_new = {name: not (folder / name).exists() for name in files}
    written: list[RemotePath] = []
    with tempfile.TemporaryDirectory(prefix="traceview-") as made_in:
        partial = Path(made_in) / "whole"
        try:
            for name, parts in files.items():
                with partial.open("wb") as file:
                    file.writelines(parts)
                path = folder / name
                _put(path, str(partial))
                written += [path] if is_new[name] else []
        except BaseException:
            for path in written:
                with suppress(StoreError, FileNotFoundError):
                    path.unlink()
            raise
    for name in others:
        with suppress(FileNotFoundError):
            if (folder / name).exists():
                (folder / name).unlink()
