"""Tests what the small charts say: which steps are slow, and why."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from scripts.scenarios import SCENARIOS
from tests.charts import MS
from tests.reports import full_report, step
from traceview.analysis.gpu_time.step_tables import step_times
from traceview.document.figures import StepTimes
from traceview.document.html.parts import drawn
from traceview.document.model import Document
from traceview.report.build import analyze
from traceview.report.document import document_of, view_of
from traceview.report.model import Report

US = MS // 1000


def steps_of(durations_ps: list[int]) -> StepTimes:
    """The chart of steps of these lengths, whose median is the first."""
    report = full_report()
    assert report.results.steps is not None
    steps = replace(
        report.results.steps,
        steps=tuple(step(place, ps, ("GPU:0",), None) for place, ps in enumerate(durations_ps)),
        median_ps=durations_ps[0],
        iqr_ps=0,
    )
    figure = step_times(view_of(replace(report, results=replace(report.results, path=None))), steps)
    assert figure is not None
    return figure


def slow(figure: StepTimes) -> list[int]:
    return [bar.number for bar in figure.bars if bar.excess_ps]


def test_every_fifth_step_is_marked() -> None:
    durations = [24_500 * US if place % 5 == 4 else 19_100 * US for place in range(20)]
    figure = steps_of(durations)
    assert slow(figure) == [4, 9, 14, 19]
    assert (
        figure.lead
        == "Steps 4, 9, 14, 19 take 24.5 instead of 19.1 ms, every fifth step. Most of the extra time: compute."
    )
    picture = drawn(figure, lambda _, drawing: drawing)
    assert picture.count('class="slow"') + picture.count("24.5 ms</text>") == 4


def test_a_step_is_slow_from_a_tenth_on() -> None:
    assert slow(steps_of([20 * MS, 22 * MS])) == [1]
    assert slow(steps_of([20 * MS, 22 * MS - 1])) == []
    varying = steps_of([20 * MS, 14 * MS, 21 * MS])
    assert varying.lead == "No slow step: 14.0 ms to 21.0 ms, median 20.0 ms."


def test_of_very_many_steps_a_slow_one_is_as_wide_as_its_share() -> None:
    durations = [20 * MS] * 700
    durations[333] = 60 * MS
    picture = drawn(steps_of(durations), lambda _, drawing: drawing)
    (slow_bar,) = re.findall(r"<g><title>step 333: 60\.0 ms.*?</g>", picture)
    (usual,) = re.findall(r"<g><title>3 steps of 332 to 335;.*?</g>", picture)
    one, three = (float(re.findall(r' width="([\d.]+)"', part)[0]) for part in (slow_bar, usual))
    assert three == pytest.approx(3 * one, abs=0.2)
    heights = [float(height) for height in re.findall(r'height="([\d.]+)"', slow_bar)]
    (of_usual,) = (float(height) for height in re.findall(r'height="([\d.]+)"', usual))
    assert sum(heights[:2]) == pytest.approx(3 * of_usual, rel=0.02)
    assert picture.count("<title>") == 175 + 1
    assert "A bar is 4 steps." in picture


def test_every_fourth_of_very_many_steps_does_not_look_like_all() -> None:
    durations = [40 * MS if place % 4 == 3 else 20 * MS for place in range(800)]
    picture = drawn(steps_of(durations), lambda _, drawing: drawing)
    areas = {
        kind: sum(
            map(float, re.findall(rf"<title>{title}.*?<rect [^>]*? width=\"([\d.]+)\"", picture))
        )
        for kind, title in (("slow", r"step \d+: 40\.0 ms"), ("usual", "3 steps of"))
    }
    assert areas["usual"] == pytest.approx(3 * areas["slow"], rel=0.1)
    assert 'class="slow"' not in picture


def test_no_step_is_called_slow_only_where_all_are_alike() -> None:
    wild = [place * MS for place in (10, 11, 20, 21, 29, 30, 40, 41, 42)]
    assert steps_of([25 * MS, *wild]).lead.startswith(
        "Step times vary without a clear outlier: 10.0"
    )


def analyzed(name: str, folder: Path) -> tuple[Report, Document]:
    SCENARIOS[name]().write(folder)
    report = analyze(folder)
    return report, document_of(report)


def test_the_cause_is_what_the_path_has_more_of(tmp_path: Path) -> None:
    report, document = analyzed("retracing", tmp_path)
    figure = document.summary.step_times
    assert figure is not None
    assert report.results.path is not None
    for bar in figure.bars:
        assert (bar.cause is not None) == (bar.excess_ps > 0)
