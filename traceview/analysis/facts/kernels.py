"""Reads what names of kernels and instructions show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.base.ids import unique_ids
from traceview.base.intervals import BoolArray
from traceview.base.text import lazy_pattern
from traceview.trace.device.op_names import op_labels, op_names
from traceview.trace.model import Recording
from traceview.xplane.columns import Instruction
from traceview.xplane.kernel_names import NumberFormat, kernel_name
from traceview.xplane.planes import ActivityClass

EAGER: Final = b"EagerKernelExecute"
"""Marks the run of an eager op; a call of a `tf.function` is such an op, too."""
GRAPH: Final = (b"FunctionRun", b"ExecutorState::Process")
"""Mark a graph; `KernelAndDeviceFunc::Run` is in every eager op, graph or not (TensorFlow 2.21, measured)."""


class KernelNames(Struct, frozen=True, eq=False):
    """What the names of kernels show, by name of the trace."""

    precision: npt.NDArray[np.uint8]
    tensor_core: BoolArray
    is_matrix: BoolArray


def kernel_names(recording: Recording) -> KernelNames:
    """What the names of all compute shows; a replica on CPUs runs ops, whose names are of layers."""
    columns = recording.device_columns
    is_kernel = columns.class_ == ActivityClass.COMPUTE
    for index, device in enumerate(recording.device_list):
        if device.kind == "replica":
            is_kernel[columns.rows_of(index)] = False
    names = unique_ids(columns.name[is_kernel])
    kernels = [kernel_name(recording.names[int(name)]) for name in names]
    count = len(recording.names)
    precision = np.full(count, NumberFormat.UNKNOWN, dtype=np.uint8)
    tensor_core, is_matrix = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
    precision[names] = [kernel.precision for kernel in kernels]
    tensor_core[names] = [kernel.tensor_core for kernel in kernels]
    is_matrix[names] = [kernel.is_matrix for kernel in kernels]
    return KernelNames(precision, tensor_core, is_matrix)


# What only converts, by label (`op_labels`), bool

_CAST: Final = lazy_pattern(r"(?:^|/)convert_element_type$")
_CONVERT: Final = lazy_pattern(rb"(?:wrapped_)?convert(?:_element_type)?(?:\.\d+)?")
"""Names of instructions that convert and do nothing else; a fusion that ends with a conversion may do much."""


def cast_labels(trace: Recording) -> BoolArray:
    """Which labels are conversions between types alone."""
    casts = instructions_that(
        trace, lambda each: bool(_CONVERT.fullmatch(each.name) and _CAST.search(each.scope))
    )
    names = trace.once(op_names)
    is_cast = np.array([type_ == "Cast" for _, type_ in names.ops], dtype=np.bool_)
    casts |= is_cast[names.of_name[trace.device_columns.op[trace.once(op_labels).row]]]
    return casts


def instructions_that(trace: Recording, matches: Callable[[Instruction], bool]) -> BoolArray:
    """Which labels are instructions of programs that match."""
    # The last entry is that of `NONE`.
    is_match = np.array([*map(matches, trace.instructions), False], dtype=np.bool_)
    return is_match[trace.device_columns.instruction[trace.once(op_labels).row]]
