"""Holds the private memory of a process under a limit: numpy's large arrays go to files, and the kernel refuses more.

What is limited is what the process alone holds and the kernel cannot take back without swap: its heap, its anonymous
mappings and the stacks of its threads, whether used or only reserved (`RLIMIT_DATA` of Linux). Pages of mapped files
do not count, neither those of programs and libraries nor those of the arrays here: the kernel writes them to the disk
and reuses their memory whenever it needs it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EDQUOT, ENOSPC
from importlib import import_module
from types import ModuleType
from typing import Final

from traceview.errors import MemoryLimitError, UsageError

try:
    _spill: ModuleType | None = import_module("traceview.spill")
except ImportError:
    _spill = None

LESS_MEMORY: Final = "--max-memory 1GB puts what does not fit into files"
"""What to do where memory is short."""

BYTES_PER_MB: Final = 10**6

_LEAST_ROOM: Final = 128 * BYTES_PER_MB
"""Bytes for the imports of a report, its names and its records, on top of what the process holds when it begins."""

_MOST_RESERVED: Final = 384 * BYTES_PER_MB
_RESERVED_SHARE: Final = 0.5
"""The part of the room that arrays of any size leave to small ones, to Python's objects and to what sorting needs."""

_STACK_BYTES: Final = 1 << 20
_FULL: Final = (ENOSPC, EDQUOT)
_limits: Final[list[int]] = []


@contextmanager
def limited(limit_bytes: int | None) -> Iterator[None]:
    """What runs inside, on this thread, holds no more private memory than this; None sets no limit.

    Raises `MemoryLimitError` if that is too little or the disk is full, and `UsageError` where it cannot be done: on
    other systems than Linux, in an installation without compiled modules, and where temporary files lie in memory.
    """
    if limit_bytes is None:
        yield
        return
    spill, folder = _checked_place()
    begun = spill.private_memory()
    if limit_bytes < begun + _LEAST_ROOM:
        raise MemoryLimitError(
            f"--max-memory {_megabytes(limit_bytes)}: no trace can be analysed in so little",
            hint=f"at least {_megabytes(begun + _LEAST_ROOM)}",
        )
    with _refusing_more_than(limit_bytes) as refused_bytes, _small_stacks():
        reserved = min(int((refused_bytes - begun) * _RESERVED_SHARE), _MOST_RESERVED)
        before = spill.begin(refused_bytes - reserved, os.fsencode(folder))
        _limits.append(limit_bytes)
        try:
            yield
        except MemoryError:
            raise _error(spill, limit_bytes, folder) from None
        finally:
            _limits.pop()
            spill.end(before)


def _checked_place() -> tuple[ModuleType, str]:
    """What puts arrays into files, and the folder for them."""
    from tempfile import gettempdir

    if _spill is None:
        raise UsageError(
            "--max-memory needs Linux and the compiled modules of traceview, which this installation lacks",
            hint="install it where a C compiler is; traceview version shows what is there",
        )
    try:
        folder = gettempdir()
        _spill.private_memory()
    except OSError as error:
        raise UsageError(f"--max-memory cannot be held here: {error.strerror or error}") from error
    if _spill.is_in_memory(os.fsencode(folder)):
        raise UsageError(
            f"--max-memory: {folder} lies in memory, so nothing can be spilled to it",
            hint="set TMPDIR to a folder on a disk",
        )
    return _spill, folder


def share_one_heap() -> None:
    """Let the threads of this process share one heap, so that it holds less memory that nobody uses."""
    if _spill is not None:
        _spill.share_one_heap()


def is_limited() -> bool:
    """Whether a limit is set."""
    return bool(_limits)


def spilled_bytes() -> int:
    """How many bytes lay in files at most, since the last limit was set."""
    return 0 if _spill is None else int(_spill.most_spilled())


@contextmanager
def _refusing_more_than(limit_bytes: int) -> Iterator[int]:
    """Inside, the kernel refuses private memory beyond the limit, or beyond one that it has already, which is given."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    known = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    refused_bytes = min([limit_bytes, *known])
    resource.setrlimit(resource.RLIMIT_DATA, (refused_bytes, hard))
    try:
        yield refused_bytes
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@contextmanager
def _small_stacks() -> Iterator[None]:
    """Threads that start inside reserve less memory, all of which counts; what runs on them calls few functions deep."""
    before = threading.stack_size(_STACK_BYTES)
    try:
        yield
    finally:
        threading.stack_size(before)


def _error(spill: ModuleType, limit_bytes: int, folder: str) -> MemoryLimitError:
    number, size = spill.failure()
    if number in _FULL:
        spilled = spill.most_spilled() + size
        return MemoryLimitError(
            f"{folder} is full: {_megabytes(spilled)} of what exceeds --max-memory had to be put there so far",
            hint="set TMPDIR to a folder with more room, or allow more memory",
        )
    if number:
        return MemoryLimitError(
            f"--max-memory: no file of {_megabytes(size)} can be made in {folder}: {os.strerror(number)}",
            hint="set TMPDIR to another folder",
        )
    return MemoryLimitError(
        f"--max-memory {_megabytes(limit_bytes)} is too little for this trace",
        hint=f"try {_megabytes(2 * limit_bytes)}; names, tables of a report and sorting cannot be spilled",
    )


def _megabytes(size: int) -> str:
    return f"{-(-size // BYTES_PER_MB):,}MB"
