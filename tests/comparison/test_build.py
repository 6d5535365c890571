"""Conditions, findings, ops, numbers and words of a comparison, on hand-made reports."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import marked_steps, new_trace
from tests.reports import environment, finding, full_report, of_run
from traceview.analysis.base import Evidence, Skipped
from traceview.analysis.environment.result import Environment
from traceview.analysis.op_steps import OpInSteps, OpSteps
from traceview.analysis.path.result import CriticalPath, StepPath
from traceview.comparison.build import compare
from traceview.comparison.document import document_of, screen_of, sections_of
from traceview.comparison.findings import finding_differences
from traceview.comparison.mean_step import capture_steps, whole
from traceview.comparison.median_steps import aligned_steps
from traceview.comparison.model import Comparison, PartDifference
from traceview.comparison.ops import op_differences
from traceview.comparison.sides import reports_of
from traceview.comparison.verdict import interval_words, percent, ratio_words, verdict_of
from traceview.document import html, markdown, terminal
from traceview.document.figures import AlignedSteps
from traceview.document.figures_svg import drawn
from traceview.errors import ComparisonError
from traceview.report.model import Report

MS = 10**9


def with_path(report: Report, *steps: StepPath) -> Report:
    """The report with the paths of these steps."""
    path = CriticalPath({}, {}, {}, 0.0, (), 0, (), (), steps)
    return replace(report, results=replace(report.results, path=path))


def walked(number: int, host: str = "a", **by_cause: int) -> StepPath:
    return StepPath(host, number, sum(by_cause.values()), by_cause, 0, ())


def report(*lengths_ms: float, **results: Any) -> Report:
    """A report whose steps compute for so long."""
    made = with_path(
        full_report(),
        *(walked(number, compute=round(ms * MS)) for number, ms in enumerate(lengths_ms)),
    )
    return replace(made, findings=(), results=replace(made.results, **results))


def in_environment(**groups: Any) -> Report:
    return report(10, 11, environment=Environment((environment(**groups),), ()))


def op(name: str, *, ps: int, error: float | None = 1.0, **changes: Any) -> OpInSteps:
    row = OpInSteps("compute", name, "MatMul", "gemm", 2, 20, ps, error, 9.0, 10 * ps)
    return replace(row, **changes)


def ops(*rows: OpInSteps, left_out_ps: int = 0) -> Report:
    table = OpSteps(rows, 10, 10, int(left_out_ps > 0), left_out_ps)
    return report(10, 11, op_steps=table)


# Steps


def test_hosts_of_one_step_are_one() -> None:
    made = with_path(
        full_report(),
        walked(0, "a", compute=10),
        walked(0, "b", compute=13),
        walked(1, "a", compute=20, input=1),
    )
    steps = capture_steps(made)
    assert steps is not None
    assert steps.lengths_ps.tolist() == [11.5, 21]
    assert steps.mean_ps == Fraction(65, 4)
    assert steps.parts == {"compute": Fraction(63, 4), "input": Fraction(1, 2)}


def test_whole_parts_sum_to_their_sum() -> None:
    third = Fraction(1, 3)
    assert whole({"a": third, "b": third, "c": third}) == {"a": 0, "b": 0, "c": 1}
    assert whole({}) == {}


def test_without_a_path_the_used_steps_count() -> None:
    made = replace(full_report(), results=replace(full_report().results, path=None))
    steps = capture_steps(made)
    assert steps is not None
    assert steps.lengths_ps.tolist() == [24 * MS, 23 * MS, 25 * MS]
    comparison = compare([made], [made])
    assert (comparison.parts, comparison.step.before_ps) == ((), 24 * MS)


# Conditions


@pytest.mark.parametrize(
    ("name", "groups", "before", "after", "is_blocking"),
    [
        ("batch", {"batch": {"global": 128}}, "64", "128", True),
        (
            "precision",
            {"precision": {"policy": {"keras": "float32"}}},
            "mixed_float16",
            "float32",
            False,
        ),
        (
            "strategy",
            {"strategy": {"class": "CollectiveAllReduceStrategy"}},
            "MirroredStrategy",
            "MultiWorkerMirroredStrategy",
            False,
        ),
        ("TensorFlow", {"versions": {"tensorflow": "2.22.0"}}, "2.21.0", "2.22.0", False),
        ("XLA", {"xla": {"auto_jit": "on_1"}}, "off", "on_1", False),
        (
            "script arguments",
            {"command": {"script": ["train.py"]}},
            "--name 'a b'",
            "none",
            False,
        ),
        (
            "CUDA_VISIBLE_DEVICES",
            {"variables": {"CUDA_VISIBLE_DEVICES": "0"}},
            "0,1,2,3,4,5",
            "0",
            False,
        ),
    ],
)
def test_what_differs_is_said_or_blocks(
    name: str, groups: dict[str, Any], before: str, after: str, is_blocking: bool
) -> None:
    sides = [in_environment()], [in_environment(**groups)]
    if is_blocking:
        with pytest.raises(ComparisonError, match=rf"\({name}: {before} before, {after} after\)"):
            compare(*sides)
    conditions = compare(*sides, force=True).conditions
    assert [(row.name, row.before, row.after, row.is_blocking) for row in conditions] == [
        (name, before, after, is_blocking)
    ]


def test_captures_of_a_side_have_to_be_alike() -> None:
    same, other = in_environment(), of_run(in_environment(batch={"global": 128}), "other")
    with pytest.raises(ComparisonError, match="batch: 64, 128 before, 64 after"):
        compare([same, other], [same])
    assert compare([same, of_run(same, "again")], [same]).conditions == ()


def test_reports_on_other_steps_of_one_trace_are_compared() -> None:
    early, late = report(30, 31, 29), report(10, 11, 9)
    assert compare([early], [late]).verdict.startswith("3 times as fast")
    assert compare([late], [late]).verdict.startswith("Both sides are one run")


def test_traces_that_could_not_be_read_are_not_known_to_be_one() -> None:
    made = report(10, 11)
    files = tuple(replace(file, sha256=None) for file in made.source.files)
    unread = replace(made, source=replace(made.source, files=files))
    assert len(compare([unread, unread], [unread]).before) == 2


def test_what_one_side_does_not_say_does_not_differ() -> None:
    assert compare([in_environment()], [report(10, 11, environment=None)]).conditions == ()


def test_a_verdict_on_other_work_says_so() -> None:
    larger = in_environment(batch={"global": 64})
    smaller = of_run(in_environment(batch={"global": 32}), "smaller")
    verdict = compare([larger], [smaller], force=True).verdict
    assert verdict.endswith("; the steps are not the same work (batch 64 → 32)")


# Findings


def part(cause: str, difference_ps: int, direction: Any) -> PartDifference:
    return PartDifference(cause, 0, difference_ps, difference_ps, None, None, direction, None)


@pytest.mark.parametrize(
    ("difference_ms", "direction", "severity", "is_shown", "is_within_noise"),
    [
        (5, "slower", "info", True, False),
        (5, "slower", "warning", True, False),
        (5, "none", "info", False, False),
        (5, "none", "warning", True, True),
        (1, "slower", "warning", False, False),
        (5, "unknown", "info", True, False),
    ],
)
def test_a_finding_is_new_where_its_part_of_the_path_is(
    difference_ms: int, direction: str, severity: Any, is_shown: bool, is_within_noise: bool
) -> None:
    about = finding(
        code="input-bound", severity=severity, path_causes=("input",), cost_ps_per_step=8 * MS
    )
    with_it, without = replace(report(10), findings=(about,)), report(10)
    parts = [part("input", difference_ms * MS, direction)]
    came = finding_differences([without], [with_it], 100 * MS, parts)
    went = finding_differences([with_it], [without], 100 * MS, parts)
    assert [row.status for row in (*came, *went)] == (["came", "went"] if is_shown else [])
    assert {row.is_within_noise for row in (*came, *went)} <= {is_within_noise}


def test_costs_with_and_without_the_profiler_are_not_compared() -> None:
    recorded = finding(code="host-bound", path_causes=("input",), cost_ps_per_step=8 * MS)
    without = replace(
        recorded,
        cost_ps_per_step=3 * MS,
        evidence=(Evidence("profiler_ps", 5 * MS, None, "replica:0"),),
    )
    sides = [replace(report(10), findings=(row,)) for row in (recorded, without)]
    parts = [part("input", 5 * MS, "slower")]
    assert finding_differences(sides[:1], sides[1:], 100 * MS, parts) == ()
    cheaper = replace(report(10), findings=(replace(recorded, cost_ps_per_step=3 * MS),))
    (row,) = finding_differences(sides[:1], [cheaper], 100 * MS, parts)
    assert (row.status, row.before_ps, row.after_ps) == ("changed", 8 * MS, 3 * MS)


def test_a_finding_that_is_not_on_the_path_is_new_unless_it_informs() -> None:
    rows = [
        finding(code="memory-held-idle-gpu", severity="warning", path_causes=()),
        finding(code="few-steps", severity="info", path_causes=()),
    ]
    made = replace(report(10), findings=tuple(rows))
    assert [row.code for row in finding_differences([report(10)], [made], MS, [])] == [
        "memory-held-idle-gpu"
    ]


def test_a_finding_that_another_one_explains_on_the_other_side_is_not_new() -> None:
    """It is there on both sides, once inside another one and once by itself."""
    alone = finding(code="unused-gpu", severity="critical", path_causes=(), evidence=())
    inside = Evidence("explains", "5 of 8 visible GPUs recorded no event", None, "unused-gpu")
    first = finding(code="first-call", severity="warning", path_causes=(), evidence=(inside,))
    before, after = replace(report(10), findings=(first,)), replace(report(10), findings=(alone,))
    left_out = replace(report(10), left_out_findings=("unused-gpu",))
    for sides, expected in (
        ((before, after), ["first-call"]),
        ((after, before), ["first-call"]),
        ((left_out, after), []),
        ((report(10), after), ["unused-gpu"]),
    ):
        rows = finding_differences(sides[:1], sides[1:], MS, [])
        assert [row.code for row in rows] == expected


def test_most_captures_have_to_have_a_finding() -> None:
    made = replace(report(10), findings=(finding(severity="warning", path_causes=()),))
    for after, count in (([made, report(10)], 0), ([made, made, report(10)], 1)):
        assert len(finding_differences([report(10)], after, MS, [])) == count


# Ops


def test_ops_are_slower_new_gone_and_called_more_often() -> None:
    before = ops(op("a", ps=1000), op("b", ps=500), op("c", ps=300))
    after = ops(op("a", ps=1400), op("d", ps=700), op("c", ps=600, count=40))
    rows = {row.op: row for row in op_differences([before], [after], 1000, None)}
    assert {name: row.status for name, row in rows.items()} == {
        "a": "slower",
        "b": "gone",
        "c": "slower",
        "d": "new",
    }
    # Two devices, ten steps.
    assert (rows["a"].before_ps, rows["a"].after_ps, rows["a"].path_ps) == (500, 700, 400)
    assert rows["a"].share_ratio == pytest.approx(0.4)
    assert (rows["c"].before_calls, rows["c"].after_calls) == (1, 2)
    assert (rows["d"].low_ps, rows["b"].high_ps) == (None, None)


def test_noise_is_not_slower() -> None:
    before, after = ops(op("a", ps=1000, error=300.0)), ops(op("a", ps=1400, error=300.0))
    assert [row.status for row in op_differences([before], [after], 0, None)] == ["same"]


def test_of_many_ops_a_few_exclude_zero_by_chance() -> None:
    # Each has an interval that just excludes zero; among a hundred, five do so by chance.
    near = [op(f"op{number}", ps=1000, error=300.0) for number in range(95)]
    before = ops(*near, op("a", ps=1000, error=100.0))
    after = ops(*near, op("a", ps=1340, error=100.0))
    row = next(row for row in op_differences([before], [after], 0, None) if row.op == "a")
    assert row.low_ps is not None
    assert row.low_ps > 0
    assert row.status == "same"


def test_another_kernel_of_the_same_op_is_the_same_op() -> None:
    before, after = ops(op("a", ps=1000)), ops(op("a", ps=800, kernel="gemm_tensor_core"))
    (row,) = op_differences([before], [after], 0, None)
    assert (row.status, row.before_kernel, row.kernel) == ("faster", "gemm", "gemm_tensor_core")


def test_an_op_on_another_shape_is_neither_slower_nor_faster() -> None:
    """Its time is of other work; where a side recorded no shape, nothing is known to differ."""
    small, large = ("(float[32,784])",), ("(float[64,784])",)
    before = ops(op("a", ps=5 * MS, shapes=small))
    for shapes, status in ((large, "reshaped"), (small, "slower"), ((), "slower")):
        after = ops(op("a", ps=9 * MS, shapes=shapes))
        (row,) = op_differences([before], [after], 0, None)
        assert (row.status, row.before_shapes, row.after_shapes) == (status, small, shapes)
    comparison = compare([before], [ops(op("a", ps=9 * MS, shapes=large))])
    text = "".join(map(markdown.render_section, sections_of(comparison)))
    assert "other shape" in text
    assert "(`float[32,784]`) → (`float[64,784]`)" in text
    reshaped = op_differences([before], [ops(op("a", ps=9 * MS, shapes=large))], 4 * MS, None)
    clause = verdict_of(
        replace(comparison.step, direction="slower", difference_ps=4 * MS, ratio=0.4),
        [part("compute", reshaped[0].path_ps, "slower")],
        (),
        reshaped,
    )
    assert "because a, with inputs of another shape, takes " in clause


def test_what_a_side_left_out_is_not_new() -> None:
    before = ops(op("a", ps=1000), left_out_ps=400)
    after = ops(
        op("a", ps=1000), op("small", ps=600), op("noisy", ps=900, error=400.0), op("large", ps=900)
    )
    rows = {row.op: row for row in op_differences([before], [after], 0, None)}
    # 300, 450 ± 200 and 450 picoseconds per device: the side before may have had one of 400.
    assert {name: row.status for name, row in rows.items()} == {
        "a": "same",
        "small": "same",
        "noisy": "same",
        "large": "new",
    }
    assert (rows["large"].left_out_ps, rows["a"].left_out_ps) == (400, 0)
    shown = compare([before], [after])
    assert [row.status for row in shown.ops if row.op == "large"] == ["new"]


def test_what_is_new_beyond_doubt_needs_no_noise() -> None:
    before, after = ops(op("a", ps=1000)), ops(op("a", ps=1000), op("b", ps=900, error=900.0))
    assert {row.op: row.status for row in op_differences([before], [after], 0, None)} == {
        "a": "same",
        "b": "new",
    }


# Words


def lines_of(comparison: Comparison) -> str:
    return " ".join(comparison.verdict.split())


def test_a_step_that_decides_the_mean_is_named() -> None:
    comparison = compare([report(*[10.0] * 9, 10.5)], [report(*[10.0] * 9, 200)])
    assert comparison.step.direction == "none"
    assert comparison.limits[0] == (
        "1 step after, of 200 ms, decides the mean: the median step is 10.0 ms before and 10.0 ms after"
    )


def test_a_change_of_the_typical_step_is_said_to_be_one() -> None:
    before = [100.0, 101, 102, 103, 104, 105, 106, 107, 108, 109]
    after = [1.1 * length for length in before]
    after[3] = after[7] = 900
    comparison = compare([report(*before)], [report(*after)])
    assert lines_of(comparison).startswith(
        "The typical step is 10% slower: mean 104 → 272 ms per step (95% interval "
    )
    faster = compare([report(*after)], [report(*before)])
    assert lines_of(faster).startswith("The typical step is 9.1% faster: mean 272 → 104 ms")
    assert (faster.step.direction, faster.step.is_mean_shown) == ("faster", False)
    assert {row.share_ratio for row in faster.ops} <= {None}


def test_steps_that_would_show_8_percent_are_said() -> None:
    lengths = [100.0, 112, 95, 130, 104, 99, 121, 108, 97, 117]
    comparison = compare([report(*lengths)], [report(*reversed(lengths))])
    needed = comparison.step.needed_steps
    assert needed is not None
    assert lines_of(comparison).endswith(
        f"% or more; to show 8%, record about {needed} steps of each side"
    )
    assert interval_words(comparison.step).startswith("95% interval -")
    assert " to +" in interval_words(comparison.step)


def test_captures_that_would_show_8_percent_are_said() -> None:
    sides = [
        [of_run(report(length, length + 1, length), f"run {length}") for length in side]
        for side in ((90.0, 110.0), (95.0, 105.0))
    ]
    comparison = compare(*sides)
    needed = comparison.step.needed_captures
    assert needed is not None
    assert comparison.step.needed_steps is None
    assert f"; to show 8%, compare about {needed} captures of each side" in lines_of(comparison)


def test_captures_that_would_show_a_larger_change_are_said() -> None:
    sides = [
        [of_run(report(length, length + 1, length), f"run {length}") for length in side]
        for side in ((90.0, 110.0), (110.0, 130.0))
    ]
    comparison = compare(*sides)
    needed = comparison.step.needed_captures
    assert comparison.step.direction == "none"
    assert needed is not None
    assert f"; to show 20%, compare about {needed} captures of each side" in lines_of(comparison)
    smaller = compare(
        sides[0],
        [of_run(report(length, length + 1, length), f"run {length}") for length in (95.0, 105.0)],
    )
    assert smaller.step.needed_captures is not None
    assert needed < smaller.step.needed_captures


def test_there_and_back_have_one_number() -> None:
    """So that neither has to be converted to be compared with the other."""
    slow, fast = report(24, 25, 26), report(9.9, 10, 10.1)
    there, back = compare([fast], [slow]).verdict, compare([slow], [fast]).verdict
    assert there.startswith("2.5 times as long: 10.0 → 25.0 ms per step (95% interval ")
    assert back.startswith("2.5 times as fast: 25.0 → 10.0 ms per step (95% interval ")
    intervals = [re.search(r"interval ([\d.]+) to ([\d.]+) times", text) for text in (there, back)]
    assert intervals[0]
    assert intervals[1]
    assert intervals[0].groups() == intervals[1].groups()


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (0.12, "12% slower"),
        (-0.12, "12% faster"),
        (0.99, "99% slower"),
        (1.0, "2 times as long"),
        (-0.5, "2 times as fast"),
        (-0.49, "49% faster"),
        (199.4, "200 times as long"),
        (-1.0, "100% faster"),
    ],
)
def test_a_change_in_words(ratio: float, words: str) -> None:
    assert ratio_words(ratio) == words


def test_twice_as_long_is_said_so() -> None:
    comparison = compare([report(10, 10.1, 9.9)], [report(25, 25.1, 24.9)])
    assert lines_of(comparison).startswith(
        "2.5 times as long: 10.0 → 25.0 ms per step (95% interval 2.5 to 2.5 times for these two runs), because "
    )


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.123, "12%"), (-0.0421, "4.2%"), (0.0035, "0.35%"), (0.0996, "10%"), (1.5, "150%")],
)
def test_percent_has_two_digits(ratio: float, text: str) -> None:
    assert percent(ratio) == text


def test_names_of_ops_are_hostile() -> None:
    name = "</script><img onerror=x>[bold]|`a`\x1b[31m"
    comparison = compare([ops(op("a", ps=5 * MS))], [ops(op(name, ps=9 * MS))])
    on_terminal = terminal.render_section(screen_of(comparison), width=80, color=True)
    in_markdown = "".join(map(markdown.render_section, sections_of(comparison)))
    on_page = html.render(lambda _: document_of(comparison))
    assert "[bold]" in on_terminal
    for text in (on_terminal, in_markdown, on_page):
        assert "\x1b[31m" not in text
    for text in (in_markdown, on_page):
        assert "<img" not in text


def test_the_median_steps_are_drawn_from_one_start(tmp_path: Path) -> None:
    folders = []
    for name, length in (("before", 30), ("after", 40)):
        trace = new_trace()
        for step in marked_steps(trace, count=3, period_ms=length, marker_ms=length - 1):
            step.kernel(0, 10, length - 2, name="dense", op="dense:MatMul")
        trace.write(tmp_path / name)
        folders.append(tmp_path / name)
    before, after = (reports_of([folder], lanes=True) for folder in folders)
    figure = aligned_steps(before, after, parts=[part("compute", 10 * MS, "slower")])
    assert isinstance(figure, AlignedSteps)
    assert [lane.marked for lane in figure.lanes] == [{"compute"}, {"compute"}]
    assert [(lane.label, lane.step_ps // MS, lane.note) for lane in figure.lanes] == [
        ("before GPU:0", 30, ""),
        ("after GPU:0", 40, "+10.0 ms"),
    ]
    for lane, end in zip(figure.lanes, (28, 38), strict=True):
        compute = [(start, stop) for start, stop, look in lane.pieces if look.key == "compute"]
        assert compute == [(10 * MS, end * MS)]
        assert max(stop for _, stop, _ in lane.pieces) == lane.step_ps
    svg = drawn(figure, lambda _, drawing: drawing)
    # 740 of 1040 pixels are the longer step.
    assert 'width="555.0"' in svg
    assert "+10.0 ms" in svg
    # Compute, which differs, stands out.
    assert svg.count('height="26.0"') == 2
    assert "higher: what differs beyond noise" in svg
    unmarked = aligned_steps(before, after)
    assert isinstance(unmarked, AlignedSteps)
    assert 'height="26.0"' not in drawn(unmarked, lambda _, drawing: drawing)


def test_why_median_steps_are_not_drawn_stands_on_the_page(tmp_path: Path) -> None:
    SCENARIOS["plain"]().write(tmp_path)
    with_lanes, without = (reports_of([tmp_path], lanes=lanes) for lanes in (True, False))
    missing = aligned_steps(with_lanes, without)
    assert isinstance(missing, Skipped)
    page = html.render(lambda _: document_of(compare(with_lanes, without), missing))
    assert "Not drawn: the saved report after holds no timeline." in page
    SCENARIOS["slow_map"]().write(tmp_path / "host")
    bare = aligned_steps(with_lanes, reports_of([tmp_path / "host"], lanes=True))
    assert isinstance(bare, Skipped)
    assert bare.reason == "no device was recorded in the median step after"


def test_a_side_without_devices_has_nothing_gone() -> None:
    empty = OpSteps((), 10, 0, 0, 0)
    before = ops(op("a", ps=1000))
    after = report(10, 11, op_steps=empty, anatomy=None, path=None)
    # Its steps are known all the same.
    comparison = compare([before], [after])
    assert (comparison.parts, comparison.devices, comparison.ops) == ((), (), ())
    assert "gone" not in comparison.verdict
    assert "no longer used" not in comparison.verdict
    assert comparison.limits[0].startswith("The difference is not explained by its parts: ")
    assert "No op was recorded in the steps of a side" in comparison.limits


# Other numbers


def test_numbers_that_differ_by_a_tenth_are_listed(fixtures: Path) -> None:
    (before,) = reports_of([fixtures / "slow-input-2"])
    input_, times = before.results.input, before.results.device_time
    assert input_ is not None
    assert times is not None
    assert before.results.steps is not None
    slow = max(input_.stages, key=lambda stage: stage.own_ps if stage.blocking else 0)
    stages = tuple(
        replace(stage, self_ps=stage.self_ps + stage.own_ps) if stage is slow else stage
        for stage in input_.stages
    )
    held = tuple(
        (1000, replace(row, memory_peak_bytes=1000), replace(row, memory_peak_bytes=1090 + 200 * n))
        for n, row in enumerate(times.devices)
    )
    sides = [
        replace(
            before,
            results=replace(
                before.results,
                input=replace(input_, stages=chosen),
                device_time=replace(times, devices=tuple(row[place] for row in held)),
            ),
        )
        for chosen, place in ((input_.stages, 1), (stages, 2))
    ]
    rows = compare([sides[0]], [sides[1]]).values
    found = {(row.topic, row.key, row.stage or row.device): (row.before, row.after) for row in rows}
    per_step = slow.own_ps / before.results.steps.used_count
    assert found == {
        ("input", "own_ps", slow.name): pytest.approx((per_step, 2 * per_step), rel=1e-6),
        # 9% more on the first device is not listed.
        ("memory", "memory_peak_bytes", times.devices[1].device): (1000, 1290),
    }
