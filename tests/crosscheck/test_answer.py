"""The pages of XProf are read as they are meant."""

from __future__ import annotations

import pytest

from scripts.crosscheck.answer import Answer, KernelAnswer, StepAnswer, parse
from tests.viewers.fake_xprof import table

STEP_COLUMNS = [
    "stepnum",
    "deviceComputeTimeMs",
    "deviceToDeviceTimeMs",
    "deviceCollectivesTimeMs",
    "hostComputeTimeMs",
    "kernelLaunchTimeMs",
    "infeedTimeMs",
    "outfeedTimeMs",
    "compileTimeMs",
    "otherTimeMs",
    "tooltip",
    "stepTimeMs",
]


def test_a_step_has_all_its_parts() -> None:
    row = ["train 3", 1, 2, 3, 4, 5, 6.000001, 7, 8, 9, "words", 45.000001]
    found = parse({"input_pipeline_analyzer": [table([], []), table(STEP_COLUMNS, [row])]})
    ms = 1_000_000_000
    assert found.steps == (
        StepAnswer(
            duration_ps=45 * ms + 1000,
            compute_ps=ms,
            d2d_ps=2 * ms,
            collective_ps=3 * ms,
            host_compute_ps=4 * ms,
            launch_ps=5 * ms,
            input_ps=6 * ms + 1000,
            d2h_ps=7 * ms,
            compile_ps=8 * ms,
            other_ps=9 * ms,
        ),
    )


def test_without_steps_there_are_none_and_without_a_page_it_is_not_known() -> None:
    assert parse({"overview_page": [table(STEP_COLUMNS, [])]}).steps == ()
    nothing = Answer(None, None, None, None, None, None)
    assert parse({}) == nothing
    assert parse({"overview_page": None, "kernel_stats": [], "framework_op_stats": {}}) == nothing


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ("Your program is HIGHLY input-bound because 63.2% of the total", "high"),
        ("Your program is MODERATELY input-bound because 6% of", "moderate"),
        ("Your program is POTENTIALLY input-bound because 7.9% of", "potential"),
        ("Your program is NOT input-bound because only 0.0% of", "none"),
        ("No step time measured. Therefore we cannot tell", None),
    ],
)
def test_the_verdict_is_in_its_words(words: str, verdict: str | None) -> None:
    page = table([], [], input_conclusion=words)
    assert parse({"overview_page": [page]}).verdict == verdict


def test_counts_and_shares_of_the_overview() -> None:
    page = table([], [], device_core_count="8", device_compute_16bit_percent="30.5%")
    found = parse({"overview_page": [table([], [], other="1"), page]})
    assert (found.device_count, found.half_ratio) == (8, 0.305)
    odd = table([], [], device_core_count="many", device_compute_16bit_percent="-nan")
    assert parse({"overview_page": [odd]}).device_count is None


def test_a_kernel_is_one_over_all_launch_shapes() -> None:
    columns = ["rank", "kernel_name", "grid_dim", "occurrences", "total_duration_us"]
    rows = [[1, "a", "1,1,1", 3.0, 7.5], [2, "b", "1,1,1", 1.0, 2.001], [3, "a", "2,1,1", 1.0, 0.5]]
    found = parse({"kernel_stats": table(columns, rows)})
    assert found.kernels == {"a": KernelAnswer(4, 8_000_000), "b": KernelAnswer(1, 2_001_000)}
    assert found.kernel_row_count == 3


def test_idle_is_that_of_devices() -> None:
    columns = ["host_or_device", "type", "total_self_time"]
    rows = [["Host", "IDLE", 9.0], ["Device", "MatMul", 8.0], ["Device", "IDLE", 7.0]]
    pages = {"framework_op_stats": [table(columns, rows), table(columns, [])]}
    assert parse(pages).idle_ps == 7_000_000
