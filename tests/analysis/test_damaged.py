"""Of a damaged file nothing is concluded from what is not there, and the loss is what the report begins with."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview
from scripts.scenarios import SCENARIOS
from tests.command import Command
from traceview.analysis.registry import RULES
from traceview.report.model import Report


def salvaged(folder: Path, name: str, lost_bytes: int, *, host: str = "*") -> Report:
    """The report of a scenario, of whose files the last bytes are lost."""
    SCENARIOS[name]().write(folder)
    for file in sorted(folder.rglob(f"{host}.xplane.pb")) if lost_bytes else ():
        file.write_bytes(file.read_bytes()[:-lost_bytes])
    return traceview.analyze(traceview.load(folder, salvage=True))


def concluded_from_absence(report: Report) -> set[str]:
    return {finding.code for finding in report.findings if RULES[finding.code].is_of_absence}


@pytest.mark.usefixtures("no_terminal")
def test_a_table_of_a_damaged_file_says_so(command: Command, tmp_path: Path) -> None:
    salvaged(tmp_path, "memory_only", 60)
    for name in ("devices", "gaps"):
        done = command("show", name, str(tmp_path), "--salvage")
        assert done.code == 0
        assert done.err.startswith(
            "traceview: damaged, so events and whole devices may be lost: host0: damaged at byte "
        )


@pytest.mark.parametrize("name", ["memory_only", "copy_only"])
@pytest.mark.parametrize(("lost_bytes", "is_lost"), [(0, False), (60, True), (400, True)])
def test_what_may_be_lost_is_not_missing(
    name: str, lost_bytes: int, is_lost: bool, tmp_path: Path
) -> None:
    report = salvaged(tmp_path, name, lost_bytes)
    assert bool(concluded_from_absence(report)) is not is_lost
    assert (report.findings[0].code == "damaged-file") is is_lost
    assert (report.verdict.finding == "damaged-file") is is_lost


def test_the_loss_of_one_host_of_several_is_a_warning(tmp_path: Path) -> None:
    report = salvaged(tmp_path, "two_hosts", 60, host="host1")
    severities = {finding.code: finding.severity for finding in report.findings}
    assert severities["damaged-file"] == "warning"


def test_without_a_device_plane_the_devices_are_lost_rather_than_absent(tmp_path: Path) -> None:
    SCENARIOS["plain"]().write(tmp_path / "whole")
    (whole,) = (tmp_path / "whole").rglob("*.xplane.pb")
    report = salvaged(tmp_path / "cut", "plain", whole.stat().st_size - 200)
    assert report.verdict.headline.startswith("The file of host0 is cut off")
    assert [finding.code for finding in report.findings] == ["damaged-file"]


@pytest.mark.parametrize(
    ("lost_bytes", "severity", "confidence"), [(0, "critical", "high"), (60, "warning", "low")]
)
def test_what_a_damaged_file_shows_is_less_sure(
    lost_bytes: int, severity: str, confidence: str, tmp_path: Path
) -> None:
    """Where nothing is seen, work may be missing."""
    report = salvaged(tmp_path, "replicas_wait_for_input", lost_bytes)
    (finding,) = (finding for finding in report.findings if finding.loss)
    assert (finding.severity, finding.confidence) == (severity, confidence)
    assert finding.confidence_reason.startswith("the damaged file") is bool(lost_bytes)
