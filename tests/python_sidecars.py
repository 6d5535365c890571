"""Hand-made groups `python` of sidecars: samples of Python stacks."""

from __future__ import annotations

import json
import struct
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from traceview.analysis.facts.python import PythonShare, python_of_rows
from traceview.analysis.facts.selection import select
from traceview.analysis.measures.context import Context
from traceview.ledger.states import State
from traceview.trace.reading.load import load

PROFILE_START_NS: Final = 1_760_000_000_000_000_000
"""Of the scenarios."""

Line: TypeAlias = tuple[str, str, int, bool]
"""File, function, line and whether it is the user's."""

Sample: TypeAlias = tuple[int, int, tuple[Line, ...]]
"""Unix nanoseconds, number of the thread, and the stack, the innermost line first."""


def python_between_steps(run: Path) -> PythonShare:
    """The Python that the thread of the steps of a run was in while devices waited between steps."""
    trace = load(run)
    context = Context(trace, select(trace))
    between = context.ledger.rows(states=(State.BETWEEN,))
    python = python_of_rows(context.idle.python, context.ledger, between, State.BETWEEN)
    assert python is not None
    return python


def compressed(content: bytes) -> str:
    """As the sidecar holds it."""
    return b64encode(zlib.compress(content)).decode()


def python_group(
    samples: Sequence[Sample],
    threads: Sequence[dict[str, Any]],
    cpu_us: Sequence[int] | None = None,
    collections: Sequence[tuple[int, int, int]] = (),
    late_us: Sequence[int] | None = None,
    held: Sequence[int] | None = None,
    sampler: str | None = None,
) -> dict[str, Any]:
    """The group of these samples, in time order. `cpu_us`: the processor time of the thread at each of them. `late_us`: by how
    much the round of each came late. `held`: how often the lock had been handed over, where the thread had it; else -1.

    `collections`: garbage collections, by Unix time and length in nanoseconds, and generation.
    """
    files: list[str] = []
    functions: list[str] = []
    frames: list[list[int]] = []
    stacks: list[list[int]] = []

    def number(known: list[Any], item: Any) -> int:
        if item not in known:
            known.append(item)
        return known.index(item)

    of_samples = [
        number(
            stacks,
            [
                number(frames, [number(files, file), number(functions, name), line, int(is_user)])
                for file, name, line, is_user in lines
            ],
        )
        for _, _, lines in samples
    ]
    times = [t_ns for t_ns, _, _ in samples]
    passed = [after - before for before, after in zip([0, *times], times, strict=False)]
    count = len(samples)
    columns = struct.pack(
        f"<{count}q{count}i{count}i", *passed, *(thread for _, thread, _ in samples), *of_samples
    )
    tables = {"files": files, "functions": functions, "frames": frames, "stacks": stacks}
    return {
        "reason": None,
        "sampler": sampler,
        "interval_ns": 1_000_000,
        "window_ns": 300_000_000,
        "cost_ns": 6_000_000,
        "threads": list(threads),
        "stacks": compressed(json.dumps(tables).encode()),
        "samples": compressed(columns),
        "collections": [list(row) for row in collections],
        "held": None if held is None else compressed(struct.pack(f"<{count}i", *held)),
        "late": None if late_us is None else compressed(struct.pack(f"<{count}i", *late_us)),
        "cpu": None if cpu_us is None else compressed(struct.pack(f"<{count}q", *cpu_us)),
    }


def native_threads(
    idents: Sequence[int],
    *,
    length_ms: int,
    load: float,
    inner: Sequence[Line] = (),
    outer: Line = ("train.py", "fetch", 7, True),
) -> dict[str, Any]:
    """The group of threads of TensorFlow in a function, `outer`, by default of the script, every millisecond from the start of a scenario on.

    `load`: the part of a core that each of them uses. `inner`: what that function calls.
    """
    rounds = [(ms, number) for ms in range(length_ms + 1) for number in range(len(idents))]
    stack = (*inner, outer)
    samples = [(PROFILE_START_NS + ms * 1_000_000, number, stack) for ms, number in rounds]
    threads = [{"ident": ident, "name": None, "native_id": None} for ident in idents]
    return python_group(samples, threads, [round(load * 1000 * ms) for ms, _ in rounds])


def clocks_group(
    loads: dict[int, tuple[float, float]],
    *,
    length_ms: int,
    every_ms: int = 10,
    idents: Mapping[int, int] | None = None,
    later: tuple[int, dict[int, tuple[float, float]]] | None = None,
    unnamed: Sequence[int] = (),
) -> dict[str, Any]:
    """The group `threads`: by thread, which part of a core it has all the time, and which part of the time it waits for one.

    `idents`: what pthread_self returns in threads. `later`: other parts from some millisecond on.
    """
    change_ms, loads_then = later or (length_ms, loads)
    columns: list[list[int]] = [[], [], [], [], []]
    for thread, parts in sorted(loads.items()):
        for ms in range(0, length_ms + 1, every_ms):
            first_ms, then_ms = min(ms, change_ms), max(ms - change_ms, 0)
            both = zip(parts, loads_then[thread], strict=True)
            ran_ns, waited_ns = (round(1e6 * (a * first_ms + b * then_ms)) for a, b in both)
            at_ns, ident = PROFILE_START_NS + ms * 1_000_000, (idents or {}).get(thread, 0)
            row = (at_ns, thread, ident, ran_ns, waited_ns)
            for column, value in zip(columns, row, strict=True):
                column.append(value)
    packed = b"".join(
        struct.pack("<q", value - before)
        for column in columns
        for before, value in zip([0, *column], column, strict=False)
    )
    return {"rows": compressed(packed), "unnamed": list(unnamed)}
