"""Reads the numbers of XProf's overview, input, op and kernel pages.

XProf rounds times to nanoseconds on its pages; here they are picoseconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from traceview.base.units import PS_PER_MS, PS_PER_US

_CONCLUSION: Final = re.compile(r"Your program is (?P<verdict>\w+) input-bound")
_VERDICTS: Final = {"HIGHLY": "high", "MODERATELY": "moderate", "POTENTIALLY": "potential"}
_STEP_COLUMNS: Final = {
    "stepTimeMs": "duration_ps",
    "deviceComputeTimeMs": "compute_ps",
    "deviceCollectivesTimeMs": "collective_ps",
    "deviceToDeviceTimeMs": "d2d_ps",
    "infeedTimeMs": "input_ps",
    "outfeedTimeMs": "d2h_ps",
    "hostComputeTimeMs": "host_compute_ps",
    "kernelLaunchTimeMs": "launch_ps",
    "compileTimeMs": "compile_ps",
    "otherTimeMs": "other_ps",
}


@dataclass(frozen=True)
class StepAnswer:
    """One step of all devices of the run together; the parts sum to `duration_ps`.

    `input_ps` holds waits of the host for input and copies to the device, `other_ps` what is nothing else.
    """

    duration_ps: int
    compute_ps: int = 0
    collective_ps: int = 0
    d2d_ps: int = 0
    input_ps: int = 0
    d2h_ps: int = 0
    host_compute_ps: int = 0
    launch_ps: int = 0
    compile_ps: int = 0
    other_ps: int = 0


@dataclass(frozen=True)
class KernelAnswer:
    """A kernel by name, over all devices and launch shapes."""

    count: int
    total_ps: int


@dataclass(frozen=True)
class Answer:
    """The numbers of XProf, or those that its rules give; None where there is none.

    `idle_ps`: the row IDLE of its op table, over all devices. `half_ratio`: compute in 16 bits. `verdict`: of the
    input analysis: high, moderate, potential (undecided) or none; None where XProf measured no step.
    `kernels`: by name. `advises_16_bit`: it
    recommends ops in 16 bits.
    """

    device_count: int | None
    steps: tuple[StepAnswer, ...] | None
    idle_ps: int | None
    half_ratio: float | None
    verdict: str | None
    kernels: Mapping[str, KernelAnswer] | None
    kernel_row_count: int = 0
    advises_16_bit: bool = False


def parse(pages: Mapping[str, Any]) -> Answer:
    """XProf's answer from the JSON of its pages; what a page does not hold is None.

    `pages`: `overview_page`, `input_pipeline_analyzer`, `framework_op_stats`, `kernel_stats`, each a table or a
    list of tables of the Google chart format, or None.
    """
    overview = _tables(pages.get("overview_page"))
    inputs = _tables(pages.get("input_pipeline_analyzer"))
    properties: dict[str, Any] = {}
    for table in overview:
        properties |= table.get("p") or {}
    # Both pages hold the same steps.
    steps = [_rows(table) for table in (*inputs, *overview) if "stepTimeMs" in _columns(table)]
    kernels = [
        table for table in _tables(pages.get("kernel_stats")) if "kernel_name" in _columns(table)
    ]
    rows = [row for table in kernels for row in _rows(table)]
    conclusion = _CONCLUSION.search(str(properties.get("input_conclusion", "")))
    return Answer(
        device_count=_whole(properties.get("device_core_count")),
        steps=tuple(map(_step, steps[0])) if steps else None,
        idle_ps=_idle(_tables(pages.get("framework_op_stats"))),
        half_ratio=_percent(properties.get("device_compute_16bit_percent")),
        verdict=_VERDICTS.get(conclusion["verdict"], "none") if conclusion else None,
        kernels=_kernels(rows) if kernels else None,
        kernel_row_count=len(rows),
        advises_16_bit="replace more 32-bit Ops" in str(properties.get("precision_statement")),
    )


def _tables(page: Any) -> list[dict[str, Any]]:
    tables = page if isinstance(page, list) else [page]
    return [table for table in tables if isinstance(table, dict)]


def _columns(table: Mapping[str, Any]) -> list[str]:
    return [str(column.get("id")) for column in table.get("cols") or ()]


def _rows(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    names = _columns(table)
    return [
        {name: (cell or {}).get("v") for name, cell in zip(names, row["c"], strict=False)}
        for row in table.get("rows") or ()
    ]


def _step(row: Mapping[str, Any]) -> StepAnswer:
    return StepAnswer(
        **{
            field: round(float(row[column]) * PS_PER_MS)
            for column, field in _STEP_COLUMNS.items()
            if column in row
        }
    )


def _idle(tables: Sequence[Mapping[str, Any]]) -> int | None:
    """The first table has the row IDLE; the second is the same without it."""
    for table in tables[:1]:
        for row in _rows(table):
            if (row.get("host_or_device"), row.get("type")) == ("Device", "IDLE"):
                return round(float(row["total_self_time"]) * PS_PER_US)
    return None


def _kernels(rows: Sequence[Mapping[str, Any]]) -> dict[str, KernelAnswer]:
    kernels: dict[str, KernelAnswer] = {}
    for row in rows:
        known = kernels.get(str(row["kernel_name"]), KernelAnswer(0, 0))
        kernels[str(row["kernel_name"])] = KernelAnswer(
            known.count + round(float(row["occurrences"])),
            known.total_ps + round(float(row["total_duration_us"]) * PS_PER_US),
        )
    return kernels


def _whole(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def _percent(value: Any) -> float | None:
    try:
        return float(str(value).removesuffix("%")) / 100
    except ValueError:
        return None
