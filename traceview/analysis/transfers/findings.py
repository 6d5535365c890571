"""Which copies to a GPU hold up the training, and why are they slow?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from traceview.analysis.base import Confidence, Evidence, Finding, Severity, Skipped
from traceview.analysis.device_time.result import DeviceTime
from traceview.analysis.selection import Selection
from traceview.analysis.transfers.result import (
    HIGH_RATIO,
    MODERATE_RATIO,
    CopySource,
    DeviceTransfers,
    Transfers,
)
from traceview.document import numbers

PAGEABLE_RATIO: Final = 0.10
"""Share of the bytes from pageable memory from which it matters (METRICS 12: h2d-pageable)."""

HELD_UP_RATIO: Final = 0.02
"""Exposed share of the step from which the manner of copying matters (METRICS 12: h2d-pageable)."""

SMALL_COPIES_PER_STEP: Final = 100
"""Copies below 64 KiB in one step that are a storm (METRICS 12: h2d-small-copies)."""

SLOW_LINK_RATIO: Final = 0.5
"""Share of what the link carries below which it is badly used (METRICS 12: h2d-slow-link)."""

LEAST_USED_STEPS: Final = 2
"""With fewer used steps a finding on performance is only told (METRICS 12)."""

_AT_WORK: Final = ("active", "marginal")


def diagnose(
    result: Transfers | Skipped, device_time: DeviceTime, selection: Selection
) -> list[Finding]:
    """Copies to GPUs that compute, which nothing hid; what only copies is no part of the training's pace."""
    if isinstance(result, Skipped):
        return []
    at_work = {row.device for row in device_time.devices if row.status in _AT_WORK}
    # The first of the devices is the one that loses most.
    rows = sorted(
        (row for row in result.devices if row.device in at_work), key=lambda row: -_exposed(row)
    )
    judge = _Judge(len(selection.used_steps))
    checks: tuple[tuple[Callable[[DeviceTransfers], bool], _Describe], ...] = (
        (lambda row: _exposed(row) >= MODERATE_RATIO, judge.exposed),
        (_is_pageable, judge.pageable),
        (_is_storm, judge.small_copies),
        (_is_slow, judge.slow_link),
    )
    found = []
    for holds, describe in checks:
        affected = [row for row in rows if holds(row)]
        if affected:
            found.append(describe(affected))
    return found


def _exposed(row: DeviceTransfers) -> float:
    return row.directions.h2d.exposed_ratio or 0.0


def _pageable_ratio(row: DeviceTransfers) -> float:
    h2d = row.directions.h2d
    return (h2d.pageable_bytes or 0) / h2d.bytes if h2d.bytes else 0.0


def _is_pageable(row: DeviceTransfers) -> bool:
    return _pageable_ratio(row) >= PAGEABLE_RATIO and _exposed(row) >= HELD_UP_RATIO


def _is_storm(row: DeviceTransfers) -> bool:
    count = row.directions.h2d.small_count_per_step or 0
    return count >= SMALL_COPIES_PER_STEP and _exposed(row) >= HELD_UP_RATIO


def _link_ratio(row: DeviceTransfers) -> float | None:
    speed, link = row.directions.h2d.bytes_per_second, row.link_bytes_per_second
    return None if speed is None or not link else speed / link


def _is_slow(row: DeviceTransfers) -> bool:
    ratio = _link_ratio(row)
    return ratio is not None and ratio < SLOW_LINK_RATIO and _exposed(row) >= MODERATE_RATIO


_Describe = Callable[[Sequence[DeviceTransfers]], Finding]


