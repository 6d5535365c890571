"""The section on ops ranks the ops of each device, and devices with the same ops share a table."""

from __future__ import annotations

from typing import Any

from tests.analysis.sections import (
    cells_of,
    check_printed,
    headings_of,
    sentences_of,
    tables_of,
    view_of,
)
from traceview.analysis.workload.ops import MOST_GROUPS, OpRow, OpTypeRow, TopOps, section
from traceview.document.model import Section

MS = 10**9
OVERLAP = (
    "Ops that run at the same time all count in full, so their shares may add up to more than 100% of the time in which "
    "the device computes."
)


def op(name: str | None, kernel: str | None = "gemm", **changes: Any) -> OpRow:
    fields: dict[str, Any] = {
        "device": "GPU:0",
        "class_": "compute",
        "op": name,
        "op_type": "MatMul",
        "kernel": kernel,
        "source_line": "model.py:7 in call",
        "count": 4,
        "total_ps": 8 * MS,
        "self_ps": 8 * MS,
        "mean_ps": 2 * MS,
        "median_ps": 2 * MS,
        "p95_ps": 3 * MS,
        "share_ratio": 0.5,
        "bytes": None,
    }
    return OpRow(**fields | changes)


def section_of(*rows: OpRow, row_count: int | None = None, **changes: Any) -> Section | None:
    count = len(rows) if row_count is None else row_count
    return section(view_of(**changes), TopOps(rows, count))


def test_an_op_has_its_times_its_share_and_its_kernel() -> None:
    shown = section_of(op("dense/MatMul", "void gemm<float>"))
    (table,) = tables_of(shown)
    assert {heading: cells_of(table, heading)[0] for heading in headings_of(table)} == {
        "op or kernel": "dense/MatMul",
        "total": "8.00 ms",
        "share": "50.0%",
        "count": "4",
        "class": "compute",
        "mean": "2.00 ms",
        "p95": "3.00 ms",
        "type": "MatMul",
        "kernel": "gemm<float>",
        "line": "model.py:7 in call",
    }
    check_printed(shown, "dense/MatMul", "gemm<float>", "model.py:7 in call")


def test_a_brief_table_leaves_the_room_to_the_names() -> None:
    (table,) = tables_of(section_of(op("a"), is_brief=True))
    assert headings_of(table) == [
        "op or kernel",
        "total",
        "share",
        "count",
        "class",
        "kernel",
        "line",
    ]


def test_a_table_of_types_sums_up_ops_of_one_type() -> None:
    rows = (op("layer_1/cast"), op("layer_2/cast"))
    types = (
        OpTypeRow("GPU:0", "compute", "Cast", 288, 576, 14 * MS, 0.7),
        OpTypeRow("GPU:0", "collective", "NcclAllReduce", 1, 2, 3 * MS, None),
        OpTypeRow("GPU:1", "compute", "Cast", 288, 576, 15 * MS, 0.8),
    )
    shown = section(view_of(), TopOps(rows, 2, types))
    of_types, of_ops = tables_of(shown)
    assert {heading: cells_of(of_types, heading) for heading in headings_of(of_types)} == {
        "type of op": ["Cast", "NcclAllReduce"],
        "total": ["14.0 ms", "3.00 ms"],
        "share": ["70.0%", "–"],
        "ops": ["288", "1"],
        "count": ["576", "2"],
        "class": ["compute", "communication"],
    }
    assert cells_of(of_ops, "op or kernel") == ["layer_1/cast", "layer_2/cast"]
    assert len(tables_of(section(view_of(is_brief=True), TopOps(rows, 2, types)))) == 1
    assert len(tables_of(section(view_of(), TopOps(rows, 2, types[1:2])))) == 1


def test_what_has_no_op_is_named_by_its_kernel() -> None:
    copy = op(None, "MemcpyH2D", class_="h2d", op_type=None, share_ratio=None)
    (table,) = tables_of(section_of(copy))
    assert cells_of(table, "op or kernel") == ["MemcpyH2D"]
    assert cells_of(table, "class") == ["HtoD copies"]
    assert not {"kernel", "share", "type"} & {*headings_of(table)}


def test_devices_with_the_same_ops_share_a_table() -> None:
    rows = [op(name, device=f"GPU:{n}") for n in range(3) for name in ("a", "b")]
    shown = section_of(*rows, op("c", device="GPU:3"), row_count=40)
    assert [cells_of(table, "op or kernel") for table in tables_of(shown)] == [["a", "b"], ["c"]]
    assert "and the same ops on GPU:1, 2, with their own times" in sentences_of(shown)
    assert "37 of 40 rows are not shown; all of them: traceview show ops logs" in sentences_of(
        shown
    )


def test_devices_beyond_the_limits_have_no_table() -> None:
    rows = [op(f"op{n}", device=f"GPU:{n}") for n in range(MOST_GROUPS + 1)]
    assert len(tables_of(section_of(*rows))) == MOST_GROUPS
    assert len(tables_of(section_of(*rows, most_rows=3))) == 3
    (table,) = tables_of(section_of(*rows, others=tuple(f"GPU:{n}" for n in range(1, 9))))
    assert table.label == "Ops of GPU:0"


def test_a_share_above_all_is_explained() -> None:
    assert OVERLAP in sentences_of(section_of(op("a", share_ratio=1.2)))
    assert OVERLAP not in sentences_of(section_of(op("a", share_ratio=1.0)))
    assert OVERLAP in sentences_of(section_of(op("a", share_ratio=0.6), op("b", share_ratio=0.5)))
    assert OVERLAP not in sentences_of(
        section_of(op("a", share_ratio=0.6), op("b", share_ratio=0.4))
    )


def test_without_rows() -> None:
    empty = section_of()
    assert empty is not None
    assert empty.lead == "No op ran in the window."
    assert section_of(row_count=7) is None, "no row was asked for"
