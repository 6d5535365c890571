"""Reads samples of Python stacks, as `traceview capture` writes them to the group `python` of the sidecar."""

from __future__ import annotations

import binascii
import zlib
from base64 import b64decode
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from msgspec import Struct

from traceview.base.intervals import Int32Array, Int64Array
from traceview.trace.sidecar.fields import LARGEST, read_as

_MOST_BYTES: Final = 1 << 26
"""Of a text when unpacked; the largest that traceview writes has a quarter of it."""
_ROW_BYTES: Final = 16
_COLLECTION_FIELDS: Final = 3
_WAITS: Final[dict[str, tuple[str, ...]]] = {
    "concurrent/futures/_base.py": ("result", "wait"),
    "multiprocessing/connection.py": ("_poll", "_recv", "wait"),
    "multiprocessing/popen_fork.py": ("poll", "wait"),
    "multiprocessing/queues.py": ("get", "put"),
    "multiprocessing/synchronize.py": ("__enter__", "wait"),
    "queue.py": ("get", "join", "put"),
    "selectors.py": ("select",),
    "socket.py": ("accept", "readinto"),
    "subprocess.py": ("_try_wait", "wait"),
    "tensorflow/python/training/server_lib.py": ("join",),
    "threading.py": ("_wait_for_tstate_lock", "acquire", "join", "wait"),
}
"""Functions that wait where they call nothing in Python: of the standard library (3.10 to 3.14), and that of a server."""
_GENERATED_OPS: Final = "tensorflow/python/ops/gen_"
_NATIVE: Final[dict[str, tuple[str, ...]]] = {
    "tensorflow/python/eager/execute.py": ("execute_with_cancellation", "quick_execute"),
    "tensorflow/python/eager/executor.py": ("wait",),
    "tensorflow/python/framework/ops.py": ("_numpy", "_numpy_internal"),
}
"""Functions that hand ops or graphs to the native code of TensorFlow, and fetch values (2.15 to 2.21)."""


class PythonThread(Struct, frozen=True):
    """A sampled thread.

    `ident`: the address that pthread_self returns. `name`, `native_id`: None unless Python started it.
    """

    ident: int | None
    name: str | None
    native_id: int | None


class PythonRecord(Struct, frozen=True):
    """The group of the sidecar. `collections`: start, length and generation of each long garbage collection."""

    threads: tuple[PythonThread, ...]
    stacks: str | None
    samples: str | None
    cpu: str | None
    late: str | None
    collections: tuple[tuple[int, ...], ...]


PythonState: TypeAlias = Literal["runs", "waits", "native"]


class PythonFrame(Struct, frozen=True):
    """A line of Python that was executing. `is_user`: in code of the user, not of a library."""

    file: str
    function: str
    line: int
    is_user: bool

    @property
    def state(self) -> PythonState:
        """What a thread does whose innermost frame this is.

        It waits for another thread, another process or a file, is in native code of TensorFlow, or runs Python.
        """
        if self.is_user:
            return "runs"
        if self.function in _WAITS.get(self.file, ()):
            return "waits"
        is_generated = self.file.startswith(_GENERATED_OPS)
        is_native = is_generated or self.function in _NATIVE.get(self.file, ())
        return "native" if is_native else "runs"

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


class PythonSamples(Struct, frozen=True, eq=False):
    """The samples of one host in time order, all `[n]`: int64 `t_ns` (Unix), int32 `thread`, `stack`, int64 `cpu_us`, `late_ns`.

    `cpu_us`: processor time that the thread had taken so far; `late_ns`: by how much the round came late, because something
    else had Python's lock; negative where that was not recorded.
    `stacks`: numbers of frames, the innermost first; a stack ends at the first frame of the user's code.
    `collected_ns`: start and length of each long garbage collection, int64 `[k, 2]`.
    """

    t_ns: Int64Array
    thread: Int32Array
    stack: Int32Array
    cpu_us: Int64Array
    late_ns: Int64Array
    threads: tuple[PythonThread, ...]
    frames: tuple[PythonFrame, ...]
    stacks: tuple[tuple[int, ...], ...]
    collected_ns: Int64Array

    @property
    def count(self) -> int:
        """Number of samples."""
        return int(self.t_ns.size)


