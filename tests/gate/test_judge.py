"""Each kind of condition on both sides of its limit, on a hand-made report."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from msgspec.structs import replace

from scripts.step_noise import REPEATED, recorded
from tests.charts import MS
from tests.reports import bare_report, finding, full_report, loss, of_run, step, step_states
from traceview.analysis.registry import RULES
from traceview.comparison.gate.ci import message
from traceview.comparison.gate.conditions import condition_of
from traceview.comparison.gate.judge import Subject, judged
from traceview.comparison.gate.result import GateResult, JudgedRow, Judgement
from traceview.report.model import Report

FULL = full_report()


def judge(
    *texts: str, report: Report = FULL, baseline: Report | None = None, **options: Any
) -> GateResult:
    before = Subject("main", baseline) if baseline else None
    return judged(Subject("logs", report), map(condition_of, texts), before, **options)


def only(text: str, **options: Any) -> tuple[Judgement, JudgedRow]:
    (judgement,) = judge(text, **options).judgements
    return judgement, judgement.rows[0]


def with_steps(*lengths_ms: float, report: Report = FULL) -> Report:
    """The report with these used steps."""
    steps = report.results.steps
    assert steps is not None
    rows = tuple(
        step(number, int(length * MS), ("GPU:0", "GPU:1"), None)
        for number, length in enumerate(lengths_ms)
    )
    changed = replace(steps, steps=rows, used_count=len(rows), count=len(rows))
    ledger = report.results.ledger
    assert ledger is not None
    states = [step_states(row.number, compute=row.duration_ps) for row in rows]
    results = replace(report.results, steps=changed, ledger=replace(ledger, steps=tuple(states)))
    return replace(report, results=results)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("step_time_ms <= 24", "holds"),
        ("step_time_ms < 24", "fails"),
        ("step_time_ms >= 24", "holds"),
        ("step_time_ms > 24", "fails"),
        ("step_time_ms == 24", "holds"),
        ("step_time_ms != 24", "fails"),
        ("steps.median_ms <= 23.999", "fails"),
        ("busy_ratio >= 0.75", "holds"),
        ("busy_ratio >= 0.7501", "fails"),
        ("busy_ratio[GPU:1] >= 75%", "holds"),
        ("busy_ratio[GPU:2] >= 75%", "unknown"),
        ("device_time.devices.busy_ratio >= 0.75", "fails"),
        ("device_time.devices[GPU:0].busy_ratio >= 0.75", "holds"),
        ("device_time.devices[gpu].busy_ratio >= 0", "holds"),
        ("device_time.devices[GPU:9].busy_ratio >= 0", "unknown"),
        ("device_time.devices[GPU:0].d2d_bytes <= 1 MB", "unknown"),
        ("ledger.devices.states.compile <= 0 ms", "holds"),
        ("ledger.devices[GPU:0].states[compile] > 0 ms", "fails"),
        ("path.input_ratio <= 1", "unknown"),
        ("state.device_wait_ms <= 2", "holds"),
        ("state.device_wait_ms <= 1.9", "fails"),
        ("state.input_ratio[GPU:0] <= 12.5%", "holds"),
        ("state.no_work_ms == 0", "holds"),
        ("capture.quality == degraded", "holds"),
        ("capture.quality == ok", "fails"),
        ("outside_view.devices.power_watts <= 300", "unknown"),
        ("results.outside_view absent", "holds"),
        ("findings absent", "fails"),
        ("finding:few-steps absent", "fails"),
        ("finding:retracing absent", "holds"),
        ("finding:critical absent", "fails"),
        ("examples_per_second >= 1", "holds"),
    ],
)
def test_both_sides_of_a_limit(text: str, outcome: str) -> None:
    judgement, _ = only(text)
    assert judgement.outcome == outcome, judgement


def test_what_a_row_says() -> None:
    _, row = only("step_time_ms <= 20")
    assert (row.measured, row.allowed, row.margin) == (
        "24.0 ms",
        "<= 20.0 ms",
        "4.00 ms over (20.0%)",
    )
    assert (row.value, row.limit, row.margin_ratio) == (24 * MS, 20 * MS, -0.2)
    _, row = only("step_time_ms <= 30")
    assert row.margin == "6.00 ms left (20.0%)"
    _, row = only("busy_ratio >= 80%")
    assert (row.where, row.margin) == ("GPU:0", "5 points short")


def test_a_limit_is_met_by_the_same_number() -> None:
    """0.7 as a number of the report is a little less than seven tenths."""
    times = FULL.results.device_time
    assert times is not None
    devices = tuple(replace(row, busy_ratio=0.7) for row in times.devices)
    report = replace(
        FULL, results=replace(FULL.results, device_time=replace(times, devices=devices))
    )
    for text in (
        "busy_ratio >= 0.7",
        "busy_ratio >= 70%",
        "busy_ratio <= 0.70",
        "busy_ratio == 0.7",
    ):
        assert only(text, report=report)[0].outcome == "holds"


def test_every_row_has_to_hold_and_the_nearest_is_shown() -> None:
    rows = FULL.results.device_time
    assert rows is not None
    devices = (replace(rows.devices[0], busy_ratio=0.9), *rows.devices[1:])
    report = replace(
        FULL, results=replace(FULL.results, device_time=replace(rows, devices=devices))
    )
    judgement, row = only("busy_ratio >= 0.8", report=report)
    assert (judgement.outcome, judgement.row_count) == ("fails", 2)
    assert [row.where for row in judgement.rows] == ["GPU:1"]
    judgement, row = only("busy_ratio >= 0.7", report=report)
    assert (judgement.outcome, row.where) == ("holds", "GPU:1")


def test_a_row_without_a_value_is_passed_over_unless_strict() -> None:
    judgement, _ = only("findings.loss.gpu_time_ratio <= 0.9")
    assert judgement.outcome == "holds"
    assert [row.outcome for row in judgement.rows] == ["holds", "unknown", "unknown"]
    judgement, row = only("findings.loss.gpu_time_ratio <= 0.9", strict=True)
    assert (judgement.outcome, row.outcome) == ("unknown", "unknown")
    assert row.where == FULL.findings[1].code


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("step_time_ms <= 3", "no steps: nothing repeats"),
        ("steps.median_ms <= 3", "no steps: nothing repeats"),
        ("busy_ratio >= 0.1", "no device computed"),
        ("finding:unused-gpu absent", "the capture is unusable"),
        ("ops.rows.count >= 1", "no events"),
        ("source.files[a.xplane.pb].sha256 == x", "sha256 is null"),
        ("outside_view.devices.power_watts <= 1", "not in the saved report"),
    ],
)
def test_why_nothing_can_be_judged(text: str, reason: str) -> None:
    result = judge(text, report=bare_report())
    assert (result.outcome, result.exit_code) == ("unknown", 7)
    assert reason in str(result.judgements[0].rows[0].reason)


def test_codes_and_order() -> None:
    texts = ("busy_ratio >= 0.1", "busy_ratio[GPU:9] >= 0.1", "busy_ratio >= 0.9")
    result = judge(*texts)
    assert [row.outcome for row in result.judgements] == ["fails", "unknown", "holds"]
    assert (result.outcome, result.exit_code) == ("failed", 10)
    assert judge(*texts[:2]).exit_code == 7
    assert judge(texts[0]).exit_code == 0


def test_a_finding_that_was_left_out_on_request_was_made() -> None:
    report = replace(FULL, left_out_findings=("retracing",))
    assert only("finding:retracing absent", report=report)[0].outcome == "fails"


def test_a_severity_means_the_more_severe_ones_too() -> None:
    mild = replace(FULL, findings=(finding(code="few-steps", severity="info"),))
    assert only("finding:warning absent", report=mild)[0].outcome == "holds"
    assert only("finding:info absent", report=mild)[0].outcome == "fails"
    assert only("finding:warning absent")[0].rows[0].measured == "critical (and 1 more)"


def test_a_change_against_a_baseline_on_both_sides_of_its_limit() -> None:
    steady = with_steps(*[100, 100.1, 99.9] * 4)
    for length, outcome in ((104.9, "holds"), (105.2, "fails"), (90, "holds")):
        report = with_steps(*[length, length + 0.1, length - 0.1] * 4)
        judgement, row = only("step_time:+5%", report=report, baseline=steady)
        assert judgement.outcome == outcome
        assert row.allowed == "<= 105 ms"
        assert row.change_ratio == pytest.approx(length / 100 - 1)
        assert row.change_ratio is not None
        assert row.change_least_ratio is not None
        assert row.change_most_ratio is not None
        assert row.change_least_ratio < row.change_ratio < row.change_most_ratio
    faster = with_steps(*[90, 90.1, 89.9] * 4)
    assert only("step_time:-5%", report=faster, baseline=steady)[0].outcome == "fails"
    assert only("step_time:+3ms", report=steady, baseline=faster)[0].outcome == "fails"
    assert only("step_time:+11ms", report=steady, baseline=faster)[0].outcome == "holds"


def test_a_slowdown_within_noise_is_let_pass_unless_strict() -> None:
    noisy, slower = with_steps(*[80, 80, 120, 120] * 3), with_steps(*[92, 92, 132, 132] * 3)
    judgement, row = only("step_time:+5%", report=slower, baseline=noisy)
    assert (judgement.outcome, row.margin) == ("holds", "7.00 ms over (6.7%)")
    assert str(row.reason).startswith("within noise: the 95% interval of the change is -")
    assert str(row.reason).endswith("% or more; --strict fails it")
    judgement, row = only("step_time:+5%", report=slower, baseline=noisy, strict=True)
    assert (judgement.outcome, row.reason) == ("fails", None)


def test_a_single_step_says_nothing_of_noise() -> None:
    one = with_steps(150)
    judgement, row = only("step_time:+5%", report=one, baseline=with_steps(100, 101))
    assert judgement.outcome == "unknown"
    assert "single step" in str(row.reason)
    assert only("step_time:+60%", report=one, baseline=with_steps(100, 101))[0].outcome == "holds"


def test_a_change_of_any_other_number_has_no_grace() -> None:
    judgement, row = only("busy_ratio:-5%", baseline=FULL)
    assert (judgement.outcome, judgement.row_count, row.change_ratio) == ("holds", 2, 0.0)
    times = FULL.results.device_time
    assert times is not None
    devices = (replace(times.devices[0], busy_ratio=0.7), *times.devices[1:])
    worse = replace(
        FULL, results=replace(FULL.results, device_time=replace(times, devices=devices))
    )
    judgement, row = only("busy_ratio:-5%", report=worse, baseline=FULL)
    assert (judgement.outcome, row.where) == ("fails", "GPU:0")
    assert only("busy_ratio:-10%", report=worse, baseline=FULL)[0].outcome == "holds"


def test_what_the_baseline_lacks_cannot_be_judged() -> None:
    times = FULL.results.device_time
    assert times is not None
    rows = tuple(
        replace(row, device="GPU:7") if row.device == "GPU:1" else row for row in times.devices
    )
    other = replace(FULL, results=replace(FULL.results, device_time=replace(times, devices=rows)))
    judgement, row = only("busy_ratio:-5%", baseline=other, strict=True)
    assert (judgement.outcome, row.reason) == ("unknown", "the baseline has no GPU:1")
    assert only("step_time:+5%")[1].reason == "no baseline is given"


def test_rows_of_one_name_are_not_paired() -> None:
    """Which of them is which in the baseline, nobody can tell."""
    table = FULL.results.ops
    assert table is not None
    row = table.rows[0]
    twice = replace(table, rows=(row, replace(row, total_ps=2 * row.total_ps)))
    report = replace(FULL, results=replace(FULL.results, ops=twice))
    rows = only("ops.rows.total_ms:+5%", report=report, baseline=FULL)[0].rows
    assert {row.reason for row in rows} == {"several rows have this name"}


def test_runs_on_other_hardware_are_not_compared() -> None:
    times = FULL.results.device_time
    assert times is not None
    fewer = replace(times, devices=times.devices[:2])
    small = replace(FULL, results=replace(FULL.results, device_time=fewer))
    result = judge("step_time:+5%", "step_time_ms <= 30", baseline=small)
    assert result.exit_code == 7
    assert result.judgements[0].rows[0].reason == (
        "the runs cannot be compared (devices: 2 before, 6 after)"
    )
    assert result.judgements[1].outcome == "holds"


@pytest.mark.parametrize("name", ["input-bound", "critical"])
def test_a_condition_on_a_finding_holds_without_it(name: str) -> None:
    clean = replace(
        FULL, findings=(finding(code="retracing", severity="info", loss=loss(0.2, "compile")),)
    )
    judgement, row = only(f"findings[{name}].loss.gpu_time_ratio <= 0.1", report=clean, strict=True)
    assert (judgement.outcome, row.measured, row.allowed) == ("holds", "absent", "<= 10.0%")
    assert row.reason == f"no finding {name}"
    assert (
        only("findings[retracing].loss.gpu_time_ratio <= 0.1", report=clean)[0].outcome == "fails"
    )
    none = replace(FULL, findings=())
    judgement, row = only("findings.loss.gpu_time_ratio <= 0.1", report=none, strict=True)
    assert (judgement.outcome, row.reason) == ("holds", "no finding")


def test_a_finding_that_nothing_is_known_of_is_not_judged() -> None:
    text = "findings[input-bound].loss.gpu_time_ratio <= 0.1"
    left_out = replace(FULL, findings=(), left_out_findings=("input-bound",))
    judgement, row = only(text, report=left_out)
    assert (judgement.outcome, row.reason) == (
        "unknown",
        "the report leaves out the finding input-bound, which was made",
    )
    assert only(text, report=bare_report())[1].reason == (
        "the capture is unusable: the trace holds no device event"
    )
    misspelt = replace(FULL, findings=(finding(code="retracing"),))
    judgement, row = only("findings[inptu-bound].loss.gpu_time_ratio <= 0.1", report=misspelt)
    assert (judgement.outcome, row.reason) == (
        "unknown",
        "there is no row inptu-bound in findings, which has retracing",
    )


def test_a_list_of_rows_that_is_cut_says_so() -> None:
    made = tuple(finding(code=code) for code in sorted(RULES)[:10])
    codes = sorted(RULES)
    # A single short one takes no more room than a note that there is one more.
    for count, end in ((8, codes[7]), (9, codes[8]), (10, f"{codes[7]}, …")):
        report = replace(FULL, findings=made[:count])
        _, row = only("findings[nothing].loss.gpu_time_ratio <= 0.1", report=report)
        assert str(row.reason).endswith(f", {end}")


def test_a_message_names_eight_rows_and_counts_the_others() -> None:
    times = FULL.results.device_time
    assert times is not None
    devices = tuple(replace(times.devices[0], device=f"GPU:{number}") for number in range(10))
    report = replace(
        FULL, results=replace(FULL.results, device_time=replace(times, devices=devices))
    )
    said = message(only("busy_ratio >= 99%", report=report)[0]).split("; ")
    assert (len(said), said[0][:5], said[7][:5], said[8]) == (9, "GPU:0", "GPU:7", "2 more")


def test_further_captures_of_a_side_show_how_much_runs_differ() -> None:
    def side(*lengths_ms: float) -> Subject:
        reports = [
            of_run(with_steps(*[length, length + 0.1, length - 0.1] * 4), f"run {length}")
            for length in lengths_ms
        ]
        return Subject("logs", reports[0], tuple(reports[1:]))

    condition = [condition_of("step_time:+5%")]
    alone = judged(side(110), condition, side(100)).judgements[0]
    assert alone.outcome == "fails"
    several = judged(side(110, 90, 130), condition, side(100, 80, 120)).judgements[0]
    assert several.outcome == "holds"
    assert several.rows[0].change_ratio == pytest.approx(0.1)
    assert "within noise" in str(several.rows[0].reason)


def test_a_capture_given_again_is_no_further_evidence() -> None:
    def side(length: float, times: int) -> Subject:
        report = of_run(with_steps(*[length, length + 40, length - 40] * 4), f"run {length}")
        return Subject("logs", report, (report,) * (times - 1))

    condition = [condition_of("step_time:+5%")]
    alone = judged(side(110, 1), condition, side(100, 1)).judgements[0]
    assert alone.outcome == "holds"
    assert judged(side(110, 5), condition, side(100, 5)).judgements[0] == alone


def test_noise_of_recorded_runs_is_no_regression() -> None:
    """Each pair of captures of a program without a change, on shared cores, where whole runs differ by up to half."""
    condition = [condition_of("step_time:+5%")]
    times = FULL.results.device_time
    assert times is not None
    replicas = tuple(replace(row, kind="replica") for row in times.devices)
    on_cpu = replace(
        FULL, results=replace(FULL.results, device_time=replace(times, devices=replicas))
    )
    failed = past_limit = pairs = 0
    for captures in recorded(REPEATED).values():
        sides = [
            Subject("logs", with_steps(*(steps / 1e6).tolist(), report=on_cpu))
            for steps in captures
        ]
        for before, after in permutations(sides, 2):
            (judgement,) = judged(after, condition, before).judgements
            pairs += 1
            failed += judgement.outcome == "fails"
            past_limit += judgement.outcome == "fails" or judgement.is_let_pass
    assert pairs == 540
    assert past_limit >= 0.2 * pairs
    assert failed <= 0.025 * pairs
