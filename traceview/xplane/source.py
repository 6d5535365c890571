"""Is this file a trace at all? Its bytes, or what stands there instead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO, Final

from traceview.errors import TraceFormatError, TraceNotFoundError

_HEAD_BYTES: Final = 4096


def read_bytes(path: Path) -> bytes:
    """The file's bytes, or an error that says what stands there instead of a trace."""
    with _opened(path) as file:
        data = file.read()
    _refuse_impostor(path, data[:_HEAD_BYTES])
    return data


@contextmanager
def mapped(path: Path) -> Iterator[mmap]:
    """The file as a map, of which only what is looked at is read; errors as in `read_bytes`."""
    with _opened(path) as file:
        _refuse_impostor(path, file.read(_HEAD_BYTES))
        with mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            yield data


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as file:
            yield file
    except FileNotFoundError as error:
        raise TraceNotFoundError(f"{path}: no such file") from error
    except OSError as error:
        raise TraceNotFoundError(f"{path}: {error.strerror or error}") from error


def _refuse_impostor(path: Path, head: bytes) -> None:
    impostor = _impostor(head)
    if impostor:
        reason, hint = impostor
        raise TraceFormatError(path, reason, hint=hint)


def _impostor(head: bytes) -> tuple[str, str | None] | None:
    text = head[:512].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if not head:
        return "the file is empty (0 bytes)", "was the profiler stopped, and the disk not full?"
    if head.startswith(b"\x1f\x8b"):
        return "not a trace: gzip data", "unpack it: gunzip"
    if head.startswith(b"PK\x03\x04"):
        return "not a trace: a ZIP archive", "unpack it first"
    if text.startswith(b"version https://git-lfs"):
        return "not a trace: a Git LFS pointer", "fetch the real file: git lfs pull"
    if text.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "not a trace: an HTML page", "was it saved from a download page?"
    if head.count(b"\xef\xbf\xbd") >= 8 and head.startswith(b"\x0a\xef\xbf\xbd"):
        return (
            "binary data mangled by a conversion to UTF-8 text; the numbers in it are lost",
            "copy the original file in binary mode",
        )
    return None
