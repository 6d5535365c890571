"""Shows the run beside its baseline, and which part of the step is longer."""

from __future__ import annotations

from typing import Final

from msgspec.structs import asdict

from traceview.analysis.context import View
from traceview.analysis.scaling.result import Scaling, ScalingRun
from traceview.document import model as doc
from traceview.document import numbers

PARTS: Final = {
    "compute_ps": "compute",
    "imbalance_ps": "imbalance",
    "communication_ps": "exposed communication",
    "input_ps": "input",
    "launch_ps": "kernel launches",
    "other_ps": "other",
}
PARTS_REMARK: Final = (
    "Compute is the mean of the devices; imbalance is how much longer the slowest device of a step computes. The other "
    "parts are those of that device."
)


def scaling_section(view: View, result: Scaling) -> doc.Section:
    """The steps of both runs, part by part."""
    del view
    this, baseline, more = map(asdict, (result.this.parts, result.baseline.parts, result.parts))
    return doc.Section(
        "scaling",
        "Scaling",
        (
            *doc.facts(
                f"this run: {_step(result.this)}",
                f"baseline: {_step(result.baseline)}, run {result.baseline.run} in {result.baseline.logdir}",
            ),
            *doc.table(
                "Parts of the step in both runs",
                (
                    doc.words("part of the step", PARTS.values()),
                    doc.times("baseline", map(baseline.get, PARTS), priority=1),
                    doc.times("this run", map(this.get, PARTS), priority=2),
                    doc.times("difference", map(more.get, PARTS)),
                ),
            ),
            *doc.remarks(PARTS_REMARK, numbers.sentence(result.reason or "")),
        ),
        lead=_summary(result),
    )


def _step(run: ScalingRun) -> str:
    return f"{numbers.time(run.step_ps)} per step on {numbers.plural(run.device_count, 'device')}"


def _summary(result: Scaling) -> str:
    """How much faster than the baseline, in a sentence."""
    factor = numbers.number(result.this.device_count / result.baseline.device_count)
    efficiency = numbers.share(result.scaling_efficiency_ratio)
    speed = (
        f"{result.speedup_by_step:.2f}× the speed of the baseline by step time"
        if result.speedup is None
        else f"{result.speedup:.2f}× the examples per second of the baseline"
    )
    return f"{speed} on {factor}× the devices: {efficiency} scaling efficiency."
