"""The shapes of traces that the speed is measured on: along steps, GPUs, hosts and events.

python -m scripts.shapes               lists their names
python -m scripts.shapes NAME FOLDER   writes one
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from scripts.bench_trace import Shape, write_alike_hosts, write_trace
from scripts.cuda_trace import PROFILE_START_NS, CudaTrace
from scripts.scenarios.collectives import all_reduce
from scripts.scenarios.model import marked_steps, new_trace


@dataclass(frozen=True)
class Row:
    """A trace to measure. Rows of one `axis` differ in one number, along which time grows; `write` stores it below a folder."""

    axis: str
    number: int
    write: Callable[[Path], object]

    @property
    def name(self) -> str:
        """What chooses it on the command line."""
        return f"{self.axis}={self.number}"


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


def _host(place: int) -> CudaTrace:
    """Hosts start a microsecond after each other."""
    start_ns = PROFILE_START_NS + 1000 * place
    return CudaTrace(f"host{place}", start_ns=start_ns, stop_ns=start_ns + 250_000_000)


def write_small_hosts(logdir: Path, count: int) -> Path:
    """Hosts of one GPU that runs one kernel in each of two steps."""
    for trace in map(_host, range(count)):
        for step in marked_steps(trace, count=2):
            step.kernel(0, 1, 20)
        trace.write(logdir)
    return logdir


def write_hosts(logdir: Path, count: int) -> Path:
    """Hosts of eight GPUs that train together for four steps."""
    for trace in map(_host, range(count)):
        for number, step in enumerate(marked_steps(trace)):
            for ordinal in range(8):
                for kernel in range(4):
                    step.kernel(ordinal, 1 + 10 * kernel, 10 + 10 * kernel)
            all_reduce(step, [(41, 46)] * 8, instance=number, asked_ms=0.5)
        trace.write(logdir)
    return logdir


def _row(axis: str, number: int, shape: Shape, hosts: int = 1) -> Row:
    def write(logdir: Path) -> object:
        folder = logdir / "plugins" / "profile" / "run1"
        if hosts > 1:
            return write_alike_hosts(folder, shape, hosts)
        return write_trace(folder / "bench-host.xplane.pb", shape)

    return Row(axis, number, write)


def _made(axis: str, number: int, write: Callable[[Path, int], Path]) -> Row:
    return Row(axis, number, lambda logdir: write(logdir, number))


_STEP: Final = Shape(gpus=4, ops=90)
_TINY_STEP: Final = Shape(gpus=1, ops=4, kernels=1, collectives=0)

ROWS: Final = (
    *(_row("events", steps, Shape(steps=steps)) for steps in (1, 10, 51, 204, 900)),
    *(_row("steps", count, replace(_STEP, steps=count)) for count in (50, 715, 2860)),
    *(_row("tiny steps", count, replace(_TINY_STEP, steps=count)) for count in (700, 3000, 20_000)),
    *(_row("ops of a step", count, Shape(steps=4, ops=count)) for count in (650, 2600, 10_400)),
    *(_row("GPUs", count, Shape(steps=20, gpus=count, ops=60)) for count in (4, 16, 64)),
    *(_made("GPUs of one kernel", count, write_gpus) for count in (250, 500, 2000)),
    *(_row("hosts of 3 MB", n, Shape(steps=1, ops=480), n) for n in (1, 16, 64, 256)),
    *(_made("hosts of 25 kB", count, write_hosts) for count in (1, 16, 64, 256, 1000)),
    *(_made("hosts of one kernel", count, write_small_hosts) for count in (250, 1000)),
    *(_made("lines of one id", count, write_lines) for count in (10_000, 40_000)),
)


if __name__ == "__main__":
    by_name = {row.name: row for row in ROWS}
    if sys.argv[1:]:
        by_name[sys.argv[1]].write(Path(sys.argv[2]))
    else:
        print(*by_name, sep="\n")
