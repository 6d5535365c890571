"""Which part of a training step is an op of: forward, backward, the optimizer, or the reduction of gradients?

Keras and TensorFlow say so in names: what a gradient tape adds is below `gradient_tape/` (`gradients/` in graphs of
TensorFlow 1), types of gradient ops end in `Grad` or hold `Backprop`; an optimizer works in a scope of its own
name and with `…Apply…` ops; JAX names the backward pass `transpose(jvp(…))`. Names that XLA makes up, such as
`fusion_3`, tell nothing.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final

import numpy as np

from traceview.ids import distinct, occurring
from traceview.intervals import Int64Array
from traceview.trace.model import NONE, Trace
from traceview.xplane.planes import ActivityClass


class Phase(IntEnum):
    """A part of the training step; `UNKNOWN` where the name does not tell."""

    UNKNOWN = 0
    FORWARD = 1
    BACKWARD = 2
    OPTIMIZER = 3
    REDUCTION = 4


_TYPE: Final = re.compile(rb"[A-Za-z_]\w*")
_BACKWARD_PATH: Final = re.compile(
    rb"(?:^|/)(?:gradient_tape|gradients(?:_\d+)?)/|transpose\(jvp\("
)
_BACKWARD_TYPE: Final = re.compile(rb"Grad(?:V\d+|WithArgmax|Grad)*$|Backprop")
_REDUCTION_TYPE: Final = re.compile(rb"Collective\w+|Nccl(?:AllReduce|Reduce)\w*")
_OPTIMIZER_TYPE: Final = re.compile(rb"(?:Resource)?(?:Sparse)?Apply[A-Z]\w*")
_OPTIMIZER_SCOPE: Final = re.compile(
    rb"(?:^|/)(?:update_\d+|(?:loss_scale_)?optimizer|sgd|gradientdescent|momentum|rmsprop|adam|adamw|adamax"
    rb"|nadam|adagrad|adadelta|adafactor|ftrl|lamb|lion|muon|adamweightdecay)(?:_\d+)*/",
    re.IGNORECASE,
)
_FORWARD_PATH: Final = re.compile(rb"(?:^|/)jvp\(")
_REPLICA: Final = re.compile(rb"(?:^|/)(?:replica|update)_(\d{1,4})(?:_\d+)?(?=/|:|$)")
_LONGEST: Final = 1 << 13
"""Bytes of a name that are looked at; a name may be of any length."""


def phase_of(name: bytes) -> Phase:
    """The phase that the recorded text of an op, `scope/name:Type`, tells of."""
    path, type_ = _split(name[:_LONGEST])
    if type_ and _REDUCTION_TYPE.fullmatch(type_):
        return Phase.REDUCTION
    if _BACKWARD_PATH.search(path) or _BACKWARD_TYPE.search(type_):
        return Phase.BACKWARD
    if _OPTIMIZER_TYPE.fullmatch(type_) or _OPTIMIZER_SCOPE.search(path):
        return Phase.OPTIMIZER
    return Phase.FORWARD if type_ or _FORWARD_PATH.search(path) else Phase.UNKNOWN


def _split(name: bytes) -> tuple[bytes, bytes]:
    """Path and type of an op; without the latter it is a name that XLA gave."""
    path, _, type_ = name.rpartition(b":")
    return (path, type_) if path and _TYPE.fullmatch(type_) else (name, b"")


def phases_of(trace: Trace) -> Int64Array:
    """The phase of every device event, int64; copies and fills have none, collectives are the reduction."""
    columns = trace.device_columns
    values, index = distinct(columns.op + 1)
    of_value = np.array(
        [
            Phase.UNKNOWN if value == 0 else phase_of(trace.names[value - 1])
            for value in values.tolist()
        ],
        dtype=np.int64,
    )
    phase = of_value[index] if of_value.size else np.empty(0, dtype=np.int64)
    phase[columns.class_ > ActivityClass.COLLECTIVE] = Phase.UNKNOWN
    phase[columns.class_ == ActivityClass.COLLECTIVE] = Phase.REDUCTION
    return phase


def replica_numbers(trace: Trace, device: int) -> tuple[int, ...]:
    """The replicas that the names of ops computed on one device tell of, `replica_4/…`, sorted."""
    columns, rows = trace.device_columns, trace.device_columns.rows_of(device)
    op = columns.op[rows][columns.class_[rows] == ActivityClass.COMPUTE]
    names = occurring(op[op != NONE])
    found = (_REPLICA.search(trace.names[name][:_LONGEST]) for name in names.tolist())
    return tuple(sorted({int(one[1]) for one in found if one}))
