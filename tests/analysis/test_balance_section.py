"""The sections on balance and gradients compare the devices that computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import traceview
from scripts.scenarios import SCENARIOS
from tests.analysis.sections import (
    facts_of,
    lines_of,
    markdown_of,
    sentences_of,
    tables_of,
    values_of,
    view_of,
)
from tests.charts import MS
from tests.reports import balance_result, gradients_result
from traceview.analysis.exchange.balance import Balance, balance_section
from traceview.analysis.exchange.gradients import gradients_section
from traceview.document.model import Section


def section(result: Balance, **changes: Any) -> Section:
    made = balance_section(view_of(**changes), result)
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("changes", "lead"),
    [
        ({}, "2 of 6 GPUs compute, 60.0% of the time (20.0% over all 6)."),
        ({"visible_count": 2}, "2 GPUs compute 20.0% of the time."),
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
        "5,333 examples per second in the median step, 2,667 per GPU, 128 per step",
    )
    (first, _) = facts_of(section(replace(balance_result(), concurrency_ratio=0.0)))
    assert first == "GPUs never compute at the same time"


def test_each_device_has_a_row() -> None:
    (table,) = tables_of(section(balance_result()))
    assert [(column.heading, column.values) for column in table.columns] == [
        ("device", ("GPU:0", "GPU:1")),
        ("compute per step", (15 * MS, 16 * MS)),
        ("vs. others", (-0.0625, 1 / 15)),
        ("waits for others", (MS, 0)),
        ("others wait for it", (0, MS)),
    ]


def test_many_devices_are_shown_as_a_range() -> None:
    made = section(balance_result(), others=("GPU:0",))
    assert values_of(tables_of(made)[0], "device") == ("GPU:1",)
    assert any(text.startswith("1 other device: compute 15.0 ms") for text in sentences_of(made))


def test_without_a_common_clock_no_overlap_is_known(tmp_path: Path) -> None:
    SCENARIOS["clocks_without_collectives"]().write(tmp_path)
    result = traceview.analyze(tmp_path).results.balance
    assert result is not None
    reason = "Compute overlap is not known: the clocks of the hosts cannot be compared."
    assert sentences_of(section(result)) == [reason]


def test_one_device_has_no_section_in_a_terminal() -> None:
    one = replace(balance_result(), in_use_count=1)
    assert balance_section(view_of(is_brief=True), one) is None
    assert tables_of(section(one)) == []


@pytest.mark.parametrize("width", [40, 60, 80])
def test_the_section_fits_a_terminal(width: int) -> None:
    text = "\n".join(lines_of(section(balance_result()), width))
    assert "16.0 ms" in text
    assert "| `GPU:1` | 16.0 ms |" in markdown_of(section(balance_result()))


def test_parts_of_the_step_by_device() -> None:
    """In a terminal only where devices differ."""
    result = gradients_result()
    assert gradients_section(view_of(is_brief=True), result) is None
    first, second = result.devices
    differs = replace(result, devices=(first, replace(second, backward=False)))
    assert gradients_section(view_of(is_brief=True), differs) is not None
    made = gradients_section(view_of(), replace(result, missing="inference"))
    assert made is not None
    assert values_of(tables_of(made)[0], "backward") == (20 * MS, 20 * MS)
    assert sentences_of(made)[0].startswith("Neither gradients nor an optimizer ran")
