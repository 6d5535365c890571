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
    "text",
    [
        *("{", "", "\x00", "[" * 100_000, "[]"),
        # Half of a pair of surrogates.
        *(json.dumps({key: "\udcff"}) for key in ("command", "variables", "newer")),
        json.dumps({"xla": {"auto_jit": "\udcff"}}),
        *(
            f'{{"overhead": {{"ratio": {number}}}}}'
            for number in ("NaN", "1e300", "1" * 400, "true")
        ),
        *(f'{{"window": {{"edge_steps": [{n}]}}}}' for n in ("1" * 5000, 2**63, 2**64, -1, '"4"')),
    ],
)
def test_an_unreadable_sidecar_is_only_a_problem(text: str, tmp_path: Path) -> None:
    report = written(tmp_path, text)
    assert [problem.code for problem in report.capture.problems] == ["sidecar-unreadable"]
    assert report.results.steps is not None
    assert report.results.steps.count == 4


@pytest.mark.parametrize(
    ("content", "damage"),
    [
        (b'{"a": 1,', "is damaged or cut off: Input data was truncated"),
        (
            b'{"window": {"edge_steps": [0, "4"]}}',
            "is not as traceview writes it: Expected `int`, got `str` - at `$.window.edge_steps[1]`",
        ),
    ],
)
def test_what_of_a_sidecar_is_damaged_is_said(content: bytes, damage: str, tmp_path: Path) -> None:
    (tmp_path / "host0.traceview.json").write_bytes(content)
    with pytest.raises(SidecarError) as raised:
        read_sidecar(tmp_path / "host0.xplane.pb")
    assert str(raised.value) == f"host0.traceview.json {damage}"


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
    content = json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")
    report = written(tmp_path, content.decode())
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