class _Judge:
    """Writes the findings; how much they weigh depends on the number of steps that they rest on."""

    def __init__(self, used_count: int) -> None:
        self._is_enough = used_count >= LEAST_USED_STEPS
        self._whole = "step" if used_count else "window"

    def exposed(self, rows: Sequence[DeviceTransfers]) -> Finding:
        worst = rows[0]
        ratio = _exposed(worst)
        return self._finding(
            "h2d-exposed",
            "critical" if ratio >= HIGH_RATIO else "warning",
            rows,
            title=f"copies to {worst.device} take {numbers.share(ratio)} of the {self._whole} while nothing else "
            "runs on it",
            explanation=(
                "The GPU waits for data that is on its way from the host: no kernel and no collective runs "
                f"during these copies on {_names(rows)}.{_issued(worst)}{_detour(worst)}"
            ),
            advice=(
                "Let the next batch travel while this one is computed: end the pipeline with "
                "dataset.prefetch(tf.data.AUTOTUNE) and distribute it with "
                "strategy.experimental_distribute_dataset(dataset), or on one GPU use "
                "dataset.apply(tf.data.experimental.prefetch_to_device('/GPU:0')). Send less: uint8 images "
                "that are cast on the GPU are a quarter of float32."
            ),
            evidence=[],
        )

    def pageable(self, rows: Sequence[DeviceTransfers]) -> Finding:
        worst = rows[0]
        share = _pageable_ratio(worst)
        return self._finding(
            "h2d-pageable",
            "warning",
            rows,
            title=f"{numbers.share(share)} of the bytes copied to {worst.device} come from pageable memory",
            explanation=(
                "The driver copies pageable memory to a buffer of its own first and makes the host wait "
                "meanwhile; pinned memory the GPU reads by itself. The cost is a bound: the part of the "
                f"exposed time that these bytes stand for.{_issued(worst)}"
            ),
            advice=(
                "Do not hand NumPy arrays to the step; take the batches from a tf.data pipeline, and let it "
                "stage them in pinned memory: strategy.experimental_distribute_dataset(dataset, "
                "tf.distribute.InputOptions(experimental_fetch_to_device=True))."
            ),
            evidence=[
                Evidence("pageable_ratio", _pageable_ratio(row), PAGEABLE_RATIO, row.device)
                for row in rows
            ],
            least_ratio=HELD_UP_RATIO,
            share=min(share, 1.0),
        )

    def small_copies(self, rows: Sequence[DeviceTransfers]) -> Finding:
        worst = rows[0]
        count = worst.directions.h2d.small_count_per_step or 0
        return self._finding(
            "h2d-small-copies",
            "warning",
            rows,
            title=f"{count} copies below 64 KiB to {worst.device} per step",
            explanation=(
                "A small copy takes as long as its launch, however few bytes it holds: many of them cost "
                f"more than one large one. The cost is a bound, the whole exposed time.{_issued(worst)}"
            ),
            advice=(
                "Send one tensor instead of many: tf.concat or tf.stack features in the pipeline, "
                "dataset.batch(...) before map, and make constants once outside the step, as "
                "x = tf.constant(0.5), not Python numbers in every call."
            ),
            evidence=[
                Evidence(
                    "small_count_per_step",
                    row.directions.h2d.small_count_per_step or 0,
                    SMALL_COPIES_PER_STEP,
                    row.device,
                )
                for row in rows
            ],
            least_ratio=HELD_UP_RATIO,
        )

    def slow_link(self, rows: Sequence[DeviceTransfers]) -> Finding:
        worst = rows[0]
        share = _link_ratio(worst) or 0.0
        speed = worst.directions.h2d.bytes_per_second or 0
        return self._finding(
            "h2d-slow-link",
            "warning",
            rows,
            title=(
                f"copies to {worst.device} run at {numbers.size(speed)} per second, {numbers.share(share)} of what its "
                "link carries"
            ),
            explanation=(
                "Large copies from pinned memory come near to what the link carries. The cost is a bound: "
                f"what would be saved at that speed.{_issued(worst)}"
            ),
            advice=(
                "Look at the link under load with nvidia-smi -q -d PCIE (generation and width), bind the "
                "process to the NUMA node of its GPU (numactl --cpunodebind), and copy large batches from "
                "pinned memory: dataset.prefetch(tf.data.AUTOTUNE)."
            ),
            evidence=[
                Evidence("link_use_ratio", _link_ratio(row) or 0.0, SLOW_LINK_RATIO, row.device)
                for row in rows
            ],
            share=1 - share,
        )

    def _finding(
        self,
        code: str,
        severity: Severity,
        rows: Sequence[DeviceTransfers],
        *,
        title: str,
        explanation: str,
        advice: str,
        evidence: list[Evidence],
        least_ratio: float = MODERATE_RATIO,
        share: float = 1.0,
    ) -> Finding:
        """One finding on all `rows`; `share` of the exposed time of the first is what it costs."""
        worst = rows[0]
        exposed_ps = worst.directions.h2d.exposed_ps_per_step
        confidence: Confidence = "high" if self._is_enough else "low"
        return Finding(
            code=code,
            severity=severity if self._is_enough else "info",
            title=title,
            explanation=explanation,
            advice=advice,
            confidence=confidence,
            confidence_reason=(
                "the copies are recorded with their times"
                if self._is_enough
                else f"fewer than {LEAST_USED_STEPS} steps to judge by"
            ),
            evidence=(
                *evidence,
                *(Evidence("exposed_ratio", _exposed(r), least_ratio, r.device) for r in rows),
            ),
            devices=tuple(row.device for row in rows),
            cost_ps_per_step=None if exposed_ps is None else int(exposed_ps * share),
            cost_ratio=_exposed(worst) * share,
        )


def _names(rows: Sequence[DeviceTransfers]) -> str:
    return numbers.listed([row.device for row in rows])


def _issued(row: DeviceTransfers) -> str:
    """Who issued most of it, as a sentence of its own; nothing where that is not recorded."""
    source = next((one for one in row.top_sources if one.direction == "h2d"), None)
    if source is None or (source.op is None and source.thread is None):
        return ""
    return f" On {row.device} most of them are issued {_by(source)}."


def _by(source: CopySource) -> str:
    op = "" if source.op is None else f"for {source.op}"
    thread = "" if source.thread is None else f"by thread {source.thread}"
    return " ".join(part for part in (op, thread) if part)


def _detour(row: DeviceTransfers) -> str:
    if not row.round_trips:
        return ""
    trip = row.round_trips[0]
    return (
        f" {trip.op} runs on the CPU between two ops on {row.device}, so its data goes to the host and "
        "back in every step."
    )
