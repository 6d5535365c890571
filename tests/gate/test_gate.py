"""Each kind of condition on both sides of its limit, and what GitHub, JUnit readers and programs get of the verdict."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from markdown_it import MarkdownIt
from msgspec import json, structs
from msgspec.structs import replace

from tests.hostile import HOSTILE
from tests.reports import bare_report, full_report, known, of_run, with_results, with_steps
from traceview.comparison.gate import condition_of, judged, outcome_of
from traceview.comparison.gate_document import annotation_lines, gate_section, junit_xml
from traceview.comparison.model import GateResult, JudgedRow, Judgement
from traceview.comparison.noise import Difference, Level, StepLevels
from traceview.comparison.sides import Side
from traceview.document import markdown
from traceview.document.sanitize import dumped
from traceview.report.model import Report
from traceview.report.saved import schema_of

FULL = full_report()


def judge(
    *texts: str, report: Report = FULL, baseline: Report | None = None, **options: Any
) -> GateResult:
    before = Side.of((baseline,), "main") if baseline else None
    return judged(Side.of((report,), "logs"), map(condition_of, texts), before, **options)


def only(text: str, **options: Any) -> tuple[Judgement, JudgedRow]:
    (judgement,) = judge(text, **options).judgements
    return judgement, judgement.rows[0]


HOLDS = (
    *("step_time_ms <= 24", "busy_ratio >= 74%", "memory_peak_gb <= 7", "state.compile_ms <= 0"),
    *("state.device_wait_ms <= 2", "absent_hosts <= 0", "finding:retracing absent"),
    *("finding:retracing <= 0", "examples_per_second >= 1"),
)
FAILS = (
    *("step_time_ms < 24", "busy_ratio > 75%", "memory_peak_gb <= 6", "state.device_wait_ms < 2"),
    *("state.input_ratio <= 12.5%", "finding:few-steps absent", "finding:critical absent"),
    "finding:critical <= 0.1%",
)


@pytest.mark.parametrize("text", [*HOLDS, *FAILS])
def test_both_sides_of_a_limit(text: str) -> None:
    judgement, _ = only(text)
    assert judgement.outcome == ("holds" if text in HOLDS else "fails"), judgement


def with_busy(*ratios: float, run: str = "run") -> Report:
    """The report of a run whose first devices are busy for so much of the window."""
    times = known(FULL.results.device_time)
    devices = [*times.devices]
    for place, ratio in enumerate(ratios):
        devices[place] = replace(devices[place], busy_ratio=ratio)
    return of_run(with_results(FULL, device_time=replace(times, devices=tuple(devices))), run)


def test_every_row_has_to_hold_and_the_nearest_is_shown() -> None:
    """0.7 as a number of the report is a little less than seven tenths."""
    judgement, _ = only("busy_ratio >= 0.8", report=with_busy(0.9))
    assert judgement.outcome == "fails"
    assert [row.where for row in judgement.rows] == ["GPU:1"]
    judgement, row = only("busy_ratio >= 70%", report=with_busy(0.9, 0.7))
    assert (judgement.outcome, row.where) == ("holds", "GPU:1")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("step_time_ms <= 3", "no steps: nothing repeats"),
        ("busy_ratio >= 0.1", "no device computed"),
        ("finding:unused-gpu absent", "the capture is unusable"),
        ("memory_peak_gb <= 1", "its allocator was not recorded"),
        ("state.input_ratio <= 1", "not computed"),
    ],
)
def test_why_nothing_can_be_judged(text: str, reason: str) -> None:
    result = judge(text, report=bare_report())
    assert (result.outcome, result.exit_code) == ("unknown", 7)
    assert reason in str(result.judgements[0].rows[0].reason)


def test_steps_that_are_all_left_out_are_said_with_each_reason_once() -> None:
    report = with_steps(3, 3, 3)
    steps = known(report.results.steps)
    for reasons, words in (
        (("first", "first", "dropped"), "no step is used: first, dropped"),
        ((None, None, None), "no step is used"),
    ):
        rows = zip(steps.steps, reasons, strict=True)
        left_out = tuple(replace(row, used=False, excluded=reason) for row, reason in rows)
        without = with_results(report, steps=replace(steps, steps=left_out, used_count=0))
        result = judge("step_time_ms <= 3", report=without)
        assert result.judgements[0].rows[0].reason == words
        # Of a change it is no matter on which side.
        for before, after, where in (
            (without, without, ""),
            (report, without, ""),
            (without, of_run(report, "other"), "in the baseline: "),
        ):
            result = judged(Side.of([after]), [condition_of("step_time:+5%")], Side.of([before]))
            row = result.judgements[0].rows[0]
            assert (row.outcome, row.reason) == ("unknown", f"{where}{words}")


def side(*lengths_ms: float) -> Side:
    """A capture of each length, whose steps vary by a tenth of a millisecond."""
    reports = [
        of_run(with_steps(*[length, length + 0.1, length - 0.1] * 4), f"run {length} {number}")
        for number, length in enumerate(lengths_ms)
    ]
    return Side.of(reports, "logs")


@pytest.mark.parametrize(
    ("text", "before", "after", "outcome", "code"),
    [
        # Three captures of each side that hardly differ: the change decides.
        ("step_time:+5%", (100, 100.1, 99.9), (104.8, 104.9, 104.7), "holds", 0),
        ("step_time:+5%", (100, 100.1, 99.9), (105.4, 105.3, 105.5), "fails", 10),
        ("step_time:-5%", (100, 100.1, 99.9), (90, 90.1, 89.9), "fails", 10),
        # They differ by more than the limit: only what is far from it has a verdict.
        ("step_time:+5%", (90, 100, 110), (95, 105, 115), "no_verdict", 9),
        # One capture: 4% are assumed, which makes 17%.
        ("step_time:+5%", (100,), (110,), "no_verdict", 9),
        ("step_time:+5%", (100,), (120,), "fails", 10),
        # One against three that hardly differ.
        ("step_time:+5%", (100, 100.1, 99.9), (103,), "holds", 0),
    ],
)
def test_a_change_of_the_step_on_both_sides_of_its_limit(
    text: str, before: tuple[float, ...], after: tuple[float, ...], outcome: str, code: int
) -> None:
    result = judged(side(*after), [condition_of(text)], side(*before))
    row = result.judgements[0].rows[0]
    assert (result.judgements[0].outcome, result.exit_code) == (outcome, code), row
    change = sum(after) / len(after) / (sum(before) / len(before)) - 1
    assert row.change_ratio == pytest.approx(change, abs=1e-4)
    if outcome == "no_verdict":
        assert "95% interval -" in str(row.reason)
        assert str(row.reason).endswith("give 3 captures of each side") == (len(after) < 3)


@pytest.mark.parametrize(
    ("low", "value", "high", "limit", "sign", "outcome"),
    [
        (0.001, 0.06, 0.12, 0.05, 1, "fails"),
        (-0.001, 0.06, 0.12, 0.05, 1, "no_verdict"),
        (-0.05, 0.0, 0.05, 0.05, 1, "holds"),
        (-0.051, 0.0, 0.051, 0.05, 1, "no_verdict"),
        (-0.03, 0.0, 0.06, 0.05, 1, "holds"),
        (-0.3, -0.1, 0.05, 0.05, 1, "holds"),
        (-0.12, -0.06, -0.001, -0.05, -1, "fails"),
        (None, 0.0, None, 0.05, 1, "unknown"),
    ],
)
def test_what_a_gate_says_of_an_interval(
    low: float | None, value: float, high: float | None, limit: float, sign: int, outcome: str
) -> None:
    assert outcome_of(Difference(value, low, high), limit, sign) == outcome


def test_earlier_runs_show_how_much_runs_differ() -> None:
    condition = [condition_of("step_time:+5%")]
    alike = [[StepLevels(Level(of), Level(of)) for of in (0.0, 0.001, -0.001)]]
    result = judged(side(103), condition, side(100), earlier=alike)
    assert result.outcome == "passed"
    assert judged(side(103), condition, side(100)).outcome == "no_verdict"


def test_the_value_the_change_and_the_interval_are_of_one_step() -> None:
    steps = [*(100.0, 101, 102, 103, 104, 105) * 2]
    cases = (
        # Half of the steps are ten times as long: the mean step, whose change is in its interval.
        (
            [1000.0 + n if n % 2 else 100.0 + n for n in range(12)],
            "no_verdict",
            252,
            "95% interval",
        ),
        # One step is: the typical step holds.
        ([*steps[:11], 1000.0], "holds", 102, "of the typical step, without the slowest third"),
    )
    for lengths, outcome, value_ms, words in cases:
        sides = [
            Side.of([of_run(with_steps(*of), f"{place} {of}") for place, of in enumerate(captures)])
            for captures in ([steps] * 3, [lengths, steps, steps])
        ]
        (judgement,) = judged(sides[1], [condition_of("step_time:+5%")], sides[0]).judgements
        (row,) = judgement.rows
        assert judgement.outcome == outcome, row
        assert row.value == pytest.approx(value_ms * 1e9, rel=0.02)
        assert words in str(row.reason)
        interval = known(
            re.search(r"interval ([-+.\d]+)%? to ([-+.\d]+)(%| times)", str(row.reason))
        )
        low, high = (
            float(end) / 100 if interval[3] == "%" else float(end) - 1
            for end in interval.groups()[:2]
        )
        assert low <= known(row.change_ratio) <= high


def test_of_several_captures_the_middle_one_decides() -> None:
    def outcome(text: str, reports: list[Report], before: list[Report] | None = None) -> str:
        baseline = Side.of(before) if before else None
        (judgement,) = judged(Side.of(reports), [condition_of(text)], baseline).judgements
        return judgement.outcome

    def captures(*ratios: float) -> list[Report]:
        return [with_busy(ratio, ratio, run=f"run {at}") for at, ratio in enumerate(ratios)]

    assert outcome("busy_ratio >= 0.8", captures(0.7, 0.9, 0.9)) == "holds"
    assert outcome("busy_ratio >= 0.8", captures(0.7, 0.7, 0.9)) == "fails"
    assert outcome("busy_ratio >= 0.8", captures(0.7, 0.9)) == "holds"
    sides = captures(0.5, 0.7, 0.9), captures(0.71, 0.7, 0.1)
    assert outcome("busy_ratio:-5%", *sides) == "holds"
    clean = [of_run(replace(FULL, findings=()), name) for name in ("a", "b")]
    assert outcome("finding:critical absent", [FULL, *clean]) == "holds"
    assert outcome("finding:critical absent", [FULL, of_run(FULL, "x"), clean[0]]) == "fails"


def test_a_change_of_any_other_number_has_no_grace() -> None:
    assert only("busy_ratio:-5%", baseline=FULL)[1].change_ratio == 0.0
    judgement, row = only("busy_ratio:-5%", report=with_busy(0.7), baseline=FULL)
    assert (judgement.outcome, row.where) == ("fails", "GPU:0")
    assert only("busy_ratio:-10%", report=with_busy(0.7), baseline=FULL)[0].outcome == "holds"


def test_runs_on_other_hardware_are_not_compared() -> None:
    times = known(FULL.results.device_time)
    small = with_results(FULL, device_time=replace(times, devices=times.devices[:2]))
    result = judge("step_time:+5%", "step_time_ms <= 30", baseline=small)
    assert result.exit_code == 7
    assert result.judgements[0].rows[0].reason == (
        "the runs cannot be compared (devices: 2 before, 6 after)"
    )
    assert result.judgements[1].outcome == "holds"


# Documents: nothing in a name is taken for a command or for markup


MIXED = judge(
    "step_time_ms <= 20", "finding:critical absent", "finding:few-steps <= 5%", "absent_hosts <= 0"
)


def hostile_result() -> GateResult:
    """Every text of a result that a trace or a user can choose is hostile."""
    row = MIXED.judgements[0].rows[0]
    judgements = tuple(
        structs.replace(
            MIXED.judgements[0],
            condition=text,
            rows=(structs.replace(row, where=text, measured=text, reason=text),),
        )
        for text in HOSTILE
    )
    side = structs.replace(MIXED.subject, name=HOSTILE[0], run=HOSTILE[5], logdir=HOSTILE[6])
    return structs.replace(
        MIXED, judgements=judgements, subject=side, baseline=side, headline=HOSTILE[5]
    )


UNDECIDED = [*map(condition_of, ("step_time:+5%", "step_time:+8%", "step_time_ms <= 200"))]
RESULTS = {
    "mixed": MIXED,
    "passed": judge("step_time_ms <= 30"),
    "no_verdict": judged(side(110), UNDECIDED, side(100)),
}


@pytest.mark.parametrize("name", RESULTS)
def test_whole_output(name: str, golden: Callable[[str, str], None]) -> None:
    """Of annotations for GitHub, of the summary, and of JUnit's XML."""
    result = RESULTS[name]
    summary = markdown.render_section(gate_section(result))
    parts = (*annotation_lines(result), summary, junit_xml(result).decode())
    golden(f"gate/{name}.md", "\n".join(parts))


