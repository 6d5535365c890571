"""Does the terminal show the whole report, in the room it has, and nothing that could do harm?"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

import traceview
from scripts.scenarios import SCENARIOS
from tests.reports import bare_report, device, empty_device, finding, full_report, op, step
from traceview.analyses.device_time import DeviceTime
from traceview.analyses.ops import Ops
from traceview.render.terminal import render
from traceview.report.model import Report, Source

Golden = Callable[[str, str], None]
ESCAPES = re.compile(r"\x1b\[[\d;]*m")


def shown(report: Report, width: int = 100, *, top: int = 10, unicode: bool = True) -> str:
    return render(report, width=width, color=False, unicode=unicode, top=top)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("build", [full_report, bare_report])
def test_whole_output(build: Callable[[], Report], width: int, golden: Golden) -> None:
    golden(f"{build.__name__}-{width}.txt", shown(build(), width))


def test_whole_output_in_ascii(golden: Golden) -> None:
    text = shown(full_report(), 80, unicode=False)
    assert text.isascii()
    golden("full_report-80-ascii.txt", text)


def test_colours_are_all_that_colour_adds() -> None:
    coloured = render(full_report(), width=100, color=True, top=10)
    assert ESCAPES.search(coloured)
    assert ESCAPES.sub("", coloured) == shown(full_report())


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_no_line_is_wider_than_the_page(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    report = traceview.analyze(tmp_path)
    for width in (1, 40, 47, 60, 80, 100, 120, 250):
        for unicode in (True, False):
            lines = shown(report, width, unicode=unicode).splitlines()
            assert [line for line in lines if cell_len(line) > max(width, 40)] == []
            assert [line for line in lines if line != line.rstrip()] == []


HOSTILE = (
    "[red]x[/red]",
    "line\nbreak\r\ttab",
    "\x1b[31mred\x1b]0;title\x07",
    "\u202egnihton\u202c",
    "\u2028\u2029\u200b\x85\x9b1m",
    "\ud800 lone",
    "k" * 100_000,
    "表" * 500,
)


@pytest.mark.parametrize("unicode", [True, False])
@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_shown_harmlessly(name: str, unicode: bool) -> None:
    report = full_report()
    report = replace(
        report,
        source=Source(name, name, (name,), report.source.files),
        capture=replace(
            report.capture,
            hosts=tuple(replace(host, host=name) for host in report.capture.hosts),
            problems=tuple(replace(problem, text=name) for problem in report.capture.problems),
        ),
        results=replace(
            report.results,
            device_time=DeviceTime((device(0, device=f"{name}/GPU:0", model=name),), ()),
            ops=Ops((op(name, name, 1000, device=name),), 1, 0),
        ),
        findings=(finding(title=name, explanation=name, advice=name, code=name),),
    )
    text = shown(report, 80, unicode=unicode)
    assert [line for line in text.splitlines() if cell_len(line) > 80] == []
    assert all(line.isprintable() for line in text.split("\n"))
    text.encode("utf-8")
    coloured = render(report, width=80, color=True, unicode=unicode, top=5)
    assert ESCAPES.sub("", coloured) == text


def test_markup_of_a_name_is_text() -> None:
    report = full_report()
    ops = Ops((op("[red]x[/red]", "[bold]", 1000),), 1, 0)
    assert "[red]x[/red]" in shown(replace(report, results=replace(report.results, ops=ops)))


@pytest.mark.parametrize(("count", "folded"), [(3, False), (4, True)])
def test_empty_devices_are_folded_from_four_on(count: int, folded: bool) -> None:
    report = full_report()
    rows = (device(0), *(empty_device(n) for n in range(1, count + 1)))
    text = shown(replace(report, results=replace(report.results, device_time=DeviceTime(rows, ()))))
    assert (f"empty GPU:1–{count}: no event in the whole recording" in text) is folded


def test_the_middle_of_many_steps_is_left_out() -> None:
    report = full_report()
    assert report.results.steps
    many = tuple(step(n, 24 * 10**9, ("GPU:0",), None) for n in range(100))
    steps = replace(report.results.steps, steps=many, count=100, used_count=100)
    text = shown(replace(report, results=replace(report.results, steps=steps)))
    assert "88 steps in the middle are not shown." in text
    assert re.search(r"^\s+5 +24\.0 ms.*\n\s+…\n\s+94 ", text, re.MULTILINE)


def test_devices_with_the_same_ops_share_a_table() -> None:
    text = shown(full_report())
    assert "GPU:0  and the same ops on GPU:1, with their own times" in text
    assert "37 of 40 rows are not shown; all of them: traceview ops LOGDIR" in text


@pytest.mark.parametrize("top", [0, 1, 2])
def test_top_limits_the_rows(top: int) -> None:
    text = shown(full_report(), 120, top=top)
    assert sum(line.startswith("  ") and " compute " in line for line in text.splitlines()) == top


@pytest.mark.shared
@pytest.mark.parametrize("name", ["bert-8xV100", "jax-8xMI300X", "jax-gemm-1of8"])
def test_real_traces_fit(name: str, shared_traces: Path) -> None:
    report = traceview.analyze(shared_traces / name)
    for width in (60, 80, 120):
        assert max(map(cell_len, shown(report, width).splitlines())) <= width


@pytest.mark.shared
def test_bert_says_which_gpus_worked(shared_traces: Path) -> None:
    text = shown(traceview.analyze(shared_traces / "bert-8xV100"))
    assert "2 of 8 GPUs ran kernels (GPU:4 and GPU:6)" in text
    assert "empty GPU:0, 2, 3, 5, 7: no event in the whole recording" in text
