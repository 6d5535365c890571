"""Does the model wait for its input, and which stage of the pipeline takes the time?"""

from __future__ import annotations

from typing import Final

from traceview.analysis.input.compute import Input
from traceview.render import numbers
from traceview.render.input import MISSING_WORDS
from traceview.render.markdown.blocks import Column, Section, bullets, table
from traceview.render.markdown.inline import code, plain, prose
from traceview.report.model import Report

SHOWN: Final = 12
SHOWN_REPLICAS: Final = 16


def input_section(report: Report) -> Section | None:
    """The wait, the replicas that wait differently, and the stages by their own time."""
    found = report.results.input
    if found is None:
        return None
    return Section("Input", (bullets(_facts(found)), _replicas(found), *_stages(found)))


def _facts(found: Input) -> list[str]:
    facts = []
    if found.input_ratio is None:
        facts.append(f"share of the step: not known, {prose(found.reason or '')}")
    else:
        of = "step" if any(step.used for step in found.steps) else "window"
        facts.append(f"{plain(numbers.share(found.input_ratio))} of the {of} spent waiting for it")
    if found.bottleneck is not None:
        neck = found.bottleneck
        facts.append(
            f"most time of its own: {code(neck.name)}, {plain(numbers.share(neck.share_ratio))} of all stages'"
        )
    if found.missing:
        words = ", ".join(MISSING_WORDS.get(one, one) for one in found.missing)
        facts.append(f"the pipeline has not: {plain(words)}")
    return facts


def _replicas(found: Input) -> str:
    rows = found.replicas[:SHOWN_REPLICAS]
    return table(
        [
            Column("shard", [str(row.shard) for row in rows], right=True),
            Column("device", [code(row.device) if row.device else "" for row in rows]),
            Column(
                "waits per step", [numbers.time(row.wait_per_step_ps) for row in rows], right=True
            ),
            Column(
                "late per step", [numbers.time(row.late_per_step_ps) for row in rows], right=True
            ),
        ]
    )


def _stages(found: Input) -> list[str]:
    rows = found.stages[:SHOWN]
    several = len({row.host for row in rows}) > 1
    blocks = [
        table(
            [
                Column("host", [code(row.host, 40) if several else "" for row in rows]),
                Column("stage", [code(row.name.removeprefix("Iterator::")) for row in rows]),
                Column("self", [numbers.time(row.self_ps) for row in rows], right=True),
                Column(
                    "of it waiting",
                    [plain(numbers.part(row.waiting_ps, row.self_ps)) for row in rows],
                    right=True,
                ),
                Column("calls", [numbers.count(row.calls) for row in rows], right=True),
                Column("over 50 µs", [numbers.count(row.slow_count) for row in rows], right=True),
                Column("parallel", [numbers.count(row.parallelism) for row in rows], right=True),
            ]
        )
    ]
    left = found.stage_count - len(rows)
    if left > 0:
        blocks.append(f"{numbers.plural(left, 'more stage')}: `traceview input`.")
    return blocks
