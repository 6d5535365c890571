"""The JSON is what its schema says, and the schema says everything."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from tests.reports import bare_report, full_report
from traceview.analysis.workload.ops import TopOps
from traceview.base.record import Record, fields_of, records_of
from traceview.report.model import SCHEMA_VERSION, Report
from traceview.report.saved import schema_of, to_json

SCHEMA = json.loads(schema_of(Report, "traceview report"))
RECORDS = records_of(Report)


def test_what_is_read_is_written_again(golden: Any) -> None:
    golden("full_report.json", to_json(full_report()))
    golden("bare_report.json", to_json(bare_report()))


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$defs"]["Report"]["properties"]["schema_version"]["enum"] == [SCHEMA_VERSION]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_the_schema_describes_every_key(record: type[Record]) -> None:
    schema = SCHEMA["$defs"][record.__name__]
    assert schema["description"]
    tag = record.__struct_config__.tag_field
    assert [key for key in schema["properties"] if key != tag] == [
        field.encode_name for field in fields_of(record)
    ]
    assert [key for key in schema.get("required", []) if key != tag] == [
        field.encode_name for field in fields_of(record) if field.required
    ]
    for key, described in schema["properties"].items():
        assert described["description"], key


def test_text_stays_text_and_numbers_stay_numbers() -> None:
    report = full_report()
    ops = report.results.ops
    assert ops is not None
    hostile = {"op": "é\u202e\ud800", "kernel": "表", "total_ps": 2**62}
    row = replace(ops.rows[0], share_ratio=float("nan"), **hostile)
    report = replace(report, results=replace(report.results, ops=TopOps((row,), 1)))
    text = to_json(report)
    assert text.encode("utf-8").decode() == text
    assert text.endswith("}\n")
    assert '"表"' in text
    (written,) = json.loads(text)["results"]["ops"]["rows"]
    assert written["op"] == "é\u202e\ufffd"
    assert (written["class"], written["total_ps"], written["share_ratio"]) == (
        "compute",
        2**62,
        None,
    )
