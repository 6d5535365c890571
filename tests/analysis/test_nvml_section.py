"""The section on what NVML measured has a row per GPU, and says why numbers are missing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.sections import (
    headings_of,
    lines_of,
    markdown_of,
    sentences_of,
    tables_of,
    values_of,
    view_of,
)
from traceview.analysis.machine.nvml import BRIEF_GPUS, nvml_section
from traceview.analysis.measures.nvml import Nvml, NvmlRow, OtherProcess
from traceview.document.model import Section


def gpu(ordinal: int, **changes: Any) -> NvmlRow:
    parts: dict[str, Any] = {
        **dict.fromkeys(NvmlRow.__struct_fields__),
        "host": "host0",
        "device": f"GPU:{ordinal}",
        "ordinal": ordinal,
        "sample_count": 30,
        "throttle_reasons": {},
    }
    return NvmlRow(**parts | changes)


MEASURED: dict[str, Any] = {
    "nvml_busy_ratio": 0.5,
    "trace_busy_ratio": 0.45,
    "throttled_ratio": 0.5,
    "sm_clock_hz": 1_200_000_000,
    "sm_clock_max_hz": 1_980_000_000,
    "power_watts": 650.0,
    "power_limit_watts": 700.0,
    "memory_used_bytes": 50 * 10**9,
    "memory_total_bytes": 100 * 10**9,
    "other_processes": (OtherProcess(4242, None, None, None),),
}


def section(*rows: NvmlRow, absent: dict[str, str] | None = None, **changes: Any) -> Section:
    made = nvml_section(view_of(**changes), Nvml(rows, absent or {}))
    assert made is not None
    return made


def test_a_gpu_is_a_row() -> None:
    made = section(gpu(0, **MEASURED), gpu(1))
    (table,) = tables_of(made)
    assert {heading: values_of(table, heading) for heading in headings_of(table)} == {
        "device": ("GPU:0", "GPU:1"),
        "NVML busy": (0.5, None),
        "trace busy": (0.45, None),
        "throttled": (0.5, None),
        "SM clock": ("1200 of 1980 MHz", None),
        "power": ("650 of 700 W", None),
        "memory": (0.5, None),
        "memory used": (50 * 10**9, None),
        "other processes": (1, None),
        "samples": (30, 30),
    }
    assert made.lead == "Measured by NVML over the whole recording, 30 samples per GPU."


def test_limits_that_are_unknown_are_left_out() -> None:
    unknown = {"sm_clock_max_hz": None, "power_limit_watts": None, "memory_total_bytes": None}
    (table,) = tables_of(section(gpu(0, **MEASURED | unknown)))
    assert values_of(table, "SM clock") == ("1200 MHz",)
    assert values_of(table, "power") == ("650 W",)
    assert values_of(table, "memory used") == (50 * 10**9,)
    assert "memory" not in headings_of(table)


def test_a_reason_is_said_once_for_all_its_gpus() -> None:
    rows = [gpu(n, not_compared="too short", others_unknown="no permission") for n in range(4)]
    made = section(*rows, gpu(4, sample_count=10), absent={"host1": "not installed"})
    assert sentences_of(made) == [
        "NVML not compared with the trace on GPU:0–3: too short.",
        "Other processes unknown on GPU:0–3: no permission.",
        "No samples of host1: not installed.",
    ]
    assert isinstance(made.lead, str)
    assert made.lead.endswith("10 to 30 samples per GPU.")


def test_many_gpus_are_cut() -> None:
    made = section(*(gpu(n, **MEASURED) for n in range(BRIEF_GPUS + 4)), is_brief=True)
    (table,) = tables_of(made)
    assert (table.shown_count, table.hidden_count) == (BRIEF_GPUS, 4)


def test_without_any_gpu_there_is_no_section() -> None:
    assert nvml_section(view_of(), Nvml((), {"host0": "not installed"})) is None


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_section_prints(width: int) -> None:
    made = section(gpu(0, **MEASURED), is_brief=True)
    lines = lines_of(made, width)
    assert lines[0].startswith("GPU clocks, load and other processes")
    assert any(line.startswith("GPU:0") and "50.0%" in line for line in lines)
    assert "| `GPU:0` | 50.0% | 45.0% | 50.0% | 1200 of 1980 MHz |" in markdown_of(made)
