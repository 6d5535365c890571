"""Pairs of runs with a known change: what does a comparison have to say of each?

Each side has three captures. Every run has ten steps on four GPUs that wait for input, copy, compute and reduce their gradients. Each length varies by
a percent from step to step. A pair says what changed, in which state of the ledger, and by how much per step.

    python -m scripts.scenarios.pairs input_doubled DIR    writes DIR/before-1 to DIR/after-3
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

from scripts.cuda_trace import MS
from scripts.scenarios.mixtures import Mixture, Plan, built

STEPS: Final = 10
CAPTURES: Final = 3
NOISE: Final = 0.01
_HEALTHY: Final = {"input": 4 * MS, "copy": 2 * MS, "collective": 3 * MS}
"""What each step of a run has before the change, picoseconds."""
_COMPUTE_PS: Final = 20 * MS


@dataclass(frozen=True)
class Pair:
    """Captures of two sides. `changes`: by state what its mean over the devices changes by, picoseconds per step."""

    before: tuple[Mixture, ...]
    after: tuple[Mixture, ...]
    changes: Mapping[str, float]

    def write(self, folder: Path) -> tuple[list[Path], list[Path]]:
        """Store all runs and return the log directories of each side."""
        sides = []
        for side, runs in (("before", self.before), ("after", self.after)):
            paths = [folder / f"{side}-{number}" for number in range(1, len(runs) + 1)]
            for path, run in zip(paths, runs, strict=True):
                run.scenario.write(path)
            sides.append(paths)
        return sides[0], sides[1]


def plan(seed: int, lengths: Mapping[str, int], *, gpu_count: int = 4) -> Plan:
    """A run with these lengths in every step, and noise; what is recorded of one step follows the last one."""
    chance = Random(seed)

    def noisy(length_ps: int) -> int:
        return round(length_ps * (1 + chance.gauss(0, NOISE)))

    series = {
        name: tuple(0 if _is_without(name, step) else noisy(length_ps) for step in range(STEPS))
        for name, length_ps in lengths.items()
    }
    series["compute"] = tuple(
        noisy(_COMPUTE_PS + lengths.get("compute", 0)) - _COMPUTE_PS for _ in range(STEPS)
    )
    return Plan(gpu_count, STEPS, _COMPUTE_PS, series, 0, ("input", "checkpoint", "sync"))


def _is_without(name: str, step: int) -> bool:
    """The first step is traced anyway, and no time between steps follows the last."""
    return (name == "retracing" and step == 0) or (name == "callback" and step == STEPS - 1)


def _pair(name: str, *, gpu_count: int = 4, **changes_ms: float) -> Pair:
    """Healthy runs, and some in which these lengths are longer by so many milliseconds."""
    before = [plan(seed, _HEALTHY) for seed in range(1, 2 * CAPTURES, 2)]
    lengths = dict(_HEALTHY)
    for slowdown, more_ms in changes_ms.items():
        lengths[slowdown] = lengths.get(slowdown, 0) + round(more_ms * MS)
    after = [
        replace(plan(seed, lengths), gpu_count=gpu_count) for seed in range(2, 2 * CAPTURES + 1, 2)
    ]
    states = {
        "copy": "h2d",
        "retracing": "compile",
        "collective": "communication",
        "callback": "between",
        "straggler": "compute",
    }
    changes = {
        states.get(slowdown, slowdown): _mean(after, slowdown) - _mean(before, slowdown)
        for slowdown in changes_ms
    }
    return Pair(_built(before, f"{name}-before"), _built(after, f"{name}-after"), changes)


def _built(runs: Sequence[Plan], name: str) -> tuple[Mixture, ...]:
    return tuple(built(run, f"{name}-{number}") for number, run in enumerate(runs, 1))


def _mean(runs: Sequence[Plan], slowdown: str) -> float:
    return sum(sum(run.lengths.get(slowdown, ())) for run in runs) / STEPS / len(runs)


PAIRS: Final[Mapping[str, Callable[[], Pair]]] = {
    "op_slower": lambda: _pair("op_slower", compute=6),
    "copy_added": lambda: _pair("copy_added", copy=2),
    "input_doubled": lambda: _pair("input_doubled", input=4),
    "input_fivefold": lambda: _pair("input_fivefold", input=16),
    "gpu_gone": lambda: _pair("gpu_gone", gpu_count=3),
    "collective_slower": lambda: _pair("collective_slower", collective=3),
    "callback_added": lambda: _pair("callback_added", callback=4),
    "retracing_begun": lambda: _pair("retracing_begun", retracing=5),
    "straggler_begun": lambda: _pair("straggler_begun", straggler=4),
    "changes_cancel": lambda: _pair("changes_cancel", input=-3, compute=3),
    "noise_only": lambda: _pair("noise_only"),
}


def main() -> None:
    """Write a pair to look at it."""
    parser = argparse.ArgumentParser(prog="python -m scripts.scenarios.pairs", description=__doc__)
    parser.add_argument("pair", choices=PAIRS)
    parser.add_argument("directory", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    for side in PAIRS[arguments.pair]().write(arguments.directory):
        print(*side)


if __name__ == "__main__":
    main()
