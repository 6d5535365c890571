"""A saved report comes back as it was; the JSON is what its schema says; anything else is refused in one clear line."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import asdict, replace

from scripts.scenarios import SCENARIOS
from tests.reports import bare_report, full_report, known, with_results
from traceview.analysis.workload.ops import TopOps
from traceview.base.errors import TraceFormatError, TraceNotFoundError
from traceview.base.record import Record, fields_of, records_of
from traceview.report.build import analyze
from traceview.report.model import SCHEMA_VERSION, Report
from traceview.report.saved import load_report, schema_of, to_json


def refused(text: str | bytes, folder: Path) -> TraceFormatError:
    path = folder / "report.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(TraceFormatError) as caught:
        load_report(path)
    assert caught.value.message.startswith(f"{path}: ")
    assert "\n" not in caught.value.message
    return caught.value


@pytest.mark.parametrize("report", [full_report(), bare_report()], ids=["full", "bare"])
def test_hand_made_reports_come_back(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    for beginning in (b"", b"\xef\xbb\xbf"):
        path.write_bytes(beginning + to_json(report).encode())
        assert load_report(path) == report


def of_version(version: str) -> str:
    return f'{{"schema_version": {version}, "source": {{}}, "results": {{}}}}'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not a saved report: Input data was truncated"),
        ("[]", "not a saved report"),
        ('{"schema_version": 2, "rows": []}', "not a saved report"),
        ("[" * 100_000, "not a saved report"),
        (of_version("1" * 5000), "not a saved report"),
        (of_version("NaN"), "(byte 19)"),
        (of_version("true"), "schema_version is true; this version reads 2"),
        (of_version("2.0"), "at `$.schema_version`"),
        (of_version(f'"{"v" * 5000}"'), "…"),
        (of_version("2"), "required field `logdir` - at `$.source`"),
        (of_version(f'2, "later": {"[" * 100_000}'), "not a saved report"),
        (b"\xff\xfe", "byte 0: not UTF-8"),
        ("<!DOCTYPE html>", "(byte 0)"),
    ],
)
def test_what_is_no_report_is_refused(text: str | bytes, problem: str, tmp_path: Path) -> None:
    assert problem in refused(text, tmp_path).message


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    whole = to_json(full_report())
    for length in range(1, len(whole) - 2, 997):
        assert "not a saved report: " in refused(whole[:length], tmp_path).message


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        (("findings", 0, "code"), "of-another-version", "is missing or of another version"),
        (("findings", 0, "arguments"), {"Who?": {}}, "Expected `str` matching regex"),
        (
            ("results", "device_time", "devices", 1, "status"),
            "asleep",
            "Expected `str` matching regex",
        ),
        (("results", "steps", "steps", 2, "used"), 1, "Expected `bool`"),
        (("results", "device_time"), [], "Expected `object | null`, got `array`"),
        (("results", "steps", "median_ps"), 1 << 63, "<= 9223372036854775807"),
        (("results", "steps", "median_ps"), -1, ">= 0"),
    ],
)
def test_a_value_of_another_kind_is_refused_by_its_place(
    place: tuple[str | int, ...], value: Any, problem: str, tmp_path: Path
) -> None:
    whole = part = json.loads(to_json(full_report()))
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    error = refused(json.dumps(whole), tmp_path)
    path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place)
    assert path.removeprefix(".") in error.reason
    assert problem in error.reason


def test_sentences_are_made_again_from_their_arguments(tmp_path: Path) -> None:
    """A saved sentence cannot say what its arguments do not."""
    SCENARIOS["no_gpu_plane"]().write(tmp_path)
    report = analyze(tmp_path)
    data = json.loads(to_json(report))
    number = next(n for n, row in enumerate(data["findings"]) if row["code"] == "no-gpu-plane")
    data["findings"][number]["title"] = data["verdict"]["headline"] = "anything"
    path = tmp_path / "report.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    assert load_report(path) == report
    del data["findings"][number]["arguments"]["hosts"]
    assert refused(json.dumps(data), tmp_path).reason == (
        f"not a saved report: findings[{number}].arguments.hosts is missing or of another version"
    )


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    for path in (tmp_path / "no.json", tmp_path):
        with pytest.raises(TraceNotFoundError, match=str(path)):
            load_report(path)


# Where the numbers come from


def test_source_names_every_file(tmp_path: Path) -> None:
    SCENARIOS["plain"]().write(tmp_path, "older")
    first, copy = SCENARIOS["duplicate_files"]().write(tmp_path, "run1")
    report = analyze(tmp_path)
    digest = hashlib.sha256(first.read_bytes()).hexdigest()
    assert (report.source.logdir, report.source.run) == (str(tmp_path), "run1")
    assert report.source.other_runs == ("older",)
    assert [asdict(file) for file in report.source.files] == [
        {
            "name": path.name,
            "host": path.name.removesuffix(".xplane.pb"),
            "bytes": path.stat().st_size,
            "sha256": digest,
            "event_count": count,
            "duplicate_of": of,
        }
        for path, count, of in ((first, 20, None), (copy, 0, "host0.xplane.pb"))
    ]


# The schema says everything


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
    hostile = {"op": "é\u202e\ud800", "kernel": "表", "total_ps": 2**62}
    row = replace(known(report.results.ops).rows[0], share_ratio=float("nan"), **hostile)
    text = to_json(with_results(report, ops=TopOps((row,), 1)))
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
