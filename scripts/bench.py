"""Measures time, processor time and memory of traceview on a matrix of traces, beside XProf on some, as Markdown.

Each measurement is a whole process with cold caches; the programs take turns. XProf keeps caches beside the trace and
in the temporary directory, so every run gets new ones of both. Peak memory is that of the largest process of a run.

    python -m scripts.bench                             the whole matrix; hours on a small machine
    python -m scripts.bench --row steps=715 --row GPUs  some rows, or axes
    python -m scripts.bench --xprof                     with XProf beside some of the rows

For Linux, whose units and calls it uses. This process stays small on purpose: the
memory of the parent at the moment of the start counts into the peak of the child.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SMALL: Final = ROOT / "fixtures" / "keras-fit-4"
"""A small recorded trace: what a start costs."""

VERSION: Final = 3
"""Raised whenever `bench_trace` or `shapes` change what they write, so that no older trace is measured."""

RUN: Final = "run1"
SCREEN: Final = ("analyze", "{logdir}")
_CLEAR_SECONDS: Final = 0.2
"""Less processor time beyond that of a start is noise, and shows no growth."""

_BESIDE_XPROF: Final = ("events=1", "events=51", "steps=715", "steps=2860")
_NO_XPROF: Final = "xprof is not installed here: pip install 'traceview[xprof]'"


@dataclass(frozen=True)
class Usage:
    """What one process took; `cpu`: seconds of processor time."""

    seconds: float
    cpu: float
    peak_mb: float

    @classmethod
    def median(cls, usages: Sequence[Usage]) -> Usage:
        """The median of each."""
        values = ((usage.seconds, usage.cpu, usage.peak_mb) for usage in usages)
        return cls(*map(statistics.median, zip(*values, strict=True)))


class BenchError(Exception):
    """A measured command failed; the message holds the end of what it said."""


def _traceview(command: Sequence[str]) -> tuple[str, ...]:
    return (sys.executable, "-m", "traceview", *command)


def _xprof() -> tuple[str, ...]:
    beside = Path(sys.executable).with_name("xprof")
    program = str(beside) if beside.exists() else shutil.which("xprof")
    if program is None or importlib.util.find_spec("xprof") is None:
        raise BenchError(_NO_XPROF)
    return (program, "get_overview", f"--session_id={RUN}", "--logdir={logdir}")


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


def measure(command: Sequence[str], files: Sequence[Path], scratch: Path) -> Usage:
    """Run the command once on a fresh copy of the run; raises `BenchError` if it fails."""
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        folder = Path(name)
        (folder / "tmp").mkdir()
        logdir = _cold_logdir(files, folder)
        arguments = [part.format(logdir=logdir) for part in command]
        environment = {**os.environ, "TMPDIR": str(folder / "tmp")}
        # As installed: what is measured is not the compilation of Python files.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
            begin = time.perf_counter()
            process = subprocess.Popen(arguments, stdout=out, stderr=err, env=environment, cwd=ROOT)
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - begin
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            tail = (folder / "stderr").read_text(errors="replace")[-2000:]
            raise BenchError(f"{' '.join(arguments)} ended with {process.returncode}\n{tail}")
    return Usage(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6)


def in_turns(
    commands: Mapping[str, Sequence[str]], files: Sequence[Path], rounds: int, scratch: Path
) -> dict[str, Usage]:
    """Medians per command, the commands taking turns so that a busy minute hits all of them."""
    runs: dict[str, list[Usage]] = {}
    for number in range(rounds):
        for name, command in commands.items():
            print(f"{name}, run {number + 1} of {rounds} …", file=sys.stderr)
            runs.setdefault(name, []).append(measure(command, files, scratch))
    return {name: Usage.median(usages) for name, usages in runs.items()}


def files_of(name: str, scratch: Path) -> list[Path]:
    """The files of a row, written by an earlier call or now, in a process that leaves no memory behind."""
    logdir = scratch / f"v{VERSION}" / name.replace(" ", "-").replace(",", "")
    if not logdir.exists():
        print(f"writing {logdir} …", file=sys.stderr)
        part = logdir.with_name(f"{logdir.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        command = [sys.executable, "-m", "scripts.bench", "--write", str(part), "--row", name]
        subprocess.run(command, cwd=ROOT, check=True)
        part.rename(logdir)
    return sorted(logdir.rglob("*.xplane.pb"))


def growth(before: tuple[int, float], now: tuple[int, float]) -> float:
    """The exponent with which time grows: 1 where twice as much takes twice as long."""
    return math.log(now[1] / before[1]) / math.log(now[0] / before[0])


# The tables


def matrix(
    names: Sequence[tuple[str, int]], rounds: int, scratch: Path, *, with_xprof: bool
) -> Iterator[str]:
    """A row per trace. The exponent is of processor time without that of a start, from the row before.

    `with_xprof`: rows of `_BESIDE_XPROF` say what its overview takes, and how many times as long that is.
    """
    commands = {"traceview": _traceview(SCREEN)}
    beside = {**commands, "xprof": _xprof()} if with_xprof else commands
    yield (
        "| along | number | MB | s | CPU s | exponent | peak MB "
        "| XProf s | × | XProf CPU s | × | XProf MB |"
    )
    yield f"|---{'|---:' * 11}|"
    usages = in_turns(beside, _recorded(), max(rounds, 3), scratch)
    start_cpu = usages["traceview"].cpu
    yield _row(("recorded", 1), _recorded(), usages, "")
    before: tuple[str, int, float] | None = None
    for axis, number in names:
        name = f"{axis}={number}"
        files = files_of(name, scratch)
        usages = in_turns(beside if name in _BESIDE_XPROF else commands, files, rounds, scratch)
        above = usages["traceview"].cpu - start_cpu
        exponent = ""
        if before and before[0] == axis and before[2] >= _CLEAR_SECONDS:
            exponent = f"{growth(before[1:], (number, above)):.2f}"
        before = axis, number, above
        yield _row((axis, number), files, usages, exponent)


def _row(
    name: tuple[str, int], files: Sequence[Path], usages: Mapping[str, Usage], exponent: str
) -> str:
    own, other = usages["traceview"], usages.get("xprof")
    cells = [f"{own.seconds:.2f}", f"{own.cpu:.2f}", exponent, f"{own.peak_mb:.0f}"]
    if other is None:
        cells += [""] * 5
    else:
        cells += [
            f"{other.seconds:.2f}",
            f"{other.seconds / own.seconds:.1f}",
            f"{other.cpu:.2f}",
            f"{other.cpu / own.cpu:.1f}",
            f"{other.peak_mb:.0f}",
        ]
    return f"| {name[0]} | {name[1]:,} | {_mb(files):.1f} | {' | '.join(cells)} |"


def _recorded() -> list[Path]:
    return sorted(SMALL.rglob("*.xplane.pb"))


def _mb(files: Sequence[Path]) -> float:
    return sum(file.stat().st_size for file in files) / 1e6


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--row", action="append", metavar="NAME", help="a row or an axis")
    parser.add_argument("--xprof", action="store_true", help="XProf beside some rows")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Measure and print; 1 if a command fails."""
    arguments = _arguments()
    if arguments.write is not None:
        from scripts.shapes import ROWS

        (row,) = (row for row in ROWS if row.name == arguments.row[0])
        row.write(arguments.write)
        return 0
    scratch = Path(tempfile.gettempdir()) / "traceview-bench"
    scratch.mkdir(exist_ok=True)
    try:
        rows = _chosen(arguments.row)
        for line in matrix(rows, arguments.rounds, scratch, with_xprof=arguments.xprof):
            print(line, flush=True)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _chosen(wanted: Sequence[str] | None) -> list[tuple[str, int]]:
    """Axis and number of the rows; they are listed in another process, for this one stays small."""
    listed = (
        "from scripts.shapes import ROWS\nfor row in ROWS: print(row.axis, row.number, sep='\\t')"
    )
    command = [sys.executable, "-c", listed]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    rows = [(axis, int(number)) for axis, number in map(_cells, done.stdout.splitlines())]
    chosen = [row for row in rows if not wanted or {row[0], f"{row[0]}={row[1]}"} & set(wanted)]
    if not chosen:
        raise BenchError(f"no such row; there are {', '.join(f'{a}={n}' for a, n in rows)}")
    return chosen


def _cells(line: str) -> tuple[str, str]:
    axis, _, number = line.partition("\t")
    return axis, number


if __name__ == "__main__":
    sys.exit(main())
