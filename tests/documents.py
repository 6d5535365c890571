"""Hand-made documents for the tests of the printers: round numbers, every kind of block, column and value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.charts import HOST, MS, SLICE_COUNT, WINDOW_PS
from tests.reports import lanes_of, strip
from traceview.document.figures import StepBar, StepTimes, UtilizationStrips
from traceview.document.model import (
    AnatomyPart,
    AnatomyRow,
    Column,
    Document,
    Finding,
    Findings,
    Remark,
    Section,
    Span,
    Strips,
    Subheading,
    Summary,
    Timeline,
    anchor,
    column,
    facts,
    notes,
    remarks,
    table,
)
from traceview.document.phrase import device, name, phrase
from traceview.document.vocabulary import QUALITIES, SEVERITIES, STATES, STATUSES, STEP_KINDS

Rename = Callable[[str], str]
"""What a recorded text is called instead."""

WORKING = ("GPU:0", "GPU:1")
SHARES_REMARK = "Shares are of the window."
COMMAND = "traceview report logs --run 2026_01_02 -o report"


SENTENCES = ("title", "explanation", "evidence", "confidence_reason", "action", "advice")


def finding(number: int = 1, severity: str = "critical", **changes: Any) -> Finding:
    """A finding about two devices and a gap."""
    parts: dict[str, Any] = {
        "number": number,
        "code": "unused-gpu",
        "severity": SEVERITIES[severity],
        "title": "4 of 6 GPUs are unused",
        "cost": "66.7% of the GPU time",
        "explanation": "GPU:2 to GPU:5 did nothing in the whole recording while other GPUs worked.",
        "evidence": "GPU:2 and GPU:3: status: empty",
        "confidence": "high",
        "confidence_reason": "the tracer recorded other GPUs of the same process",
        "action": "Let the strategy use them: `tf.distribute.MirroredStrategy()` takes every GPU.",
        "advice": "Or hide them: `CUDA_VISIBLE_DEVICES=0,1`.",
    }
    changed: dict[str, Any] = {
        key: phrase(part) if key in SENTENCES else part for key, part in (parts | changes).items()
    }
    return Finding(**changed)


def findings(rename: Rename = str) -> tuple[Finding, ...]:
    """One of each severity."""
    second = rename("GPU:1")
    return (
        finding(span=Span(second, 30 * MS, 39 * MS)),
        finding(
            2,
            "warning",
            code="input-bound",
            title=phrase(
                device(second),
                " waits 9.00 of 24.0 ms (38%) for input in ",
                name(rename("data.py:12")),
            ),
            cost="18.8% of the GPU time; without it a step is about 9.00 ms shorter",
            explanation="The thread that runs the step asked for the next batch and got it late.",
            evidence=phrase(
                device(second),
                ": waiting for input: 37.5%, threshold 5.0%; op: ",
                name(rename("IteratorGetNext")),
            ),
            confidence="medium",
            action="Prefetch: `dataset.map(f, num_parallel_calls=4).prefetch(2)`.",
            advice="`traceview show input logs` says more.",
        ),
        finding(
            3,
            "info",
            code="few-steps",
            title="Only 2 steps were recorded",
            cost="",
            action="",
            advice="",
        ),
    )


def summary(rename: Rename = str) -> Summary:
    """The first screen of a capture that is degraded."""
    of_document = findings(rename)
    return Summary(
        run=rename("2026_01_02"),
        captured=(phrase("run ", name(rename("2026_01_02"))), "6 × GPU", "window 100 ms"),
        answer=of_document[1].title,
        label=SEVERITIES["warning"],
        action=of_document[1].action,
        quality=QUALITIES["degraded"],
        findings=of_document[::2],
        hidden_count=1,
        command=COMMAND,
        remarks=(
            phrase("One of 2 runs; `--run NAME` chooses another: ", name(rename("2026_01_01"))),
        ),
        anatomy=(anatomy(rename),),
        step_times=step_times(rename),
        trust=("Capture: degraded, the tracer dropped 15 events", "4 steps used"),
        full_command="traceview analyze logs --full",
    )


def anatomy(rename: Rename = str) -> AnatomyRow:
    """Two devices that wait for a third."""
    step_ps = 24 * MS
    parts = (
        (STATES["compute"], "compute", 15 * MS),
        (STATES["device_wait"], f"waiting for {rename('GPU:2')}", 6 * MS),
        (STATES["unknown"], "not known", 3 * MS),
    )
    return AnatomyRow(
        label=rename("GPU:0, 1"),
        devices=(rename("GPU:0"), rename("GPU:1")),
        step_count=4,
        step_ps=step_ps,
        parts=tuple(AnatomyPart(look, words, ps, ps / step_ps) for look, words, ps in parts),
    )


def step_times(rename: Rename = str) -> StepTimes:
    """Four steps: the third is slow and the last does not count."""
    span = Span(rename("GPU:0"), 48 * MS, 78 * MS, (rename("GPU:1"),))
    step, excluded = STEP_KINDS["train"], STEP_KINDS["excluded"]
    return StepTimes(
        (
            StepBar(0, 24 * MS, step, 0, None, None),
            StepBar(1, 24 * MS, step, 0, None, None),
            StepBar(2, 30 * MS, step, 6 * MS, STATES["checkpoint"], span),
            StepBar(3, 12 * MS, excluded, 0, None, None),
        ),
        24 * MS,
        "Step 2 takes 30.0 ms instead of 24.0 ms. Most of the extra time: checkpoints.",
    )


def timeline_section(keys: Sequence[str], rename: Rename = str) -> Section:
    """The picture, and the strips for documents without it."""
    return Section(
        "timeline",
        "Timeline",
        (
            Timeline(
                lanes_of(*keys, rename=rename),
                gaps=((1, Span(keys[0], 90 * MS, 100 * MS)), (7, Span(keys[0], 0, MS))),
            ),
            Strips(UtilizationStrips(SLICE_COUNT, tuple(map(strip, keys))), tuple(keys)),
        ),
        is_folded=False,
    )


def devices_section(keys: Sequence[str], row_count: int, rename: Rename = str) -> Section:
    """A row per device, with all that a row can hold."""
    places = range(len(keys))
    statuses = [STATUSES["empty" if place % 4 == 3 else "active"] for place in places]
    return Section(
        "devices",
        "Devices",
        (
            *table(
                "Time of each device",
                (
                    column("device", "device", keys),
                    column("look", "status", statuses),
                    column("span", "", [Span(key, 0, WINDOW_PS) for key in keys]),
                    column("share", "busy", [0.75 - place / 1000 for place in places]),
                    column("time", "compute", [60 * MS + place for place in places], priority=1),
                    column(
                        "share",
                        "vs. median",
                        [0.125, *(None for _ in places[1:])],
                        priority=3,
                    ),
                    column("count", "kernels", [1234 + place for place in places], priority=4),
                    column("bytes", "peak memory", [6_208_853_760 for _ in places], priority=5),
                    column("rate", "link", [12_500_000_000 for _ in places], priority=6),
                    column("name", "model", [rename("Tesla V100") for _ in places], priority=7),
                ),
                row_count=row_count,
                rest="traceview show devices logs --run 2026_01_02",
                anchors=[anchor("device", key) for key in keys],
            ),
            *remarks(SHARES_REMARK),
        ),
        lead="Communication and copies count only while nothing computes.",
        is_folded=False,
    )


def idle_section(keys: Sequence[str]) -> Section:
    """The causes of idle time."""
    causes = {"input": 0.13, "launch": 0.07, "latency": 0.04, "unknown": 0.01}
    return Section(
        "idle",
        "Why the devices waited",
        (
            *table(
                "Idle time by cause",
                (
                    column("device", "device", keys),
                    column("share", "idle", [0.25 for _ in keys]),
                    *(
                        Column(
                            STATES[cause].words,
                            "share",
                            tuple(ratio for _ in keys),
                            place,
                            STATES[cause].meaning,
                        )
                        for place, (cause, ratio) in enumerate(causes.items())
                    ),
                ),
            ),
            *remarks(SHARES_REMARK),
        ),
    )


def gaps_section(keys: Sequence[str], rename: Rename = str) -> Section:
    """A gap of each of the first two devices; the second one is what finding 1 is about."""
    shown = keys[:2]
    numbers = range(1, len(shown) + 1)
    return Section(
        "gaps",
        "Longest gaps",
        table(
            "The longest gaps",
            (
                column("words", "gap", map(str, numbers)),
                column("device", "device", shown),
                column("span", "", [Span(key, 30 * MS, 39 * MS) for key in shown]),
                column("time", "length", [(11 - number) * MS for number in numbers]),
                column("look", "mostly", [STATES["input"] for _ in shown]),
                column(
                    "name",
                    "after",
                    [rename("model/dense/MatMul:MatMul"), *(None for _ in shown[1:])],
                    priority=1,
                ),
                column(
                    "name",
                    "evidence on the host",
                    [rename("python3: IteratorGetNextOp::DoCompute") for _ in shown],
                    priority=2,
                ),
            ),
            row_count=34,
            rest="traceview show gaps logs --run 2026_01_02",
            anchors=[anchor("gap", number) for number in numbers],
        ),
    )


def input_section(rename: Rename = str) -> Section:
    """Blocks that are no tables."""
    return Section(
        "input",
        "Input",
        (
            *facts("2 pipelines", "4.20 GB/s", "started at 07:57:18"),
            Subheading("Stages", "slowest first"),
            *notes(
                phrase("Slowest stage: ", name(rename("ParallelMapV2")), ", 9.10 ms per batch."),
                "Missing: prefetch at the end, as in `dataset.prefetch(tf.data.AUTOTUNE)`.",
            ),
            Remark(SHARES_REMARK),
        ),
        lead="Input wait: 37.5% of the step (high).",
    )


def full_document(
    rename: Rename = str, *, device_count: int = len(WORKING), most_rows: int = 300
) -> Document:
    """Devices that work all alike; `rename` stands in every place that a recorded text can have."""
    keys = [rename(f"GPU:{number}") for number in range(device_count)]
    shown = keys[:most_rows]
    return Document(
        traceview_version="0.1.0",
        summary=summary(rename),
        sections=(
            timeline_section(keys[:16], rename),
            Section(
                "findings",
                "Findings",
                (
                    Findings(findings(rename), hidden_count=1),
                    *facts("left out on request: retracing"),
                ),
                lead="1 critical, 1 warning, 1 info; the largest cost first.",
                is_folded=False,
                command="traceview show findings logs",
            ),
            devices_section(shown, device_count, rename),
            idle_section(shown),
            gaps_section(keys, rename),
            input_section(rename),
            Section("capture", "Capture", notes("the tracer dropped 15 events")),
            Section(
                "about",
                "About this run",
                facts(
                    phrase("host ", device(rename(HOST))),
                    phrase("6 × ", device(rename("Tesla V100"))),
                    "1 file, 3.04 MB, 23,128 events",
                    "profiled 2026-01-02 07:57:18 UTC",
                    "MirroredStrategy on 2 replicas",
                    "busy >99.9%",
                ),
            ),
            Section(
                "definitions",
                "Definitions",
                table(
                    "Definitions",
                    (
                        column("words", "term", [look.words for look in STATES.values()]),
                        column("words", "meaning", [look.meaning for look in STATES.values()]),
                    ),
                ),
            ),
        ),
    )


def bare_document() -> Document:
    """Nothing could be measured."""
    return Document(
        traceview_version="0.1.0",
        summary=Summary(
            run="run1",
            answer="1 device is visible and recorded no event.",
            captured=("1 file, 887 B, 0 events", "no steps found"),
            quality=QUALITIES["unusable"],
        ),
        sections=(
            Section("timeline", "Timeline", (Timeline(None),), is_folded=False),
            Section("findings", "Findings", (), lead="No problem found.", is_folded=False),
            Section("steps", "Steps", (), lead="No steps: nothing repeats."),
        ),
    )