class _Tables(Struct, frozen=True):
    files: tuple[str, ...]
    functions: tuple[str, ...]
    frames: tuple[tuple[int, ...], ...]
    stacks: tuple[tuple[int, ...], ...]


def python_samples(record: PythonRecord, wrong: list[str], path: str) -> PythonSamples | None:
    """The samples of a record; None without any. What is not readable is named in `wrong`, and nothing of it is kept."""
    if record.samples is None or record.stacks is None:
        return None
    import json

    try:
        content = unpacked(record.samples)
        cpu, late = (b"" if text is None else unpacked(text) for text in (record.cpu, record.late))
        tables: Any = json.loads(unpacked(record.stacks))
    except (binascii.Error, zlib.error, ValueError, RecursionError):
        wrong.append(f"{path}.samples")
        return None
    in_tables: list[str] = []
    samples = _joined(content, cpu, late, read_as(_Tables, tables, in_tables), record)
    if in_tables or samples is None:
        wrong.append(f"{path}.stacks")
        return None
    return samples if samples.count else None


def unpacked(text: str) -> bytes:
    """What a text of the sidecar holds; raises `binascii.Error`, `zlib.error` or `ValueError` where it is none or too long."""
    unpacking = zlib.decompressobj()
    content = unpacking.decompress(b64decode(text, validate=True), _MOST_BYTES)
    if not unpacking.eof:
        raise ValueError("cut, or too long")
    return content


def _joined(
    content: bytes, cpu: bytes, late: bytes, tables: _Tables, record: PythonRecord
) -> PythonSamples | None:
    """The columns and the tables; None where they do not fit together."""
    count, rest = divmod(len(content), _ROW_BYTES)
    frame_count = len(tables.frames)
    if (
        rest
        or not all(_is_frame(frame, tables) for frame in tables.frames)
        or not all(0 <= frame < frame_count for stack in tables.stacks for frame in stack)
    ):
        return None
    passed = np.frombuffer(content, "<i8", count).astype(np.int64)
    thread = np.frombuffer(content, "<i4", count, 8 * count).astype(np.int32)
    stack = np.frombuffer(content, "<i4", count, 12 * count).astype(np.int32)
    t_ns = np.cumsum(passed)
    if not (_are_below(thread, len(record.threads)) and _are_below(stack, len(tables.stacks))):
        return None
    if (passed < 0).any() or (t_ns < 0).any():
        return None
    late_us = _of_each(late, "<i4", count)
    return PythonSamples(
        t_ns=t_ns,
        thread=thread,
        stack=stack,
        cpu_us=_of_each(cpu, "<i8", count),
        late_ns=np.where(late_us < 0, -1, late_us * 1000),
        threads=record.threads,
        frames=tuple(
            PythonFrame(tables.files[file], tables.functions[function], line, bool(is_user))
            for file, function, line, is_user in tables.frames
        ),
        stacks=tables.stacks,
        collected_ns=_collections(record),
    )


def _of_each(content: bytes, type_: str, count: int) -> Int64Array:
    """A number for each sample, -1 where there is not one for each."""
    if len(content) != np.dtype(type_).itemsize * count:
        return np.full(count, -1, dtype=np.int64)
    return np.frombuffer(content, type_, count).astype(np.int64)


def _collections(record: PythonRecord) -> Int64Array:
    known = [
        row[:2]
        for row in record.collections
        if len(row) == _COLLECTION_FIELDS and all(0 <= value < LARGEST // 2 for value in row)
    ]
    return np.array(known, dtype=np.int64).reshape(-1, 2)


def _is_frame(frame: tuple[int, ...], tables: _Tables) -> bool:
    if len(frame) != len(PythonFrame.__struct_fields__):
        return False
    file, function, line, _ = frame
    return 0 <= file < len(tables.files) and 0 <= function < len(tables.functions) and line >= 0


def _are_below(column: Int32Array, count: int) -> bool:
    return bool(((column >= 0) & (column < count)).all())
