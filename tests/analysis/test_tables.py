"""The tables of topics hold the chosen rows, and their sections show them."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from scripts.cuda_trace import MS
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import marked_steps, new_trace
from tests.analysis.sections import view_of
from traceview.analysis.exchange.collectives import collective_rows_section, collective_table
from traceview.analysis.facts.selection import select
from traceview.analysis.gpu_time.idle import gap_table_section
from traceview.analysis.gpu_time.steps import step_blocks, step_table
from traceview.analysis.measures.context import Context
from traceview.analysis.measures.idle_report import gap_table
from traceview.analysis.measures.step_report import step_rows
from traceview.document import model
from traceview.document.terminal import render_section
from traceview.trace.reading.load import load


def context_of(name: str, folder: Path) -> Context:
    SCENARIOS[name]().write(folder)
    trace = load(folder)
    return Context(trace, select(trace))


def test_of_two_equal_parts_the_earlier_state_is_the_largest(tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace, count=2, marker_ms=50):
        step.host("IteratorGetNext:IteratorGetNext", 10, 20)
        step.host("EagerExecute", 20, 30)
        step.kernel(0, 0, 10, launch_ms=0)
        step.kernel(0, 30, 50, launch_ms=30)
    trace.write(tmp_path)
    context = Context(load(tmp_path), select(load(tmp_path)))
    rows, _ = gap_table(context, devices={"GPU:0"})
    assert set(zip(rows["input_ps"], rows["launch_ps"], strict=True)) == {(10 * MS, 10 * MS)}
    assert set(rows["state"]) == {"input"}


def test_a_section_without_rows_is_none(tmp_path: Path) -> None:
    context = context_of("plain", tmp_path)
    gaps, _ = gap_table(context, devices=())
    rows = collective_table(context)
    assert (gap_table_section(gaps, {}), collective_rows_section(rows)) == (None, None)


def test_steps_of_devices_that_are_much_alike_are_ranges(tmp_path: Path) -> None:
    context = context_of("eight_balanced", tmp_path)
    others = [f"GPU:{number}" for number in range(1, 8)]
    keys = [context.trace.device_key(number) for number in range(8)]
    table = step_table(step_rows(context), keys)
    blocks = step_blocks(replace(view_of(), others=tuple(others)), table)
    section = model.Section("steps", "Steps", blocks)
    words = " ".join(render_section(section, width=80, color=False).split())
    assert "7 other devices: compute " in words
    assert "GPU:1" not in words


def test_the_first_row_of_a_collective_has_its_number_and_op(tmp_path: Path) -> None:
    context = context_of("late_by_turns", tmp_path)
    section = collective_rows_section(collective_table(context))
    assert section is not None
    (block, _) = section.blocks
    assert isinstance(block, model.Table)
    by_heading = {column.heading: column.values for column in block.columns}
    assert by_heading["number"][:5] == ("0", "", "", "", "1")
    assert [bool(op) for op in by_heading["op"][:5]] == [True, False, False, False, True]
    assert by_heading[""][:4] == ("last", "", "", "")
