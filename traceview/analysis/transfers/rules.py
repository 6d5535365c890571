"""Holds the rules on copies to a GPU, and what counts as a small copy."""

from __future__ import annotations

from typing import Final

from traceview.analysis.base import Rule

SMALL_BYTES: Final = 64 * 1024
"""Copies below this are small: they take latency rather than bandwidth."""

SMALL_SIZE: Final = f"{SMALL_BYTES // 1024} KiB"

_HELD_UP_RATIO: Final = 0.02
"""Exposed share of the step from which the way of copying matters."""

H2D_EXPOSED: Final = Rule(
    "h2d-exposed",
    starts_at=(
        "exposed copies from the host take at least {warning_ratio} of the mean step; critical from {critical_ratio} on"
    ),
    severities=("warning", "critical"),
    # XProf judges the share of input by the same limits.
    limits={"warning_ratio": 0.05, "critical_ratio": 0.20},
    meaning=(
        "The GPU does nothing but receive data from the host for part of each step. Copies under compute or "
        "communication do not count."
    ),
    evidence="mean_exposed_ps_per_step of directions.h2d in results.transfers, over the mean step.",
    advice=(
        "Copy the next batch while this one is computed: end the pipeline with dataset.prefetch(tf.data.AUTOTUNE) "
        "and distribute it with strategy.experimental_distribute_dataset(dataset), which copies ahead; without a strategy, "
        "on one GPU, use dataset.apply(tf.data.experimental.prefetch_to_device('/GPU:0')). Send less: uint8 images that are cast "
        "on the GPU are a quarter of float32."
    ),
    example="copies to GPU:0 are exposed for 25.0 ms of the mean 50.0 ms step (50.0%)",
    idle_causes=("h2d",),
    jax_advice=(
        "Copy the next batch while this one is computed: jax.device_put of the next batch before the current "
        "step is done runs in the background. Send less: uint8 images that are cast on the GPU are a quarter "
        "of float32."
    ),
)

H2D_PAGEABLE: Final = Rule(
    "h2d-pageable",
    starts_at=(
        "at least {pageable_ratio} of the bytes to a GPU come from pageable memory, and exposed copies take at least "
        "{exposed_ratio} of the step"
    ),
    limits={"pageable_ratio": 0.10, "exposed_ratio": _HELD_UP_RATIO},
    meaning=(
        "The driver copies pageable memory, such as NumPy arrays, to a buffer of its own first, and the host waits. "
        "A GPU reads pinned memory directly. The cost is an upper bound: the share of the exposed time that these bytes "
        "have."
    ),
    evidence="pageable_bytes over bytes of directions.h2d in results.transfers.",
    advice=(
        "Do not pass NumPy arrays to the step; take the batches from a tf.data pipeline: "
        "strategy.experimental_distribute_dataset(dataset) stages them in pinned memory and copies them ahead of the "
        "step."
    ),
    example="100% of the bytes copied to GPU:0 come from pageable memory",
    idle_causes=("h2d",),
    jax_advice="Copy batches ahead of the step with jax.device_put, so that the step does not wait for slow copies.",
)

H2D_SMALL_COPIES: Final = Rule(
    "h2d-small-copies",
    starts_at=(
        f"at least {{small_count_per_step}} copies below {SMALL_SIZE} per step, and exposed copies take at least "
        "{exposed_ratio} of the step"
    ),
    limits={"small_count_per_step": 100, "exposed_ratio": _HELD_UP_RATIO},
    meaning=(
        "A small copy takes microseconds to launch, whatever its size: many small ones cost more than a large one. "
        "The cost is an upper bound: the whole exposed time."
    ),
    evidence="small_count_per_step of directions.h2d in results.transfers, and top_sources.",
    advice=(
        "Send one tensor instead of many: tf.concat or tf.stack features in the pipeline, dataset.batch(...) before "
        "map, and make constants once outside the step, as x = tf.constant(0.5), not Python numbers in every call."
    ),
    example=f"400 copies below {SMALL_SIZE} to GPU:0 per step",
    idle_causes=("h2d",),
    jax_advice=(
        "Pass one array instead of many, and keep constants on the devices: x = jnp.float32(0.5) once outside "
        "the loop, no Python numbers in every call."
    ),
)

H2D_SLOW_LINK: Final = Rule(
    "h2d-slow-link",
    starts_at=(
        "copies run at less than {link_use_ratio} of the rate of their link, exposed for at least {exposed_ratio} of "
        "the step"
    ),
    limits={"link_use_ratio": 0.50, "exposed_ratio": H2D_EXPOSED.limits["warning_ratio"]},
    meaning=(
        "The copies are far slower than the PCIe link, whose rate traceview capture wrote down. Usual causes: "
        "pageable memory, small copies, a shared switch, or memory of another NUMA node. The cost is an upper bound: what "
        "the full rate of the link would save."
    ),
    evidence="bytes_per_second of directions.h2d over link_bytes_per_second in results.transfers.",
    advice=(
        "Check the generation and the width of the link under load with nvidia-smi -q -d PCIE, bind the process to "
        "the NUMA node of its GPU (numactl --cpunodebind), and copy large batches from pinned memory: "
        "dataset.prefetch(tf.data.AUTOTUNE)."
    ),
    example="copies to GPU:0 run at 4.00 GB/s, 25.4% of the rate of its link",
    idle_causes=("h2d",),
    jax_advice=(
        "Check the generation and the width of the link under load with nvidia-smi -q -d PCIE, and bind the "
        "process to the NUMA node of its GPU (numactl --cpunodebind)."
    ),
)
