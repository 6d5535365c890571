"""Measures time and memory of traceview and of XProf on one trace, and prints them as Markdown tables.

Each measurement is a whole process with cold caches; the two programs take turns. XProf keeps caches beside the trace and
in the temporary directory, so every run gets new ones of both. Peak memory is that of the largest process of a run.
Further tables compare the whole report with the accounting alone, and the decoder on one core with a plain read.
Nothing is asserted: the numbers depend on the machine.

    python -m scripts.bench [--trace FILE] [--small LOGDIR] [--rounds N]

For Linux, whose units and calls it uses. This process stays small on purpose: the
memory of the parent at the moment of the start counts into the peak of the child.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceview.xplane.columns import Fields

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 3
TRACE_VERSION = 1
"""Raised whenever `bench_trace` changes what it writes, so that no older file is measured."""

RUN = "run1"
TRACEVIEW = "traceview analyze"
EVERYTHING = "every analysis"
CAUSES = "the same with causes, input, transfers, launches and precision"
ACCOUNTING = "device time, steps, timeline and ops alone"
NO_XPROF = "xprof is not installed here (pip install traceview[xprof]): traceview is measured alone"


@dataclass(frozen=True)
class Usage:
    """What one process took; `cpu_seconds` of all its threads, which other work on the machine hardly changes."""

    seconds: float
    peak_mb: float
    cpu_seconds: float


@dataclass(frozen=True)
class Case:
    """A command to measure: its name, and its arguments with `{logdir}` and `{run}` open."""

    name: str
    command: tuple[str, ...]

    def arguments(self, logdir: Path) -> list[str]:
        """The command line for one log directory."""
        return [part.format(logdir=logdir, run=RUN) for part in self.command]


class BenchError(Exception):
    """A measured command failed; the message holds the end of what it said."""


def _program(name: str) -> str | None:
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)


def cases() -> list[Case]:
    """The commands to compare, traceview first; XProf's only where it is installed."""
    own = _program("traceview")
    start = (own,) if own else (sys.executable, "-m", "traceview")
    found = [Case(TRACEVIEW, (*start, "analyze", "{logdir}"))]
    xprof = _program("xprof")
    if xprof is None or importlib.util.find_spec("xprof") is None:
        print(NO_XPROF, file=sys.stderr)
        return found
    for command in ("get_overview", "get_kernel_stats"):
        arguments = (xprof, command, "--session_id={run}", "--logdir={logdir}")
        found.append(Case(f"xprof {command}", arguments))
    return found


def analysis_cases() -> list[Case]:
    """Everything that a report needs, and what accounts for the time without asking why."""
    start = (sys.executable, "-m", "scripts.bench_parts", "{logdir}")
    return [
        Case(EVERYTHING, (*start, "--all")),
        Case(CAUSES, (*start, "--causes")),
        Case(ACCOUNTING, start),
    ]


def _cold_logdir(files: Sequence[Path], folder: Path) -> Path:
    target = folder / "logdir" / "plugins" / "profile" / RUN
    target.mkdir(parents=True)
    for file in files:
        shutil.copyfile(file, target / file.name)
    return folder / "logdir"


def measure(case: Case, files: Sequence[Path], scratch: Path) -> Usage:
    """Run the command once on a fresh copy of the run; raises `BenchError` if it fails."""
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        folder = Path(name)
        (folder / "tmp").mkdir()
        arguments = case.arguments(_cold_logdir(files, folder))
        environment = {**os.environ, "TMPDIR": str(folder / "tmp")}
        # As installed: what is measured is not the compilation of Python files.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            begin = time.perf_counter()
            process = subprocess.Popen(arguments, stdout=out, stderr=err, env=environment, cwd=ROOT)
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - begin
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            tail = (folder / "err").read_text(errors="replace")[-2000:]
            raise BenchError(f"{' '.join(arguments)} ended with {process.returncode}\n{tail}")
    return Usage(seconds, usage.ru_maxrss * 1024 / 1e6, usage.ru_utime + usage.ru_stime)


def compare(
    chosen: Sequence[Case], files: Sequence[Path], rounds: int, scratch: Path
) -> dict[str, Usage]:
    """Medians per command, the commands taking turns so that a busy minute hits all of them."""
    runs: dict[str, list[Usage]] = {}
    for number in range(rounds):
        for case in chosen:
            print(f"{case.name}, run {number + 1} of {rounds} …", file=sys.stderr)
            runs.setdefault(case.name, []).append(measure(case, files, scratch))
    return {
        name: Usage(
            statistics.median(usage.seconds for usage in usages),
            statistics.median(usage.peak_mb for usage in usages),
            statistics.median(usage.cpu_seconds for usage in usages),
        )
        for name, usages in runs.items()
    }


