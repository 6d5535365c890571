"""The file that `traceview capture` writes beside a trace reaches the report, whatever it holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

import traceview
from scripts.scenarios import SCENARIOS
from traceview.document import screen as terminal
from traceview.report.document import document_of
from traceview.report.saved import to_json
from traceview.trace.sidecar.sidecar import SidecarError, read_sidecar


def written(logdir: Path, sidecar: str) -> traceview.Report:
    (path,) = SCENARIOS["plain"]().write(logdir)
    path.with_name("host0.traceview.json").write_text(sidecar)
    return traceview.analyze(logdir)


def test_edge_steps_are_left_out_and_the_overhead_is_reported(tmp_path: Path) -> None:
    fields = {"window": {"asked": [1, 3], "edge_steps": [0, 3]}, "overhead": {"ratio": 0.25}}
    report = written(tmp_path, json.dumps(fields))
    assert report.results.steps is not None
    assert [step.number for step in report.results.steps.steps] == [1, 2]
    (window,) = report.windows
    assert (window.kind, window.end_ps - window.start_ps) == ("steps", 100_000_000_000)
    assert report.capture.hosts[0].overhead_ratio == 0.25


def test_steps_that_raised_are_left_out_with_the_reason(tmp_path: Path) -> None:
    fields = {"window": {"asked": [1, 3], "edge_steps": [0, 3], "cut_steps": [2]}}
    steps = written(tmp_path, json.dumps(fields)).results.steps
    assert steps is not None
    assert [(step.number, step.excluded) for step in steps.steps] == [
        (1, None),
        (2, "an exception ended it"),
    ]


@pytest.mark.parametrize("fields", [{}, {"window": {}, "placement": {}}, {"newer": [1]}])
def test_every_field_may_be_missing(fields: Any, tmp_path: Path) -> None:
    report = written(tmp_path, json.dumps(fields))
    assert report.results.steps is not None
    assert report.results.steps.count == 4
    assert report.capture.hosts[0].overhead_ratio is None
    assert report.capture.problems == ()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *((text, "sidecar-unreadable") for text in ("{", "", "\x00", "[" * 100_000)),
        # Half of a pair of surrogates is no object.
        *(
            (json.dumps({key: "\udcff"}), "sidecar-fields")
            for key in ("command", "variables", "window")
        ),
    ],
)
def test_an_unreadable_sidecar_is_only_a_problem(text: str, code: str, tmp_path: Path) -> None:
    report = written(tmp_path, text)
    assert [problem.code for problem in report.capture.problems] == [code]
    assert report.results.steps is not None
    assert report.results.steps.count == 4


@pytest.mark.parametrize(
    ("content", "damage"),
    [
        ('{"ä": 1,', "damaged or cut off at byte 9"),
        ('{"ä": 1', "damaged or cut off at byte 8"),
        (b'{"a": "\xff"}', "damaged or cut off at byte 7"),
        # Where is not known.
        ("[" * 100_000, "damaged or cut off"),
        ('{"a": ' + "1" * 5000 + "}", "damaged or cut off"),
        ("[]", "not a sidecar of traceview"),
    ],
)
def test_what_of_a_sidecar_is_damaged_is_said(
    content: str | bytes, damage: str, tmp_path: Path
) -> None:
    path = tmp_path / "host0.traceview.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SidecarError) as raised:
        read_sidecar(tmp_path / "host0.xplane.pb")
    assert str(raised.value) == f"host0.traceview.json is {damage}"


WRONG = {
    "window": {"edge_steps": [0, 3, "4"], "cut_steps": "all"},
    "overhead": {"ratio": True},
    "placement": {"functions": [{"ops_per_device": [1]}]},
    "versions": {"cuda": 12},
    "batch": {"global": 6.5},
    "strategy": [],
}


def test_fields_of_another_type_are_left_out_and_named_once(tmp_path: Path) -> None:
    report = written(tmp_path, json.dumps(WRONG))
    assert report.results.steps is not None
    assert report.results.steps.count == 4
    assert report.capture.hosts[0].overhead_ratio is None
    (problem,) = report.capture.problems
    assert (problem.code, problem.host, report.capture.quality) == ("sidecar-fields", "host0", "ok")
    assert problem.sentence == (
        "the sidecar has values of the wrong type or size; these were left out: versions.cuda, strategy, "
        "batch.global, overhead.ratio, window.edge_steps and 2 more"
    )


HOSTILE = (
    "[red]x[/red]",
    "a\nb\r",
    "\x1b[31m\x07",
    "\u202ex\u202c",
    "\ud800",
    "k" * 100_000,
    "表" * 500,
)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_does_no_harm(text: str, tmp_path: Path) -> None:
    """Every text of a sidecar, and every key, is somebody else's."""
    graph = {
        "step": text,
        "name": text,
        "op_count": 4,
        "ops_per_device": {text: 3, f"{text}GPU:1": 1},
        "training_loop": text,
        "not_mirrored": 2,
    }
    fields = {
        "state": text,
        "command": {"script": [text, text]},
        "cluster": {"role": text, "index": 0},
        "versions": {"tensorflow": text, "keras": text, "cuda": text},
        "strategy": {
            "class": f"Mirrored{text}",
            "found_by": "input",
            "replicas": 2,
            "devices": [text, f"/device:GPU:0{text}"],
            "cross_device_ops": text,
            "missing": {text: text},
        },
        "precision": {"policy": {text: text, "keras": "float32"}},
        "xla": {"auto_jit": text},
        "variables": {text: text, "CUDA_VISIBLE_DEVICES": text},
        "options": {"asked": {text: 1}, "in_force": {text: 0}},
        "placement": {"functions": [graph], "missing": {text: text}},
    }
    report = written(tmp_path, json.dumps(fields))
    assert report.capture.quality == "ok"
    json.loads(to_json(report))
    for width in (40, 80, 120):
        document = document_of(report, is_brief=True)
        shown = terminal.render(document, width=width, color=False, most_lines=10**6)
        assert all(line.isprintable() for line in shown.split("\n"))
        wide = [line for line in shown.splitlines() if cell_len(line) > width]
        assert [line for line in wide if "traceview " not in line] == []
        assert len(shown) < 40_000
        shown.encode("utf-8")
