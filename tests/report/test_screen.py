"""The first screen names the finding of the verdict once, what to do, and the command that shows more."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from scripts.scenarios import SCENARIOS
from tests.reports import environment, full_report
from traceview.analysis.measures.device_report import Environment
from traceview.document.model import Summary
from traceview.document.phrase import plain
from traceview.report.build import analyze
from traceview.report.document import screen_of
from traceview.trace.model import StepRange


def screen_of_scenario(name: str, folder: Path, steps: StepRange | None = None) -> Summary:
    SCENARIOS[name]().write(folder)
    return screen_of(analyze(folder, steps=steps))


def test_commands_are_about_the_same_steps(tmp_path: Path) -> None:
    screen = screen_of_scenario("waits_for_input", tmp_path, StepRange(1, 3))
    assert screen.next_command == f"traceview show input {tmp_path} --steps 1:3"
    assert screen.full_command == f"traceview analyze {tmp_path} --steps 1:3 --full"


def test_the_capture_is_judged_in_one_line() -> None:
    report = full_report()
    assert tuple(map(plain, screen_of(report).trust)) == (
        "Capture: degraded, the tracer dropped 15 events",
        "3 steps used of 4",
        "1 remark",
    )
    sound = replace(report, capture=replace(report.capture, quality="ok", problems=()))
    assert screen_of(sound).trust == ("Capture: ok", "3 steps used of 4")
    recorded = Environment((environment(overhead={"ratio": 0.008}),), ())
    slow = replace(sound, results=replace(sound.results, environment=recorded))
    assert screen_of(slow).trust[2] == "recorded steps are 0.8% longer than those before"
