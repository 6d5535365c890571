"""What do traceview and XProf say of the same run, as Markdown for an issue?"""

from __future__ import annotations

from collections.abc import Sequence

from traceview.crosscheck.comparison import Compared
from traceview.crosscheck.reasons import REASONS
from traceview.render.crosscheck import (
    LABELS,
    kernel_pairs,
    legend,
    notes_of,
    outcome,
    spread,
    told,
    value,
    worse,
)
from traceview.render.markdown.blocks import Column, table
from traceview.render.markdown.inline import code, plain
from traceview.version import VERSION


def render(run: str, xprof_version: str, rows: Sequence[Compared]) -> str:
    """The tables and the reasons that they point to."""
    notes = notes_of(rows)
    shown, zeros = told(rows)
    kernels = kernel_pairs([row for row in rows if row.is_of_kernel])
    worst = [worse(count, time) for count, time in kernels]
    blocks = [
        "# traceview beside XProf",
        f"Run {code(run)}, traceview {plain(VERSION)}, XProf {plain(xprof_version)}.",
        table(
            [
                Column("mean per step, and totals", [plain(LABELS[row.metric]) for row in shown]),
                Column("traceview", [plain(spread(row)) for row in shown], right=True),
                Column(
                    "XProf", [plain(value(row.metric, row.theirs)) for row in shown], right=True
                ),
                Column("difference", [plain(outcome(row, notes)) for row in shown]),
            ]
        ),
        plain(f"Zero in both: {', '.join(zeros)}.") if zeros else "",
        table(
            [
                Column("kernel", [code(row.name) for row in worst]),
                Column(
                    "traceview", [value("_ps", time.ours_most) for _, time in kernels], right=True
                ),
                Column(
                    "count", [value("count", count.ours_most) for count, _ in kernels], right=True
                ),
                Column("XProf", [value("_ps", time.theirs) for _, time in kernels], right=True),
                Column("count", [value("count", count.theirs) for count, _ in kernels], right=True),
                Column("difference", [plain(outcome(row, notes)) for row in worst]),
            ]
        ),
        "\n".join(f"{number}. {plain(REASONS[one])}" for one, number in notes.items()),
        plain(legend(xprof_version)),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"
