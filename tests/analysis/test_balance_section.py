"""The section on balance says who is late, why and what a fix saves, in words that match its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import traceview
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import marked_steps, new_trace
from tests.analysis.sections import (
    facts_of,
    headings_of,
    lines_of,
    markdown_of,
    sentences_of,
    tables_of,
    values_of,
    view_of,
)
from tests.charts import MS
from tests.reports import balance_result, finding
from traceview.analysis.balance.hardware import HardwareGroup
from traceview.analysis.balance.result import Balance
from traceview.analysis.balance.section import balance_section
from traceview.analysis.balance.uneven_steps import UnevenStep
from traceview.analysis.balance.what_if import WhatIf
from traceview.analysis.base import Evidence
from traceview.document.model import Section


def section(result: Balance, **changes: Any) -> Section:
    made = balance_section(view_of(**changes), result)
    assert made is not None
    return made


def balance_of(folder: Path, name: str = "") -> Balance:
    if name:
        SCENARIOS[name]().write(folder)
    result = traceview.analyze(folder).results.balance
    assert result is not None
    return result


# The lead and the facts


@pytest.mark.parametrize(
    ("changes", "lead"),
    [
        ({}, "2 of 6 GPUs compute, 60.0% of the time on average (20.0% over all 6)."),
        ({"visible_count": 2}, "2 GPUs compute 20.0% of the time on average."),
        ({"visible_count": 1, "in_use_count": 1}, "1 GPU computes 20.0% of the time."),
        (
            {"visible_count": 1, "in_use_count": 1, "kind": "replica"},
            "The CPU computes 20.0% of the time.",
        ),
    ],
)
def test_the_lead_is_the_share_of_the_time_that_devices_compute(
    changes: dict[str, Any], lead: str
) -> None:
    assert section(replace(balance_result(), **changes)).lead == lead


def test_facts_are_numbers_in_a_few_words() -> None:
    assert facts_of(section(balance_result())) == (
        "compute overlap 90.0% of the maximum (independent devices would reach 60.0%)",
        "phases on each: forward, backward, optimizer, reduction",
        "start delay from first to last device 500 µs (median)",
        "5,333 examples per second in the median step, 2,667 per GPU, 128 per step",
    )
    same = facts_of(section(replace(balance_result(), concurrency_ratio=0.0, stagger_ps=0)))
    assert same[0] == "GPUs never compute at the same time"
    assert same[2] == "no start delay between devices"


# The devices


def test_each_device_has_a_row() -> None:
    table = tables_of(section(balance_result()))[0]
    assert [(column.heading, column.values) for column in table.columns] == [
        ("device", ("GPU:0", "GPU:1")),
        ("compute per step", (14.4 * MS,) * 2),
        ("vs. others", (-0.0625, 1 / 15)),
        ("steps slowest", ("0 of 3", "3 of 3")),
        ("start delay", (0, MS // 2)),
        ("ends early by", (MS, 0)),
        ("last to arrive", ("1 of 4", "3 of 4")),
    ]


def test_without_a_common_clock_no_moments_are_compared(tmp_path: Path) -> None:
    made = section(balance_of(tmp_path, "clocks_without_collectives"))
    headings = headings_of(tables_of(made)[0])
    assert not {"start delay", "ends early by"} & set(headings)
    reason = "the clocks of the hosts cannot be compared"
    sentences = sentences_of(made)
    assert f"Compute overlap and start times are not compared: {reason}." in sentences
    bounds = "overlapped and shared evenly and compute fully overlapped"
    assert f"No bound for {bounds}: {reason}." in sentences


def test_devices_that_ran_different_parts_of_the_step_say_which(tmp_path: Path) -> None:
    result = balance_of(tmp_path, "gradients_on_one")
    made = section(result)
    assert values_of(tables_of(made)[0], "ran")[0] == "forward, backward, optimizer"
    assert not any(fact.startswith("phases on each") for fact in facts_of(section(result)))
    assert any(text.startswith("Only GPU:0 computes gradients") for text in sentences_of(made))


def test_many_devices_are_shown_as_a_range() -> None:
    made = section(balance_result(), others=("GPU:0",))
    assert values_of(tables_of(made)[0], "device") == ("GPU:1",)
    assert (
        "1 other device: compute 14.4 ms per step, -6.2% vs. the others. "
        "All devices: traceview balance logs -o balance.csv"
    ) in sentences_of(made)


# Sentences


def test_a_straggler_is_named_with_its_cause_its_cost_and_what_sharing_saves(
    tmp_path: Path,
) -> None:
    assert sentences_of(section(balance_of(tmp_path, "more_work")))[1] == (
        "GPU:1 has more to do: it computes 10.0 ms longer in the mean step, and the others wait; sharing its work "
        "evenly saves about 5.00 ms, because they would compute longer."
    )


def test_a_late_start_costs_what_the_others_wait(tmp_path: Path) -> None:
    sentences = sentences_of(section(balance_of(tmp_path, "late_start")))
    assert "GPU:1 starts its kernels late: the others wait 8.00 ms of the mean step." in sentences


def test_devices_that_run_serially(tmp_path: Path) -> None:
    result = balance_of(tmp_path, "serial_gpus")
    sentences = sentences_of(section(result))
    assert (
        "2 GPUs run serially: while one computes, the others wait; computing all at once saves at most 20.0 ms per "
        "step."
    ) in sentences
    assert not any("starts its kernels" in sentence for sentence in sentences)


def test_an_unsteady_device_is_no_straggler(tmp_path: Path) -> None:
    trace = new_trace(length_ms=300)
    for step, length in zip(marked_steps(trace, count=5), (20, 23, 28, 28, 28), strict=True):
        step.kernel(0, 2, 22)
        step.kernel(1, 2, 2 + length)
    trace.write(tmp_path)
    assert (
        "GPU:1 computed 27.0% longer than the others, but too unsteadily to be a straggler."
    ) in sentences_of(section(balance_of(tmp_path)))


def test_ratios_are_those_of_the_times_beside_them(tmp_path: Path) -> None:
    """Of means, as bars and costs are: medians are 10 and 40 ms here, and 0 % apart in the median step."""
    trace = new_trace(length_ms=300)
    lengths = [(10, 10), (10, 40), (40, 40), (40, 40), (10, 10)]
    for step, (first, second) in zip(marked_steps(trace, count=5), lengths, strict=True):
        step.kernel(0, 2, 2 + first)
        step.kernel(1, 2, 2 + second)
    trace.write(tmp_path)
    result = balance_of(tmp_path)
    assert [row.compute_ps_per_step for row in result.devices] == [10 * MS, 40 * MS]
    table = tables_of(section(result))[0]
    assert values_of(table, "compute per step") == (22 * MS, 28 * MS)
    assert values_of(table, "vs. others") == (22 / 28 - 1, 28 / 22 - 1)


def test_groups_of_hardware_are_named() -> None:
    groups = (
        HardwareGroup("Tesla V100", 80, None, ("GPU:0",)),
        HardwareGroup(None, 40, None, ("GPU:1",)),
    )
    sentences = sentences_of(section(replace(balance_result(), hardware=groups)))
    assert "The GPUs differ: Tesla V100 (GPU:0) and model not recorded (GPU:1)." in sentences


def test_uneven_and_short_steps() -> None:
    sentences = sentences_of(section(balance_result()))
    assert (
        "GPU:0 computed less than usual in step 3 (the last): 7.00 ms instead of 14.0 ms, the others as usual."
    ) in sentences
    assert "Every device computed less than usual in step 2, as on a short batch." in sentences


def test_many_uneven_steps_are_counted() -> None:
    steps = tuple(UnevenStep("host0", "GPU:0", n, False, 0, 14 * MS) for n in range(4))
    result = replace(balance_result(), uneven_steps=steps, uneven_step_count=4)
    sentences = sentences_of(section(result))
    assert sum("computed nothing in step" in sentence for sentence in sentences) == 3
    assert "4 uneven steps in all: results.balance.uneven_steps of the JSON report." in sentences


def test_a_name_from_the_trace_keeps_its_first_letter(tmp_path: Path) -> None:
    sentences = sentences_of(section(balance_of(tmp_path, "collectives_of_two_hosts")))
    assert sentences[1].startswith("host1/GPU:1 starts its kernels late")


# Bounds and prediction


def test_bounds_are_a_table_of_fixes() -> None:
    made = section(balance_result())
    assert "Best case per fix" in sentences_of(made)
    table = tables_of(made)[1]
    assert [(column.heading, column.values) for column in table.columns] == [
        ("fix", ("overlapped and shared evenly",)),
        ("median step at least", (23 * MS,)),
        ("saves at most", (MS,)),
        ("of the median step", (1 / 24,)),
        ("because", ("what the longest computes more",)),
    ]


@pytest.mark.parametrize(("saved_ms", "is_shown"), [(0.241, True), (0.239, False)])
def test_a_brief_document_shows_bounds_from_a_hundredth_of_the_step(
    saved_ms: float, is_shown: bool
) -> None:
    saved = int(saved_ms * MS)
    bound = WhatIf("no_input_wait", 24 * MS - saved, saved, "reasoning")
    result = replace(balance_result(), what_if=(bound,))
    brief, whole = section(result, is_brief=True), section(result)
    assert len(tables_of(brief)) == 1 + is_shown
    assert len(tables_of(whole)) == 2


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ("idle_input_ratio", "input-bound costs the wait of the device that is idle least."),
        (
            "input_cost_ratio input_wait_ps lock_wait_ps",
            "It leaves out the rest of what input-bound costs: waiting for Python's lock.",
        ),
        (
            "input_cost_ratio slowed_ops_ps slowed_dispatch_ps",
            "It leaves out what input-bound costs: ops that take longer because the pipeline takes cores and dispatch of ops",
        ),
    ],
)
def test_the_bound_of_input_says_what_it_counts(metrics: str, words: str) -> None:
    bound = WhatIf("no_input_wait", 20 * MS, 4 * MS, "reasoning")
    evidence = tuple(Evidence(metric, 0.2, None, "GPU:0") for metric in metrics.split())
    costly = finding(code="input-bound", evidence=evidence, cost_statistic="mean")
    result = replace(balance_result(), what_if=(bound,))
    sentences = " ".join(sentences_of(section(result, findings=(costly,))))
    assert words in sentences
    assert words not in " ".join(sentences_of(section(result)))


def test_work_that_is_shared_already_needs_no_sharing(tmp_path: Path) -> None:
    """All GPUs compute 30 ms, one of them later: only the delay can be saved."""
    table = tables_of(section(balance_of(tmp_path, "late_start")))[1]
    fixes = values_of(table, "fix")
    assert "compute fully overlapped" in fixes
    assert "overlapped and shared evenly" not in fixes


def test_a_prediction_names_its_assumptions() -> None:
    assert (
        "4 GPUs would train at most 1.85× as fast, if the batch doubles and links stay as fast."
        in sentences_of(section(balance_result()))
    )
    nothing = replace(balance_result(), prediction=None, prediction_reason="too few steps")
    assert "No prediction for more GPUs: too few steps." in sentences_of(section(nothing))


def test_a_brief_document_leaves_out_what_is_not_known() -> None:
    sentences = sentences_of(section(balance_result(), is_brief=True))
    assert not any("would train" in sentence for sentence in sentences)


# Where there is a section


def test_one_device_has_a_brief_section_only_with_a_finding() -> None:
    one = replace(balance_result(), in_use_count=1)
    assert balance_section(view_of(is_brief=True), one) is None
    poor = (finding(code="poor-scaling"),)
    assert balance_section(view_of(is_brief=True, findings=poor), one) is not None
    assert balance_section(view_of(), one) is not None


@pytest.mark.parametrize("width", [40, 60, 80])
def test_it_fits_a_terminal(width: int) -> None:
    text = "\n".join(lines_of(section(balance_result(), is_brief=True), width))
    assert "GPU:1 has more to do" in text
    assert "Best case per fix" in text


def test_it_prints_in_markdown() -> None:
    text = markdown_of(section(balance_result()))
    assert "| `GPU:1` | 14.4 ms | +6.7% | 3 of 3 |" in text
    assert "| overlapped and shared evenly | 23.0 ms | 1.00 ms | 4.2% |" in text
