"""Puts files that were made whole on this machine into a store, which shows a file when it has all of it."""

from __future__ import annotations

from collections.abc import Iterable
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


def put_file(place: Location, made: Path) -> None:
    """Store a file that was made on this machine. Raises `StoreError`."""
    _put(writable(place), made)


def _put(path: RemotePath, made: Path) -> None:
    try:
        path.put(str(made))
    except FileNotFoundError:
        raise UsageError(f"cannot write {path}: there is no {path.parents[-1]}") from None


def put_files(place: Location, made: Path, names: Iterable[str], others: Iterable[str]) -> None:
    """Store the files of these names in the folder `made`, and remove `others` there, which belong to another report.

    If a file cannot be written, those that are new are removed. Raises `StoreError`.
    """
    folder = writable(place)
    is_new = {name: not (folder / name).exists() for name in names}
    written: list[RemotePath] = []
    try:
        for name in is_new:
            _put(folder / name, made / name)
            written += [folder / name] if is_new[name] else []
    except BaseException:
        for path in written:
            with suppress(StoreError, FileNotFoundError):
                path.unlink()
        raise
    for name in others:
        with suppress(FileNotFoundError):
            if (folder / name).exists():
                (folder / name).unlink()
