"""The section on idle time shows the longest gaps of the devices that were used, with their evidence."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.analysis.sections import HOST, cells_of, headings_of, tables_of, view_of
from traceview.analysis.gpu_time.idle import gaps_section
from traceview.analysis.measures.context import FEW_ROWS, View
from traceview.analysis.measures.idle_report import Gap, Idle, IdleRow, numbered_gaps
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
    host_outer="train",
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
        gaps=gaps,
    )


def view_and_result(*rows: IdleRow, **changes: Any) -> tuple[View, Idle]:
    result = Idle(rows)
    return view_of(results={"idle": result}, **changes), result


def test_letters_tell_the_states_apart() -> None:
    assert list(STATES) == [state.key for state in State]
    letters = [look.letter for look in STATES.values()]
    assert len(set(letters)) == len(letters)
    assert all(len(letter) == 1 and letter.isascii() for letter in letters)


def test_gaps_of_devices_without_work_have_no_number() -> None:
    unused = row("GPU:1", {"no_work": 100 * MS}, GAP)
    assert numbered_gaps(view_and_result(unused)[0]) == ()


def test_a_gap_has_its_place_its_state_the_evidence_and_its_findings() -> None:
    shown, result = view_and_result(row("GPU:0", {"input": 20 * MS}, GAP))
    section = gaps_section(replace(shown, findings_of_gaps={1: (2, 5)}), result)
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
        "findings": "finding 2, finding 5",
        "evidence on the host": "Python thread: IteratorGetNextOp::DoCompute",
        "previous op": "model/dense/MatMul:MatMul",
    }
    assert (table.row_count, table.anchors) == (17, ("gap 1",))


def test_gaps_are_numbered_by_length_over_all_devices() -> None:
    gaps = [replace(GAP, duration_ps=length * MS) for length in (3, 1, 2)]
    view, _ = view_and_result(
        row("GPU:0", {"input": MS}, gaps[0], gaps[1]), row("GPU:1", {"input": MS}, gaps[2])
    )
    assert [(gap.gap.duration_ps // MS, gap.span.device) for gap in numbered_gaps(view)] == [
        (3, "GPU:0"),
        (2, "GPU:1"),
        (1, "GPU:0"),
    ]


def test_a_brief_document_has_few_gaps() -> None:
    waiting = row("GPU:0", {"input": MS}, *[GAP] * 10)
    (table,) = tables_of(gaps_section(*view_and_result(waiting, is_brief=True)))
    assert table.shown_count == FEW_ROWS
    assert gaps_section(*view_and_result(row("GPU:0", {"input": MS}))) is None
