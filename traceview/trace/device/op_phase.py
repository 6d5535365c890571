"""Reads from the name of an op the phase of the training step.

Keras and TensorFlow mark the phases in names. Ops that a gradient tape adds are below `gradient_tape/` (`gradients/` in
graphs of TensorFlow 1); types of gradient ops end in `Grad` or contain `Backprop`. An optimizer runs in a scope of its
own name and with `…Apply…` ops. JAX names the backward pass `transpose(jvp(…))`. Names that XLA generates, such as
`fusion_3`, show no phase.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from traceview.base.codes import Code
from traceview.base.ids import unique_ids
from traceview.trace.model import NONE, Recording
from traceview.xplane.planes import ActivityClass


class Phase(Code):
    """A part of the training step; `UNKNOWN` where the name does not show it."""

    UNKNOWN = 0
    FORWARD = 1
    BACKWARD = 2
    OPTIMIZER = 3
    REDUCTION = 4


_TYPE: Final = re.compile(rb"[A-Za-z_]\w*")
_BACKWARD_SCOPE: Final = re.compile(rb"(?:^|/)(?:gradient_tape|gradients(?:_\d+)?)/")
_BACKWARD_TYPE: Final = re.compile(rb"Grad(?:WithArgmax)?(?:V\d+)?$|Backprop")
_REDUCTION_TYPE: Final = re.compile(rb"Collective\w+|Nccl(?:AllReduce|Reduce)\w*")
_OPTIMIZER_TYPE: Final = re.compile(rb"(?:Resource)?(?:Sparse)?Apply[A-Z]\w*")
OPTIMIZER_SCOPE: Final = re.compile(
    rb"(?:^|/)(?:update_\d+|(?:loss_scale_)?optimizer|sgd|gradientdescent|momentum|rmsprop|adam|adamw|adamax"
    rb"|nadam|adagrad|adadelta|adafactor|ftrl|lamb|lion|muon|adamweightdecay)(?:_\d+)*/",
    re.IGNORECASE,
)
_USES_VARIABLE: Final = re.compile(
    rb"(?:Read|Assign(?:Add|Sub)?)VariableOp|Resource(?:Gather|Scatter|(?:Sparse)?Apply)\w*"
)
_FORWARD_PATH: Final = re.compile(rb"(?:^|/)jvp\(")
KEPT_NAMES: Final = 1 << 14
"""Names whose reading is remembered, because several topics ask for it."""

LONGEST_NAME: Final = 1 << 13
"""Bytes of a name that are searched; a name may be of any length."""


@lru_cache(KEPT_NAMES)
def phase_of(name: bytes) -> Phase:
    """The phase that the recorded text of an op, `scope/name:Type`, shows."""
    path, type_ = split_op_name(name[:LONGEST_NAME])
    of_type = _phase_of_type(type_) if type_ else Phase.UNKNOWN
    if of_type is Phase.REDUCTION:
        return Phase.REDUCTION
    # What shows a phase in a path ends before the name of the op, but for a function of JAX.
    of_scope = _phase_of_scope(path[: path.rfind(b"/") + 1])
    is_backward = b"transpose(jvp(" in path or Phase.BACKWARD in (of_type, of_scope)
    if is_backward:
        return Phase.BACKWARD
    if Phase.OPTIMIZER in (of_type, of_scope):
        return Phase.OPTIMIZER
    return Phase.FORWARD if type_ or _FORWARD_PATH.search(path) else Phase.UNKNOWN


@lru_cache(KEPT_NAMES)
def _phase_of_type(type_: bytes) -> Phase:
    """The phase that a type of op shows."""
    if _REDUCTION_TYPE.fullmatch(type_):
        return Phase.REDUCTION
    if _BACKWARD_TYPE.search(type_):
        return Phase.BACKWARD
    return Phase.OPTIMIZER if _OPTIMIZER_TYPE.fullmatch(type_) else Phase.UNKNOWN


@lru_cache(KEPT_NAMES)
def _phase_of_scope(scope: bytes) -> Phase:
    """The phase that the scopes around an op show, `outer/inner/`."""
    if _BACKWARD_SCOPE.search(scope):
        return Phase.BACKWARD
    return Phase.OPTIMIZER if OPTIMIZER_SCOPE.search(scope) else Phase.UNKNOWN


def split_op_name(name: bytes) -> tuple[bytes, bytes]:
    """Path and type of an op; an op without a type has a name from XLA."""
    path, _, type_ = name.rpartition(b":")
    return (path, type_) if path and _is_type(type_) else (name, b"")


@lru_cache(KEPT_NAMES)
def _is_type(text: bytes) -> bool:
    return _TYPE.fullmatch(text) is not None


@lru_cache(KEPT_NAMES)
def uses_variable(type_: bytes) -> bool:
    """Whether an op of this type runs on the device of a variable, whichever replica issues it."""
    return _USES_VARIABLE.fullmatch(type_) is not None


def phases_of(recording: Recording) -> npt.NDArray[np.uint8]:
    """The phase of every device event, uint8; copies and fills have none, collectives are reduction."""
    return recording.once(_phases)


def _phases(recording: Recording) -> npt.NDArray[np.uint8]:
    columns = recording.device_columns
    used = unique_ids(columns.op)
    used = used[used != NONE]
    # The last entry is that of `NONE`.
    of_name = np.full(len(recording.names) + 1, Phase.UNKNOWN, dtype=np.uint8)
    of_name[used] = recording.names.read(used, phase_of)
    phase = of_name[columns.op]
    phase[columns.class_ > ActivityClass.COLLECTIVE] = Phase.UNKNOWN
    phase[columns.class_ == ActivityClass.COLLECTIVE] = Phase.REDUCTION
    return phase
