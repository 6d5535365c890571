"""What holds of every run, recorded or written: each is read, recomputed and analyzed once.

A report has, to the picosecond, the numbers of an obvious recomputation from the raw planes; its amounts are sums over
the ledger; it is valid by its schema, comes back after it was saved, fits a screen, and can be redacted.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from msgspec import to_builtins

import traceview
from scripts.scenarios import SCENARIOS, Scenario
from scripts.scenarios.headlines import SHARES
from tests.charts import check as check_lanes
from tests.device_times import flat_times
from tests.document.test_terminal import fits
from tests.gap_causes import causes_of_gaps
from tests.input_stages import recorded_stages
from tests.ledger import ledgers
from tests.ledger.ledgers import states_of_path
from tests.oracle import recorded_answer, run_answer
from tests.oracle.input import empty_ratios, stage_times, step_waits, work_ratio
from tests.oracle.reading import Host, read_hosts
from traceview.analysis.exchange.transfers import TOP_SOURCES
from traceview.analysis.facts.input_supply import supply_of
from traceview.analysis.facts.run import IdleAttribution
from traceview.analysis.facts.selection import select
from traceview.analysis.measures.context import Context
from traceview.analysis.measures.device_report import COPIES
from traceview.analysis.measures.idle_report import Idle
from traceview.analysis.rules.finding import Finding
from traceview.analysis.rules.words import Lost, tokens_of
from traceview.document import numbers
from traceview.ledger.states import BY_KEY, KEYS
from traceview.ledger.table import Ledger
from traceview.report import build
from traceview.report.document import screen_of
from traceview.report.model import Report
from traceview.report.redaction import redacted
from traceview.report.saved import load_report, schema_of, to_json
from traceview.trace.model import StepRange, Trace, WindowKind
from traceview.trace.reading.load import load
from traceview.trace.state import State

FOLDER = Path(__file__).resolve().parent.parent / "fixtures"
FIXTURES = sorted(path.parent.name for path in FOLDER.glob("*/plugins"))
REAL = ["bert-8xV100", "jax-8xMI300X", "jax-gemm-1of8"]
BROKEN = ["broken/concatenated-twice", "broken/host-plane-missing"]
VALIDATOR = Draft202012Validator(json.loads(schema_of(Report, "traceview report")))
VALIDATED = {*FIXTURES, *REAL, *list(SCENARIOS)[::4]}
"""Runs whose reports are validated: it takes ten times as long as to read one, which checks as much."""
MOST_HEADLINE_WORDS = 20
OTHER_WINDOWS = ["devices", "trace"]
SHARED = pytest.mark.shared
# Steps left out because events were dropped are a rule of ours that the raw planes do not hold.
OWN_STATISTICS = ["dropped_events"]
STEP_FIELDS = ("host", "number", "recorded_number", "start_ps", "duration_ps", "kind")
OP_FIELDS = (
    *("device", "class", "op", "op_type", "kernel"),
    *("count", "total_ps", "mean_ps", "p95_ps", "bytes"),
)


def same_report(report: Report, answer: dict[str, Any], *, statistics: bool = True) -> None:
    assert to_builtins(report.windows) == tuple(answer["windows"])
    same_devices(report, answer["device_time"]["devices"])
    same_steps(report, answer["steps"], statistics=statistics)
    same_transfers(report, answer["transfers"], statistics=statistics)
    same_balance(report, answer["balance"], statistics=statistics)
    same_precision(report, answer["precision"], statistics=statistics)
    same_collectives(report, answer["collectives"], statistics=statistics)
    if statistics:
        same_ledger(report, answer["ledger"])
        same_op_steps(report, answer["op_steps"])
    rows = report.results.ops.rows if report.results.ops else ()
    assert {op_values(to_builtins(row)) for row in rows} == set(map(op_values, answer["ops"]))


def same_op_steps(report: Report, expected: list[dict[str, Any]]) -> None:
    result = report.results.op_steps
    names = ("class", "op", "op_type", "kernel")
    rows = [to_builtins(row) for row in (result.rows if result else ())]
    by_name = {tuple(row[name] or "" for name in names): row for row in rows}
    if result:
        assert len(rows) + result.left_out_count == len(expected)
    for expected_row in expected:
        row = by_name.get(tuple(expected_row[name] for name in names))
        if row is None:
            assert result is not None
            assert expected_row["ps_per_step"] <= result.left_out_ps_per_step
            continue
        for key in ("device_count", "count", "ps_per_step", "path_ps"):
            assert row[key] == expected_row[key], (row["op"], key)
        if expected_row["error_ps"] is not None:
            assert row["error_ps"] == pytest.approx(expected_row["error_ps"], rel=1e-6, abs=0.06)


def same_value(value: Any, expected: Any) -> bool:
    """Whether a ratio is equal to twelve digits, and anything else exactly."""
    if isinstance(expected, float | Fraction):
        return bool(value == pytest.approx(float(expected), abs=1e-12))
    return bool(value == expected)


def same_devices(report: Report, expected: list[dict[str, Any]]) -> None:
    assert report.results.device_time is not None
    rows = {(row.host, row.device): row for row in report.results.device_time.devices}
    assert set(rows) == {(row["host"], row["device"]) for row in expected}
    for expected_row in expected:
        row = flat_times(rows[expected_row["host"], expected_row["device"]])
        for key, value in expected_row.items():
            assert same_value(row[key], value), (row["device"], key)


def same_steps(report: Report, expected: dict[str, Any], *, statistics: bool) -> None:
    steps = report.results.steps
    if steps is None:
        assert not expected["count"]
        return
    keys = ["method", "basis", "count", *(["used_count", "median_ps"] if statistics else [])]
    assert {key: getattr(steps, key) for key in keys} == {key: expected[key] for key in keys}
    assert [tuple(getattr(step, key) for key in STEP_FIELDS) for step in steps.steps] == [
        tuple(step[key] for key in STEP_FIELDS) for step in expected["steps"]
    ]
    is_ready = asks_for_ready_batches(report)
    for step, expected_step in zip(steps.steps, expected["steps"], strict=True):
        states = {row["device"]: row["states"] for row in expected_step["devices"]}
        for row in step.devices:
            own = states.pop(row.device)
            assert row.states == (dispatched(own) if is_ready else own), row.device
        # What lies outside of the window has no state.
        assert not any(states.values())


def same_idle(
    trace: Trace, attribution: IdleAttribution, result: Idle | None, expected: list[dict[str, Any]]
) -> None:
    """Every gap of every device, and what the report makes of them."""
    rows = result.devices if result else ()
    assert [row.device for row in rows] == [row["device"] for row in expected]
    gaps_of = {trace.device_key(device): gaps for device, gaps in attribution.gaps.items()}
    for row, expected_row in zip(rows, expected, strict=True):
        for key in ("idle_ps", "gap_count", "longest_gap_ps"):
            assert getattr(row, key) == expected_row[key], (row.device, key)
        gaps = gaps_of[row.device]
        parts = causes_of_gaps(gaps)
        assert [
            (int(start), int(end - start), _by_cause(parts[:, i]))
            for i, (start, end) in enumerate(zip(gaps.start_ps, gaps.end_ps, strict=True))
        ] == [
            (gap["start_ps"], gap["duration_ps"], gap["causes"])
            for gap in sorted(expected_row["gaps"], key=lambda gap: gap["start_ps"])
        ]
        assert sum(row.states.values()) == row.idle_ps
        for gap in row.gaps:
            assert sum(gap.states.values()) == gap.duration_ps
            assert max(gap.states.values()) == gap.states[gap.state]


def _by_cause(picoseconds: np.ndarray[Any, np.dtype[np.int64]]) -> dict[str, int]:
    return {State(i).key: int(value) for i, value in enumerate(picoseconds) if value}


def same_transfers(report: Report, expected: list[dict[str, Any]], *, statistics: bool) -> None:
    times, transfers = report.results.device_time, report.results.transfers
    rows = {row.device: row.activity or {} for row in (times.devices if times else ())}
    for expected_row in expected:
        sources = [
            source
            for source in (transfers.sources if transfers else ())
            if source.device == expected_row["device"]
        ]
        for name in COPIES:
            direction = to_builtins(rows[expected_row["device"]][name])
            for key, value in expected_row[name].items():
                if statistics or key != "exposed_ratio":
                    assert same_value(direction[key], value), (expected_row["device"], name, key)
            if len(sources) < TOP_SOURCES:
                own = [source for source in sources if source.direction == name]
                assert sum(source.exposed_ps for source in own) == direction["exposed_ps"]
                assert sum(source.count for source in own) == direction["count"]


def same_collectives(report: Report, expected: dict[str, Any], *, statistics: bool) -> None:
    result = report.results.collectives
    if result is None:
        assert expected["count"] == 0
        return
    for key, value in expected.items():
        if statistics or "per_step" not in key:
            assert same_value(getattr(result, key), value), key


def same_precision(report: Report, expected: list[dict[str, Any]], *, statistics: bool) -> None:
    """Of used steps, as far as those are alike."""
    if not statistics:
        return
    precision = report.results.precision
    rows = precision.devices if precision else ()
    assert [row.device for row in rows] == [row["device"] for row in expected]
    for row, expected_row in zip(rows, expected, strict=True):
        by_precision = {name: ps for name, ps in row.precision_ps.items() if ps}
        assert by_precision == expected_row["precision_ps"], row.device
        assert row.tensor_core_ps == expected_row["tensor_core_ps"]
        assert sum(row.precision_ps.values()) == row.compute_ps


def same_balance(report: Report, expected: dict[str, Any] | None, *, statistics: bool) -> None:
    """What is from used steps is compared only where those are alike."""
    result = report.results.balance
    assert (result is None) == (expected is None)
    if result is None or expected is None:
        return
    for key, value in expected.items():
        if key == "devices":
            assert [row.device for row in result.devices] == [row["device"] for row in value]
            if statistics:
                means = [row.compute_ps_per_step for row in result.devices]
                assert means == [row["compute_ps_per_step"] for row in value]
        else:
            assert same_value(getattr(result, key), value), key


def dispatched(states: dict[str, int]) -> dict[str, int]:
    """The states where the pipeline is no bottleneck, so that asking for a batch that is ready is dispatch.

    Whether it is one `same_supply` proves.
    """
    result = {key: ps for key, ps in states.items() if key != "input"}
    if "input" in states:
        result["host_ops"] = result.get("host_ops", 0) + states["input"]
    return result


def asks_for_ready_batches(report: Report) -> bool:
    """Whether no time of a run is for input."""
    sums = report.results.ledger
    return sums is not None and "input" not in sums.by_state


def same_ledger(report: Report, expected: dict[str, Any]) -> None:
    """The mean step of each device by state, and whom it waits for."""
    result = report.results.ledger
    if result is None:
        assert not expected["gpu_time_ps"]
        return
    is_ready = asks_for_ready_batches(report)
    total = dispatched(expected["by_state"]) if is_ready else expected["by_state"]
    assert (result.gpu_time_ps, result.by_state) == (expected["gpu_time_ps"], total)
    rows = [to_builtins(row) for row in result.devices]
    assert [row["device"] for row in rows] == [row["device"] for row in expected["devices"]]
    for row, expected_row in zip(rows, expected["devices"], strict=True):
        for key, value in expected_row.items():
            if key == "states" and is_ready:
                # The means of two parts are rounded apart.
                own = dispatched(value)
                assert row[key].keys() == own.keys()
                assert all(abs(row[key][state] - own[state]) <= 1 for state in own)
            else:
                assert same_value(row[key], value), (row["device"], key)


def same_path(ledger: Ledger, report: Report, expected: list[dict[str, Any]]) -> None:
    """What the path of each step consists of."""
    is_ready = asks_for_ready_batches(report)
    found = states_of_path(ledger)
    assert found == {
        (row["host"], row["step"]): dispatched(row["states"]) if is_ready else row["states"]
        for row in expected
    }
    assert [sum(states.values()) for states in found.values()] == [
        row["duration_ps"] for row in expected
    ]


def same_segments(ledger: Ledger, expected: list[dict[str, Any]]) -> None:
    """The state of each device at every instant, as the device itself and its host show it."""
    assert list(ledger.keys(ledger.devices)) == [row["device"] for row in expected]
    for device, row in zip(ledger.devices, expected, strict=True):
        columns = ledger.columns.chosen(ledger.rows_of(device))
        opens = np.ones(columns.count, dtype=np.bool_)
        opens[1:] = columns.state[1:] != columns.state[:-1]
        found = zip(columns.start_ps[opens].tolist(), columns.state[opens].tolist(), strict=True)
        assert [(start, KEYS[state]) for start, state in found] == [
            (start, state) for start, _, state in row["segments"]
        ]


def op_values(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row of ops without a difference between an empty name and none."""
    return tuple(
        row[key] or None if key in ("op", "op_type", "kernel") else row[key] for key in OP_FIELDS
    )


