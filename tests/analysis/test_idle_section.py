"""The section on idle time shows the causes of each device that was used, and the longest gaps with their evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as changed

from tests.analysis.sections import (
    HOST,
    cells_of,
    check_printed,
    headings_of,
    sentences_of,
    tables_of,
    view_of,
    view_of_scenario,
)
from traceview.analysis.gpu_time.idle.section import BRIEF_GAPS, gaps_section, idle_section
from traceview.analysis.measures.context import View
from traceview.analysis.measures.idle_report import Gap, Idle, IdleRow, numbered_gaps
from traceview.document.model import Bar, Section
from traceview.document.vocabulary import STATES
from traceview.ledger.states import State

MS = 10**9
GAP = Gap(
    start_ps=30 * MS,
    duration_ps=9 * MS,
    state="input",
    states={"input": 8 * MS, "launch": MS},
    before="model/dense/MatMul:MatMul",
    after=None,
    step=1,
    thread="python",
    host_event="IteratorGetNextOp::DoCompute",
    host_stack=("train", "IteratorGetNextOp::DoCompute"),
)


def row(device: str, states: dict[str, int], *gaps: Gap) -> IdleRow:
    return IdleRow(
        host=HOST,
        device=device,
        ordinal=0,
        window_ps=100 * MS,
        idle_ps=sum(states.values()),
        gap_count=17,
        longest_gap_ps=9 * MS,
        states=states,
        states_per_step=None,
        gaps=gaps,
        left_out_gap_count=17 - len(gaps),
        steps=(),
    )


def view_and_result(*rows: IdleRow, **changes: Any) -> tuple[View, Idle]:
    result = Idle(rows)
    return view_of(results={"idle": result}, **changes), result


def section_of(*rows: IdleRow, **changes: Any) -> Section:
    section = idle_section(*view_and_result(*rows, **changes))
    assert section is not None
    return section


def test_each_cause_has_its_share_of_the_window_the_largest_first() -> None:
    causes = {"launch": 7 * MS, "input": 13 * MS}
    section = section_of(row("GPU:0", causes))
    (table,) = tables_of(section)
    assert headings_of(table) == [
        "device",
        "idle",
        "by state",
        "input",
        "kernel launches",
        "gaps",
        "longest gap",
    ]
    assert [cells_of(table, heading) for heading in ("idle", "input", "kernel launches")] == [
        ["20.0%"],
        ["13.0%"],
        ["7.0%"],
    ]
    assert section.lead == "Idle 20.0% of the window; most of it over all devices: input."
    check_printed(section, "GPU:0", "kernel launches", "9.00 ms")


def test_the_bar_of_a_device_is_all_of_its_idle_time() -> None:
    section = section_of(row("GPU:0", {"input": 3, "launch": 1}))
    (bar,) = next(column for column in tables_of(section)[0].columns if column.kind == "bar").values
    assert isinstance(bar, Bar)
    assert [(part.look.key, part.ratio) for part in bar.parts] == [
        ("input", 0.75),
        ("launch", 0.25),
    ]


def test_letters_tell_the_states_apart() -> None:
    assert list(STATES) == [state.key for state in State]
    letters = [look.letter for look in STATES.values()]
    assert len(set(letters)) == len(letters)
    assert all(len(letter) == 1 and letter.isascii() for letter in letters)


def test_devices_without_a_kernel_are_named_and_have_no_row() -> None:
    unused = row("GPU:1", {"no_work": 100 * MS}, GAP)
    section = section_of(row("GPU:0", {"input": MS}), unused)
    assert cells_of(tables_of(section)[0], "device") == ["GPU:0"]
    assert "No work was given to GPU:1." in sentences_of(section)
    assert numbered_gaps(view_and_result(unused)[0]) == ()
    assert section_of(unused).lead == "No work was given to GPU:1."


def test_no_device_waited() -> None:
    assert section_of(row("GPU:0", {})).lead == "No device waited."


def test_of_many_devices_the_outliers_have_a_row_each() -> None:
    rows = [row(f"GPU:{n}", {"input": (10 + n) * MS}) for n in range(4)]
    section = section_of(*rows, others=("GPU:1", "GPU:2", "GPU:3"))
    assert cells_of(tables_of(section)[0], "device") == ["GPU:0"]
    sentence = "3 other devices: idle 11.0–13.0%. Why GPU:1 was idle: traceview show gaps logs --device GPU:1"
    assert sentence in sentences_of(section)


def test_rows_beyond_the_limit_are_counted() -> None:
    rows = [row(f"GPU:{n}", {"input": MS}) for n in range(5)]
    (table,) = tables_of(section_of(*rows, most_rows=2))
    assert (table.shown_count, table.hidden_count) == (2, 3)


# Gaps


def test_a_gap_has_its_place_its_cause_and_the_evidence() -> None:
    section = gaps_section(*view_and_result(row("GPU:0", {"input": 20 * MS}, GAP)))
    (table,) = tables_of(section)
    cells = {heading: cells_of(table, heading)[0] for heading in headings_of(table)}
    assert cells == {
        "gap": "1",
        "device": "GPU:0",
        "": "",
        "start": "30.0 ms",
        "length": "9.00 ms",
        "step": "1",
        "mostly": "input",
        "evidence on the host": "Python thread: IteratorGetNextOp::DoCompute",
        "previous op": "model/dense/MatMul:MatMul",
    }
    assert (table.row_count, table.rest) == (17, "traceview show gaps logs -o gaps.csv")
    assert table.anchors == ("gap 1",)
    check_printed(section, "9.00 ms", "IteratorGetNextOp::DoCompute")


def test_gaps_are_numbered_by_length_over_all_devices() -> None:
    gaps = [changed(GAP, duration_ps=length * MS) for length in (3, 1, 2)]
    numbered = numbered_gaps(
        view_and_result(
            row("GPU:0", {"input": MS}, gaps[0], gaps[1]), row("GPU:1", {"input": MS}, gaps[2])
        )[0]
    )
    assert [(gap.number, gap.gap.duration_ps // MS, gap.span.device) for gap in numbered] == [
        (1, 3, "GPU:0"),
        (2, 2, "GPU:1"),
        (3, 1, "GPU:0"),
    ]


def test_a_brief_document_has_few_gaps() -> None:
    waiting = row("GPU:0", {"input": MS}, *[GAP] * 10)
    (table,) = tables_of(gaps_section(*view_and_result(waiting, is_brief=True)))
    assert table.shown_count == BRIEF_GAPS
    assert gaps_section(*view_and_result(row("GPU:0", {"input": MS}))) is None


def test_the_findings_about_a_gap_are_linked() -> None:
    shown, result = view_and_result(row("GPU:0", {"input": MS}, GAP))
    section = gaps_section(replace(shown, findings_of_gaps={1: (2, 5)}), result)
    assert cells_of(tables_of(section)[0], "findings") == ["finding 2, finding 5"]


@pytest.mark.parametrize("name", ["plain", "hostile_names", "sixteen_hosts_of_eight"])
def test_scenarios_are_printed(name: str, tmp_path: Path) -> None:
    shown = view_of_scenario(name, tmp_path)
    idle = shown.results["idle"]
    check_printed(idle_section(shown, idle), "Shares are of the window")
    check_printed(gaps_section(shown, idle))
