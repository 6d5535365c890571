"""Writes the command line that makes a report again."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from traceview.trace.windows import StepRange, WindowKind

FOLDER: Final = "report"
"""The folder that the command writes to."""


def reproducing(
    logdir: str,
    run: str,
    *,
    window: WindowKind,
    steps: StepRange | None,
    select_codes: Collection[str] | None,
    ignore_codes: Collection[str],
    baseline: str = "",
) -> tuple[str, ...]:
    """The arguments of `traceview report`, the program first, with every choice that is not the default one."""
    choices = [] if window == "auto" else ["--window", window]
    if steps is not None:
        bounds = ("" if bound is None else str(bound) for bound in (steps.first, steps.last))
        choices += ["--steps", ":".join(bounds)]
    for option, codes in (("--select", select_codes or ()), ("--ignore", ignore_codes)):
        if codes:
            choices += [option, ",".join(codes)]
    if baseline:
        choices += ["--baseline", baseline]
    name = run.rpartition("/")[2]
    return ("traceview", "report", logdir, "--run", name, *choices, "-o", FOLDER)
