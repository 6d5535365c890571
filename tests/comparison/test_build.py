"""Conditions, findings, ops and words of a comparison, on hand-made reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tests.reports import (
    environment,
    finding,
    full_report,
    known,
    loss,
    of_run,
    step_of_states,
    with_results,
    with_steps,
)
from traceview.analysis.gpu_time.op_steps import OpInSteps, OpSteps, PartInSteps
from traceview.analysis.measures.device_report import Environment
from traceview.analysis.measures.step_report import StepRow
from traceview.analysis.rules.finding import Evidence
from traceview.base.errors import ComparisonError
from traceview.comparison.build import compare
from traceview.comparison.document import screen_of
from traceview.comparison.model import (
    DeviceDifference,
    DeviceState,
    FindingDifference,
    StateDifference,
    StepDifference,
    WorkDifference,
)
from traceview.comparison.noise import RunSpread
from traceview.comparison.sides import capture_steps, finding_differences
from traceview.comparison.verdict import verdict_of
from traceview.comparison.work import op_differences, part_differences
from traceview.document.terminal import render_section
from traceview.report.model import Report

MS = 10**9
EXACT = RunSpread(0.0, 4)
"""Runs that do not differ."""


def report(*lengths_ms: float, **results: Any) -> Report:
    """A report whose steps compute for so long."""
    made = with_steps(*lengths_ms)
    results = {"ledger": replace(known(made.results.ledger), devices=())} | results
    capture = replace(made.capture, quality="ok")
    return replace(with_results(made, **results), findings=(), capture=capture)


def in_environment(**groups: Any) -> Report:
    return report(10, 11, environment=Environment((environment(**groups),), ()))


def op(name: str, *, ps: int, error: float | None = 1.0, **changes: Any) -> OpInSteps:
    row = OpInSteps(2, 20, ps, error, 9.0, 10 * ps, "compute", name, "MatMul", "gemm")
    return replace(row, **changes)


def ops(*rows: OpInSteps, left_out_ps: int = 0) -> Report:
    table = OpSteps(rows, (), 10, 10, int(left_out_ps > 0), left_out_ps, 0)
    return report(10, 11, op_steps=table)


def parts(*rows: tuple[str | None, str | None, int], left_out_ps: int = 0) -> Report:
    """A report with the compute of layers and lines, of these picoseconds."""
    made = tuple(PartInSteps(2, 20, ps, 1.0, 9.0, 10 * ps, layer, line) for layer, line, ps in rows)
    return report(10, 11, op_steps=OpSteps((), made, 10, 10, 0, 0, left_out_ps))


# Steps


def with_rows(*rows: StepRow, **results: Any) -> Report:
    return report(steps=replace(known(full_report().results.steps), steps=rows), **results)


def test_hosts_of_one_step_are_one() -> None:
    made = with_rows(
        step_of_states(0, {"compute": 10}, "a"),
        step_of_states(0, {"compute": 13}, "b"),
        step_of_states(1, {"compute": 20, "input": 1}, "a"),
    )
    steps = known(capture_steps(made))
    assert steps.lengths_ps.tolist() == [11.5, 21]
    assert {key: of.tolist() for key, of in steps.states_ps.items()} == {
        "compute": [11.5, 20],
        "input": [0, 1],
    }


def test_without_devices_the_used_steps_count() -> None:
    steps = known(full_report().results.steps)
    made = with_rows(*(replace(row, devices=()) for row in steps.steps), ledger=None)
    of_capture = known(capture_steps(made))
    assert of_capture.lengths_ps.tolist() == [24 * MS, 23 * MS, 25 * MS]
    comparison = compare([made], [made])
    assert (comparison.states, comparison.step.before_ps) == ((), 24 * MS)


# Conditions


@pytest.mark.parametrize(
    ("name", "groups", "before", "after", "is_blocking"),
    [
        ("batch", {"batch": {"global": 128}}, "64", "128", True),
        ("TensorFlow", {"versions": {"tensorflow": "2.22.0"}}, "2.21.0", "2.22.0", False),
        ("script arguments", {"command": {"script": ["train.py"]}}, "--name 'a b'", "none", False),
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
    with pytest.raises(ComparisonError, match="batch: 64, 128 before, 64, 128 after"):
        compare([same, other], [same, other])
    assert compare([same, of_run(same, "again")], [same]).conditions == ()


def test_runs_with_few_ops_in_common_do_different_work() -> None:
    convolutions = ops(*(op(f"conv_{name}_1", ps=MS) for name in "abcdef"), op("loss", ps=9))
    products = ops(*(op(f"dense_{name}", ps=MS) for name in "abcdefghi"), op("loss", ps=9))
    # Of as many parameters it is one model, whatever compiled it.
    assert "different work" not in compare([convolutions], [of_run(products, "jit")]).verdict
    unknown = of_run(with_results(products, environment=None), "other")
    verdict = compare([convolutions], [unknown]).verdict
    assert verdict.startswith("The runs do different work (1 of 16 kinds of ops in common), so")
    # A model that was built again has other numbers in its names, and a slow op more is no other work.
    again = ops(*(op(f"conv_{name}_7", ps=MS) for name in "abcdef"), op("loss", ps=9))
    more = ops(*(op(f"conv_{name}_1", ps=MS) for name in "abcdef"), op("new", ps=50 * MS))
    for other in (again, more):
        assert "different work" not in compare([convolutions], [of_run(other, "other")]).verdict
    # A compiler makes other ops of the same work.
    compiled, plain = (
        of_run(with_results(made, environment=of.results.environment), name)
        for name, made, of in (
            ("compiled", products, in_environment(xla={"auto_jit": "on_1"})),
            ("plain", convolutions, in_environment()),
        )
    )
    assert "different work" not in compare([plain], [compiled]).verdict


# Findings


def step_of(before_ps: int, difference_ps: int = 0, direction: Any = "none") -> StepDifference:
    return StepDifference(
        before_ps=before_ps,
        after_ps=before_ps + difference_ps,
        difference_ps=difference_ps,
        change_ratio=difference_ps / before_ps,
        typical_before_ps=before_ps,
        typical_after_ps=before_ps,
        measure="mean",
        low_ratio=None,
        high_ratio=None,
        least_shown_ratio=None,
        direction=direction,
        is_probable=False,
        basis="assumed",
    )


def state(key: str, difference_ps: int, direction: Any) -> StateDifference:
    return StateDifference(key, 0, difference_ps, difference_ps, direction, None)


@pytest.mark.parametrize(
    ("difference_ms", "direction", "severity", "is_shown"),
    [
        (5, "slower", "info", True),
        (5, "slower", "warning", True),
        (5, "none", "warning", False),
        (1, "slower", "warning", False),
        (5, "unknown", "info", True),
    ],
)
def test_a_finding_is_new_where_its_states_are_longer(
    difference_ms: int, direction: str, severity: Any, is_shown: bool
) -> None:
    about = finding(code="input-bound", severity=severity, loss=loss(0.2, "input", ps=8 * MS))
    with_it, without = replace(report(10), findings=(about,)), report(10)
    states = [state("input", difference_ms * MS, direction)]
    came = finding_differences([without], [with_it], step_of(100 * MS), states)
    went = finding_differences([with_it], [without], step_of(100 * MS), states)
    assert [row.status for row in (*came, *went)] == (["came", "went"] if is_shown else [])


@pytest.mark.parametrize(
    ("states_ms", "changed", "is_told"),
    [
        (2.5, {"direction": "faster"}, True),
        (2.5, {"is_probable": True}, True),
        (1.9, {"direction": "faster"}, False),
        (2.5, {}, False),
        (2.5, {"direction": "faster", "measure": "typical"}, False),
    ],
)
def test_where_the_step_changed_a_finding_did_whatever_its_noise(
    states_ms: float, changed: dict[str, Any], is_told: bool
) -> None:
    about = finding(code="input-bound", loss=loss(0.2, "input"))
    states = [state("input", -round(states_ms * MS), "none")]
    step = replace(step_of(100 * MS, -10 * MS), **changed)
    went = finding_differences([replace(report(10), findings=(about,))], [report(10)], step, states)
    assert bool(went) is is_told


@pytest.mark.parametrize(("severity", "is_told"), [("info", False), ("warning", True)])
def test_a_finding_about_no_time_is_new_unless_it_is_information(
    severity: Any, is_told: bool
) -> None:
    about = finding(code="few-steps", severity=severity, loss=None)
    with_it = replace(report(10), findings=(about,))
    assert bool(finding_differences([report(10)], [with_it], step_of(100 * MS), [])) is is_told


def test_a_finding_that_costs_another_time_has_changed() -> None:
    dear, cheap = (
        finding(code="input-bound", title=name, loss=loss(ratio, "input", ps=ps * MS))
        for name, ratio, ps in (("dear", 0.2, 8), ("cheap", 0.1, 3))
    )
    sides = [replace(report(10), findings=(row,)) for row in (dear, cheap)]
    states = [state("input", -5 * MS, "faster")]
    (row,) = finding_differences(sides[:1], sides[1:], step_of(100 * MS), states)
    assert (row.status, row.title, row.before_ps, row.after_ps) == (
        *("changed", "cheap", 8 * MS, 3 * MS),
    )
    # Less than 2% of the step is no change.
    assert finding_differences(sides[:1], sides[1:], step_of(300 * MS), states) == ()


def test_a_finding_that_another_one_explains_on_the_other_side_is_not_new() -> None:
    """It is there on both sides, once inside another one and once by itself."""
    alone = finding(code="unused-gpu", severity="critical", loss=None, evidence=())
    inside = Evidence("explains", "unused-gpu", None, "")
    first = finding(code="first-call", severity="warning", loss=None, evidence=(inside,))
    before, after = replace(report(10), findings=(first,)), replace(report(10), findings=(alone,))
    for sides, expected in (
        ((before, after), ["first-call"]),
        ((after, before), ["first-call"]),
        ((report(10), after), ["unused-gpu"]),
    ):
        rows = finding_differences(sides[:1], sides[1:], step_of(MS), [])
        assert [row.code for row in rows] == expected


# Ops


def test_ops_are_slower_new_gone_and_called_more_often() -> None:
    before = ops(op("a", ps=1000), op("b", ps=500), op("c", ps=300), op("e", ps=90))
    after = ops(
        op("a", ps=1400),
        op("d", ps=700),
        op("c", ps=600, count=40),
        op("e", ps=90, kernel="other", error=None),
    )
    rows = {row.op: row for row in op_differences([before], [after], EXACT)}
    assert {name: row.status for name, row in rows.items()} == {
        "a": "slower",
        "b": "gone",
        "c": "slower",
        "d": "new",
        "e": "same",
    }
    assert rows["e"].kernel == "other"
    # Two devices, ten steps.
    assert (rows["a"].before_ps, rows["a"].after_ps, rows["a"].path_ps) == (500, 700, 400)
    assert (rows["c"].before_calls, rows["c"].after_calls) == (1, 2)


def test_an_op_that_takes_time_in_other_steps_beside_others_is_not_slower() -> None:
    """Of ops that replicas run at once one takes the time, so that calls are 0.5 for each step and device."""
    before, after = ops(op("a", ps=1000, count=10)), ops(op("a", ps=1400, count=20))
    of_replicas = replace(EXACT, is_of_replicas=True)
    for spread, status in ((EXACT, "slower"), (of_replicas, "same")):
        (row,) = op_differences([before], [after], spread)
        assert ((row.before_calls, row.after_calls), row.status) == ((0.5, 1), status)


def test_of_many_ops_a_few_exclude_zero_by_chance() -> None:
    # Each has an interval that just excludes zero; among a hundred, five do so by chance.
    near = [op(f"op{number}", ps=1000, error=300.0) for number in range(95)]
    before = ops(*near, op("a", ps=1000, error=100.0))
    after = ops(*near, op("a", ps=1400, error=100.0))
    row = next(row for row in op_differences([before], [after], EXACT) if row.op == "a")
    assert row.status == "same"


def test_what_a_side_left_out_is_not_new() -> None:
    before = ops(op("a", ps=1000), left_out_ps=400)
    after = ops(op("a", ps=1000), op("small", ps=600), op("large", ps=900))
    # 300 and 450 picoseconds per device: the side before may have had one of 400.
    rows = op_differences([before], [after], EXACT)
    assert {row.op: row.status for row in rows} == {"a": "same", "large": "new"}


def test_an_op_is_compared_with_all_of_its_kernels() -> None:
    before = ops(op("a", ps=1000), op("a", ps=400, kernel="split"))
    (row,) = op_differences([before], [ops(op("a", ps=1000, kernel="other"))], EXACT)
    assert (row.before_ps, row.after_ps, row.kernel) == (700, 500, "gemm")
    assert (row.status, row.path_ps) == ("faster", -400)


def test_instructions_of_xla_are_told_by_the_function_that_made_them() -> None:
    """The compiler numbers them anew: `dot.1` is of another function after the change."""
    loss, penalty = "train.py:31 in loss", "train.py:50 in penalty"

    def made(*rows: tuple[str, str, int]) -> Report:
        return ops(*(op(n, ps=ps, op_type=None, source_line=line) for n, line, ps in rows))

    before = made(("dot", loss, 1000), ("dot.2.remat", loss, 800), ("dot.1", penalty, 400))
    after = made(("dot.1", loss, 1000), ("dot.3", loss, 800), ("add/dot.1", penalty, 400))
    rows = op_differences([before], [after], EXACT)
    assert [(row.op, row.source_line, row.status) for row in rows] == [
        ("add/dot.1", penalty, "new"),
        ("dot", penalty, "gone"),
        ("dot", loss, "same"),
    ]
    assert (rows[2].before_ps, rows[2].before_calls) == (900, 2)


def test_the_lines_of_a_function_are_one_however_they_move() -> None:
    before = parts((None, "train.py:31 in loss", 600), (None, "train.py:40 in loss", 400))
    after = parts((None, "train.py:33 in loss", 900), (None, "train.py:52 in loss", 1100))
    (row,) = part_differences([before], [after], EXACT)
    assert (row.before_ps, row.after_ps, row.status) == (500, 1000, "slower")
    assert (row.layer, row.source_line) == (None, "train.py:52 in loss")
    # What became less is where it was.
    (row,) = part_differences([after], [before], EXACT)
    assert (row.status, row.source_line) == ("faster", "train.py:52 in loss")


def test_layers_of_one_function_are_told_by_name_also_where_keras_numbers_them_anew() -> None:
    call = "train.py:9 in call"
    first = parts(("net/dense_1", call, 800), ("net/dense_2", call, 400), ("adam", None, 100))
    again = parts(("net/dense_7", call, 820), ("net/dense_8", call, 420), ("adam", None, 100))
    after = parts(("net/dense_3", call, 820), ("net/dense_4", call, 900), ("adam", None, 100))
    rows = part_differences([first, of_run(again, "again")], [after], EXACT)
    assert [(row.layer, row.source_line, row.status) for row in rows] == [
        ("net/dense_4", call, "slower"),
        ("net/dense_3", call, "same"),
        ("adam", None, "same"),
    ]
    ops_before = ops(
        *(op(f"net/conv_{at}_1/Conv", ps=ps) for at, ps in ((6, 800), (7, 400), (8, 200))),
        op("adam_1/Mul_2", ps=100),
        op("adam_1/Mul_8", ps=90),
    )
    ops_after = ops(
        *(op(f"net/conv_{at}_2/Conv", ps=ps) for at, ps in ((2, 400), (1, 800), (3, 200))),
        op("adam/Mul_8", ps=90),
    )
    # The layer has another number, also where not all of its ops are on both sides.
    compared = op_differences([ops_before], [ops_after], EXACT)
    assert {row.op: (row.status, row.before_ps) for row in compared} == {
        "net/conv_1_2/Conv": ("same", 400),
        "net/conv_2_2/Conv": ("same", 200),
        "net/conv_3_2/Conv": ("same", 100),
        "adam/Mul_8": ("same", 45),
        "adam/Mul_2": ("gone", 50),
    }
    # Of three one is gone: nobody knows which.
    fewer = parts(("net/dense_5", call, 820), ("net/dense_6", call, 400), ("net/dense_7", call, 9))
    rows = part_differences([first], [fewer], EXACT)
    assert Counter(row.status for row in rows) == {"new": 3, "gone": 3}


def test_a_model_that_several_functions_apply_is_told_by_these() -> None:
    first, second = "train.py:31 in loss", "train.py:50 in penalty"
    before = parts(("net/a", first, 800), ("net/b", first, 400))
    after = parts(*(("net/" + name, line, 600) for name in "ab" for line in (first, second)))
    rows = part_differences([before], [after], EXACT)
    assert [(row.layer, row.source_line, row.status, row.after_ps) for row in rows] == [
        (None, second, "new", 600),
        (None, first, "same", 600),
    ]


# Words


def captures(*lengths: float, factors: tuple[float, ...] = (0.999, 1.0, 1.001)) -> list[Report]:
    """Captures that differ by so much of steps of these lengths."""
    return [
        of_run(report(*(factor * length for length in lengths)), f"run {factor} {sum(lengths):g}")
        for factor in factors
    ]


def disturbed(made: Report, ratio: float | None, sentences: tuple[str, ...] = ()) -> Report:
    """A capture in which other processes took this share of the GPU time."""
    cost = None if ratio is None else loss(ratio, "no_core")
    busy = finding(code="other-processes", loss=cost, sentences=sentences)
    return replace(made, findings=(busy,))


STEPS = [100.0, 101, 102, 103, 104, 105, 106, 107, 108, 109]
DISTURBED_STEPS = [900.0 if place in (3, 7) else 1.1 * ms for place, ms in enumerate(STEPS)]
APART = (0.9, 1, 1.1)
FAR_APART = (0.7, 1.3)
SHORT, LONG = of_run(report(10, 11), "short"), of_run(report(100, 101), "long")
SIDES: dict[str, tuple[list[Report], list[Report]]] = {
    "no change": (captures(100, 101), captures(100.1, 101.1)),
    "one capture of each side": (captures(100, 101)[:1], captures(104, 105)[:1]),
    "captures that differ too much": (
        captures(90, 91, factors=APART),
        captures(100, 101, factors=APART),
    ),
    "single steps": ([report(10)], [report(12)]),
    "more than a quarter longer": ([SHORT], [of_run(report(13.2, 13.2), "other")]),
    "any two captures differ much": (
        captures(100, 101, factors=FAR_APART),
        captures(200, 202, factors=(0.7, 1.5)),
    ),
    "one of each side is as long": (
        captures(100, 101, factors=FAR_APART),
        captures(200, 202, factors=(0.6, 1.5)),
    ),
    "long steps in each capture": (captures(*STEPS), captures(*DISTURBED_STEPS)),
    "long steps in one capture, and the others are slower": (
        captures(*STEPS),
        [*captures(*(1.1 * ms for ms in STEPS))[:2], *captures(*DISTURBED_STEPS)[2:]],
    ),
    "long steps in one capture": (
        captures(*STEPS),
        [*captures(*STEPS)[:2], *captures(*(ms / 1.1 for ms in DISTURBED_STEPS))[2:]],
    ),
    "one of two captures is disturbed": (
        [report(10, 12), disturbed(of_run(report(30, 30), "other"), None)],
        [of_run(report(10, 12), "after")],
    ),
    "disturbed": ([disturbed(LONG, 0.3)], [disturbed(SHORT, 0.3)]),
    "disturbed by its own processes": ([disturbed(LONG, 0.3, ("started",))], [SHORT]),
}
"""What is before and after, by what it is."""


def test_what_is_said_of_two_sides(golden: Callable[[str, str], None]) -> None:
    screens = (
        render_section(screen_of(compare(*sides))[0], width=100, color=False)
        for sides in SIDES.values()
    )
    texts = (f"# {name}\n\n{shown}" for name, shown in zip(SIDES, screens, strict=True))
    golden("comparisons.txt", "\n".join(texts))


def of_states(compute_ms: float, waits_ms: float, name: str, *factors: float) -> list[Report]:
    """Captures whose steps compute and wait for input for so long, and vary by a millisecond."""
    made = []
    for factor in factors:
        states = [
            {"compute": round(compute_ms * factor * MS), "input": round((waits_ms + n % 2) * MS)}
            for n in range(6)
        ]
        rows = [step_of_states(number, of, "a") for number, of in enumerate(states)]
        made.append(of_run(with_rows(*rows), f"{name} {factor}"))
    return made


def test_a_state_within_noise_is_the_reason_of_a_change_of_which_it_is_a_quarter() -> None:
    comparison = compare(of_states(50, 50, "a", 0.9, 1, 1.1), of_states(50, 90, "b", 0.9, 1, 1.1))
    assert comparison.step.direction == "slower"
    assert "because the devices wait 40.0 ms more for input" in verdict_of(comparison)
    unsure = tuple(replace(row, direction="none") for row in comparison.states)
    assert "because the devices wait 40" in verdict_of(replace(comparison, states=unsure))
    less = tuple(replace(row, difference_ps=row.difference_ps // 5) for row in unsure)
    assert "because" not in verdict_of(replace(comparison, states=less))


def reasons(*states_ms: tuple[str, float], **changes: Any) -> str:
    """Why steps take 40 ms more, in states that do so for so long, beyond noise."""
    comparison = compare(of_states(50, 50, "a", 1, 1.001), of_states(50, 90, "b", 1, 1.001))
    step = replace(comparison.step, direction="slower", low_ratio=0.3, high_ratio=0.5)
    states = tuple(state(key, round(ms * MS), "slower") for key, ms in states_ms)
    parts = {"step": step, "states": states, "devices": (), "parts": (), "ops": ()} | changes
    return verdict_of(replace(comparison, **parts)).partition("because ")[2]


def test_a_finding_is_the_reason_of_what_its_states_differ() -> None:
    loops = FindingDifference(
        code="loop-bound",
        status="came",
        title="GPU:0 spends 30.0 of 90.0 ms (33%) in loops",
        clause="GPU:0 spends 29.0 ms more in loops",
        states=("compute", "host_ops"),
        before_ps=None,
        after_ps=29 * MS,
    )
    states = ("host_ops", 20), ("compute", 11), ("input", 10)
    words = reasons(*states, findings=(loops,))
    assert words == f"{loops.clause}, and the devices wait 10.0 ms more for input"
    # Too little of the difference: the states say it.
    less = replace(loops, after_ps=9 * MS)
    assert "in loops" not in reasons(*states, findings=(less,))


def test_layers_that_are_alike_are_one_reason() -> None:
    layers = "net/attention/query", "net/attention/key", "net/attention_1/query", "net/dense"
    parts = tuple(
        WorkDifference("slower", 0, ps * MS, 1.0, 1.0, ps * MS, ps * MS, layer, None)
        for layer, ps in zip(layers, (12, 10, 14, 3), strict=True)
    )
    words = reasons(("compute", 40), parts=parts)
    assert words == "2 layers net/attention* take 36.0 ms longer"


@pytest.mark.parametrize(
    ("lengths_ms", "count"), [((29, 11), 2), ((30, 10), 1), ((29, 9.9), 1), ((14, 13, 12), 2)]
)
def test_reasons_are_two_states_of_a_quarter_until_they_make_three_quarters(
    lengths_ms: tuple[float, ...], count: int
) -> None:
    words = reasons(*zip(("input", "launch", "sync"), lengths_ms, strict=False))
    assert words.count(" ms more ") == count


def test_a_change_of_the_typical_step_has_no_reasons() -> None:
    step = step_of(100 * MS, 40 * MS, "slower")
    assert reasons(("input", 30), step=step).startswith("the devices wait 30.0 ms more")
    assert reasons(("input", 30), step=replace(step, measure="typical")) == ""


@pytest.mark.parametrize(
    ("slow_ms", "is_probable"), [((60,), False), ((60,) * 5, True), ((5000,), False)]
)
def test_one_slow_step_makes_no_change_probable(
    slow_ms: tuple[float, ...], is_probable: bool
) -> None:
    """The typical step, too, takes a quarter more."""
    steps = [10.0 + n % 3 for n in range(10)]
    before, after = report(*steps), of_run(report(*steps[len(slow_ms) :], *slow_ms), "after")
    assert compare([before], [after]).step.is_probable is is_probable


def of_device(name: str, difference_ms: float, status: Any = "both") -> DeviceDifference:
    of_input = DeviceState("input", 0, round(difference_ms * MS), round(difference_ms * MS))
    return DeviceDifference(name, status, (of_input,))


def test_devices_with_half_of_the_largest_difference_are_named() -> None:
    devices = (of_device("GPU:0", 40), of_device("GPU:1", 20), of_device("GPU:2", 19.9))
    words = reasons(("input", 30), devices=(*devices, of_device("GPU:3", 90, "new")))
    assert words.startswith("GPU:0, 1 wait 30.0 ms more for input")
    every = tuple(of_device(f"host-{n}/GPU:0", 40) for n in range(5))
    assert reasons(("input", 30), devices=every).startswith("all 5 GPUs wait 40.0 ms more")
    some = (*every, of_device("host-5/GPU:0", 1))
    assert reasons(("input", 30), devices=some).startswith("5 devices wait 40.0 ms more")
    few = some[-3:]
    assert reasons(("input", 30), devices=few).startswith("host-3/GPU:0; host-4/GPU:0 wait ")


@pytest.mark.parametrize(
    ("path_ms", "status", "words"),
    [
        (20, "slower", "dense takes 7.00 ms longer"),
        (19.9, "slower", "the devices compute 40.0 ms longer"),
        (40, "same", "the devices compute 40.0 ms longer"),
        (40, "new", "the new dense takes 7.00 ms"),
        (40, "gone", "dense is gone, which took 7.00 ms"),
    ],
)
def test_a_layer_with_half_of_the_difference_of_compute_is_named_instead(
    path_ms: float, status: Any, words: str
) -> None:
    (row, *_) = part_differences(
        [parts(("dense", None, 100))], [parts(("dense", None, 200))], EXACT
    )
    row = replace(row, status=status, difference_ps=7 * MS, path_ps=round(path_ms * MS))
    assert reasons(("compute", 40), parts=(row,)).startswith(words)


def test_what_is_only_probably_slower_has_the_states_that_differ_most() -> None:
    comparison = compare(of_states(50, 5, "a", 0.7, 1.3), of_states(100, 5, "b", 0.75, 1.5))
    verdict = verdict_of(comparison)
    assert "probably slower: the devices compute " in verdict
    assert all(row.direction == "none" for row in comparison.states)
    # Also what is less than half of it.
    less = tuple(
        replace(row, difference_ps=row.difference_ps * 2 // 5) for row in comparison.states
    )
    assert "probably slower: the dev" in verdict_of(replace(comparison, states=less))


def test_functions_without_a_name_are_told_by_their_lines() -> None:
    before = parts((None, "train.py:31", 600), (None, "train.py:36 in <lambda>", 400))
    after = parts((None, "train.py:31", 900), (None, "train.py:36 in <lambda>", 400))
    rows = part_differences([before], [after], EXACT)
    assert [(row.source_line, row.status) for row in rows] == [
        ("train.py:31", "slower"),
        ("train.py:36 in <lambda>", "same"),
    ]
