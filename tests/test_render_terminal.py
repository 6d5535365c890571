"""Does the terminal show the whole report, in the room it has, and nothing that could do harm?"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from traceview.render.strip import legend, strip

import traceview
from scripts.scenarios import SCENARIOS
from tests.reports import bare_report, device, empty_device, finding, full_report, op, step
from traceview.analysis.device_time.result import DeviceTime
from traceview.analysis.ops import OpRow, Ops
from traceview.analysis.utilization import DeviceTimeline
from traceview.document.page import Page
from traceview.render import numbers
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
    assert "37 of 40 rows are not shown; all of them: traceview ops logs --run 2026_01_02" in text


def test_findings_that_were_left_out_are_counted() -> None:
    report = replace(full_report(), left_out_findings=("few-steps", "unused-gpu"))
    told = "2 left out on request (few-steps, unused-gpu)\n"
    assert f"Findings  1 critical, 1 warning, 1 info; {told}" in shown(report)
    assert f"Findings  none shown; {told}" in shown(replace(report, findings=()))


def test_what_to_type_is_quoted_for_a_shell() -> None:
    source = Source("my logs/it's", "run1", (), ())
    text = shown(replace(full_report(), source=source))
    assert """all of them: traceview ops 'my logs/it'"'"'s'\n""" in text


def with_ops(*rows: OpRow) -> Report:
    report = full_report()
    return replace(report, results=replace(report.results, ops=Ops(rows, len(rows), 0)))


def test_no_op_section_without_rows() -> None:
    assert "Top ops" not in shown(full_report(), top=0)
    assert "Top ops  – none in the window on the devices shown" in shown(with_ops())


def test_a_share_above_everything_is_explained() -> None:
    note = "a share may pass 100%: kernels of one op overlap"
    assert note in shown(with_ops(op("a", "k", 1000, share_ratio=1.2)))
    assert note not in shown(with_ops(op("a", "k", 1000, share_ratio=1.0)))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_long_names_can_be_told_apart(width: int) -> None:
    start = "StatefulPartitionedCall/gradient_tape/model/transformer_encoder/layer"
    names = [f"{start}_{n}/attention_{m}/dense/MatMul/MatMul_{1}/" for n in range(12) for m in "ab"]
    names = [name + "x" * 60 for name in names]
    text = shown(with_ops(*(op(name, None, 1000) for name in names)), width, top=50)
    rows = [line for line in text.splitlines() if line.startswith("  ") and "xxx" in line]
    assert len(set(rows)) == len(names)
    for n, row in enumerate(rows):
        assert f"attention_{'ab'[n % 2]}" in row or f"_{'ab'[n % 2]}/dense" in row


def test_names_without_end_are_told_apart_as_far_as_there_is_room() -> None:
    """Each begins with all that are shorter."""
    text = shown(with_ops(*(op("a" * n, None, 1000) for n in range(1, 2000))), 80, top=2000)
    assert max(map(cell_len, text.splitlines())) <= 80


def test_copies_of_unknown_direction_are_told() -> None:
    report = full_report()
    rows = (device(0, unknown_direction_count=2, copy_count=5), device(1))
    text = shown(replace(report, results=replace(report.results, device_time=DeviceTime(rows, ()))))
    assert "2 of 15 copies: direction not recorded, counted as d2d" in text
    assert "direction not recorded" not in shown(report)


def test_no_timeline_without_a_device_that_has_one() -> None:
    report = full_report()
    unknown = device(0, busy_ps=None, busy_ratio=None)
    devices = DeviceTime((unknown,), ())
    text = shown(replace(report, results=replace(report.results, device_time=devices)), 200)
    assert "timeline" not in text


def test_spread_needs_three_steps() -> None:
    report = full_report()
    assert report.results.steps
    steps = replace(report.results.steps, used_count=2)
    text = shown(replace(report, results=replace(report.results, steps=steps)))
    assert "median 24.0 ms · a spread needs three steps\n" in text
    assert "IQR" not in text


def test_several_hosts_are_told_apart(tmp_path: Path) -> None:
    SCENARIOS["two_hosts"]().write(tmp_path)
    report = traceview.analyze(tmp_path)
    first, second = report.windows
    assert "4 steps on each of 2 hosts found" in shown(report)
    assert "windows:" not in shown(report)
    second = replace(second, end_ps=second.start_ps + 10**12, kind="trace")
    length = numbers.time(first.end_ps - first.start_ps)
    told = f"windows: host0 {length} (steps), host1 1.00 s (profile)"
    assert told in shown(replace(report, windows=(first, second)))


def timeline(**parts: int) -> DeviceTimeline:
    """240 slices of 100 ps, all alike."""
    slices = {name: (parts.get(name, 0),) * 240 for name in ("compute", "collective", "copy")}
    idle = (100 - sum(parts.values()),) * 240
    return DeviceTimeline(
        "GPU:0", 0, 24_000, slices["compute"], slices["collective"], slices["copy"], idle
    )


@pytest.mark.parametrize(
    ("parts", "characters"),
    [
        ({"compute": 50}, "█#"),
        ({"compute": 49}, "▂+"),
        ({"compute": 20, "collective": 40}, "▒%"),
        ({"compute": 20, "collective": 21}, "░:"),
        ({"copy": 60, "compute": 40}, "≡="),
        ({"copy": 1}, "─-"),
        ({}, "·."),
    ],
)
def test_a_slice_shows_what_it_is_mostly_and_how_full(
    parts: dict[str, int], characters: str
) -> None:
    for unicode, character in zip((True, False), characters, strict=True):
        page = Page(80, unicode=unicode)
        drawn = strip(page, timeline(**parts), 60).plain
        assert drawn == character * 60
        told = [text.plain for text in legend(page, set(drawn), None)]
        assert told[0].startswith(f"{character} ")
        assert told[1:] == (
            [f"{character} for less than half of the time"] if 0 < sum(parts.values()) < 50 else []
        )


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
