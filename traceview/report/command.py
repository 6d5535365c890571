"""Writes the command lines that make a report again and that show the rows of a state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from traceview.ledger.states import State
from traceview.trace.windows import StepRange, WindowKind

FOLDER: Final = "report"
"""The folder that the command writes to."""

_TABLES: Final[Mapping[State, str]] = {
    State.COMPUTE: "ops",
    State.COMMUNICATION: "collectives",
    State.DEVICE_WAIT: "collectives",
    State.H2D: "copies",
    State.D2H: "copies",
    State.D2D: "copies",
    State.INPUT: "input",
    State.TURN: "balance",
    State.NO_WORK: "devices",
}
"""By state the table of `traceview show` that has the evidence; all other states are of gaps."""


def table_of(state: State) -> tuple[str, str]:
    """The table that shows a state, and the option that chooses it there."""
    table = _TABLES.get(state)
    return (table, "") if table else ("gaps", f" --state {state.key}")


def reproducing(
    logdir: str,
    run: str,
    *,
    window: WindowKind,
    steps: StepRange | None,
) -> tuple[str, ...]:
    """The arguments of `traceview report`, the program first, with every choice that is not the default one."""
    choices = [] if window == "auto" else ["--window", window]
    if steps is not None:
        bounds = ("" if bound is None else str(bound) for bound in (steps.first, steps.last))
        choices += ["--steps", ":".join(bounds)]
    name = run.rpartition("/")[2]
    return ("traceview", "report", logdir, "--run", name, *choices, "-o", FOLDER)
