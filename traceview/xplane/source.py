"""Is this file a trace at all? Its bytes, or what stands there instead."""

from __future__ import annotations

from pathlib import Path

from traceview.errors import TraceFormatError, TraceNotFoundError


def read_bytes(path: Path) -> bytes:
    """The file's bytes, or an error that says what stands there instead of a trace."""
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise TraceNotFoundError(f"{path}: no such file") from error
    except OSError as error:
        raise TraceNotFoundError(f"{path}: {error.strerror or error}") from error
    impostor = _impostor(data)
    if impostor:
        reason, hint = impostor
        raise TraceFormatError(path, reason, hint=hint)
    return data


def _impostor(data: bytes) -> tuple[str, str | None] | None:
    head = data[:512].lstrip().lower()
    if not data:
        return "the file is empty (0 bytes)", "was the profiler stopped, and the disk not full?"
    if data.startswith(b"\x1f\x8b"):
        return "not a trace: gzip data", "unpack it: gunzip"
    if data.startswith(b"PK\x03\x04"):
        return "not a trace: a ZIP archive", "unpack it first"
    if head.startswith(b"version https://git-lfs"):
        return "not a trace: a Git LFS pointer", "fetch the real file: git lfs pull"
    if head.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "not a trace: an HTML page", "was it saved from a download page?"
    if data[:4096].count(b"\xef\xbf\xbd") >= 8 and data.startswith(b"\x0a\xef\xbf\xbd"):
        return (
            "binary data mangled by a conversion to UTF-8 text; the numbers in it are lost",
            "copy the original file in binary mode",
        )
    return None
