"""Knows how many floating-point operations per second GPUs and TPUs can do at most, by precision, and how fast their memory is.

Planes of TPUs say both of themselves; a table has what planes do not say. Dense rates of tensor or matrix cores where a precision has them, at the highest clock, as their makers state. GeForce cards
with accumulation in float32. Sources: data sheets of NVIDIA V100, P100, T4, A100, A30, A10, A40, L4, L40, L40S, H100, H200,
HGX B200, RTX A6000, RTX 6000 Ada; white papers of Ampere GA102 and Ada; data sheets and CDNA white papers of AMD MI100, MI210,
MI250X (per die, which is a device), MI300X and MI325X; pages of Cloud TPU v2 to v6e, whose devices are cores in v2 and v3, and
chips from v4 on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from traceview.analysis.facts.devices import model_of
from traceview.base.text import lazy_pattern
from traceview.trace.model import Device, Trace
from traceview.xplane.kernel_names import NumberFormat


class _Peak(Struct, frozen=True):
    """Rates of a model in teraFLOP/s, None where it does not have that precision.

    `model`: a pattern of its name. `chip`: major and minor capability and number of cores, where no GPU of another rate has
    the same: planes of AMD GPUs have no name.
    """

    model: str
    fp64: float
    fp32: float
    tf32: float | None
    bf16: float | None
    fp16: float | None
    eight_bits: float | None = None
    chip: tuple[int, int, int] | None = None


_PEAKS: Final = (
    _Peak(r"P100-SXM2", 5.3, 10.6, None, None, 21.2),
    _Peak(r"P100-PCI", 4.7, 9.3, None, None, 18.7),
    _Peak(r"V100-SXM2", 7.8, 15.7, None, None, 125),
    _Peak(r"V100-PCI", 7.0, 14.0, None, None, 112),
    _Peak(r"\bT4\b", 0.25, 8.1, None, None, 65, 130),
    _Peak(r"\bA100\b", 19.5, 19.5, 156, 312, 312, 624, (8, 0, 108)),
    _Peak(r"\bA30\b", 10.3, 10.3, 82, 165, 165, 330),
    _Peak(r"\bA10\b", 0.49, 31.2, 62.5, 125, 125, 250),
    _Peak(r"\bA40\b", 0.58, 37.4, 74.8, 149.7, 149.7, 299.3),
    _Peak(r"RTX A6000", 0.6, 38.7, 77.4, 154.8, 154.8, 309.7),
    _Peak(r"RTX 6000 Ada", 1.4, 91.1, 182.1, 364.2, 364.2, 728.5),
    _Peak(r"\bL4\b", 0.47, 30.3, 60, 121, 121, 242),
    _Peak(r"\bL40S\b", 1.4, 91.6, 183, 362, 362, 733),
    _Peak(r"\bL40\b", 1.4, 90.5, 90.5, 181, 181, 362),
    _Peak(r"RTX 3090$", 0.56, 35.6, 35.6, 71, 71, 284),
    _Peak(r"RTX 4090$", 1.3, 82.6, 82.6, 165.2, 165.2),
    _Peak(r"H100 PCIe", 51, 51, 378, 756, 756, 1513, (9, 0, 114)),
    _Peak(r"H[12]00 NVL", 60, 60, 417.5, 835.5, 835.5, 1671),
    _Peak(r"H100 80GB HBM3|H200|GH200", 67, 67, 494.7, 989.4, 989.4, 1978.9),
    _Peak(r"\bB200\b", 37, 75, 1125, 2250, 2250, 4500),
    _Peak(r"MI100\b", 11.5, 46.1, None, 92.3, 184.6, 184.6),
    _Peak(r"MI210\b", 45.3, 45.3, None, 181, 181, 181),
    _Peak(r"MI250X\b", 47.9, 47.9, None, 191.5, 191.5, 191.5),
    _Peak(r"MI3(?:00|25)X\b", 163.4, 163.4, 653.7, 1307.4, 1307.4, 2614.9, (9, 4, 304)),
)


class _TpuPeak(Struct, frozen=True):
    """Rates of a TPU in teraFLOP/s and tera-operations per second, and bytes per second of its memory in gigabytes."""

    model: str
    bf16: float
    int8: float | None
    memory: float


_TPU_PEAKS: Final = (
    _TpuPeak(r"\bv2\b", 22.5, None, 300),
    _TpuPeak(r"\bv3\b", 61.5, None, 450),
    _TpuPeak(r"\bv4$", 275, 275, 1200),
    _TpuPeak(r"\bv5 ?(?:e|lite)\b", 197, 393, 819),
    _TpuPeak(r"\bv5p?$", 459, 918, 2765),
    _TpuPeak(r"\bv6 ?(?:e|lite)\b", 918, 1836, 1638),
)
_TERA: Final = 10**12
_GIGA: Final = 10**9
_LARGEST: Final = 1e6
"""No device does as many teraFLOP/s, or moves as many gigabytes per second."""

_PART: Final = lazy_pattern(r"MIG|-\d{1,4}[QCAB]$")
"""In names of parts of GPUs: `A100-SXM4-40GB MIG 1g.5gb`, `GRID T4-4Q`."""


_AMD: Final[Mapping[tuple[int | None, ...], int]] = {(9, 0): 1, (9, 4): 2}
"""By capability what AMD's memory moves over what the plane says, which reckons with two transfers in a cycle: HBM3 makes four."""