def test_no_name_becomes_an_annotation_of_its_own() -> None:
    for text in (*HOSTILE, "::add-mask::x", "a\n::error::b", "%0A::error::b", "x,file=/etc/passwd"):
        row = structs.replace(MIXED.judgements[0].rows[0], measured=text, where=text)
        changed = structs.replace(MIXED.judgements[0], condition=text, rows=(row,))
        (line,) = annotation_lines(structs.replace(MIXED, judgements=(changed,)))
        assert "\n" not in line
        assert "\r" not in line
        head, _, message = line.removeprefix("::").partition("::")
        assert head.startswith("error title=traceview gate%3A ")
        assert "," not in head
        assert head.count(":") == 0
        # What the runner reads back is what was meant: a % of ours is always an escape.
        assert not re.search(r"%(?!25|0A|0D|3A|2C)", line)
        assert message


def test_hostile_names_change_neither_markdown_nor_xml() -> None:
    text = markdown.render_section(gate_section(hostile_result()))
    assert text.startswith("## Gate failed: ")
    assert text.count("\n## ") == 0
    for token in MarkdownIt("commonmark", {"html": True}).enable("table").parse(text):
        assert token.type != "html_block"
        for child in token.children or ():
            assert child.type not in ("image", "link_open")
            assert child.type != "html_inline" or child.content in ("<code>", "</code>")
    rows = [line for line in text.splitlines() if "20.0 ms" in line]
    assert len(rows) == len(HOSTILE)
    (suite,) = ET.fromstring(junit_xml(hostile_result()))
    assert len(suite.findall("testcase/failure")) == len(HOSTILE)


def test_json_is_what_its_schema_says() -> None:
    data = json.decode(dumped(MIXED))
    schema = json.decode(schema_of(GateResult, "traceview gate"))
    Draft202012Validator(schema).validate(data)
    Draft202012Validator(schema).validate(json.decode(dumped(hostile_result())))
    assert json.decode(dumped(MIXED), type=GateResult) == MIXED
    assert (data["outcome"], data["exit_code"]) == ("failed", 10)