def _contains(found: Any, truth: Any, where: str = "") -> list[str]:
    """What of a nested truth is not found; ratios to three digits."""
    if isinstance(truth, dict) and isinstance(found, dict):
        return [
            line
            for key, value in truth.items()
            for line in _contains(found.get(key, "absent"), value, f"{where}/{key}")
        ]
    if isinstance(truth, float) and isinstance(found, float):
        return [] if abs(found - truth) < 0.0005 else [f"{where}: {found} is not {truth}"]
    return [] if found == truth else [f"{where}: {found} is not {truth}"]


def differences(answer: dict[str, Any], truth: dict[str, Any]) -> list[str]:
    """Where an answer is not the truth of a scenario."""
    steps, result = dict(truth.get("steps", {})), []
    for host, window in truth.get("windows", {}).items():
        (found,) = [row for row in answer["windows"] if row["host"] == host]
        found = {**found, "window_ps": found["end_ps"] - found["start_ps"]}
        result += _contains(found, window, f"windows/{host}")
    rows = answer["steps"]["steps"]
    for key in set(steps) & {"start_ps", "duration_ps", "number", "recorded_number", "kind"}:
        result += _contains([row[key] for row in rows], steps.pop(key), f"steps/{key}")
    result += _contains(answer["steps"], steps, "steps")
    devices = {row["device"]: row for row in answer["device_time"]["devices"]}
    return result + _contains(devices, truth.get("device_time", {}), "device_time")


