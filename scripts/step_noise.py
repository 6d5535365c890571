"""Measures how often a comparison of step times is wrong, and prints the table of docs/runs.md.

Half of it is made: steps whose neighbours are correlated, which drift, or of which some are disturbed, in runs that differ.
The other half is recorded: captures of programs that nobody changed, on shared cores, each against each other
(`*_captures.csv`: program, capture, steps in order, nanoseconds).

    python -m scripts.step_noise
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from traceview.base.stats import Float64Array
from traceview.comparison.gate import outcome_of
from traceview.comparison.noise import (
    DEVICE_SPREAD,
    REPLICA_SPREAD,
    Difference,
    RunSpread,
    StepLevels,
    step_change,
    step_levels,
)

RECORDED: Final = {
    name: Path(__file__).with_name(f"{name}_captures.csv") for name in ("long", "repeated", "busy")
}
REPLICAS: Final = (RECORDED["repeated"], RECORDED["busy"])
PAIRS: Final = 1000
STEPS: Final = 20
VARIATION: Final = 0.03
"""Standard deviation of made steps, as a share of the step."""
CHANGE: Final = 0.08
LIMIT: Final = 0.05
BETWEEN: Final = (0.0, 0.01, 0.03, 0.05)
"""By how much made runs differ: standard deviation, as a share of the step."""

Captures = Mapping[str, Sequence[Float64Array]]
Side = Sequence[Float64Array]


class Noise(NamedTuple):
    """How the steps of a made run vary. `drift`: by how much they become longer or shorter over the run, at most."""

    name: str
    correlation: float = 0.0
    drift: float = 0.0
    disturbed: float = 0.0

    def run(self, random: np.random.Generator, between: float) -> Float64Array:
        """The steps of a run."""
        noise = random.normal(0, 1, STEPS)
        for place in range(1, STEPS):
            own = math.sqrt(1 - self.correlation**2) * noise[place]
            noise[place] = self.correlation * noise[place - 1] + own
        noise = VARIATION * noise + random.normal(0, between)
        noise += random.uniform(-self.drift, self.drift) * np.linspace(-0.5, 0.5, STEPS)
        is_disturbed = random.random(STEPS) < self.disturbed
        steps: Float64Array = np.exp(noise) * (1 + is_disturbed * random.uniform(1, 3, STEPS))
        return steps


NOISES: Final = (
    Noise("independent steps"),
    Noise("ρ = 0.3", 0.3),
    Noise("ρ = 0.5", 0.5),
    Noise("ρ = 0.7", 0.7),
    Noise("drift of up to 20%", 0.3, drift=0.2),
    Noise("one step in ten 2 to 4 times as long", 0.3, disturbed=0.1),
)


class Row(NamedTuple):
    """What was said of pairs of sides. `called`: slower or faster without a change; `held`: intervals that hold a change of 8%;
    `shown`: slower with it; `failed`, `open_`: what a gate of +5% says without a change, and `caught` with it.
    """

    pairs: int
    called: float
    held: float
    shown: float
    failed: float
    open_: float
    caught: float


def change_of(before: Side, after: Side, spread: RunSpread) -> Difference:
    """What is said of two sides of captures."""
    change = step_change(_levels(before), _levels(after), spread)
    assert change is not None
    return change


def _levels(side: Side) -> list[StepLevels]:
    return [levels for steps in side if (levels := step_levels(steps))]


def row_of(pairs: Sequence[tuple[Side, Side]], spread: RunSpread, slower_by: float = CHANGE) -> Row:
    """What is said of these pairs, which have no change, and with the second side slower."""
    same = [change_of(before, after, spread) for before, after in pairs]
    slower = [
        change_of(before, [steps * (1 + slower_by) for steps in after], spread)
        for before, after in pairs
    ]

    def share(rows: Sequence[Difference], condition: Callable[[Difference], bool]) -> float:
        return sum(map(condition, rows)) / len(rows)

    def says(outcome: str) -> Callable[[Difference], bool]:
        return lambda row: outcome_of(row, LIMIT, 1) == outcome

    return Row(
        pairs=len(pairs),
        called=share(same, lambda row: row.direction != "none"),
        held=share(slower, lambda row: (row.low or 0) <= slower_by <= (row.high or 0)),
        shown=share(slower, lambda row: row.direction == "slower"),
        failed=share(same, says("fails")),
        open_=share(same, says("no_verdict")),
        caught=share(slower, says("fails")),
    )


def made_row(noise: Noise, between: float, captures: int) -> Row:
    """Made pairs with so many captures a side."""
    random = np.random.default_rng([NOISES.index(noise), round(1000 * between), captures])

    def side() -> Side:
        return [noise.run(random, between) for _ in range(captures)]

    return row_of([(side(), side()) for _ in range(PAIRS)], DEVICE_SPREAD)


# Recorded runs


def recorded(table: Path) -> Captures:
    """The steps of every capture by program, nanoseconds."""
    captures: dict[str, list[Float64Array]] = {}
    for line in table.read_text(encoding="ascii").splitlines():
        program, _, *steps = line.split(",")
        captures.setdefault(program, []).append(np.array(steps, dtype=np.float64))
    return captures


def real_pairs(captures: Captures, before: int, after: int) -> Iterator[tuple[Side, Side]]:
    """All pairs of sides with so many recorded captures of one program."""
    for of_program in captures.values():
        places = range(len(of_program))
        for old in combinations(places, before):
            for new in combinations([place for place in places if place not in old], after):
                if before != after or old < new:
                    yield [of_program[place] for place in old], [of_program[place] for place in new]


REAL: Final = (
    ("long", 1, 1),
    ("repeated", 1, 1),
    ("busy", 1, 1),
    ("repeated", 2, 2),
    ("busy", 2, 2),
    ("repeated", 2, 3),
    ("busy", 3, 3),
)
"""Recorded captures, and how many of them a side has."""


def real_row(name: str, before: int, after: int) -> Row:
    """Recorded pairs with so many captures on the sides."""
    return row_of(list(real_pairs(recorded(RECORDED[name]), before, after)), REPLICA_SPREAD)


DRAWN_CHANGE: Final = 0.3
DRAWN: Final = (1, 2, 3, 5)
"""Captures a side of drawn pairs: more than any program has recorded ones for."""


def drawn_pairs(captures: int) -> list[tuple[Side, Side]]:
    """Pairs with the recorded noise of each program: recorded captures, whose levels differ as these do, normally distributed."""
    random = np.random.default_rng([20, captures])
    pairs: list[tuple[Side, Side]] = []
    for of_program in (each for table in REPLICAS for each in recorded(table).values()):
        logarithms = [levels.typical.value for levels in _levels(of_program)]
        runs = [steps / math.exp(of) for steps, of in zip(of_program, logarithms, strict=True)]
        spread = float(np.std(logarithms, ddof=1))
        sides = [
            [
                runs[random.integers(len(runs))] * math.exp(random.normal(0, spread))
                for _ in range(captures)
            ]
            for _ in range(2 * (PAIRS // 5))
        ]
        pairs += zip(sides[::2], sides[1::2], strict=True)
    return pairs


def run_spread(tables: Sequence[Captures]) -> RunSpread:
    """How much whole runs of a program differ: the prior of its variance by the moments of the logarithm (Smyth 2004)."""
    excess, noise = [], []
    for captures in tables:
        for of_program in captures.values():
            values = [levels.typical.value for levels in _levels(of_program)]
            half = (len(values) - 1) / 2
            variance = float(np.var(values, ddof=1))
            excess.append(math.log(variance) - _digamma(half) + math.log(half))
            noise.append(_trigamma(half))
    half = _where(_trigamma, float(np.var(excess, ddof=1)) - float(np.mean(noise)))
    variance = math.exp(float(np.mean(excess)) + _digamma(half) - math.log(half))
    return RunSpread(ratio=math.sqrt(variance), degrees=2 * half)


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


HEAD: Final = """\
| captures a side | runs differ by | called | interval holds | 8% shown | gate fails | no verdict | 8% fails |
| --- | --- | --- | --- | --- | --- | --- | --- |"""


def main() -> None:
    """Print each row, and the table, which has the worst of all kinds of noise."""
    table = []
    for captures in (1, 2, 3, 5):
        for between in BETWEEN:
            rows = {noise.name: made_row(noise, between, captures) for noise in NOISES}
            for name, row in rows.items():
                print(_line(f"{captures}, {name}", f"{between:.0%}", row), flush=True)
            table.append(_line(str(captures), f"{between:.0%}", worst_of(list(rows.values()))))
    for name, before, after in REAL:
        kind = f"{name}, {before} and {after}"
        table.append(_line(kind, "as recorded", real_row(name, before, after)))
    print(HEAD, *table, sep="\n")
    for captures in DRAWN:
        row = row_of(drawn_pairs(captures), REPLICA_SPREAD, DRAWN_CHANGE)
        print(_line(f"{captures}, drawn, {DRAWN_CHANGE:.0%} instead of 8%", "as recorded", row))
    spread = run_spread([recorded(table) for table in REPLICAS])
    print(f"replicas differ by {spread.ratio:.1%}, worth {spread.degrees:.2f} degrees of freedom")


def worst_of(rows: Sequence[Row]) -> Row:
    """The worst of each figure."""
    columns = list(zip(*rows, strict=True))
    lowest = [Row._fields.index(name) for name in ("pairs", "held", "shown", "caught")]
    return Row(*(min(column) if at in lowest else max(column) for at, column in enumerate(columns)))


def _line(kind: str, between: str, row: Row) -> str:
    return f"| {kind} | {between} | " + " | ".join(f"{share:.1%}" for share in row[1:]) + " |"


if __name__ == "__main__":
    main()
