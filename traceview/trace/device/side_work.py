"""Reads from the name of an op whether it does side work: Python, printing, summaries, checks or text inside the step.

Side work runs on the CPU and is no part of the model. Python functions are ops of their own. `tf.print` formats with
`StringFormat` and writes with `PrintV2`. `tf.summary` writes with `Write…Summary`, and computes what it writes below a
scope `write_summary`. Checks for NaN and infinity are `CheckNumerics`, one op at a time, or a `DebugNumericSummaryV2` on each
output of every op. Text is split, joined and searched by ops on strings, which have no GPU kernel; `tf.strings.split`
makes its ragged result below a scope `StringSplit` (TensorFlow 2.21). JAX calls Python in ops that are named after its functions
(jaxlib 0.10).
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import Final

from traceview.trace.device.op_phase import KEPT_NAMES, LONGEST_NAME

_KEPT_TYPES: Final = 1 << 10


class SideWork(Enum):
    """A kind of side work; the value is its key in a report."""

    PYTHON = "python"
    PRINTING = "printing"
    SUMMARIES = "summaries"
    CHECKS = "checks"
    TEXT = "text"


_TYPES: Final = {
    SideWork.PYTHON: re.compile(rb"(?:Eager)?PyFunc(?:Stateless)?"),
    SideWork.PRINTING: re.compile(rb"Print(?:V2)?|StringFormat"),
    SideWork.CHECKS: re.compile(rb"DebugNumericSummary(?:V2)?|CheckNumerics(?:V2)?"),
    SideWork.SUMMARIES: re.compile(rb"(?<!\w)(?=\w*Summary)\w+"),
    SideWork.TEXT: re.compile(
        rb"(?:Static)?Regex\w+|String(?!Format$)\w+|AsString|ReduceJoin|UnsortedSegmentJoin|Substr|Unicode\w+"
    ),
}
_SCOPES: Final = {
    SideWork.SUMMARIES: (b"write_summary", re.compile(rb"(?:^|/)write_summary(?:_\d+)?/")),
    SideWork.TEXT: (b"StringSplit", re.compile(rb"(?:^|/)StringSplit(?:_\d+)?/")),
}
"""By kind a part of its scopes, which is found faster, and a pattern of them."""

_CALLBACKS: Final = {
    b"pure_callback": SideWork.PYTHON,
    b"io_callback": SideWork.PYTHON,
    b"debug_callback": SideWork.PYTHON,
    b"debug_print": SideWork.PRINTING,
}
"""Names of HLO instructions before their number."""


@lru_cache(KEPT_NAMES)
def side_work_of(name: bytes) -> SideWork | None:
    """The side work that the recorded text of an op shows: `scope/name:Type`, or the name of an HLO instruction."""
    path, _, type_ = name[:LONGEST_NAME].rpartition(b":")
    if not path:
        return _CALLBACKS.get(type_.partition(b".")[0])
    for kind, (part, scope) in _SCOPES.items():
        if part in path and scope.search(path):
            return kind
    return _kind_of(type_)


@lru_cache(_KEPT_TYPES)
def _kind_of(type_: bytes) -> SideWork | None:
    """The side work that a type of op shows."""
    return next((kind for kind, types in _TYPES.items() if types.fullmatch(type_)), None)
