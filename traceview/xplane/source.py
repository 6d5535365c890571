"""Reads the bytes of a trace file, and refuses files of another kind with what they are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import SEEK_END, BufferedReader
from threading import Lock
from typing import BinaryIO, Final, cast, overload

from traceview.base.errors import TraceFormatError, TraceNotFoundError
from traceview.base.location import Location

NOT_A_TRACE: Final = "not a trace"
"""The start of the reason if a file is of another kind, rather than damaged."""

BLOCK_BYTES: Final = 1 << 16
"""How much is read at once of a file that is only read in parts."""

_HEAD_BYTES: Final = 4096
_READS_ANYWHERE: Final = hasattr(os, "preadv")
"""Whether the system reads from any place of a file; Windows reads from its one position."""

_SHORTER: Final = "the file became shorter while it was read"
_WIRE_TYPES: Final = (0, 1, 2, 5)
"""Wire types in use: varint, 64 bits, length-delimited, 32 bits (protobuf's encoding; groups are obsolete)."""

_TEXT_CONTROLS: Final = b"\t\n\f\r\x1b"


def read_bytes(path: Location) -> bytes:
    """The bytes of the file; raises an error that says what the file is if it is not a trace."""
    with _opened(path) as file:
        _refuse_impostor(path, file.read(_HEAD_BYTES))
        file.seek(0)
        return file.read()


class FileBytes:
    """The bytes of a file, of which only the accessed parts are read.

    A memory map would do the same faster, but reading a map of a file that another process shortens ends this process.
    Here it raises `TraceFormatError`.
    """

    def __init__(self, path: Location, file: BinaryIO, size: int | None = None) -> None:
        self._path = path
        self._file = file
        self._size = file.seek(0, SEEK_END) if size is None else size
        self._block_begin = 0
        self._block = b""
        self._turn = Lock()

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, key: int) -> int: ...

    @overload
    def __getitem__(self, key: slice) -> bytes: ...

    def __getitem__(self, key: int | slice) -> int | bytes:
        if isinstance(key, int):
            return self._between(key, key + 1)[0]
        begin, end, _ = key.indices(self._size)
        return self._between(begin, end)

    def read_into(self, part: memoryview, begin: int) -> None:
        """Fill `part` with the bytes from `begin` on; several threads may do so at the same time."""
        done = 0
        while done < len(part):
            count = self._read_some(part[done:], begin + done)
            if not count:
                raise TraceFormatError(self._path, _SHORTER)
            done += count

    def _read_some(self, part: memoryview, begin: int) -> int:
        if _READS_ANYWHERE:
            return os.preadv(self._file.fileno(), [part], begin)
        with self._turn:
            self._file.seek(begin)
            return cast("BufferedReader", self._file).readinto(part)

    def duplicate(self) -> FileBytes | None:
        """The same for `read_into`, until it is closed itself; None where all that read a file share its one position."""
        if not _READS_ANYWHERE:
            return None
        file = os.fdopen(os.dup(self._file.fileno()), "rb", buffering=0)
        return FileBytes(self._path, file, self._size)

    def close(self) -> None:
        """Close what `duplicate` gave."""
        self._file.close()

    def _between(self, begin: int, end: int) -> bytes:
        first = begin - self._block_begin
        if not 0 <= first <= first + end - begin <= len(self._block):
            self._block = self._read(begin, max(end - begin, BLOCK_BYTES))
            self._block_begin, first = begin, 0
            if len(self._block) < min(end, self._size) - begin:
                raise TraceFormatError(self._path, _SHORTER)
        return self._block[first : first + end - begin]

    def _read(self, begin: int, count: int) -> bytes:
        with self._turn:
            self._file.seek(begin)
            return self._file.read(count)


@contextmanager
def partly_read(path: Location) -> Iterator[FileBytes]:
    """The file, of which only the accessed parts are read; errors as in `read_bytes`."""
    with _opened(path) as file:
        _refuse_impostor(path, file.read(_HEAD_BYTES))
        yield FileBytes(path, file)


@contextmanager
def _opened(path: Location) -> Iterator[BinaryIO]:
    try:
        # Opening a pipe would wait for a writer.
        if not (path.is_file() or path.is_dir()) and path.exists():
            raise TraceNotFoundError(f"{path}: not a regular file")
        with path.open("rb") as file:
            yield file
    except FileNotFoundError as error:
        raise TraceNotFoundError(f"{path}: no such file") from error
    except OSError as error:
        raise TraceNotFoundError(f"{path}: {error.strerror or error}") from error


def _refuse_impostor(path: Location, head: bytes) -> None:
    impostor = _impostor(head)
    if impostor:
        reason, hint = impostor
        raise TraceFormatError(path, reason, hint=hint)


def _impostor(head: bytes) -> tuple[str, str | None] | None:
    text = head[:512].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if not head:
        return (
            "the file is empty (0 bytes)",
            "check that the profiler was stopped and the disk was not full",
        )
    if head.startswith(b"\x1f\x8b"):
        return f"{NOT_A_TRACE}: gzip data", "unpack it: gunzip"
    if head.startswith(b"PK\x03\x04"):
        return f"{NOT_A_TRACE}: a ZIP archive", "unpack it first"
    if text.startswith(b"version https://git-lfs"):
        return f"{NOT_A_TRACE}: a Git LFS pointer", "fetch the real file: git lfs pull"
    if text.startswith((b"<!doctype", b"<html", b"<?xml")):
        return f"{NOT_A_TRACE}: an HTML page", "was it saved from a download page?"
    if head.count(b"\xef\xbf\xbd") >= 8 and head.startswith(b"\x0a\xef\xbf\xbd"):
        return (
            "binary data mangled by a conversion to UTF-8 text; the numbers in it are lost",
            "copy the original file in binary mode",
        )
    kind = _other_kind(head)
    return (f"{NOT_A_TRACE}: {kind}", None) if kind else None


def _other_kind(head: bytes) -> str | None:
    """The kind of a file that does not begin with a field of a message; None if it may begin with one."""
    if head.startswith(b"\x7fELF"):
        return "an ELF program"
    if not any(head):
        return "zero bytes"
    if _is_text(head):
        return "a text file"
    number, wire_type = head[0] >> 3, head[0] & 7
    if number == 0 or wire_type not in _WIRE_TYPES:
        return f"it begins with the byte 0x{head[0]:02x}"
    return None


def _is_text(head: bytes) -> bool:
    """Whether all bytes are text; a trace has control bytes between its names."""
    if any((byte < 0x20 or byte == 0x7F) and byte not in _TEXT_CONTROLS for byte in head):
        return False
    try:
        head[: head.rfind(b"\n") + 1 or None].decode()
    except UnicodeDecodeError:
        return False
    return True
