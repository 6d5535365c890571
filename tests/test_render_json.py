"""Is the JSON what the schema says, and does the schema say everything?"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import traceview
from scripts.scenarios import SCENARIOS
from tests.reports import bare_report, full_report, op
from traceview.analysis.base import SEVERITIES
from traceview.analysis.ops import Ops
from traceview.render.json import render
from traceview.report.model import SCHEMA_VERSION, Report
from traceview.xplane.planes import ActivityClass

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = json.loads((ROOT / "traceview" / "report" / "schema.json").read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)
FIXTURES = sorted(path.name for path in (ROOT / "fixtures").iterdir() if path.is_dir())


def problems(report: Report) -> list[str]:
    errors = VALIDATOR.iter_errors(json.loads(render(report)))
    return [f"{error.json_path}: {error.message}" for error in errors]


def data_classes(kind: Any) -> Iterator[type]:
    """The data classes below a type, itself included."""
    if is_dataclass(kind):
        yield typing.cast("type", kind)
        for hint in typing.get_type_hints(kind).values():
            yield from data_classes(hint)
    for argument in typing.get_args(kind):
        yield from data_classes(argument)


def json_types(hint: Any) -> set[str]:
    """The JSON types of a Python one."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        found = set().union(*map(json_types, typing.get_args(hint)))
        return found - {"integer"} if "number" in found else found
    if origin is typing.Literal:
        return {"string"}
    plain = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    containers = {tuple: "array", dict: "object"}
    return {plain.get(hint) or containers.get(origin) or "object"}


def types_of(schema: dict[str, Any]) -> set[str]:
    if "$ref" in schema:
        return {"object"}
    if "anyOf" in schema:
        return set().union(*map(types_of, schema["anyOf"]))
    kinds = schema["type"]
    return {kinds} if isinstance(kinds, str) else set(kinds)


def test_whole_output(golden: Any) -> None:
    golden("full_report.json", render(full_report()))


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["schema_version"]["const"] == SCHEMA_VERSION


@pytest.mark.parametrize("kind", sorted(set(data_classes(Report)), key=str))
def test_the_schema_knows_every_key(kind: type) -> None:
    schema = SCHEMA if kind is Report else SCHEMA["$defs"][kind.__name__]
    hints = typing.get_type_hints(kind)
    keys = [field.name.removesuffix("_") for field in fields(typing.cast("Any", kind))]
    assert list(schema["properties"]) == keys == schema["required"]
    assert schema["additionalProperties"] is False
    for field, key in zip(fields(typing.cast("Any", kind)), keys, strict=True):
        described = schema["properties"][key]
        assert described["description"], key
        if "const" not in described:
            assert types_of(described) == json_types(hints[field.name]), key


def test_the_schema_has_no_other_objects() -> None:
    assert set(SCHEMA["$defs"]) == {kind.__name__ for kind in data_classes(Report)} - {"Report"}


def test_units_are_in_the_descriptions() -> None:
    for name, schema in SCHEMA["$defs"].items():
        for key, described in schema["properties"].items():
            if key.endswith("_ps") and key not in ("total_ps", "cost_ps_per_step"):
                assert "picoseconds" in described["description"], f"{name}.{key}"


def test_choices_are_those_of_the_code() -> None:
    severity = SCHEMA["$defs"]["Finding"]["properties"]["severity"]["enum"]
    assert severity == list(SEVERITIES)
    classes = SCHEMA["$defs"]["OpRow"]["properties"]["class"]["enum"]
    assert classes == [one.name.lower() for one in ActivityClass]


@pytest.mark.parametrize("report", [full_report(), bare_report()], ids=["full", "bare"])
def test_hand_made_reports_are_valid(report: Report) -> None:
    assert problems(report) == []


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_reports_of_scenarios_are_valid(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    assert problems(traceview.analyze(tmp_path)) == []


@pytest.mark.parametrize("name", FIXTURES)
def test_reports_of_fixtures_are_valid(name: str, fixtures: Path) -> None:
    assert problems(traceview.analyze(fixtures / name)) == []


@pytest.mark.shared
@pytest.mark.parametrize("name", ["bert-8xV100", "jax-8xMI300X", "jax-gemm-1of8"])
def test_reports_of_real_traces_are_valid(name: str, shared_traces: Path) -> None:
    assert problems(traceview.analyze(shared_traces / name)) == []


def test_a_wrong_report_is_not_valid() -> None:
    broken = json.loads(render(full_report()))
    broken["capture"]["quality"] = "fine"
    broken["verdict"]["mood"] = "good"
    broken["findings"][0]["cost_ps_per_step"] = 1.5
    paths = {error.json_path for error in VALIDATOR.iter_errors(broken)}
    assert paths == {"$.capture.quality", "$.verdict", "$.findings[0].cost_ps_per_step"}


def test_text_stays_text_and_numbers_stay_numbers() -> None:
    report = full_report()
    rows = (op("é\u202e\ud800", "表", 2**62, share_ratio=float("nan")),)
    report = replace(report, results=replace(report.results, ops=Ops(rows, 1, 0)))
    text = render(report)
    assert text.encode("utf-8").decode() == text
    assert text.endswith("}\n")
    assert '"表"' in text
    row = json.loads(text)["results"]["ops"]["rows"][0]
    assert row["op"] == "é\u202e\ufffd"
    assert (row["class"], row["total_ps"], row["share_ratio"]) == ("compute", 2**62, None)


def test_the_same_report_gives_the_same_text() -> None:
    assert render(full_report()) == render(full_report())
