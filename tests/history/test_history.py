"""Saved reports in order: series of alike runs, changes, what is left out, and every format."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from tests.charts import MS
from tests.command import Command
from tests.html_page import parsed
from tests.reports import bare_report, device, known, of_run, with_results, with_steps
from traceview.analysis.machine.capture import HostCapture
from traceview.analysis.measures.device_report import DeviceTime
from traceview.comparison.history import change_points
from traceview.comparison.noise import Level, StepLevels
from traceview.report.model import Report
from traceview.report.saved import to_json

pytestmark = pytest.mark.usefixtures("no_terminal")
DAY_NS = 86_400 * 10**9


def on_day(day: int, length_ms: float, model: str = "Tesla V100") -> Report:
    """A report whose run was recorded on this day, with three steps around this length on two GPUs."""
    made = with_steps(length_ms - 1, length_ms, length_ms + 1)
    steps = known(made.results.steps)
    changed = with_results(
        made,
        steps=replace(steps, median_ps=int(length_ms * MS)),
        device_time=DeviceTime((device(0, model=model), device(1))),
    )
    capture = replace(made.capture, hosts=(HostCapture("a", day * DAY_NS, 0),))
    return of_run(replace(changed, capture=capture), f"run{day}")


def save(folder: Path, name: str, report: Report) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(to_json(report), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twelve reports, whose names are in another order than their days, slower from the seventh day on."""
    monkeypatch.chdir(tmp_path)
    folder = Path("reports")
    for day in range(12):
        length = (20 if day < 6 else 25) + 0.1 * (day % 3)
        save(folder, f"{12 - day:02}.json", on_day(day, length))
    return folder


def test_the_order_the_changes_and_what_is_left_out(
    folder: Path, command: Command, golden: Callable[[str, str], None]
) -> None:
    """Runs on other devices are a series of their own."""
    save(folder, "other.json", on_day(20, 10, "A100"))
    (folder / "cut.json").write_text("{")
    (folder / "host.traceview.json").write_text("{}")
    (folder / "copy.json").write_bytes((folder / "01.json").read_bytes())
    save(folder / "sub", "report.json", on_day(30, 25))
    save(folder, "bare.json", bare_report())
    texts = [
        command("history", str(folder), *options).out
        for options in (("--width", "160"), ("--format", "csv"))
    ]
    golden("history.txt", "\n".join(texts))


def test_json_and_csv_have_the_same_rows(folder: Path, command: Command) -> None:
    data = json.loads(command("history", str(folder), "--format", "json").out)
    rows = list(csv.DictReader(StringIO(command("history", str(folder), "--format", "csv").out)))
    assert (data["schema_version"], len(data["rows"]), len(rows)) == (3, 12, 12)
    for row, cells in zip(data["rows"], rows, strict=True):
        assert {key: "" if value is None else str(value) for key, value in row.items()} == cells


def test_the_page_draws_the_step_times(folder: Path, command: Command, tmp_path: Path) -> None:
    target = tmp_path / "history.html"
    assert command("history", str(folder), "-o", str(target)).code == 0
    page = target.read_text("utf-8")
    parsed(page)
    assert page.count("<h1") == 1
    assert page.count("the step time changed once") == 1
    assert page.count("<td>█") == 12
    assert "26% more time" in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")


def test_a_change_and_its_levels_are_of_the_typical_step(folder: Path, command: Command) -> None:
    """Here the mean became shorter, for of the runs before each has a slow step."""
    for day in range(12):
        length, slow = (20.0, 90.0) if day < 6 else (21.0, 21.0)
        made = on_day(day, length + 0.01 * (day % 3))
        steps = with_steps(*[length + 0.01 * (day % 3)] * 11, slow).results.steps
        save(folder, f"{12 - day:02}.json", with_results(made, steps=steps))
    rows = json.loads(command("history", str(folder), "--format", "json").out)["rows"]
    assert rows[0]["step_ps"] > rows[6]["step_ps"]
    assert [row["change_ratio"] for row in rows] == [None] * 6 + [pytest.approx(0.05, abs=1e-3)] + [
        None
    ] * 5
    assert rows[6]["level_ps"] == pytest.approx(21.01 * MS, rel=1e-3)


# Changes of a level are found where they are, and hardly ever where there are none


SERIES = 400
Noise = Callable[[np.random.Generator, int], np.ndarray]
NOISES: dict[str, Noise] = {
    "normal": lambda generator, size: generator.normal(size=size),
    "heavy tails": lambda generator, size: generator.standard_t(2, size=size),
    "skewed": lambda generator, size: generator.exponential(size=size),
}


def points(step_times: Iterable[float]) -> list[int]:
    levels = (Level(math.log(step_time)) for step_time in step_times)
    return change_points([StepLevels(level, level) for level in levels])


@pytest.mark.parametrize("size", [8, 12, 30])
@pytest.mark.parametrize("noise", NOISES)
def test_without_a_change_at_most_one_series_in_twenty_has_one(noise: str, size: int) -> None:
    generator = np.random.default_rng(15)
    alarms = sum(
        bool(points(np.abs(100 + 3 * NOISES[noise](generator, size)) + 1)) for _ in range(SERIES)
    )
    # Three standard errors of a share of 5 % above it.
    assert alarms / SERIES <= 0.05 + 3 * (0.05 * 0.95 / SERIES) ** 0.5


@pytest.mark.parametrize(("runs", "ratio"), [(10, 1.08), (4, 1.2)])
def test_a_change_is_found_with_so_many_runs_on_each_side(runs: int, ratio: float) -> None:
    generator = np.random.default_rng(15)
    places = [
        points(np.repeat([100.0, 100 * ratio], runs) + 3 * generator.normal(size=2 * runs))[:1]
        for _ in range(SERIES)
    ]
    assert sum(map(bool, places)) >= 0.9 * SERIES
    assert np.median([place for found in places for place in found]) == runs


def test_a_change_of_a_series_is_that_of_the_typical_step() -> None:
    """Of the mean step it would be too small to be one."""
    levels = [
        StepLevels(Level(0.008 * (run >= 6)), Level(0.02 * (run >= 6) + 0.009 * (-1) ** run))
        for run in range(12)
    ]
    assert change_points(levels) == [6]


def test_several_changes() -> None:
    levels = np.repeat([100.0, 130.0, 110.0], 10)
    assert points(levels + np.random.default_rng(3).normal(size=30)) == [10, 20]


@pytest.mark.parametrize("places", [[3, 11], [19], [0]])
def test_outliers_are_no_change(places: list[int]) -> None:
    series = 100 + np.random.default_rng(2).normal(size=20)
    series[places] = 5000
    assert points(series) == []
