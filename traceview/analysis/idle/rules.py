"""Holds the rules on idle time."""

from __future__ import annotations

from typing import Final

from traceview.analysis.base import Rule

INPUT_BOUND: Final = Rule(
    "input-bound",
    starts_at="input takes at least {warning_ratio} of the step; critical from {critical_ratio} on",
    severities=("warning", "critical"),
    limits={"warning_ratio": 0.05, "critical_ratio": 0.20},
    meaning="The step waits for its next batch, and the device has nothing left to run meanwhile.",
    evidence=(
        "Idle time with cause input of the device that waits most, over the step time; without device planes the "
        "calls of IteratorGetNext that hold up the step: input_ratio in results.input."
    ),
    advice=(
        "Let the pipeline work ahead of the model with dataset.prefetch(tf.data.AUTOTUNE), and make its slowest "
        "stage faster: traceview input names it."
    ),
    example="60.0% of the step is spent waiting for input",
    idle_causes=("input",),
)
