"""What does an analysis cost beside the accounting alone? One process of scripts/bench.py.

    python -m scripts.bench_parts [--causes | --all] LOGDIR

Reads a run and accounts for the time of its devices: over the window, by step, as a timeline, by op. With
`--causes` it also says why they waited: idle causes, input, transfers, launches, precision. With `--all` it makes
the whole report. Nothing is printed: what counts is how long the process takes.
"""

from __future__ import annotations

import argparse
import gc
from pathlib import Path


def account(logdir: Path, *, with_causes: bool) -> None:
    """The analyses that say how the time of the devices was spent; `with_causes` those that say why, too."""
    from traceview.analysis import ops
    from traceview.analysis import utilization as timeline
    from traceview.analysis.activity import activities
    from traceview.analysis.capture import compute as capture
    from traceview.analysis.device_time import compute as device_time
    from traceview.analysis.selection import select
    from traceview.analysis.steps import compute as steps
    from traceview.report.build import TOP_OPS
    from traceview.trace.load import load

    trace = load(logdir)
    selection = select(trace)
    unions = tuple(activities(trace))
    capture.compute(trace)
    of_devices = device_time.compute(trace, selection, unions)
    steps.compute(trace, selection, unions)
    timeline.compute(trace, selection, unions)
    ops.compute(trace, selection, TOP_OPS)
    if not with_causes:
        return
    from traceview.analysis import precision
    from traceview.analysis.idle import compute as idle
    from traceview.analysis.idle import findings as idle_findings
    from traceview.analysis.input import compute as input_pipeline
    from traceview.analysis.input import findings as input_findings
    from traceview.analysis.launches import compute as launches
    from traceview.analysis.transfers import compute as transfers
    from traceview.analysis.transfers import findings as transfer_findings
    from traceview.trace.cause import Cause

    found = idle.idle_time(trace, selection)
    idle_findings.diagnose(trace, idle.compute(trace, selection, found), found, selection)
    waits = {device: causes[Cause.INPUT] for device, causes in found.causes_of_steps.items()}
    input_findings.diagnose(input_pipeline.compute(trace, selection, waits), selection)
    of_transfers = transfers.compute(trace, selection, unions)
    transfer_findings.diagnose(of_transfers, of_devices, selection)
    launches.compute(trace, selection, unions)
    precision.compute(trace, selection, unions)


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
