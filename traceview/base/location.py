"""Defines what traceview needs of a place that holds files: the part of `Path` that remote places have too.

A place on this machine is a `Path`. One in an object store is a `traceview.store.remote.RemotePath`.
What reads and writes is given either and does not ask which.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any, BinaryIO, Literal, Protocol


class Status(Protocol):
    """What is known of a file without reading it."""

    @property
    def st_size(self) -> int:
        """Bytes."""


class Location(Protocol):
    """A file, a folder, or a name that neither has. Methods mean what those of `Path` mean, errors included."""

    @property
    def name(self) -> str:
        """The last part."""

    @property
    def suffix(self) -> str:
        """The ending of the name, with its dot."""

    @property
    def parent(self) -> Location:
        """The folder that holds it."""

    @property
    def parents(self) -> Sequence[Location]:
        """All folders that hold it, the innermost first."""

    def __truediv__(self, name: str, /) -> Location: ...

    def with_name(self, name: str) -> Location:
        """The place of this name in the same folder."""

    def relative_to(self, folder: Any, /) -> PurePath:
        """The way from `folder` to this place."""

    def resolve(self) -> Location:
        """The same place without links."""

    def exists(self) -> bool:
        """Whether there is a file or a folder."""

    def is_file(self) -> bool:
        """Whether there is a file."""

    def is_dir(self) -> bool:
        """Whether there is a folder."""

    def stat(self) -> Status:
        """The size of the file."""

    def iterdir(self) -> Iterator[Location]:
        """What a folder holds."""

    def open(self, mode: Literal["rb"], /) -> BinaryIO:
        """The file, to be read in parts or whole."""

    def read_bytes(self) -> bytes:
        """The content of the file."""

    def read_text(self, encoding: str, errors: str) -> str:
        """The content of a text file."""
