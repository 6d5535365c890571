"""Records programs with `traceview capture`, and measures each slowdown without it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from scripts.real_runs.step_clock import WINDOW
from scripts.real_runs.table import Program
from scripts.real_runs.truth import Block, read_blocks, true_cost

ROOT: Final = Path(__file__).resolve().parents[2]
PROGRAMS_FOLDER: Final = Path(__file__).resolve().parent / "programs"
PAIRS: Final = "1 0 1 0 1 0"
MOST_ATTEMPTS: Final = 3
"""How many processes measure a cost, until their pairs agree."""

STEP_TIMES: Final = "step_times.json"
SLOW: Final = "slow"
HEALTHY: Final = "healthy"


def _run(command: Sequence[str | Path], output: Path, **variables: str) -> None:
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": str(ROOT)}
    with output.open("wb") as file:
        subprocess.run(
            [sys.executable, *command],
            check=True,
            cwd=ROOT,
            env={**os.environ, **quiet, **variables},
            stdout=file,
            stderr=subprocess.STDOUT,
        )


def measure(program: Program, folder: Path) -> None:
    """Write the step times with and without the slowdown, of more pairs of runs until they agree."""
    blocks: list[Block] = []
    path = folder / "pairs.json"
    for _ in range(MOST_ATTEMPTS):
        script = PROGRAMS_FOLDER / f"{program.name}.py"
        _run([script], folder / "measure.txt", SLOWDOWN=PAIRS, STEP_TIMES=str(path))
        blocks += read_blocks(path)
        if true_cost(blocks, program.statistic).is_sure:
            break
    path.unlink()
    (folder / STEP_TIMES).write_bytes(msgspec.json.encode(blocks))


def capture(program: Program, folder: Path, *, is_slow: bool) -> None:
    """Replace the recording in `folder`, with the step times by the program's own clock; a failed attempt leaves the old one."""
    fresh = folder.with_name(f".{folder.name}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    script = PROGRAMS_FOLDER / f"{program.name}.py"
    output = fresh / "capture.txt"
    variables = {"SLOWDOWN": str(int(is_slow)), "STEP_TIMES": str(fresh / STEP_TIMES)}
    if program.is_jax:
        _run([script], output, JAX_TRACE=str(fresh), **variables)
    else:
        command = ["-m", "traceview", "capture", "--steps", "{}:{}".format(*WINDOW), "--out"]
        _run([*command, fresh, script], output, **variables)
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)


def record(program: Program, folder: Path, repeats: int, *, keeps: bool = False) -> None:
    """Measure a program with and without its slowdown, then record it `repeats` times in turns with it and without.

    `keeps`: leaves what is there already.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if program.findings and not (keeps and (folder / STEP_TIMES).exists()):
        measure(program, folder)
    kinds = (SLOW, HEALTHY) if program.findings else (HEALTHY,)
    for number in range(1, repeats + 1):
        for kind in kinds:
            path = folder / f"{kind}-{number}"
            if not (keeps and path.exists()):
                capture(program, path, is_slow=kind == SLOW)


def recorded_blocks(folder: Path) -> Iterator[Block]:
    """The runs that were recorded, in turns: their steps by the program's own clock."""
    for slow in sorted(folder.glob(f"{SLOW}-*")):
        healthy = slow.with_name(slow.name.replace(SLOW, HEALTHY))
        for path in (slow, healthy):
            yield from read_blocks(path / STEP_TIMES)
