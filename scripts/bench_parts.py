"""What does an analysis cost beside the accounting alone? One process of scripts/bench.py.

    python -m scripts.bench_parts [--all] LOGDIR

Reads a run and accounts for the time of its devices: over the window, by step, as a timeline, by op. With
`--all` it makes the whole report instead. Nothing is printed: what counts is how long the process takes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from traceview.cli.garbage import collect_no_garbage


def account(logdir: Path) -> None:
    """The analyses that say how the time of the devices was spent, and none that says why."""
    from traceview.analyses import capture, device_time, ops, steps, timeline
    from traceview.analyses.activity import activities
    from traceview.analyses.selection import select
    from traceview.report.build import TOP_OPS
    from traceview.trace.load import load

    trace = load(logdir)
    selection = select(trace)
    unions = tuple(activities(trace))
    capture.compute(trace)
    device_time.compute(trace, selection, unions)
    steps.compute(trace, selection, unions)
    timeline.compute(trace, selection, unions)
    ops.compute(trace, selection, TOP_OPS)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.bench_parts", description=__doc__)
    parser.add_argument("logdir", type=Path, metavar="LOGDIR")
    parser.add_argument("--all", action="store_true")
    arguments = parser.parse_args()
    collect_no_garbage()
    if arguments.all:
        import traceview

        traceview.analyze(arguments.logdir)
    else:
        account(arguments.logdir)


if __name__ == "__main__":
    main()
