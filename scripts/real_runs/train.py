"""Trains with one of the programs as if it were the script: `python -m scripts.real_runs.train NAME`.

A program that has to be started in a way of its own calls `run_blocks` itself.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

from scripts.real_runs.step_clock import run_blocks


def main(name: str) -> None:
    """Run the program of this name as `__main__`, which it stays until the process ends."""
    path = Path(__file__).resolve().parent / "programs" / f"{name}.py"
    program = ModuleType("__main__")
    program.__file__ = sys.argv[0] = str(path)
    sys.modules["__main__"] = program
    exec(compile(path.read_bytes(), path, "exec"), vars(program))
    if "run_blocks" not in vars(program) and hasattr(program, "train"):
        run_blocks(program.train)


if __name__ == "__main__":
    main(sys.argv[1])
