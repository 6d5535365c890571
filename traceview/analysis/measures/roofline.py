"""Compares what ops take with what they would take at least, by the peak of their precision and the bandwidth of the memory.

The *roof* of an op is the longer of two times: what its products take at the peak of the device, and what the bytes that it reads
and writes take at the bandwidth of the memory. The longer one is what it is bound by.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.analysis.facts.kernels import kernel_names
from traceview.analysis.measures.context import Context
from traceview.analysis.measures.flops import FloatArray, flops_by_device
from traceview.analysis.measures.peaks import bandwidth_of, peaks_of
from traceview.base.intervals import BoolArray
from traceview.base.units import PS_PER_S
from traceview.trace.device.op_names import op_labels
from traceview.trace.model import Recording
from traceview.xplane.kernel_names import NumberFormat

_FORMATS: Final = {
    2: NumberFormat.INT8,
    10: NumberFormat.FP16,
    12: NumberFormat.FP64,
    16: NumberFormat.BF16,
    **dict.fromkeys((19, 20, 23, 24, 25, 28, 29), NumberFormat.FP8),
}
"""The precision of a product by the type of what it multiplies in a program (`PrimitiveType`); float32 may become TF32."""


class DeviceRoof(Struct, frozen=True, eq=False):
    """By label (`op_labels`) what the ops of one device would take at least, float64 picoseconds, NaN where not known.

    `compute_ps`: of products at the peak of their precision, 0 for what has none. `memory_ps`: of bytes at the bandwidth of the
    memory.
    """

    compute_ps: FloatArray
    memory_ps: FloatArray

    @property
    def roof_ps(self) -> FloatArray:
        """The longer of the two; NaN where one is not known."""
        longer: FloatArray = np.maximum(self.compute_ps, self.memory_ps)
        return longer

    @property
    def is_memory_bound(self) -> BoolArray:
        """What the memory keeps from being faster, of what is known."""
        bound: BoolArray = self.memory_ps >= self.compute_ps
        return bound


def roof_by_device(context: Context) -> dict[int, DeviceRoof]:
    """The roofs of each device that ran any op in its used steps."""
    return {
        device: DeviceRoof(
            _compute_ps(context, device, of.flops), _memory_ps(context, device, of.bytes)
        )
        for device, of in context.once(flops_by_device).items()
    }


def _compute_ps(context: Context, device: int, flops: FloatArray) -> FloatArray:
    of_format = np.full(len(NumberFormat), np.nan)
    for precision, peak in peaks_of(context.trace, device).items():
        of_format[precision] = peak
    at_peak: FloatArray = flops / of_format[context.trace.once(label_precisions)] * PS_PER_S
    at_peak[flops == 0] = 0
    return at_peak


def _memory_ps(context: Context, device: int, moved: FloatArray) -> FloatArray:
    at_bandwidth: FloatArray = moved / (bandwidth_of(context.trace, device) or np.nan) * PS_PER_S
    return at_bandwidth


def label_precisions(trace: Recording) -> npt.NDArray[np.uint8]:
    """By label (`op_labels`) the `NumberFormat` that its kernel shows, else that of its instruction, uint8."""
    columns, rows = trace.device_columns, trace.once(op_labels).row
    precision = trace.once(kernel_names).precision[columns.name[rows]]
    of_type = [_FORMATS.get(each.operand_type) for each in trace.instructions]
    unknown = NumberFormat.UNKNOWN
    known = [*(unknown if each is None else each for each in of_type), unknown]
    of_instruction = np.array(known, dtype=np.uint8)[columns.instruction[rows]]
    result: npt.NDArray[np.uint8] = np.where(precision == unknown, of_instruction, precision)
    return result
