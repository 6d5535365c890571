"""A report without a result leads to one true line, or to a stated limit: never to a wrong reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import traceview
from tests.command import Command

pytestmark = pytest.mark.usefixtures("no_terminal")

LOST = "not in the saved report"

SAID_BY_COMPARE = {
    "op_steps": f"Ops are not compared: those of {{run}} are {LOST}",
    "environment": f"of {{run}}: {LOST}",
}
CONDITIONS = {
    "device_time": "busy_ratio >= 0",
    "ledger": "state.input_ratio <= 1",
    "balance": "examples_per_second >= 0",
}


@pytest.fixture(scope="module")
def whole(fixtures: Path) -> dict[str, Any]:
    """A report on a run with a sidecar."""
    data: dict[str, Any] = json.loads(traceview.analyze(fixtures / "slow-input-2").to_json())
    return data


@pytest.fixture(scope="module")
def other(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("other") / "other.json"
    path.write_text(traceview.analyze(fixtures / "custom-loop-2").to_json(), encoding="utf-8")
    return str(path)


def without(whole: dict[str, Any], key: str, folder: Path) -> str:
    """The report without a result."""
    data = {**whole, "results": dict(whole["results"])}
    del data["results"][key]
    folder.mkdir(exist_ok=True)
    path = folder / "cut.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(("topic", "words"), SAID_BY_COMPARE.items())
def test_compare_says_what_it_does_not_compare(
    topic: str,
    words: str,
    whole: dict[str, Any],
    other: str,
    command: Command,
    tmp_path: Path,
) -> None:
    """On either side; and what a report lacks has not gone."""
    cut = without(whole, topic, tmp_path / "reports")
    said = words.format(run=whole["source"]["run"])
    for sides in ((cut, other), (other, cut)):
        made = json.loads(command("compare", *sides, "--format", "json").out)
        assert sum(said in limit for limit in made["limits"]) == 1
        assert "gone" not in made["verdict"]


@pytest.mark.parametrize(("topic", "condition"), CONDITIONS.items())
def test_a_gate_says_why_it_cannot_judge(
    topic: str,
    condition: str,
    whole: dict[str, Any],
    command: Command,
    tmp_path: Path,
) -> None:
    cut = without(whole, topic, tmp_path / "reports")
    done = command("gate", cut, "--require", condition, "--format", "json")
    (row,) = json.loads(done.out)["judgements"][0]["rows"]
    assert (done.code, row["reason"]) == (7, f"results.{topic} is {LOST}")
    changed = f"{condition.split()[0]}:+5%"
    subject = str(tmp_path / "whole.json")
    Path(subject).write_text(json.dumps(whole), encoding="utf-8")
    arguments = ("gate", subject, "--baseline", cut, "--require", changed, "--format", "json")
    rows = json.loads(command(*arguments).out)["judgements"][0]["rows"]
    assert any(row["reason"] == f"in the baseline: results.{topic} is {LOST}" for row in rows)


def test_scaling_says_which_run_it_leaves_out(
    whole: dict[str, Any], other: str, command: Command, tmp_path: Path
) -> None:
    cut = without(whole, "device_time", tmp_path / "reports")
    done = command("compare", cut, other, "--scaling")
    assert done.code == 7
    assert f"{whole['source']['run']} is left out: device times are {LOST}" in done.err
