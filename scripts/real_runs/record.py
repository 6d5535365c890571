"""Records programs, slow and healthy in turns in one process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from scripts.real_runs.table import Program

ROOT: Final = Path(__file__).resolve().parents[2]
STEP_TIMES: Final = "step_times.json"


def record(program: Program, folder: Path, repeats: int) -> None:
    """Replace the recordings in `folder`: `repeats` slow runs, and a healthy one before, between and after them.

    `step_times.json` holds the steps of all runs by the program's own clock. A failed attempt leaves the old ones.
    """
    fresh = folder.with_name(f".{folder.name}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    turns = ["0", *["1", "0"] * (repeats if program.findings else 0)]
    run(program, turns, fresh, {"RECORDINGS": str(fresh)})
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)


def run(program: Program, turns: Sequence[str], folder: Path, more: Mapping[str, str]) -> None:
    """Run a program with these letters of `SLOWDOWN`, its step times and output into a folder; `more`: other variables."""
    variables = {
        "SLOWDOWN": " ".join(turns),
        "FRAMEWORK": "jax" if program.is_jax else "tensorflow",
        "STEP_TIMES": str(folder / STEP_TIMES),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        **({} if program.needs_gpu else {"CUDA_VISIBLE_DEVICES": "-1"}),
        "PYTHONPATH": str(ROOT),
        **more,
    }
    with (folder / "output.txt").open("wb") as output:
        subprocess.run(
            [sys.executable, "-m", "scripts.real_runs.train", program.name],
            check=True,
            cwd=ROOT,
            env={**os.environ, **variables},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
