"""Does the model wait for its input, and which stage of the pipeline takes the time?"""

from __future__ import annotations

from traceview.analysis.input.compute import Input
from traceview.render import numbers
from traceview.render.html.blocks import (
    Cell,
    Column,
    Section,
    Table,
    View,
    counts,
    devices,
    names,
    notes,
    ratio,
    shares,
    table,
    times,
    words,
)
from traceview.render.html.shown import name
from traceview.render.input import MISSING_WORDS, buffer_use, input_summary, stage_name


def input_section(view: View) -> Section | None:
    """The wait, the replicas that wait differently, and the stages by their own time."""
    found = view.report.results.input
    if found is None:
        return None
    return Section(
        "input",
        "Input",
        (*notes(_remarks(found)), *_hosts(found), *_replicas(view, found), *_stages(view, found)),
        lead=f"{input_summary(found)}.",
    )


def _remarks(found: Input) -> list[str]:
    neck = found.bottleneck
    missing = ", ".join(MISSING_WORDS.get(one, one) for one in found.missing)
    return [
        ""
        if neck is None
        else f"Most time of its own: {name(neck.name)}, {numbers.share(neck.share_ratio)} of all stages'. {neck.advice}",
        f"The pipeline has not: {missing}." if missing else "",
        ""
        if found.empty_ratio is None
        else f"The buffer that the model takes from was found empty {numbers.share(found.empty_ratio)} of the times.",
    ]


def _hosts(found: Input) -> list[Table]:
    rows = found.hosts
    if len(rows) < 2:
        return []
    return table(
        "Waiting for input by host",
        [
            names("host", [row.host for row in rows]),
            shares("of the step", [row.input_ratio for row in rows]),
            times("per step", [row.wait_per_step_ps for row in rows]),
            words("not known", [row.reason or "" for row in rows]),
        ],
    )


def _replicas(view: View, found: Input) -> list[Table]:
    rows = found.replicas[: view.most_rows]
    if not rows:
        return []
    return table(
        "Waiting for input by shard",
        [
            counts("shard", [row.shard for row in rows]),
            devices(view, [row.device for row in rows]),
            times("waits per step", [row.wait_per_step_ps for row in rows]),
            times("late per step", [row.late_per_step_ps for row in rows]),
            counts("late in steps", [row.late_step_count for row in rows]),
        ],
        row_count=len(found.replicas),
        rest="the JSON report",
    )


def _stages(view: View, found: Input) -> list[Table]:
    rows = found.stages[: view.most_rows]
    several = len({row.host for row in rows}) > 1
    if not rows:
        return []
    return table(
        "Stages of the pipeline",
        [
            names("stage", [stage_name(row, several=several) for row in rows]),
            times("self", [row.self_ps for row in rows]),
            shares("of it waiting", [ratio(row.waiting_ps, row.self_ps) for row in rows]),
            counts("calls", [row.calls for row in rows]),
            counts("over 50 µs", [row.slow_count for row in rows]),
            counts("parallel", [row.parallelism for row in rows]),
            Column("buffer", tuple(Cell(buffer_use(row)) for row in rows), is_number=True),
        ],
        row_count=found.stage_count,
        rest=view.command("input"),
    )
