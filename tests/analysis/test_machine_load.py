"""How much of the cores the recorded process took, and all others; what that costs is in `test_core_waits`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.scenarios import SCENARIOS
from tests.sidecars import write_sidecar
from traceview.report.model import Report


def report_of(folder: Path, load: dict[str, Any]) -> Report:
    (file,) = SCENARIOS["four_healthy"]().write(folder)
    write_sidecar(file, {"load": load})
    return traceview.analyze(folder)


def load(busy: float, own: float, cores: int = 4) -> dict[str, Any]:
    """Cores that were busy, and those of this process, for two seconds."""
    second = 10**9
    return {
        "elapsed_ns": 2 * second,
        "busy_ns": round(2 * second * busy),
        "own_ns": round(2 * second * own),
        "cores": cores,
    }


def test_the_shares_of_the_cores(tmp_path: Path) -> None:
    report = report_of(tmp_path, load(4, 1))
    assert report.results.machine_load is not None
    (row,) = report.results.machine_load.hosts
    assert (row.core_count, row.other_ratio, row.started_ratio) == (4, 0.75, None)
    # No clock shows that a thread waited for a core.
    assert "other-processes" not in [finding.code for finding in report.findings]


@pytest.mark.parametrize(
    "recorded", [{}, {"elapsed_ns": 0, "busy_ns": 5, "cores": 2}, {"busy_ns": "much"}]
)
def test_what_was_not_recorded_is_not_known(recorded: dict[str, Any], tmp_path: Path) -> None:
    report = report_of(tmp_path, recorded)
    assert report.results.machine_load is None
    assert report.skipped["machine_load"] == "the capture recorded no load"


def test_coarse_ticks_make_no_share_above_all(tmp_path: Path) -> None:
    result = report_of(tmp_path, load(4.2, 4.1)).results.machine_load
    assert result is not None
    assert result.hosts[0].other_ratio == 0