def table(usages: dict[str, Usage]) -> str:
    """Markdown: medians, and how many times as much as traceview each takes."""
    own = usages[TRACEVIEW]
    lines = [
        "| command | s | × | peak MB | × |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, usage in usages.items():
        times = usage.seconds / own.seconds
        memory = usage.peak_mb / own.peak_mb
        lines.append(
            f"| `{name}` | {usage.seconds:.2f} | {times:.1f} | {usage.peak_mb:.0f} | {memory:.1f} |"
        )
    return "\n".join(lines)


def decoder_speed(path: Path) -> float:
    """Seconds that the decoder needs for every event of the file, and every stat of every event."""
    from traceview.xplane import schema
    from traceview.xplane.columns import WantedStats
    from traceview.xplane.read import DECODER

    data = path.read_bytes()
    wanted = WantedStats.of({stat_id: stat_id for stat_id in range(1 << 12)})
    begin = time.perf_counter()
    for start, end in _fields(DECODER.scan_fields(data, 0, len(data)), schema.SPACE_PLANES):
        for bounds in _fields(DECODER.scan_fields(data, start, end), schema.PLANE_LINES):
            DECODER.decode_line(data, *bounds, wanted)
    return time.perf_counter() - begin


def _fields(fields: Fields, number: int) -> list[tuple[int, int]]:
    chosen = fields.number == number
    return list(zip(fields.begin[chosen].tolist(), fields.end[chosen].tolist(), strict=True))


def read_speed(path: Path) -> float:
    """Seconds that a plain read of the file takes."""
    begin = time.perf_counter()
    path.read_bytes()
    return time.perf_counter() - begin


def _decoder_process(path: Path, rounds: int) -> None:
    """Measure on one core, so that the decoder's threads cannot help, and print JSON."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    seconds = {
        "plain read of the file": statistics.median(read_speed(path) for _ in range(rounds)),
        "traceview decodes every event and stat": statistics.median(
            decoder_speed(path) for _ in range(rounds)
        ),
    }
    print(json.dumps(seconds))


def decoder_table(path: Path, rounds: int) -> str:
    """Markdown: the decoder beside a plain read, measured in a process of its own."""
    command = [sys.executable, "-m", "scripts.bench", "--decoder", str(path)]
    done = subprocess.run(
        [*command, "--rounds", str(rounds)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise BenchError(f"the decoder could not be measured\n{done.stderr[-2000:]}")
    size_mb = path.stat().st_size / 1e6
    lines = ["| one core | s | MB/s |", "|---|---:|---:|"]
    for name, seconds in json.loads(done.stdout).items():
        lines.append(f"| {name} | {seconds:.3f} | {size_mb / seconds:.0f} |")
    return "\n".join(lines)


def large_trace(scratch: Path) -> Path:
    """The generated trace, from an earlier call if it is still there."""
    path = scratch / f"v{TRACE_VERSION}" / "bench-host.xplane.pb"
    if not path.exists():
        print(f"writing {path} …", file=sys.stderr)
        command = [sys.executable, "-m", "scripts.bench_trace", str(path)]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return path


def small_run(logdir: Path) -> list[Path]:
    """The files of the first run found below `logdir`, in the order of their names."""
    files = sorted(logdir.rglob("*.xplane.pb"))
    return [file for file in files if file.parent == files[0].parent]


def _print_comparison(files: Sequence[Path], title: str, rounds: int, scratch: Path) -> None:
    size_mb = sum(file.stat().st_size for file in files) / 1e6
    print(f"\n{title}, {size_mb:.1f} MB, median of {rounds}, cold:\n")
    print(table(compare(cases(), files, rounds, scratch)), flush=True)


def analysis_table(usages: dict[str, Usage]) -> str:
    """Markdown: what every analysis takes, as a multiple of the accounting alone."""
    base = usages[ACCOUNTING]
    lines = ["| analyses | s | × | CPU s | × |", "|---|---:|---:|---:|---:|"]
    for name, usage in usages.items():
        times = usage.seconds / base.seconds
        work = usage.cpu_seconds / base.cpu_seconds
        lines.append(
            f"| {name} | {usage.seconds:.2f} | {times:.2f} | {usage.cpu_seconds:.2f} | {work:.2f} |"
        )
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.bench", description=__doc__)
    parser.add_argument("--trace", type=Path, help="measure this file, not the generated one")
    parser.add_argument("--small", type=Path, default=ROOT / "fixtures", metavar="LOGDIR")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--decoder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Measure and print; 1 if a command fails."""
    arguments = _arguments()
    if arguments.decoder is not None:
        _decoder_process(arguments.decoder, arguments.rounds)
        return 0
    scratch = Path(tempfile.gettempdir()) / "traceview-bench"
    scratch.mkdir(exist_ok=True)
    trace = arguments.trace or large_trace(scratch)
    small = small_run(arguments.small)
    try:
        _print_comparison([trace], trace.name, arguments.rounds, scratch)
        usages = compare(analysis_cases(), [trace], arguments.rounds, scratch)
        print(f"\n{analysis_table(usages)}", flush=True)
        print(f"\n{decoder_table(trace, arguments.rounds)}", flush=True)
        if small:
            _print_comparison(small, small[0].name, arguments.rounds, scratch)
        else:
            print(f"no trace below {arguments.small}", file=sys.stderr)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
