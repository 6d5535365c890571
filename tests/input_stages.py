"""The stages of input pipelines, whatever the model waits for."""

from __future__ import annotations

import numpy as np

from traceview.trace.columns import NONE
from traceview.trace.host.pipeline import InputStage, find_input_waits, iterator_calls, stages_of
from traceview.trace.model import Trace


def recorded_stages(trace: Trace) -> list[InputStage]:
    """The stages of every host over the whole recording, by host and falling self time."""
    stages: list[InputStage] = []
    for host in range(len(trace.hosts)):
        calls = iterator_calls(trace, host)
        blocking = find_input_waits(trace, host, calls).pipeline
        every_call = np.arange(calls.row.size)
        stages += stages_of(trace, host, calls, every_call, blocking[blocking != NONE])
    return stages
