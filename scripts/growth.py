"""Measures how the time of a report grows with events, devices, lines and hosts, and prints a Markdown table.

Processor time of a process, without imports. An exponent of 1 means that twice as much takes twice as long. Nothing is
asserted: the numbers depend on the machine, the exponents less.

    python -m scripts.growth [--most-events N]
"""

from __future__ import annotations

import argparse
import gc
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from scripts.bench_trace import write_trace
from scripts.cuda_trace import PROFILE_START_NS, CudaTrace
from scripts.scenarios.collectives import all_reduce
from scripts.scenarios.model import marked_steps, new_trace
from traceview.report.build import analyze
from traceview.trace.reading.load import load

Write = Callable[[Path, int], Path]


def write_gpus(logdir: Path, count: int) -> Path:
    """One host whose GPUs run one kernel in each of two steps."""
    trace = new_trace()
    for step in marked_steps(trace, count=2):
        for ordinal in range(count):
            step.kernel(ordinal, 1, 20)
    trace.write(logdir)
    return logdir


def write_lines(logdir: Path, count: int) -> Path:
    """A host with many lines of one id, as writers leave them that number their lines wrongly."""
    trace = new_trace()
    for step in marked_steps(trace, count=2):
        step.kernel(0, 1, 20)
    for number in range(count):
        line = trace.host_plane.line(7, "worker", key=f"line {number}")
        line.add("work", number * 10, number * 10 + 5)
    trace.write(logdir)
    return logdir


def write_hosts(logdir: Path, count: int) -> Path:
    """Hosts of eight GPUs that train together for four steps."""
    for place in range(count):
        start_ns = PROFILE_START_NS + 1000 * place
        trace = CudaTrace(f"host{place}", start_ns=start_ns, stop_ns=start_ns + 250_000_000)
        for number, step in enumerate(marked_steps(trace)):
            for ordinal in range(8):
                for kernel in range(4):
                    step.kernel(ordinal, 1 + 10 * kernel, 10 + 10 * kernel)
            all_reduce(step, [(41, 46)] * 8, instance=number, asked_ms=0.5)
        trace.write(logdir)
    return logdir


def write_events(logdir: Path, count: int) -> Path:
    """Eight GPUs that train, in steps of about 27,000 events each."""
    write_trace(logdir / "plugins" / "profile" / "run" / "a.xplane.pb", max(1, count // 27_000))
    return logdir


GROWING: Final[Sequence[tuple[str, Write, Sequence[int]]]] = (
    ("events", write_events, (27_000, 270_000, 1_400_000, 6_000_000, 24_000_000)),
    ("GPUs of one host", write_gpus, (1, 8, 64, 250, 1000)),
    ("lines of one id", write_lines, (10_000, 40_000)),
    ("hosts", write_hosts, (1, 4, 16, 64, 256)),
)


def seconds_of(logdir: Path) -> float:
    """Processor time of a report, in a process of its own, which leaves no memory behind."""
    command = [sys.executable, "-m", "scripts.growth", "--of", str(logdir)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout)


def _print_seconds(logdir: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        analyze(load(write_hosts(Path(scratch), 1)))  # imports
    gc.disable()
    begun = time.process_time()
    analyze(load(logdir))
    print(time.process_time() - begun)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m scripts.growth", description=__doc__)
    parser.add_argument("--most-events", type=int, default=24_000_000)
    parser.add_argument("--of", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.of:
        _print_seconds(arguments.of)
        return
    print("| recorded | number | CPU s | exponent |")
    print("|---|---:|---:|---:|")
    for name, write, counts in GROWING:
        before = None
        for count in counts:
            if name == "events" and count > arguments.most_events:
                continue
            with tempfile.TemporaryDirectory() as scratch:
                seconds = seconds_of(write(Path(scratch), count))
            exponent = ""
            if before:
                grown = math.log(seconds / before[1]) / math.log(count / before[0])
                exponent = f"{grown:.2f}"
            print(f"| {name} | {count:,} | {seconds:.2f} | {exponent} |", flush=True)
            before = count, seconds


if __name__ == "__main__":
    main()
