"""Runs the notebook docs/example.ipynb: its cells, and the outputs that they give now."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
PATH = ROOT / "docs" / "example.ipynb"

CELLS: tuple[tuple[str, str], ...] = (
    (
        "markdown",
        """\
# A run with a slow input pipeline

`MirroredStrategy` trained on two devices while the profiler recorded five steps. Which device waited, for what, and
what should change? Run this notebook from the root of a checkout; the trace is one of its
[fixtures](../fixtures/README.md).""",
    ),
    (
        "code",
        """\
import traceview

trace = traceview.load("fixtures/slow-input-2")
report = traceview.analyze(trace)
report""",
    ),
    (
        "markdown",
        (
            "A report displays itself. Its content is plain data with the [names of the JSON](metrics.md); times are "
            "picoseconds that add up."
        ),
    ),
    (
        "code",
        """\
for row in report.results.device_time.devices:
    print(row.device, row.busy_ps, row.idle_ps, row.busy_ps + row.idle_ps == row.window_ps)
for finding in report.findings:
    print(finding.severity, finding.code, finding.loss)""",
    ),
    (
        "markdown",
        "The tables of `traceview show` are DataFrames, and so are all events.",
    ),
    (
        "code",
        """\
steps = trace.table("steps")[["number", "device", "duration_ps", "compute_ps"]]
steps.assign(ms=steps["duration_ps"] / 1e9)""",
    ),
    (
        "markdown",
        "The gaps are the spans in which a device did nothing, with their states. The longest ones:",
    ),
    (
        "code",
        """\
gaps = trace.table("gaps")
gaps["ms"] = gaps["duration_ps"] / 1e9
gaps[["device", "step", "ms", "state"]].head(6)""",
    ),
    (
        "markdown",
        (
            "The ledger has every moment of every device, busy or not, in one state. The sums over the used steps, in "
            "milliseconds:"
        ),
    ),
    (
        "code",
        """\
ledger = trace.ledger().to_frame().query("is_used")
by_state = ledger.pivot_table("duration_ps", "state", "device", "sum", observed=True) / 1e9
by_state.round(1)""",
    ),
)


def can_run() -> bool:
    """Whether the packages that run notebooks are installed."""
    return all(map(find_spec, ("ipykernel", "nbclient", "nbformat")))


def executed() -> str:
    """The text of the notebook with current outputs."""
    from nbclient import NotebookClient

    # Without types.
    nbformat: Any = import_module("nbformat")
    notebook = nbformat.v4.new_notebook()
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, (kind, source) in enumerate(CELLS):
        make = nbformat.v4.new_code_cell if kind == "code" else nbformat.v4.new_markdown_cell
        notebook.cells.append(make(source, id=f"cell-{number}"))
    NotebookClient(
        notebook,
        kernel_name="python3",
        resources={"metadata": {"path": str(ROOT)}},
        record_timing=False,
    ).execute()
    # What is recorded of the interpreter changes with it.
    notebook.metadata.language_info = {"name": "python"}
    return f"{nbformat.writes(notebook)}\n"
