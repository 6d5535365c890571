"""Measures how often a comparison of step times is wrong, with the noise of recorded runs, and prints the figures.

`long_captures.csv` holds 31 steps each of two captures of 29 programs, in nanoseconds: program, capture, steps in order. Of
their noise pairs of runs with a known change are made (`made_pairs`). `repeated_captures.csv` holds 27 programs, each captured
five times without a change, twelve steps each: from it come pairs of captures as they are (`real_pairs`), and how much whole
runs of one program differ (`run_spread`). All ran on two shared cores.

    python -m scripts.step_noise
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Final

import numpy as np

from traceview.base.stats import Float64Array
from traceview.comparison.difference import (
    Level,
    RunSpread,
    StepChange,
    step_change,
    step_level,
)

LONG: Final = Path(__file__).with_name("long_captures.csv")
REPEATED: Final = Path(__file__).with_name("repeated_captures.csv")
PAIRS: Final = 800
STEPS: Final = 10
MEAN_BLOCK: Final = 5
"""Neighbouring steps that a made run takes from a recorded one at once, on average: so it varies and drifts like it."""

Captures = Mapping[str, Sequence[Float64Array]]


def recorded(table: Path) -> Captures:
    """The steps of every capture by program, nanoseconds."""
    captures: dict[str, list[Float64Array]] = {}
    for line in table.read_text(encoding="ascii").splitlines():
        program, _, *steps = line.split(",")
        captures.setdefault(program, []).append(np.array(steps, dtype=np.float64))
    return captures


def every_capture(captures: Captures) -> list[Float64Array]:
    """The captures of all programs."""
    return [steps for of_program in captures.values() for steps in of_program]


def quiet_half(captures: Sequence[Float64Array]) -> list[Float64Array]:
    """The captures whose steps vary by no more than those of the median one, as a share of their mean."""
    middle = float(np.median([variation(steps) for steps in captures]))
    return [steps for steps in captures if variation(steps) <= middle]


def variation(steps: Float64Array) -> float:
    """Standard deviation of the steps as a share of their mean."""
    return float(steps.std() / steps.mean())


def made_run(
    capture: Float64Array, random: np.random.Generator, step_count: int = STEPS
) -> Float64Array:
    """Steps in blocks of neighbours, each from a random place of a recorded series, over the mean of that."""
    pieces: list[Float64Array] = []
    while sum(piece.size for piece in pieces) < step_count:
        start = int(random.integers(capture.size))
        pieces.append(capture[start : start + int(random.geometric(1 / MEAN_BLOCK))])
    run: Float64Array = np.concatenate(pieces)[:step_count] / capture.mean()
    return run


def made_pairs(
    captures: Sequence[Float64Array], step_count: int = STEPS
) -> Iterator[tuple[Float64Array, Float64Array]]:
    """Pairs of runs without a change, both with the noise of the same random capture."""
    random = np.random.default_rng(0)
    for _ in range(PAIRS):
        capture = captures[int(random.integers(len(captures)))]
        yield made_run(capture, random, step_count), made_run(capture, random, step_count)


def change_of(
    before: Sequence[Float64Array], after: Sequence[Float64Array], spread: RunSpread | None = None
) -> StepChange:
    """What is said of two sides of captures."""
    change = step_change(levels(before), levels(after), spread)
    assert change is not None
    return change


def levels(captures: Sequence[Float64Array]) -> list[Level]:
    """The level of each capture."""
    return [level for steps in captures if (level := step_level(steps)) is not None]


def found(captures: Sequence[Float64Array], ratio: float | None, step_count: int = STEPS) -> float:
    """The share of pairs that are called slower or faster if the second run changes by `ratio`.

    None: by what is said to be shown by runs as these.
    """
    called = 0
    for before, after in made_pairs(captures, step_count):
        change = ratio
        if change is None:
            change = change_of([before], [after]).least_shown_ratio or 0.0
        called += change_of([before], [after * (1 + change)]).direction in ("slower", "faster")
    return called / PAIRS


def held(captures: Sequence[Float64Array], ratio: float) -> float:
    """The share of intervals that hold the true change."""
    count = 0
    for before, after in made_pairs(captures):
        result = change_of([before], [after * (1 + ratio)])
        assert result.low_ratio is not None
        assert result.high_ratio is not None
        count += result.low_ratio <= ratio <= result.high_ratio
    return count / PAIRS


def run_spread(captures: Captures) -> RunSpread:
    """How much whole runs of a program differ: the prior of its variance by the moments of the logarithm (Smyth 2004)."""
    logarithms, degrees = [], 0
    for of_program in captures.values():
        values = [level.value for level in levels(of_program)]
        degrees = len(values) - 1
        logarithms.append(math.log(float(np.var(values, ddof=1))))
    excess = np.array(logarithms) - _digamma(degrees / 2) + math.log(degrees / 2)
    beyond = float(excess.var(ddof=1)) - _trigamma(degrees / 2)
    half = _where(_trigamma, beyond)
    variance = math.exp(float(excess.mean()) + _digamma(half) - math.log(half))
    return RunSpread(ratio=math.sqrt(variance), degrees=2 * half)


def real_pairs(captures: Captures, *, of_each: int, ratio: float = 0.0) -> list[StepChange]:
    """Every pair of sides with so many recorded captures, the second changed by `ratio`, judged by the spread of the other
    programs.
    """
    results = []
    for program, of_program in captures.items():
        spread = run_spread({name: rest for name, rest in captures.items() if name != program})
        places = range(len(of_program))
        for before in combinations(places, of_each):
            for after in combinations([place for place in places if place not in before], of_each):
                if before < after:
                    old = [of_program[place] for place in before]
                    new = [of_program[place] * (1 + ratio) for place in after]
                    results.append(change_of(old, new, spread))
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


def called_share(results: Sequence[StepChange]) -> float:
    """The share that is called slower or faster."""
    return sum(result.direction in ("slower", "faster") for result in results) / len(results)


def main() -> None:
    """Print the figures that docs/method.md states."""
    every = every_capture(recorded(LONG))
    for name, chosen in (("all captures", every), ("the quieter half", quiet_half(every))):
        spread = float(np.median([variation(steps) for steps in chosen]))
        print(f"{name}: steps vary by {spread:.1%} (median); {PAIRS} pairs")
        for count in (STEPS // 2, STEPS, 2 * STEPS, 3 * STEPS):
            shares = [f"{ratio:.0%}: {found(chosen, ratio, count):.1%}" for ratio in _CHANGES]
            print(f"  {count} steps: called with a change of {', '.join(shares)}")
        print(f"  least_shown_ratio found: {found(chosen, None):.1%}")
        shares = [f"{ratio:.0%}: {held(chosen, ratio):.1%}" for ratio in (0.0, 0.1, 0.3)]
        print(f"  intervals that hold {', '.join(shares)}")
    captures = recorded(REPEATED)
    of_runs = run_spread(captures)
    print(
        f"runs differ by {of_runs.ratio:.1%}, known as if from {of_runs.degrees:.2f} degrees of freedom"
    )
    for of_each in (1, 2):
        for ratio in (*_CHANGES, 1.0):
            results = real_pairs(captures, of_each=of_each, ratio=ratio)
            width = np.median([result.least_shown_ratio or 0.0 for result in results])
            print(
                f"{len(results)} real pairs of {of_each} and {of_each} captures, changed by {ratio:.0%}: "
                f"{called_share(results):.1%} called; least shown {width:.0%} (median)"
            )
    alone = [change_of([a], [b]) for of in captures.values() for a, b in combinations(of, 2)]
    print(f"without the spread of runs: {called_share(alone):.1%} of {len(alone)} called")


_CHANGES: Final = (0.0, 0.1, 0.2)


if __name__ == "__main__":
    main()
