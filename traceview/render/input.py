"""Does the model wait for its input, and which stage of the pipeline takes the time?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.text import Text

from traceview.analysis.input.compute import Input, InputReplica
from traceview.document.page import Page
from traceview.render import numbers
from traceview.render.columns import Column, add_columns, add_left_out, fitting, room_beside
from traceview.report.model import Report
from traceview.trace.pipeline import InputStage

SHOWN: Final = 5
"""So many stages have a row in the report; `traceview input` lists all of them."""

SHOWN_REPLICAS: Final = 8

_NARROWEST_NAME: Final = 24
MISSING_WORDS: Final = {
    "prefetch": "a stage at the root that works ahead (prefetch)",
    "parallel_map": "a parallel map",
    "parallel_interleave": "a parallel interleave",
    "cache": "a cache",
}


def add_input(page: Page, report: Report) -> None:
    """The wait, what is missing, and the first stages; nothing where no pipeline was recorded."""
    found = report.results.input
    if found is None:
        return
    add_input_summary(page, found)
    add_stages(page, found.stages[:SHOWN])
    left = found.stage_count - min(len(found.stages), SHOWN)
    if left > 0:
        told = f"{numbers.plural(left, 'more stage')}: traceview input"
        page.prose(page.styled(told, "dim"))


def add_input_summary(page: Page, found: Input) -> None:
    """The section's heading, the bottleneck, what is missing, and the replicas that wait differently."""
    page.heading("Input", input_summary(found))
    neck = found.bottleneck
    if neck is not None:
        page.prose(
            page.styled("most time of its own: ", "dim")
            + page.styled(page.middle(neck.name, max(page.width - 60, _NARROWEST_NAME)), "bold")
            + page.styled(f", {numbers.share(neck.share_ratio)} of all stages'")
        )
    if found.missing:
        words = ", ".join(MISSING_WORDS[one] for one in found.missing)
        page.prose(page.styled(f"The pipeline has not: {words}.", "dim"))
    if found.replicas:
        _add_replicas(page, found.replicas)


def input_summary(found: Input) -> str:
    """The share of the step spent waiting for input, in words."""
    if found.input_ratio is None:
        return f"{numbers.ABSENT} {found.reason}"
    of = "step" if any(step.used for step in found.steps) else "window"
    words = {"high": "high", "moderate": "moderate", "none": "little"}[found.verdict or "none"]
    return f"{numbers.share(found.input_ratio)} of the {of} spent waiting for it: {words}"


def _add_replicas(page: Page, replicas: Sequence[InputReplica]) -> None:
    """What each replica waits per step, and by how much its shard is late."""
    facts = [
        f"{row.device or f'shard {row.shard}'} {numbers.time(row.wait_per_step_ps)}"
        + (f" ({numbers.time(row.late_per_step_ps)} late)" if row.late_per_step_ps else "")
        for row in replicas[:SHOWN_REPLICAS]
    ]
    left = len(replicas) - SHOWN_REPLICAS
    more = [f"{left} more"] if left > 0 else []
    page.facts([page.styled("waits per step", "dim"), *facts, *more])


def add_stages(page: Page, stages: Sequence[InputStage]) -> None:
    """One row per stage; its path loses its middle where it does not fit."""
    if not stages:
        return

    def numeric(heading: str, texts: list[str], droppable: int = 0) -> Column:
        return Column(
            heading, [page.styled(text) for text in texts], right=True, droppable=droppable
        )

    columns = [
        numeric("self", [numbers.time(row.self_ps) for row in stages]),
        numeric("of it waiting", [numbers.part(row.waiting_ps, row.self_ps) for row in stages], 1),
        numeric("calls", [numbers.count(row.calls) for row in stages], 2),
        numeric("> 50 µs", [numbers.count(row.slow_count) for row in stages], 3),
        numeric("parallel", [numbers.count(row.parallelism) for row in stages], 4),
        numeric("buffer", [buffer_use(row) for row in stages], 5),
    ]
    name = Column("x" * _NARROWEST_NAME, [])
    kept = fitting(page, [*columns, name])[:-1]
    room = max(room_beside(page, kept), _NARROWEST_NAME)
    hosts = {row.host for row in stages}
    names = [stage_name(row, several=len(hosts) > 1) for row in stages]
    shown = Column("stage", [Text(page.middle(text, room, head=0.3)) for text in names])
    add_columns(page, [*kept, shown])
    add_left_out(page, [*columns, name], [*kept, name])


def buffer_use(row: InputStage) -> str:
    """The typical fill of the buffer, of its size, and how often it was empty."""
    if row.buffered_median is None:
        return numbers.ABSENT
    of = f"/{row.buffer_limit}" if row.buffer_limit is not None else ""
    empty = f", empty {numbers.share(row.empty_ratio)}" if row.empty_ratio else ""
    return f"{row.buffered_median}{of}{empty}"


def stage_name(row: InputStage, *, several: bool) -> str:
    """The path of a stage, with what it is."""
    host = f"{row.host}: " if several else ""
    role = "" if row.blocking else " (background)"
    return f"{host}{row.name.removeprefix('Iterator::')}{role}{' (added by TensorFlow)' if row.injected else ''}"
