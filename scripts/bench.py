"""Measures time and memory of traceview beside XProf's on traces of four sizes, and prints them as Markdown tables.

Each measurement is a whole process with cold caches; the programs take turns. XProf keeps caches beside the trace and
in the temporary directory, so every run gets new ones of both. Peak memory is that of the largest process of a run.
A loop over the messages of the protobuf runtime and reading the file show what a simple program takes. A further table
measures the decoder.

    python -m scripts.bench [--size MB] [--rounds N] [--trace FILE]
    python -m scripts.bench --check     measure the two small sizes; fails if a ratio to XProf is 30 % worse than in docs/speed.md

For Linux, whose units and calls it uses. This process stays small on purpose: the
memory of the parent at the moment of the start counts into the peak of the child.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceview.xplane.columns import Fields

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "speed.md"
SMALL = ROOT / "fixtures" / "keras-fit-4"
ROUNDS = 3
TRACE_VERSION = 1
"""Raised whenever `bench_trace` changes what it writes, so that no older file is measured."""

STEPS_OF_MB = {4: 1, 118: 51, 470: 204}
"""Steps of the generated traces by their size; the smallest size, 0.1 MB, is a recorded trace."""

CHECKED_MB = (0.1, 4)
WORSE = 0.7
"""A ratio to XProf below this share of the published one fails the check."""

RUN = "run1"
TRACEVIEW = "traceview analyze"
NO_XPROF = "xprof is not installed here (pip install traceview[xprof]): traceview is measured alone"
_TITLE = re.compile(r"^\| ([\d.]+) MB, .* \| s \| × \| peak MB \| × \|$")
_ROW = re.compile(r"^\| `(xprof [^`]+)` \| [\d.]+ \| ([\d.]+) \|")


@dataclass(frozen=True)
class Usage:
    """What one process took."""

    seconds: float
    peak_mb: float


@dataclass(frozen=True)
class Case:
    """A command to measure: its name, and its arguments with `{logdir}`, `{run}` and `{file}` open."""

    name: str
    command: tuple[str, ...]

    def arguments(self, logdir: Path, file: Path) -> list[str]:
        """The command line for one log directory, and the largest file in it."""
        return [part.format(logdir=logdir, run=RUN, file=file) for part in self.command]


class BenchError(Exception):
    """A measured command failed; the message holds the end of what it said."""


def _program(name: str) -> str | None:
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)


def cases() -> list[Case]:
    """The commands to compare, traceview first; XProf's only where it is installed."""
    python = sys.executable
    found = [Case(TRACEVIEW, (python, "-m", "traceview", "analyze", "{logdir}"))]
    xprof = _program("xprof")
    if xprof is None or importlib.util.find_spec("xprof") is None:
        print(NO_XPROF, file=sys.stderr)
    else:
        for command in ("get_overview", "get_kernel_stats"):
            arguments = (xprof, command, "--session_id={run}", "--logdir={logdir}")
            found.append(Case(f"xprof {command}", arguments))
    read = "import sys; open(sys.argv[1], 'rb').read()"
    return [
        *found,
        Case("loop over protobuf", (python, "-m", "scripts.bench_protobuf", "{file}")),
        Case("reading the file", (python, "-c", read, "{file}")),
    ]


def _cold_logdir(files: Sequence[Path], folder: Path) -> Path:
    target = folder / "logdir" / "plugins" / "profile" / RUN
    target.mkdir(parents=True)
    for file in files:
        shutil.copyfile(file, target / file.name)
        with (target / file.name).open("rb") as copy:
            # Neither is the copy still being written while it is read, nor is it in memory.
            os.fsync(copy.fileno())
            os.posix_fadvise(copy.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return folder / "logdir"


def measure(case: Case, files: Sequence[Path], scratch: Path) -> Usage:
    """Run the command once on a fresh copy of the run; raises `BenchError` if it fails."""
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        folder = Path(name)
        (folder / "tmp").mkdir()
        largest = max(files, key=lambda file: file.stat().st_size)
        arguments = case.arguments(_cold_logdir(files, folder), largest)
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
    return Usage(seconds, usage.ru_maxrss * 1024 / 1e6)


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
        )
        for name, usages in runs.items()
    }


def table(title: str, usages: dict[str, Usage]) -> str:
    """Markdown: medians, and how many times as much as traceview each takes."""
    own = usages[TRACEVIEW]
    lines = [f"| {title} | s | × | peak MB | × |", "|---|---:|---:|---:|---:|"]
    for name, usage in usages.items():
        times = usage.seconds / own.seconds
        memory = usage.peak_mb / own.peak_mb
        lines.append(
            f"| `{name}` | {usage.seconds:.2f} | {times:.2f} | {usage.peak_mb:.0f} | {memory:.1f} |"
        )
    return "\n".join(lines)


# The ratios of the page


