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

from traceview.ids import unique_ids, unique_inverse
from traceview.intervals import Int64Array
from traceview.trace.model import NONE, Recording, Trace
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
_USES_VARIABLE: Final = re.compile(
    rb"(?:Read|Assign(?:Add|Sub)?)VariableOp|Resource(?:Gather|Scatter|(?:Sparse)?Apply)\w*"
)
_FORWARD_PATH: Final = re.compile(rb"(?:^|/)jvp\(")
_REPLICA: Final = re.compile(rb"(?:^|/)(?:replica|update)_(\d{1,4})(?:_\d+)?(?=/|:|$)")
_REPLICA_SCOPE: Final = re.compile(rb"(?:^|/|_)replica_(\d{1,4})(?:_\d+)?/")
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


def uses_variable(type_: bytes) -> bool:
    """Whether an op of this type runs where a variable lies, whichever replica asks for it."""
    return _USES_VARIABLE.fullmatch(type_) is not None


def phases_of(trace: Trace) -> Int64Array:
    """The phase of every device event, int64; copies and fills have none, collectives are the reduction."""
    columns = trace.device_columns
    values, index = unique_inverse(columns.op + 1)
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


def phases_on_host(trace: Trace) -> frozenset[Phase]:
    """What of the backward pass, the optimizer and the reduction ops on the host are part of."""
    found = set()
    for name in unique_ids(trace.host_columns.name).tolist():
        _, type_ = _split(trace.names[name][:_LONGEST])
        # Sending and receiving is named after the op whose value it is.
        if type_ and not type_.startswith(b"_"):
            found.add(phase_of(trace.names[name]))
    return frozenset(found - {Phase.UNKNOWN, Phase.FORWARD})


def least_replica_counts(recording: Recording) -> dict[int, int]:
    """By host (index), how many replicas there are at least: the names of its ops tell of the one before.

    Ops that only send to another device or receive from it tell, too. A host is left out where no name tells of a
    replica but the first, which has none.
    """
    number = np.array(
        [
            int(found[1])
            if b"replica_" in name and (found := _REPLICA_SCOPE.search(name[:_LONGEST]))
            else NONE
            for name in recording.names
        ],
        dtype=np.int64,
    )
    columns, host = recording.device_columns, recording.host_columns
    host_of_device = np.array([one.host for one in recording.device_list], dtype=np.int64)
    most = np.full(len(recording.hosts), NONE, dtype=np.int64)
    named = host.name[number[host.name] > 0]
    np.maximum.at(most, host.host[number[host.name] > 0], number[named])
    on_device = np.flatnonzero(columns.op != NONE)
    on_device = on_device[number[columns.op[on_device]] > 0]
    hosts = host_of_device[columns.device[on_device]]
    np.maximum.at(most, hosts, number[columns.op[on_device]])
    return {index: int(value) + 1 for index, value in enumerate(most.tolist()) if value > 0}


def replica_numbers(trace: Trace, device: int) -> tuple[int, ...]:
    """The replicas that the names of ops computed on one device tell of, `replica_4/…`, sorted."""
    columns, rows = trace.device_columns, trace.device_columns.rows_of(device)
    op = columns.op[rows][columns.class_[rows] == ActivityClass.COMPUTE]
    names = unique_ids(op[op != NONE]).tolist()
    found = (_replica_of(trace.names[name]) for name in names)
    return tuple(sorted({one for one in found if one is not None}))


def _replica_of(name: bytes) -> int | None:
    path, type_ = _split(name[:_LONGEST])
    # An optimizer names its own part by the device of the variable, others by who asks.
    if uses_variable(type_) and not _OPTIMIZER_SCOPE.search(path):
        return None
    found = _REPLICA.search(path)
    return int(found[1]) if found else None


def backward_replicas(trace: Trace, device: int) -> dict[int, int]:
    """How long the gradients of each replica took on one device, in ps; those without a number are replica 0's."""
    columns, mine = trace.device_columns, trace.device_columns.rows_of(device)
    of_op = (columns.class_[mine] == ActivityClass.COMPUTE) & (columns.op[mine] != NONE)
    names, index = unique_inverse(columns.op[mine][of_op])
    total = np.zeros(names.size, dtype=np.int64)
    np.add.at(total, index, columns.duration_ps[mine][of_op])
    found: dict[int, int] = {}
    for name, length in zip(names.tolist(), total.tolist(), strict=True):
        if phase_of(trace.names[name]) is Phase.BACKWARD:
            replica = _replica_of(trace.names[name]) or 0
            found[replica] = found.get(replica, 0) + length
    return found
