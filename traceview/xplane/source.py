"""Reads the bytes of a trace file, and refuses files of another kind with what they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import SEEK_END, BufferedReader
from threading import Lock
from typing import BinaryIO, Final, cast

from traceview.base.errors import TraceFormatError, TraceNotFoundError
from traceview.base.location import Location

NOT_A_TRACE: Final = "not a trace"
"""The start of the reason if a file is of another kind, rather than damaged."""

BLOCK_BYTES: Final = 1 << 16
"""How much is read at once of a file that is only read in parts."""

_HEAD_BYTES: Final = 4096
_SHORTER: Final = "the file became shorter while it was read"
_WIRE_TYPES: Final = (0, 1, 2, 5)
"""Wire types in use: varint, 64 bits, length-delimited, 32 bits (protobuf's encoding; groups are obsolete)."""

_TEXT_CONTROLS: Final = b"\t\n\f\r\x1b"


class FileBytes:
    """The bytes of a file, of which only the accessed parts are read; several threads may do so at the same time.

    A memory map would do the same faster, but reading a map of a file that another process shortens ends this process.
    Here it raises `TraceFormatError`.
    """

    def __init__(self, path: Location, file: BinaryIO) -> None:
        self._path = path
        # What `open` gives can fill a buffer, which its class does not say.
        self._file = cast("BufferedReader", file)
        self._size = file.seek(0, SEEK_END)
        self._block_begin = 0
        self._block = b""
        self._turn = Lock()

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, key: slice) -> bytes:
        begin, end, _ = key.indices(self._size)
        with self._turn:
            first = begin - self._block_begin
            if not 0 <= first <= first + end - begin <= len(self._block):
                self._file.seek(begin)
                block = self._file.read(max(end - begin, BLOCK_BYTES))
                if len(block) < end - begin:
                    raise TraceFormatError(self._path, _SHORTER)
                if len(block) > BLOCK_BYTES:
                    return block
                self._block, self._block_begin, first = block, begin, 0
            return self._block[first : first + end - begin]

    def read_into(self, buffer: memoryview, begin: int) -> None:
        """Fill a buffer with the bytes from `begin` on."""
        with self._turn:
            self._file.seek(begin)
            if self._file.readinto(buffer) < len(buffer):
                raise TraceFormatError(self._path, _SHORTER)


@contextmanager
def partly_read(path: Location) -> Iterator[FileBytes]:
    """The file, of which only the accessed parts are read; raises an error that says what the file is if it is not a trace."""
    with _opened(path) as file:
        impostor = _impostor(file.read(_HEAD_BYTES))
        if impostor:
            reason, hint = impostor
            raise TraceFormatError(path, reason, hint=hint)
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


_KINDS: Final = (
    (b"\x1f\x8b", "gzip data", "unpack it: gunzip"),
    (b"PK\x03\x04", "a ZIP archive", "unpack it first"),
    (b"\x7fELF", "an ELF program", None),
)
_KINDS_OF_TEXT: Final = (
    (b"version https://git-lfs", "a Git LFS pointer", "fetch the real file: git lfs pull"),
    ((b"<!doctype", b"<html", b"<?xml"), "an HTML page", "was it saved from a download page?"),
)


def _impostor(head: bytes) -> tuple[str, str | None] | None:
    """Why a file that begins so is no trace, and a hint; None if it may be one."""
    if not head:
        return (
            "the file is empty (0 bytes)",
            "check that the profiler was stopped and the disk was not full",
        )
    if head.count(b"\xef\xbf\xbd") >= 8 and head.startswith(b"\x0a\xef\xbf\xbd"):
        return (
            "binary data mangled by a conversion to UTF-8 text; the numbers in it are lost",
            "copy the original file in binary mode",
        )
    text = head[:512].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    for begin, kinds in ((head, _KINDS), (text, _KINDS_OF_TEXT)):
        for start, kind, hint in kinds:
            if begin.startswith(start):
                return f"{NOT_A_TRACE}: {kind}", hint
    number, wire_type = head[0] >> 3, head[0] & 7
    if not any(head):
        kind = "zero bytes"
    elif _is_text(head):
        kind = "a text file"
    elif number == 0 or wire_type not in _WIRE_TYPES:
        kind = f"it begins with the byte 0x{head[0]:02x}"
    else:
        return None
    return f"{NOT_A_TRACE}: {kind}", None


def _is_text(head: bytes) -> bool:
    """Whether all bytes are text; a trace has control bytes between its names."""
    if any((byte < 0x20 or byte == 0x7F) and byte not in _TEXT_CONTROLS for byte in head):
        return False
    try:
        head[: head.rfind(b"\n") + 1 or None].decode()
    except UnicodeDecodeError:
        return False
    return True
