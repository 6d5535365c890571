"""Adds to the sidecar what Python did in the window: samples of the stacks of its threads, in the group `python`."""

from __future__ import annotations

import json
import os
import sys
import zlib
from array import array
from base64 import b64encode
from itertools import pairwise
from pathlib import Path
from time import time_ns
from typing import Any, Final

from traceview.capture.process.python_code import CodePlaces
from traceview.capture.sampling.python_sampling import Collections, StackSampler
from traceview.capture.sidecar.environment import masked_thread
from traceview.capture.sidecar.file import Sidecar, WindowListener

NOT_ASKED: Final = "switched off (--without python, or python=False)"


class PythonListener(WindowListener):
    """Samples Python stacks from the start of the profile to its stop.

    The group holds `reason` (null where samples were taken), `interval_ns`, `round_count`, `window_ns`, `cost_ns` (processor
    time that the sampling took), `threads`, and two compressed texts: `stacks`, JSON with tables of files, functions, frames
    and stacks, and `samples`, three columns. `cpu` and `late` are two more. `collections`: the garbage
    collections, see `Collections`.
    """

    def __init__(self, *, is_wanted: bool = True) -> None:
        self._is_wanted = is_wanted
        self._pid = os.getpid()
        self._sampler: StackSampler | None = None
        self._collections = Collections()
        self._started_ns = 0

    def opening(self, sidecar: Sidecar) -> None:
        """Learn what costs the first samples most. The sidecar's state ends the sampling where the profile fails."""
        if not self._is_wanted:
            sidecar.add("python", {"reason": NOT_ASKED})
            return
        self._sampler = StackSampler(CodePlaces(), lambda: sidecar.is_recording, self._collections)
        self._sampler.learn()

    def opened(self, sidecar: Sidecar) -> None:
        """Begin to sample."""
        if self._sampler is not None:
            self._started_ns = time_ns()
            self._collections.start()
            self._sampler.start()

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """Stop, and keep the samples."""
        sampler, self._sampler = self._sampler, None
        if sampler is None or os.getpid() != self._pid:
            # A child that was forked in the window does not have the thread.
            self._collections.stop()
            return
        sampler.stop()
        self._collections.stop()
        clock = sidecar.groups.get("clock", {})
        stopped_ns = clock.get("stopped", {}).get("wall_ns", time_ns())
        described = _described(sampler, max(stopped_ns - self._started_ns, 0))
        sidecar.add("python", {**described, "collections": self._collections.spans})

    def finished(self) -> None:
        """Stop where the profile failed."""
        if self._sampler is not None and os.getpid() == self._pid:
            self._sampler.stop()
        self._collections.stop()


def _described(sampler: StackSampler, window_ns: int) -> dict[str, Any]:
    t_ns, thread, stack, cpu_us, late_us = sampler.columns.values()
    reason = (
        "no thread ran code of the script" if sampler.round_count else "the window was too short"
    )
    # The first time, and what follows as distances, which compress better.
    distances = array("q", [*t_ns[:1], *(b - a for a, b in pairwise(t_ns))])
    names = [(ident, *sampler.names.get(ident, (None, None))) for ident in sampler.threads]
    return {
        "reason": None if t_ns else sampler.problem or reason,
        **({"problem": sampler.problem} if sampler.problem else {}),
        "interval_ns": sampler.interval_ns,
        "round_count": sampler.round_count,
        "window_ns": window_ns,
        "cost_ns": sampler.cost_ns,
        "threads": [
            {"ident": ident, "name": name and masked_thread(name), "native_id": native_id}
            for ident, name, native_id in names
        ],
        "stacks": _compressed(json.dumps(sampler.stacks.described()).encode()),
        "samples": _compressed(*map(_little_endian, (distances, thread, stack))),
        "cpu": _compressed(_little_endian(cpu_us)),
        "late": _compressed(_little_endian(late_us)),
    }


def _little_endian(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def _compressed(*contents: bytes) -> str:
    return b64encode(zlib.compress(b"".join(contents))).decode("ascii")
