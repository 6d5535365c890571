"""Computes parts of a report: one process of `scripts/bench.py`, which measures how long it takes.

    python -m scripts.bench_parts [--causes | --all] LOGDIR

Reads a run and accounts for the time of its devices: over the window, by step, as a strip, by op. With
`--causes` it also computes why they waited: idle causes, input, transfers, launches, precision, with their findings. With
`--all` it makes the whole report. Nothing is printed.
"""

from __future__ import annotations

import argparse
import gc
from pathlib import Path


def account(logdir: Path, *, with_causes: bool) -> None:
    """Compute how each device spent its time, and `with_causes` also why it waited."""
    from traceview.analysis import capture, device_time, ops, steps, utilization
    from traceview.analysis.context import Context
    from traceview.analysis.selection import select
    from traceview.trace.load import load

    trace = load(logdir)
    context = Context(trace, select(trace))
    for topic in (capture, device_time, steps, utilization, ops):
        context.result(topic.ANALYSIS)
    if not with_causes:
        return
    from traceview.analysis import idle, launches, precision, transfers
    from traceview.analysis.input import ANALYSIS as INPUT

    context.findings(INPUT)
    for topic in (idle, launches, precision, transfers):
        context.findings(topic.ANALYSIS)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.bench_parts", description=__doc__)
    parser.add_argument("logdir", type=Path, metavar="LOGDIR")
    parser.add_argument("--causes", action="store_true")
    parser.add_argument("--all", action="store_true")
    arguments = parser.parse_args()
    gc.disable()
    if arguments.all:
        import traceview

        traceview.analyze(arguments.logdir)
    else:
        account(arguments.logdir, with_causes=arguments.causes)


if __name__ == "__main__":
    main()
