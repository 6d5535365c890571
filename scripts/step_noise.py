"""Measures how often a comparison of step times is wrong, with the noise of recorded runs, and prints the figures.

`step_noise.csv` holds the steps of 27 programs in nanoseconds, each captured five times without a change on two shared
cores: program, capture, twelve steps in order. From it come pairs of runs with a known change (`found`), pairs of
captures as they are (`real_pairs`), and how much whole runs of one program differ (`run_spread`).

    python -m scripts.step_noise
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Final

import numpy as np

from traceview.comparison.difference import (
    Difference,
    RunSpread,
    difference,
)
from traceview.mean_variance import Float64Array

TABLE: Final = Path(__file__).with_suffix(".csv")
PAIRS: Final = 400
STEPS: Final = 10
MEAN_BLOCK: Final = 5
"""Neighbouring steps that a made run takes from a recorded one at once, on average: so it varies and drifts like it."""

Captures = Mapping[str, Sequence[Float64Array]]


def recorded() -> Captures:
    """The steps of every capture by program, nanoseconds."""
    captures: dict[str, list[Float64Array]] = {}
    for line in TABLE.read_text(encoding="ascii").splitlines():
        program, _, *steps = line.split(",")
        captures.setdefault(program, []).append(np.array(steps, dtype=np.float64))
    return captures


def quiet_half(captures: Captures) -> list[Float64Array]:
    """The captures whose steps vary by no more than those of the median one, as a share of their mean."""
    of_all = [steps for of_program in captures.values() for steps in of_program]
    spreads = [float(steps.std() / steps.mean()) for steps in of_all]
    middle = float(np.median(spreads))
    return [steps for steps, spread in zip(of_all, spreads, strict=True) if spread <= middle]


def made_run(capture: Float64Array, random: np.random.Generator) -> Float64Array:
    """Ten steps in blocks of neighbours, each from a random place of a recorded series, over the mean of that."""
    pieces: list[Float64Array] = []
    while sum(piece.size for piece in pieces) < STEPS:
        start = int(random.integers(capture.size))
        pieces.append(capture[start : start + int(random.geometric(1 / MEAN_BLOCK))])
    run: Float64Array = np.concatenate(pieces)[:STEPS] / capture.mean()
    return run


def pairs(
    captures: Sequence[Float64Array], seed: int = 0
) -> Iterator[tuple[Float64Array, Float64Array]]:
    """Pairs of runs without a change, both with the noise of the same random capture."""
    random = np.random.default_rng(seed)
    for _ in range(PAIRS):
        capture = captures[int(random.integers(len(captures)))]
        yield made_run(capture, random), made_run(capture, random)


def found(captures: Sequence[Float64Array], change: Callable[[Difference], float]) -> float:
    """The share of pairs that are called slower or faster with this change of the second run.

    `change` gets what is said of the same pair without one.
    """
    called = 0
    for before, after in pairs(captures):
        ratio = change(difference([before], [after]))
        called += difference([before], [after * (1 + ratio)]).direction in ("slower", "faster")
    return called / PAIRS


def run_spread(captures: Captures) -> RunSpread:
    """How much whole runs of a program differ: the prior of its variance by the moments of the logarithm (Smyth 2004)."""
    logarithms, degrees = [], 0
    for of_program in captures.values():
        means = np.array([steps.mean() for steps in of_program])
        degrees = means.size - 1
        logarithms.append(math.log(float(np.var(means / means.mean(), ddof=1))))
    excess = np.array(logarithms) - _digamma(degrees / 2) + math.log(degrees / 2)
    beyond = float(excess.var(ddof=1)) - _trigamma(degrees / 2)
    half = _where(_trigamma, beyond)
    variance = math.exp(float(excess.mean()) + _digamma(half) - math.log(half))
    return RunSpread(ratio=math.sqrt(variance), degrees=2 * half)


def real_pairs(captures: Captures, *, of_each: int) -> list[Difference]:
    """Every pair of sides with so many recorded captures, judged by the spread of the other programs."""
    results = []
    for program, of_program in captures.items():
        spread = run_spread({name: rest for name, rest in captures.items() if name != program})
        places = range(len(of_program))
        for before in combinations(places, of_each):
            for after in combinations([place for place in places if place not in before], of_each):
                if before < after:
                    old, new = ([of_program[place] for place in side] for side in (before, after))
                    results.append(difference(old, new, spread))
    return results


def _digamma(x: float) -> float:
    step = 1e-5 * x
    return (math.lgamma(x + step) - math.lgamma(x - step)) / (2 * step)


def _trigamma(x: float) -> float:
    step = 1e-3 * x
    return (_digamma(x + step) - _digamma(x - step)) / (2 * step)


def _where(falling: Callable[[float], float], value: float) -> float:
    low, high = 1e-2, 1e4
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if falling(middle) > value else (low, middle)
    return low


def _called(results: Sequence[Difference]) -> float:
    return sum(result.direction in ("slower", "faster") for result in results) / len(results)


def main() -> None:
    """Print the figures that docs/method.md states."""
    captures = recorded()
    every = [steps for of_program in captures.values() for steps in of_program]
    quiet = quiet_half(captures)
    for name, chosen in (("all captures", every), ("the quieter half", quiet)):
        spread = np.median([steps.std() / steps.mean() for steps in chosen])
        print(f"{name}: steps vary by {spread:.1%} (median)")
        print(f"  called without a change: {found(chosen, lambda _: 0.0):.1%} of {PAIRS} pairs")
        print(f"  8% slower found:         {found(chosen, lambda _: 0.08):.1%}")
        share = found(chosen, lambda result: result.least_shown_ratio or 0.0)
        print(f"  least_shown_ratio found: {share:.1%}")
    spread = run_spread(captures)
    print(
        f"runs differ by {spread.ratio:.1%}, known as if from {spread.degrees:.2f} degrees of freedom"
    )
    for of_each in (1, 2):
        results = real_pairs(captures, of_each=of_each)
        width = np.median([result.least_shown_ratio or 0.0 for result in results])
        print(
            f"{len(results)} real pairs of {of_each} and {of_each} captures: {_called(results):.1%} called;"
            f" least shown {width:.0%} (median)"
        )
    alone = [difference([a], [b]) for of in captures.values() for a, b in combinations(of, 2)]
    print(f"without the spread of runs: {_called(alone):.1%} of {len(alone)} called")


if __name__ == "__main__":
    main()