@dataclass(frozen=True)
class Run:
    """A run, with all that is made of it once."""

    name: str
    logdir: Path
    scenario: Scenario | None = None
    window: WindowKind = "auto"

    @cached_property
    def made(self) -> ledgers.Run:
        return ledgers.run_of(self.logdir, self.window)

    @cached_property
    def report(self) -> Report:
        trace = self.made.trace
        return build.analyze(trace, window=self.window, top=None, lanes=self.window == "auto")

    @cached_property
    def answer(self) -> dict[str, Any]:
        return recorded_answer(self.logdir, self.window)

    def check(self) -> None:
        """The report is the answer of the oracle."""
        same_report(self.report, self.answer, statistics=self.name not in OWN_STATISTICS)
        same_idle(
            self.made.trace, self.made.context.idle, self.report.results.idle, self.answer["idle"]
        )
        if self.name not in OWN_STATISTICS:
            same_path(self.made.context.ledger, self.report, self.answer["path"])
        same_segments(self.made.base, self.answer["segments"])


@pytest.fixture(
    scope="module",
    params=[*FIXTURES, *SCENARIOS, *(pytest.param(name, marks=SHARED) for name in REAL)],
)
def run(
    request: pytest.FixtureRequest, shared_traces: Path, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    name = request.param
    if name in SCENARIOS:
        scenario, folder = SCENARIOS[name](), tmp_path_factory.mktemp("zebra")
        scenario.write(folder)
        return Run(name, folder, scenario)
    return Run(name, FOLDER / name if name in FIXTURES else shared_traces / name)


# The numbers


def test_the_oracle_finds_the_truth(run: Run) -> None:
    if run.scenario is not None:
        assert differences(run.answer, run.scenario.truth) == []


def test_the_report_is_the_answer_of_the_oracle(run: Run) -> None:
    run.check()


def test_the_timeline_holds_the_time_of_the_tables(run: Run) -> None:
    if run.report.results.lanes is None:
        assert run.report.skipped["lanes"] == "the trace holds no device event"
    else:
        check_lanes(run.report)


@pytest.mark.parametrize(
    ("name", "window"),
    [
        *product([name for name in FIXTURES if not name.endswith("-4")], OTHER_WINDOWS),
        *(
            pytest.param(name, window, marks=SHARED)
            for name, window in (
                *product(BROKEN, ["auto"]),
                *product([*REAL, *BROKEN], OTHER_WINDOWS),
            )
        ),
    ],
)
def test_other_windows_and_broken_runs(name: str, window: WindowKind, shared_traces: Path) -> None:
    Run(name, (FOLDER if name in FIXTURES else shared_traces) / name, window=window).check()


@pytest.mark.parametrize(
    "name", ["A", "hidden_transfers", "two_hosts", "keras_epochs", "host_runs_ahead"]
)
def test_a_range_of_steps(name: str, tmp_path: Path) -> None:
    files = SCENARIOS[name]().write(tmp_path)
    trace = load(tmp_path)
    report = build.analyze(trace, steps=slice(1, 3), top=None)
    answer = run_answer(list(files), steps=(1, 3))
    same_report(report, answer)
    selection = select(trace, steps=StepRange(1, 3))
    same_path(Context(trace, selection).ledger, report, answer["path"])
    attribution = Context(trace, selection).idle
    same_idle(trace, attribution, report.results.idle, answer["idle"])


# The amounts


def check_loss(ledger: Ledger, finding: Finding) -> None:
    loss = finding.loss
    assert loss is not None
    whole = sum(ledger.gpu_ps_by_device.values())
    if whole:
        assert loss.gpu_time_ratio == loss.gpu_time_ps / whole
    else:
        # Of a run without devices the host's steps are the measure.
        assert (loss.gpu_time_ratio, finding.devices) == (loss.ratio, ())
    if loss.states and whole:
        rows = ledger.rows(states=[BY_KEY[key] for key in loss.states])
        assert loss.gpu_time_ps <= ledger.loss(rows, keeps_waiting=True).ps
        if loss.gain_ps_per_step is not None:
            assert loss.gain_ps_per_step <= ledger.bound_ps(rows)
    # The share is exact; the times are rounded down.
    assert abs(loss.ps_per_step - loss.ratio * loss.step_ps) <= 2
    main = finding.arguments.get("loss")
    if isinstance(main, Lost):
        assert (main.ps, main.of_ps, main.ratio) == (loss.ps_per_step, loss.step_ps, loss.ratio)
        shown = "".join(token.text for token in tokens_of(main))
        amount = f"{numbers.part_of(main.ps, main.of_ps)} ({numbers.percent(main.ratio)}"
        waiting = f", {numbers.time(main.awaited_ps)} of it waiting for a device"
        assert shown == f"{amount}{waiting if main.awaited_ps else ''})"
        assert main.awaited_ps < max(main.ps, 1)


def test_amounts_are_sums_of_the_ledger(run: Run) -> None:
    ledger, report = run.made.ledger, run.report
    for finding in report.findings:
        if finding.loss is not None:
            check_loss(ledger, finding)
    sums = report.results.ledger
    if sums is None:
        return
    assert sums.gpu_time_ps == sum(ledger.gpu_ps_by_device.values())
    assert sum(sums.by_state.values()) == sums.gpu_time_ps
    for device, row in zip(ledger.devices, sums.devices, strict=True):
        assert sum(row.states.values()) == row.step_ps
        for state, ps in ledger.by_state(device).items():
            assert abs(row.states.get(state.key, 0) - ps // (row.step_count or 1)) <= 1


def test_the_headline_is_the_largest_loss(run: Run) -> None:
    """Of those that are sure enough to be more than information, unless few steps make all unsure; half of that of a small step."""
    verdict, steps = run.report.verdict, run.report.results.steps
    has_few_steps = steps is None or steps.used_count < 2
    losses = [
        row.loss.gain / (1 + ("small" in row.sentences[:1]))
        for row in run.report.findings
        if row.loss is not None and (has_few_steps or row.severity != "info")
    ]
    leading = run.report.leading
    assert (leading is None) == (verdict.finding is None)
    if leading is not None and leading.loss is not None:
        assert leading.loss.gain / (1 + ("small" in leading.sentences[:1])) == max(losses)
    if verdict.status == "healthy":
        assert not losses
    if leading is not None and leading.loss is not None and run.name in SHARES:
        lost_ps, gpu_time_ps = SHARES[run.name]
        assert leading.loss.gpu_time_ps == lost_ps
        assert leading.loss.gpu_time_ratio == lost_ps / gpu_time_ps
        assert len(verdict.headline.split()) <= MOST_HEADLINE_WORDS


def test_nothing_is_named_twice(run: Run) -> None:
    codes = [(row.code, row.devices, row.steps) for row in run.report.findings]
    assert len(set(codes)) == len(codes)


# The report


def test_the_report_is_valid_and_comes_back(run: Run, tmp_path: Path) -> None:
    text = to_json(run.report)
    if run.name in VALIDATED:
        assert [error.message for error in VALIDATOR.iter_errors(json.loads(text))] == []
    (tmp_path / "report.json").write_text(text, encoding="utf-8")
    again = load_report(tmp_path / "report.json")
    assert again == run.report
    assert screen_of(again) == screen_of(run.report)


def test_the_first_screen_fits(run: Run) -> None:
    fits(screen_of(run.report))


def test_a_redacted_report_has_sentences_and_no_name(run: Run) -> None:
    hidden = redacted(run.report)
    assert "zebra" not in to_json(hidden)
    for finding in hidden.findings:
        text = f"{finding.title} {finding.explanation} {finding.action} {finding.advice}"
        assert not re.search(r"\b(?:text|sentence|message|value)_\d", text), text


# Input waits and stages


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
    ours: dict[str, tuple[int, int]] = {}
    for stage in recorded_stages(trace):
        self_ps, waiting_ps = ours.get(stage.name, (0, 0))
        ours[stage.name] = (self_ps + stage.self_ps, waiting_ps + stage.waiting_ps)
    assert ours == stage_times(host)


@pytest.mark.parametrize("name", [*FIXTURES, *PIPELINES])
def test_input(name: str, tmp_path: Path) -> None:
    folder = FOLDER / name if name in FIXTURES else tmp_path
    if name in PIPELINES:
        SCENARIOS[name]().write(folder)
    (host,) = read_hosts(list(folder.rglob("*.xplane.pb")))
    assert stage_times(host)
    same_supply(folder, host)
