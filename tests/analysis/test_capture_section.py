"""The sections on hosts and on the capture say what was recorded, how clocks were aligned, and what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.scenarios import SCENARIOS
from tests.analysis.sections import (
    headings_of,
    lines_of,
    markdown_of,
    sentences_of,
    tables_of,
    values_of,
    view_of,
)
from tests.charts import MS
from tests.reports import environment
from traceview.analysis.machine.capture.result import Capture, HostCapture
from traceview.analysis.machine.capture.section import (
    BRIEF_HOSTS,
    BRIEF_PROBLEMS,
    capture_section,
    clock_sentence,
    hosts_section,
)
from traceview.analysis.measures.environment import Environment
from traceview.document.model import Section
from traceview.report.document import view_of as view_of_report
from traceview.trace.model import HostClock, Problem


def host(name: str = "a", **changes: Any) -> HostCapture:
    parts: dict[str, Any] = {
        "host": name,
        "profile_start_ns": 0,
        "profile_stop_ns": 100_000_000,
        "duration_ps": 100 * MS,
        "event_count": 20,
        "device_event_count": 8,
        "dropped_event_count": 0,
        "unlinked_ratio": 0.0,
        "errors": (),
        "warnings": (),
    }
    return HostCapture(**parts | changes)


def of_scenario(folder: Path, name: str) -> Section | None:
    SCENARIOS[name]().write(folder)
    report = traceview.analyze(folder)
    return hosts_section(view_of_report(report, is_brief=True), report.capture)


# Hosts


def test_one_host_has_no_table_of_hosts(tmp_path: Path) -> None:
    assert of_scenario(tmp_path, "plain") is None


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "skewed_clocks",
            [
                "Hosts  Clocks aligned by the ends of collectives: spread 0, at most 0.",
                "host   devices  steps   busy  clock aligned     clock moved by",
                "host0        1      4  89.8%  by profile start               0",
                "host1        1      4  89.8%  by collectives          -7.00 ms",
            ],
        ),
        (
            "drifting_clock",
            [
                "Hosts  Clocks aligned by the ends of collectives: spread 11.1 µs, at most 12.5",
                "µs.",
                "host   devices  steps   busy  clock aligned     clock moved by  drift per second",
                "host0        1     11  89.8%  by profile start               0                 –",
                "host1        1     11  89.8%  by collectives          -5.00 ms           50.0 µs",
            ],
        ),
        (
            "missing_worker",
            [
                "Hosts  Clocks agree within the spread of collective ends: 0, at most 0.",
                "                                                             clock  steps",
                "host   role      devices  steps   busy  clock aligned     moved by  missing",
                "host0  worker 0        1      4  89.8%  by profile start         0",
                "host1  worker 1        1      4  89.8%  by profile start         0",
                "host3  worker 3        1      3  89.9%  by profile start         0  3",
                "  - Not recorded: worker 2.",
            ],
        ),
        (
            "parameter_servers",
            [
                "Hosts  Clocks aligned by the start of each profile; no collective shows how far",
                "they are apart.",
                "host       role      devices  steps   busy  clock aligned     clock moved by",
                "vm_chief0  chief 0         1      4  60.0%  by profile start               0",
                "vm_w0      worker 0        1      4  60.0%  by profile start               0",
                "vm_w1      worker 1        1      4  84.0%  by profile start               0",
                "  - Not recorded: ps 0.",
            ],
        ),
    ],
)
def test_hosts_of_a_run(name: str, lines: list[str], tmp_path: Path) -> None:
    section = of_scenario(tmp_path, name)
    assert section is not None
    assert lines_of(section) == lines


def test_of_many_hosts_those_with_the_largest_offset_have_rows(tmp_path: Path) -> None:
    section = of_scenario(tmp_path, "sixteen_skewed_clocks")
    assert section is not None
    (table,) = tables_of(section)
    assert values_of(table, "host") == tuple(f"host{index}" for index in range(8, 16))
    assert sentences_of(section) == [
        "8 other hosts: busy 89.8%, clock moved by -7.50 ms to +8.75 ms; the JSON report has all hosts."
    ]


def test_hosts_with_unusual_devices_come_before_those_with_the_largest_offset(
    tmp_path: Path,
) -> None:
    """The slow GPU is on host5, the unused GPU on host9; the clock of host15 was moved most."""
    section = of_scenario(tmp_path, "sixteen_hosts_of_eight")
    assert section is not None
    (table,) = tables_of(section)
    hosts = ("host5", "host9", *(f"host{index}" for index in range(10, 16)))
    assert values_of(table, "host") == hosts
    assert values_of(table, "busy")[1] == "0–91.8%"


def test_hosts_that_lack_steps_come_first() -> None:
    clock = HostClock("collectives", offset_ps=MS)
    many = [host(f"h{index}", clock=clock) for index in range(2 * BRIEF_HOSTS)]
    lacking = host("z", clock=HostClock("profile_start"), missing_steps=(3, 4, 5, 6, 7, 8))
    section = hosts_section(view_of(is_brief=True), Capture("ok", (), (*many, lacking)))
    assert section is not None
    (table,) = tables_of(section)
    assert values_of(table, "host")[-1] == "z"
    assert values_of(table, "steps missing")[-1] == "3, 4, 5, 6 and 2 more"


def test_clocks_that_are_not_comparable_are_said_first() -> None:
    hosts = [
        host("a", clock=HostClock("collectives", residual_ps=5)),
        host("b", clock=HostClock("none")),
    ]
    assert clock_sentence(hosts).startswith("Some clocks could not be aligned")
    section = hosts_section(view_of(), Capture("ok", (), tuple(hosts)))
    assert section is not None
    (table,) = tables_of(section)
    assert values_of(table, "clock moved by") == (0, None)


@pytest.mark.parametrize("width", [40, 60])
def test_a_narrow_terminal_keeps_what_matters(width: int, tmp_path: Path) -> None:
    section = of_scenario(tmp_path, "missing_worker")
    assert section is not None
    lines = lines_of(section, width)
    assert any(line.endswith("moved by  missing") for line in lines)
    assert any(line.startswith("host3  worker 3") and line.endswith("0  3") for line in lines)
    assert "| `host3` | `worker 3` |" in markdown_of(section)


# Capture


def quality(result: Capture, **changes: Any) -> Section:
    section = capture_section(view_of(**changes), result)
    assert section is not None
    return section


def test_a_terminal_has_no_section_on_a_capture_without_problems() -> None:
    flawless = Capture("ok", (), (host(),))
    assert capture_section(view_of(is_brief=True), flawless) is None
    assert quality(flawless).lead == "Nothing limits the capture."


@pytest.mark.parametrize(
    ("name", "lead"),
    [
        ("ok", "The capture is ok, with remarks."),
        ("degraded", "The capture is degraded: some numbers are incomplete."),
        (
            "unusable",
            "The capture is unusable for what devices did: the trace holds no device event.",
        ),
    ],
)
def test_quality_and_problems(name: Any, lead: str) -> None:
    problems = (Problem("events-dropped", "the tracer dropped 15 events", "b"),)
    alone = quality(Capture(name, problems, (host("b"),)), is_brief=True)
    assert alone.lead == lead
    assert sentences_of(alone) == ["the tracer dropped 15 events"]
    several = quality(Capture(name, problems, (host("a"), host("b"))), is_brief=True)
    assert sentences_of(several) == ["the tracer dropped 15 events (host b)"]
    assert lines_of(several)[-1] == "  - the tracer dropped 15 events (host b)"


def test_many_problems_are_cut() -> None:
    problems = tuple(Problem("damaged-file", f"problem {n}") for n in range(BRIEF_PROBLEMS + 3))
    sentences = sentences_of(quality(Capture("degraded", problems, (host(),)), is_brief=True))
    assert len(sentences) == BRIEF_PROBLEMS + 1
    assert sentences[-1] == "3 more problems: see the JSON report."


def test_a_document_says_what_it_lacks_and_what_each_host_recorded() -> None:
    skipped = {"outside_view": "not recorded", "balance": "one device only"}
    section = quality(Capture("ok", (), (host(unlinked_ratio=0.25),)), skipped=skipped)
    assert sentences_of(section) == [
        "Not in this report",
        "GPU clocks, load and other processes: not recorded",
        "balance: one device only",
        "Recorded by each host",
    ]
    (table,) = tables_of(section)
    assert headings_of(table) == [
        "host",
        "recorded",
        "events",
        "on devices",
        "dropped",
        "kernels without launch",
    ]
    assert "| `a` | 100 ms | 20 | 8 | 0 | 25.0% |" in markdown_of(section)


@pytest.mark.parametrize(
    ("ratio", "spread", "sentence", "cell"),
    [
        (0.25, 0.1, "Profiler overhead: 25.0% of a step without it.", 0.25),
        (0.25, None, "Profiler overhead: 25.0% of a step without it.", 0.25),
        (
            0.05,
            0.1,
            "Profiler overhead: less than the spread of step times with and without it (mean IQR 10.0%).",
            "less than the spread of the step times",
        ),
        (-0.01, None, "Profiler overhead: too small to measure.", "too small to measure"),
    ],
)
def test_overhead_is_said_where_it_exceeds_how_much_steps_vary(
    ratio: float, spread: float | None, sentence: str, cell: float | str
) -> None:
    recorded = environment("a", overhead={"ratio": ratio, "spread_ratio": spread})
    results = {"environment": Environment((recorded,), ())}
    capture = Capture("ok", (), (host(overhead_ratio=ratio),))
    assert sentences_of(quality(capture, results=results, is_brief=True)) == [sentence]
    (table,) = tables_of(quality(capture, results=results))
    assert values_of(table, "profiler overhead") == (cell,)


@pytest.mark.parametrize(
    ("name", "problem", "quality_"),
    [
        (
            "missing_worker",
            "worker 2 of the cluster was not recorded",
            "degraded",
        ),
        (
            "parameter_servers",
            "ps 0 of the cluster was not recorded; it makes no step together with the others",
            "ok",
        ),
    ],
)
def test_hosts_that_were_not_recorded_are_named(
    name: str, problem: str, quality_: str, tmp_path: Path
) -> None:
    SCENARIOS[name]().write(tmp_path)
    report = traceview.analyze(tmp_path)
    assert report.capture.quality == quality_
    section = capture_section(view_of_report(report, is_brief=True), report.capture)
    assert section is not None
    assert problem in sentences_of(section)
