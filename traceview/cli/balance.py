"""Defines `traceview balance`: how evenly the devices worked, which one is late, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from traceview.cli.options import Baseline
from traceview.cli.table import Answer, Request, table_command, topic_sections

if TYPE_CHECKING:
    from traceview.document.model import Section


@table_command()
def balance(request: Request, baseline: Baseline = None) -> Answer:
    """Compare the devices: which computes longest, which is last.

    One row per device that computed, with the phases of the step that ran on it. A terminal also shows how long a
    step takes at least per fix and, with --baseline, the speedup over one device. traceview analyze --format json has
    all of it.

    Example: traceview balance logs/ --baseline logs_of_one_gpu/
    """
    from traceview.analysis import balance as topic
    from traceview.analysis import scaling
    from traceview.analysis.balance.table import balance_table
    from traceview.analysis.base import Skipped
    from traceview.analysis.context import Options
    from traceview.trace.load import load

    context = request.context
    if baseline is not None:
        context.options = Options(baseline=load(baseline))
    result = context.record(topic.ANALYSIS)
    speedup = context.result(scaling.ANALYSIS) if baseline is not None else None
    rows = balance_table(result)
    chosen = rows.where("device", request.devices)

    def sections() -> Iterator[Section]:
        late = (result.straggler.device,) if result and result.straggler else ()
        yield from topic_sections(request, topic.ANALYSIS, result, *late)
        yield from topic_sections(request, scaling.ANALYSIS, context.record(scaling.ANALYSIS))

    absent = (context.result(topic.ANALYSIS), speedup)
    return Answer(
        rows=chosen,
        sections=sections,
        left_out_count=rows.count - chosen.count,
        remarks=tuple(result.reason for result in absent if isinstance(result, Skipped)),
    )
