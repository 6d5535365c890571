"""Computes the SHA-256 of a file on a thread, while the events that were read from it are worked on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from traceview.xplane.columns import Buffer
from traceview.xplane.source import FileBytes
from traceview.xplane.threads import Start

_BLOCK_BYTES: Final = 1 << 20


def begin_digest(data: Buffer, start: Start) -> Callable[[], str]:
    """Begin to compute the digest; what is given waits for it, also after the file is closed.

    It raises `TraceFormatError` if the file became shorter.
    """
    copy = data.duplicate() if isinstance(data, FileBytes) else None
    if copy is None:
        found = digest_of(data)
        return lambda: found

    def compute() -> str:
        try:
            return digest_of(copy)
        finally:
            copy.close()

    return start(compute)


def digest_of(data: Buffer) -> str:
    """The SHA-256 of the bytes in hexadecimal digits."""
    if not isinstance(data, FileBytes):
        return hashlib.sha256(data).hexdigest()
    digest = hashlib.sha256()
    block = memoryview(bytearray(_BLOCK_BYTES))
    size = len(data)
    for begin in range(0, size, _BLOCK_BYTES):
        part = block[: min(_BLOCK_BYTES, size - begin)]
        data.read_into(part, begin)
        digest.update(part)
    return digest.hexdigest()
