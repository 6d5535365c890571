"""Finds the `tf.function`s that were traced again while training ran."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceview.analysis.selection import Selection
from traceview.ids import unique_ids
from traceview.trace.model import Trace


class Retraced(Struct, frozen=True):
    """A function that was traced in the window.

    `tracing_count`: how often in the process, where recorded. `traced_by`: what differs between its graphs, as in
    `FunctionPlacement`.
    """

    function: str
    count: int
    tracing_count: int | None
    traced_by: tuple[str, ...]

    @property
    def where(self) -> str:
        """The function, and how often it was traced since the start of the process."""
        known = self.tracing_count
        return self.function if known is None else f"{self.function}, {known} since the start"


def retraced_calls(trace: Trace, selection: Selection, host: int) -> tuple[Retraced, ...]:
    """Functions traced in a step of the window that is not the first recorded, most often first.

    One that is traced for the first time in its process, such as that of the first evaluation, is not among them.
    """
    columns = trace.host_columns
    calls = columns.stat("tf_function_call")
    is_traced = [trace.names[int(value)].startswith(b"traced-") for value in calls.value]
    rows = calls.row[np.array(is_traced, dtype=np.bool_)]
    rows = rows[columns.host[rows] == host]
    recorded = trace.steps_by_host[host].steps
    steps = [step for step in selection.steps[host] if step != recorded[0]]
    inside = np.zeros(rows.size, dtype=np.bool_)
    for step in steps:
        start = columns.start_ps[rows]
        inside |= (start >= step.start_ps) & (start < step.end_ps)
    rows = rows[inside]
    counts = columns.stat("tracing_count").at(rows, -1)
    sidecar = trace.hosts[host].sidecar
    functions = sidecar.placement.functions if sidecar is not None else ()
    traced_by = {function.name: function.traced_by for function in functions}
    retraced = []
    for name in unique_ids(columns.name[rows]).tolist():
        same = columns.name[rows] == name
        known = int(counts[same].max())
        if known == 1:
            continue
        function = trace.names.text(name) or ""
        retraced.append(
            Retraced(
                function,
                int(same.sum()),
                None if known < 0 else known,
                traced_by.get(function, ()),
            )
        )
    return tuple(sorted(retraced, key=lambda call: (-call.count, call.function)))