def published(page: str) -> dict[float, dict[str, float]]:
    """By size in MB, how many times as long as traceview each command of XProf takes according to a page of `table`s."""
    ratios: dict[float, dict[str, float]] = {}
    size = None
    for line in page.splitlines():
        title = _TITLE.match(line)
        if title:
            size = float(title[1])
        elif not line.startswith("|"):
            size = None
        row = _ROW.match(line)
        if row and size is not None:
            ratios.setdefault(size, {})[row[1]] = float(row[2])
    return ratios


def worse(known: dict[str, float], usages: dict[str, Usage]) -> Iterator[str]:
    """A line for each command of XProf that is less slow beside traceview than it was."""
    for name, ratio in known.items():
        if name in usages:
            now = usages[name].seconds / usages[TRACEVIEW].seconds
            if now < WORSE * ratio:
                yield f"{name} takes {now:.2f} times as long as {TRACEVIEW}; it was {ratio:.2f}"


def check(rounds: int, scratch: Path) -> int:
    """Measure the small sizes; 1 if a ratio is much worse than that of the page, or nothing could be compared."""
    known, failures, compared = published(PAGE.read_text()), [], 0
    for size in CHECKED_MB:
        usages = compare(cases()[:3], files_of(size, scratch), rounds, scratch)
        compared += sum(name in usages for name in known.get(size, {}))
        failures += [f"{size:g} MB: {line}" for line in worse(known.get(size, {}), usages)]
    print("\n".join(failures) or f"{compared} ratios are as in {PAGE.name} or better")
    return 1 if failures or not compared else 0


# The decoder


def decoder_speed(path: Path) -> float:
    """Seconds that the decoder needs for every event of the file, and every stat of every event."""
    from concurrent.futures import ThreadPoolExecutor

    from traceview.xplane.columns import WantedStats
    from traceview.xplane.read import DECODER, PLANE_LINES, SPACE_PLANES

    data = path.read_bytes()
    wanted = WantedStats.of({stat_id: stat_id for stat_id in range(1 << 12)})
    begin = time.perf_counter()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for start, end in _fields(DECODER.scan_fields(data, 0, len(data)), SPACE_PLANES):
            of_plane = DECODER.scan_fields(data, start, end)
            for line_begin, line_end in _fields(of_plane, PLANE_LINES):
                pool.submit(DECODER.decode_line, data, line_begin, line_end, wanted)
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
    """Measure on one core and on two, and print JSON."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    seconds = {"plain read of the file": statistics.median(read_speed(path) for _ in range(rounds))}
    for count in range(len(cores), 0, -1):
        os.sched_setaffinity(0, cores[:count])
        name = f"every event and stat decoded, {'one core' if count == 1 else f'{count} cores'}"
        seconds[name] = statistics.median(decoder_speed(path) for _ in range(rounds))
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
    lines = ["| inside one process | s | MB/s |", "|---|---:|---:|"]
    for name, seconds in json.loads(done.stdout).items():
        lines.append(f"| {name} | {seconds:.3f} | {size_mb / seconds:.0f} |")
    return "\n".join(lines)


# The traces


def files_of(size_mb: float, scratch: Path) -> list[Path]:
    """The files of the run of a size: recorded, or generated by an earlier call or now."""
    if size_mb not in STEPS_OF_MB:
        return sorted(SMALL.rglob("*.xplane.pb"))
    path = scratch / f"v{TRACE_VERSION}-{size_mb:g}MB" / "bench-host.xplane.pb"
    if not path.exists():
        print(f"writing {path} …", file=sys.stderr)
        steps = str(STEPS_OF_MB[int(size_mb)])
        command = [sys.executable, "-m", "scripts.bench_trace", str(path), "--steps", steps]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return [path]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.bench", description=__doc__)
    sizes = (CHECKED_MB[0], *STEPS_OF_MB)
    parser.add_argument("--size", type=float, choices=sizes, action="append", metavar="MB")
    parser.add_argument("--trace", type=Path, help="measure this file, not the generated ones")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--check", action="store_true", help="compare with docs/speed.md")
    parser.add_argument("--decoder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Measure and print; 1 if a command or the check fails."""
    arguments = _arguments()
    if arguments.decoder is not None:
        _decoder_process(arguments.decoder, arguments.rounds)
        return 0
    scratch = Path(tempfile.gettempdir()) / "traceview-bench"
    scratch.mkdir(exist_ok=True)
    try:
        if arguments.check:
            return check(arguments.rounds, scratch)
        for size in arguments.size or (CHECKED_MB[0], *STEPS_OF_MB):
            files = [arguments.trace] if arguments.trace else files_of(size, scratch)
            measured_mb = sum(file.stat().st_size for file in files) / 1e6
            title = f"{size:g} MB, median of {arguments.rounds}"
            if arguments.trace:
                title = f"{measured_mb:.0f} MB, {arguments.trace.name}"
            print(
                f"\n{table(title, compare(cases(), files, arguments.rounds, scratch))}", flush=True
            )
            if size == 118:
                print(f"\n{decoder_table(files[0], arguments.rounds)}", flush=True)
            if arguments.trace:
                break
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
