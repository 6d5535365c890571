"""Compares the numbers of the installed XProf with those of traceview, each difference with its reasons.

    python -m scripts.crosscheck LOGDIR [--run NAME] [--top N]

XProf makes its overview, input, op and kernel pages from a copy of the run. Then traceview counts by XProf's rules: a
difference is explained where that gives XProf's number. A difference is no failure: the exit code is 0.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from scripts.crosscheck.comparison import Compared, compare, facts_of
from scripts.crosscheck.document import crosscheck_section
from scripts.crosscheck.recount import kernels_of, recount
from scripts.crosscheck.xprof import ask
from traceview.analysis.facts.selection import select
from traceview.analysis.measures.context import Context, Options
from traceview.base.errors import TraceviewError
from traceview.cli.output import terminable
from traceview.document.terminal import render_section
from traceview.export.viewers import check_installed
from traceview.report.build import report_of
from traceview.store.address import location_of
from traceview.trace.model import Trace
from traceview.trace.reading.load import load
from traceview.trace.reading.locate import choose_run, find_runs

WIDTH = 100


def compared(logdir: str, run: str | None, top: int) -> tuple[Trace, str, list[Compared]]:
    """The run, the version of XProf, and a row per number of both; `top`: kernels to compare, longest first."""
    place = location_of(logdir)
    check_installed("xprof")
    with terminable():
        trace = load(place, run=run)
        asked = ask(choose_run(find_runs(place), run)[0])
    context = Context(trace, select(trace), Options(top=0))
    rows = compare(
        report_of(context, window="auto", steps=None),
        context.ledger,
        kernels_of(trace),
        asked.answer,
        recount(trace),
        facts_of(trace),
        top,
    )
    return trace, asked.version, list(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the comparison; the exit code is that of the error, if there is one."""
    parser = argparse.ArgumentParser(prog="python -m scripts.crosscheck")
    parser.add_argument("logdir", metavar="LOGDIR")
    parser.add_argument("--run", metavar="NAME")
    parser.add_argument("--top", metavar="N", type=int, default=10, help="kernels to compare")
    asked = parser.parse_args(arguments)
    try:
        trace, version, rows = compared(asked.logdir, asked.run, asked.top)
    except TraceviewError as error:
        print(f"error: {error.message} {error.hint or ''}".strip(), file=sys.stderr)
        return error.exit_code
    section = crosscheck_section(trace.run, version, rows)
    print(render_section(section, width=WIDTH, color=False), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
