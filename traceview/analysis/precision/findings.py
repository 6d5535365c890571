"""Holds the rule on GPUs with tensor cores that compute in 32 bits or more, and its findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from traceview.analysis.base import Confidence, Evidence, Finding, Rule
from traceview.analysis.precision.result import DevicePrecision, Precision, capability_of
from traceview.document import numbers
from traceview.trace.model import Trace

LOW_PRECISION_UNUSED: Final = Rule(
    "low-precision-unused",
    starts_at=(
        "less than {low_precision_ratio} of the compute in 16 bits or less, on GPUs with tensor cores; not where the "
        "names of the kernels leave more than {unknown_ratio} of the compute unknown"
    ),
    severities=("info",),
    # The first limit is that of XProf.
    limits={"low_precision_ratio": 0.10, "unknown_ratio": 0.50},
    meaning=(
        "Tensor cores multiply 16-bit numbers several times faster than float32, and 16-bit tensors take half the "
        "memory traffic."
    ),
    evidence=(
        "low_precision_ratio and precision_ps in results.precision, by the names of the kernels; ordinary_kernels "
        "lists matrix products off the tensor cores."
    ),
    advice=(
        'Train in mixed precision: tf.keras.mixed_precision.set_global_policy("mixed_bfloat16"), on GPUs before '
        'compute capability 8 "mixed_float16".'
    ),
    example="all compute on GPU:0 is fp32",
    jax_advice=(
        "Compute in bfloat16: arrays and parameters with dtype jnp.bfloat16, or dtype=jnp.bfloat16 of the "
        "layers."
    ),
)

TRUSTED_UNKNOWN_RATIO: Final = 0.10
"""Up to this share of compute of unknown precision the finding is certain."""

FIRST_BFLOAT16: Final = 8.0
"""Compute capability from which tensor cores support bfloat16 and TF32."""


def diagnose(trace: Trace, result: Precision) -> list[Finding]:
    """GPUs with tensor cores that compute in 32 bits or more."""
    limits, least = LOW_PRECISION_UNUSED.limits, LOW_PRECISION_UNUSED.limits["low_precision_ratio"]
    rows = [
        row
        for row in result.devices
        if row.has_tensor_cores
        and row.compute_ps
        and row.unknown_ratio <= limits["unknown_ratio"]
        and row.low_precision_ratio < least
    ]
    if not rows:
        return []
    busiest = max(rows, key=lambda row: row.compute_ps)
    unknown = max(row.unknown_ratio for row in rows)
    confidence: tuple[Confidence, str] = ("high", "the names of the kernels show their precision")
    if unknown > TRUSTED_UNKNOWN_RATIO:
        share = numbers.share(unknown)
        confidence = ("low", f"the names of kernels with {share} of the compute do not show it")
    return [
        LOW_PRECISION_UNUSED.finding(
            _title(busiest, rows, result.devices),
            [
                Evidence("low_precision_ratio", row.low_precision_ratio, least, row.device)
                for row in rows
            ],
            confidence=confidence,
            explanation=(
                f"{numbers.listed([row.device for row in rows])} {'has' if len(rows) == 1 else 'have'} tensor cores. "
                f"{LOW_PRECISION_UNUSED.meaning} {_breakdown(busiest)}"
            ),
            advice=_advice(trace, rows),
            devices=[row.device for row in rows],
        )
    ]


def _spent(row: DevicePrecision) -> dict[str, int]:
    return {name: length for name, length in row.precision_ps.items() if length}


def _title(
    busiest: DevicePrecision, rows: Sequence[DevicePrecision], every: Sequence[DevicePrecision]
) -> str:
    """In which precision the GPUs in question compute; `every`: all that computed."""
    devices = (
        f"all {numbers.plural(len(rows), 'GPU')}"
        if 1 < len(rows) == len(every)
        else numbers.joined_devices([row.device for row in rows])
    )
    spent = {name for row in rows for name in _spent(row)}
    if len(spent) == 1:
        return f"all compute on {devices} is {spent.pop()}"
    if len(rows) == 1 and busiest.low_precision_ratio:
        share = numbers.share(busiest.low_precision_ratio)
        return f"only {share} of the compute on {devices} is in 16 bits or less"
    highest = max(row.low_precision_ratio for row in rows)
    if not highest:
        return f"no compute on {devices} is in 16 bits or less"
    most = numbers.share(highest)
    return f"at most {most} of the compute on {devices} is in 16 bits or less"


def _breakdown(row: DevicePrecision) -> str:
    parts = [f"{numbers.share(ps / row.compute_ps)} {name}" for name, ps in _spent(row).items()]
    sentence = f"The compute of {row.device} is {numbers.listed(parts)}."
    if row.ordinary_kernels:
        kernel = row.ordinary_kernels[0]
        sentence += (
            f" The longest product off the tensor cores: {kernel.op or kernel.kernel}, "
            f"{numbers.time(kernel.total_ps)}."
        )
    return sentence


def _advice(trace: Trace, rows: Sequence[DevicePrecision]) -> str:
    capabilities = {
        trace.device_key(index): capability_of(device) or 0.0
        for index, device in enumerate(trace.device_list)
    }
    if all(capabilities[row.device] >= FIRST_BFLOAT16 for row in rows):
        return (
            'Train in mixed precision: tf.keras.mixed_precision.set_global_policy("mixed_bfloat16"). If it has to be '
            "float32, leave TF32 on: tf.config.experimental.enable_tensor_float_32_execution(True)."
        )
    return (
        'Train in mixed precision: tf.keras.mixed_precision.set_global_policy("mixed_float16"), which applies loss '
        "scaling automatically in Model.fit; keep the last layer in float32."
    )
