"""Input waits and stages are, to the picosecond, those of an obvious recomputation from the raw planes."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview
from scripts.scenarios import SCENARIOS
from tests.input_stages import recorded_stages
from tests.oracle.input import empty_ratios, stage_times, step_waits, work_ratio
from tests.oracle.reading import Host, read_hosts
from traceview.analysis.facts.input_supply import supply_of
from traceview.analysis.facts.selection import select
from traceview.analysis.measures.context import Context

FIXTURES = sorted(path.parent.name for path in Path("fixtures").glob("*/plugins"))
PIPELINES = ["slow_map", "slow_reading", "healthy_prefetch", "late_shard"]


def same_supply(folder: Path, host: Host) -> None:
    trace = traceview.load(folder)
    selection = select(trace)
    supply = supply_of(Context(trace, selection), 0)
    assert supply is not None
    spans = [(step.start_ps, step.end_ps) for step in selection.steps[0]]
    assert list(supply.wait_of_steps or ()) == step_waits(host, spans)
    used = [(s.start_ps, s.end_ps) for s in selection.steps[0] if s.excluded is None]
    assert supply.slowest is not None
    name = supply.slowest.name
    window = (selection.windows[0].start_ps, selection.windows[0].end_ps)
    assert supply.work_ratio == pytest.approx(work_ratio(host, name, window), rel=1e-12)
    waits = empty_ratios(host, name, used, step_waits(host, used))
    assert (supply.empty_step_ratio, supply.empty_wait_ratio) == waits
    same_stages(folder, host)


def same_stages(folder: Path, host: Host) -> None:
    ours: dict[str, tuple[int, int]] = {}
    for stage in recorded_stages(traceview.load(folder)):
        self_ps, waiting_ps = ours.get(stage.name, (0, 0))
        ours[stage.name] = (self_ps + stage.self_ps, waiting_ps + stage.waiting_ps)
    assert ours == stage_times(host)


@pytest.mark.parametrize("name", FIXTURES)
def test_fixtures(name: str) -> None:
    folder = Path("fixtures") / name
    (host,) = read_hosts(list(folder.rglob("*.xplane.pb")))
    assert stage_times(host)
    same_supply(folder, host)


@pytest.mark.parametrize("name", PIPELINES)
def test_scenarios(name: str, tmp_path: Path) -> None:
    files = SCENARIOS[name]().write(tmp_path)
    (host,) = read_hosts(list(files))
    same_supply(tmp_path, host)
