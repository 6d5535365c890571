"""Tables are named columns of plain cells, whatever they are made from."""

from __future__ import annotations

from traceview.analysis.workload.ops import OpRow
from traceview.base.record import Record
from traceview.trace.device.table import Table, frame_of, record_columns, table


class Reading(Record, frozen=True):
    """A reading of a sensor.

    Attributes:
        class_: What was read.
        count: How often.
        ratio: The value; null if unknown.
        valid: Whether it counts; null if unknown.
    """

    class_: str
    count: int
    ratio: float | None = None
    valid: bool | None = None


def readings() -> Table:
    rows = [Reading("a", 1, 0.5, True), Reading("b", 2**62 + 1), None]
    return table("readings", *record_columns(Reading, rows))


def test_columns_of_records_have_the_keys_of_their_json() -> None:
    assert [column.name for column in readings().columns] == ["class", "count", "ratio", "valid"]
    names = {"class_": "kind"}
    columns = record_columns(Reading, [Reading("a", 1)], ("valid", "class_"), names)
    assert [column.name for column in columns] == ["valid", "kind"]


def test_cells_are_exact_and_missing_ones_are_none() -> None:
    assert list(readings().rows()) == [
        {"class": "a", "count": 1, "ratio": 0.5, "valid": True},
        {"class": "b", "count": 2**62 + 1, "ratio": None, "valid": None},
        {"class": None, "count": None, "ratio": None, "valid": None},
    ]


def test_a_frame_has_types_that_do_not_depend_on_the_rows() -> None:
    kinds = {"class": "string", "count": "Int64", "ratio": "float64", "valid": "boolean"}
    empty = table("readings", *record_columns(Reading, []))
    for rows in (readings(), empty):
        assert {name: str(kind) for name, kind in frame_of(rows).dtypes.items()} == kinds
    ops = frame_of(table("ops", *record_columns(OpRow, [])))
    assert str(ops["share_ratio"].dtype) == "float64"
