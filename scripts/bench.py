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
RECORDED: Final = sorted(SMALL.rglob("*.xplane.pb"))
TRACEVIEW: Final = (sys.executable, "-m", "traceview", "analyze", "{logdir}")
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
    """The files of a row, written by an earlier call or now."""
    logdir = scratch / f"v{VERSION}" / name.replace(" ", "-").replace(",", "")
    if not logdir.exists():
        print(f"writing {logdir} …", file=sys.stderr)
        part = logdir.with_name(f"{logdir.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        shapes(name, str(part))
        part.rename(logdir)
    return sorted(logdir.rglob("*.xplane.pb"))


def shapes(*arguments: str) -> str:
    """What `scripts.shapes` prints, which runs in a process of its own so that it leaves no memory behind."""
    command = [sys.executable, "-m", "scripts.shapes", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


# The tables


def matrix(names: Sequence[str], rounds: int, scratch: Path, *, with_xprof: bool) -> Iterator[str]:
    """A row per trace. The exponent is of processor time without that of a start, from the row before: 1 where twice as much
    takes twice as long.

    `with_xprof`: rows of `_BESIDE_XPROF` say what its overview takes, and how many times as long that is.
    """
    commands = {"traceview": TRACEVIEW}
    beside = {**commands, "xprof": _xprof()} if with_xprof else commands
    yield (
        "| along | number | MB | s | CPU s | exponent | peak MB "
        "| XProf s | × | XProf CPU s | × | XProf MB |"
    )
    yield f"|---{'|---:' * 11}|"
    usages = in_turns(beside, RECORDED, max(rounds, 3), scratch)
    start_cpu = usages["traceview"].cpu
    yield _row("recorded", 1, RECORDED, usages, "")
    before = ("", 0, 0.0)
    for name in names:
        axis, number = name.split("=")[0], int(name.split("=")[1])
        files = files_of(name, scratch)
        usages = in_turns(beside if name in _BESIDE_XPROF else commands, files, rounds, scratch)
        above = usages["traceview"].cpu - start_cpu
        exponent = ""
        if before[0] == axis and before[2] >= _CLEAR_SECONDS:
            exponent = f"{math.log(above / before[2]) / math.log(number / before[1]):.2f}"
        before = axis, number, above
        yield _row(axis, number, files, usages, exponent)


def _row(
    axis: str, number: int, files: Sequence[Path], usages: Mapping[str, Usage], exponent: str
) -> str:
    own, other = usages["traceview"], usages.get("xprof")
    cells = [f"{own.seconds:.2f}", f"{own.cpu:.2f}", exponent, f"{own.peak_mb:.0f}"]
    if other is None:
        cells += [""] * 5
    else:
        cells += [f"{other.seconds:.2f}", f"{other.seconds / own.seconds:.1f}"]
        cells += [f"{other.cpu:.2f}", f"{other.cpu / own.cpu:.1f}", f"{other.peak_mb:.0f}"]
    mb = sum(file.stat().st_size for file in files) / 1e6
    return f"| {axis} | {number:,} | {mb:.1f} | {' | '.join(cells)} |"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--row", action="append", metavar="NAME", help="a row or an axis")
    parser.add_argument("--xprof", action="store_true", help="XProf beside some rows")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def main() -> int:
    """Measure and print; 1 if a command fails."""
    arguments = _arguments()
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


def _chosen(wanted: Sequence[str] | None) -> list[str]:
    """The names of the rows of these names or axes, by default of all."""
    names = shapes().splitlines()
    chosen = [name for name in names if not wanted or {name, name.split("=")[0]} & set(wanted)]
    if not chosen:
        raise BenchError(f"no such row; there are {', '.join(names)}")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