class Peaks(Struct, frozen=True):
    """The most that a device does. `flops`: FLOP/s by precision; `bandwidth`: bytes per second of its memory, None where not known."""

    flops: dict[NumberFormat, int] = {}
    bandwidth: int | None = None


def peaks_of(trace: Trace, device: int) -> Peaks:
    """The peaks of a device; nothing of what is no GPU or TPU, or a part of one, of which model and plane say less than they should."""
    entry, model = trace.device_list[device], model_of(trace, device)
    if entry.kind == "tpu":
        return _of_tpu(entry)
    if entry.kind != "gpu" or _PART.search(model or ""):
        return Peaks()
    chip = tuple(
        entry.count(key) for key in ("compute_cap_major", "compute_cap_minor", "core_count")
    )
    flops: dict[NumberFormat, int] = {}
    for peak in _PEAKS:
        if re.search(peak.model, model) if model else peak.chip == chip:
            flops = _in_flops(
                {
                    NumberFormat.FP64: peak.fp64,
                    NumberFormat.FP32: peak.fp32,
                    NumberFormat.TF32: peak.tf32,
                    NumberFormat.BF16: peak.bf16,
                    NumberFormat.FP16: peak.fp16,
                    NumberFormat.INT8: peak.eight_bits,
                    NumberFormat.FP8: peak.eight_bits,
                }
            )
            break
    bandwidth = entry.count("memory_bandwidth") or 0
    if entry.stats.get("device_vendor") == "AMD":
        bandwidth *= _AMD.get(chip[:2], 0)
    return Peaks(flops, bandwidth or None)


def _of_tpu(device: Device) -> Peaks:
    """What the plane of a TPU says, else the table."""
    stated = (
        device.stats.get(key)
        for key in ("peak_teraflops_per_second", "peak_hbm_bw_gigabytes_per_second")
    )
    compute, memory = (
        each if isinstance(each, int | float) and 0 < each <= _LARGEST else 0 for each in stated
    )
    model = device.model or ""
    known = (peak for peak in _TPU_PEAKS if re.search(peak.model, model, re.IGNORECASE))
    row = next(known, _TpuPeak("", 0, None, 0))
    flops = _in_flops({NumberFormat.BF16: compute or row.bf16, NumberFormat.INT8: row.int8})
    bandwidth = round((memory or row.memory) * _GIGA)
    return Peaks(flops, bandwidth or None)


def _in_flops(rates: Mapping[NumberFormat, float | None]) -> dict[NumberFormat, int]:
    """FLOP/s of what has a rate, in teraFLOP/s."""
    return {each: round(rate * _TERA) for each, rate in rates.items() if rate}
