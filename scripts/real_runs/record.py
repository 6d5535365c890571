"""Records programs with `traceview capture`, and measures each slowdown without it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
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
    """Replace the recording in `folder`; a failed attempt leaves the old one."""
    fresh = folder.with_name(f".{folder.name}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    script = PROGRAMS_FOLDER / f"{program.name}.py"
    output, slowdown = fresh / "capture.txt", str(int(is_slow))
    if program.is_jax:
        _run([script], output, SLOWDOWN=slowdown, JAX_TRACE=str(fresh))
    else:
        command = ["-m", "traceview", "capture", "--steps", "{}:{}".format(*WINDOW), "--out"]
        _run([*command, fresh, script], output, SLOWDOWN=slowdown)
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)


def record(program: Program, folder: Path, repeats: int, *, keeps: bool = False) -> None:
    """Measure and record a program with its slowdown, if it has one, then `repeats` times without, one right after the other.

    `keeps`: leaves what is there already.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{HEALTHY}-{number}" for number in range(1, repeats + 1)]
    if program.findings:
        names.insert(0, SLOW)
        if not (keeps and (folder / STEP_TIMES).exists()):
            measure(program, folder)
    for name in names:
        if not (keeps and (folder / name).exists()):
            capture(program, folder / name, is_slow=name == SLOW)
