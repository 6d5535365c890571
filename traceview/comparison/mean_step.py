"""Computes the mean step of a side and what it consists of, exactly: the parts sum to the step to the picosecond."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import floor
from typing import TypeVar

import numpy as np
from msgspec import Struct

from traceview.mean_variance import Float64Array
from traceview.report.model import Report

K = TypeVar("K")


class CaptureSteps(Struct, frozen=True, eq=False):
    """The used steps of one capture, in their order; steps of the same number on several hosts are one, their mean.

    `lengths_ps`: float64 `[steps]`. `parts`: by class or cause of the critical path its exact mean; empty without a
    path. `part_lengths_ps`: by the same key float64 `[steps]`.
    """

    lengths_ps: Float64Array
    mean_ps: Fraction
    parts: Mapping[str, Fraction]
    part_lengths_ps: Mapping[str, Float64Array]


def capture_steps(report: Report) -> CaptureSteps | None:
    """The used steps of a report; None without any."""
    by_number = _walked(report) or _measured(report)
    if not by_number:
        return None
    keys = dict.fromkeys(key for hosts in by_number.values() for _, parts in hosts for key in parts)
    series = {key: _series(parts.get(key, 0) for _, parts in _means(by_number)) for key in keys}
    exact = [_mean_of_hosts(hosts) for hosts in by_number.values()]
    return CaptureSteps(
        lengths_ps=_series(length for length, _ in _means(by_number)),
        mean_ps=mean([length for length, _ in exact]),
        parts={key: mean([parts.get(key, Fraction(0)) for _, parts in exact]) for key in keys},
        part_lengths_ps=series,
    )


def step_time_ps(report: Report) -> int | None:
    """The mean step of a report, rounded down, as comparisons count it; None without a used step."""
    steps = capture_steps(report)
    return None if steps is None else floor(steps.mean_ps)


_Hosts = list[tuple[int, Mapping[str, int]]]
"""The length of a step on each host, and its parts."""


def _walked(report: Report) -> dict[int, _Hosts]:
    path = report.results.path
    by_number: dict[int, _Hosts] = {}
    for step in path.steps if path else ():
        if step.step is not None:
            by_number.setdefault(step.step, []).append((step.duration_ps, step.by_cause))
    return by_number


def _measured(report: Report) -> dict[int, _Hosts]:
    steps = report.results.steps
    by_number: dict[int, _Hosts] = {}
    for row in steps.steps if steps else ():
        if row.used:
            by_number.setdefault(row.number, []).append((row.duration_ps, {}))
    return by_number


def _mean_of_hosts(hosts: _Hosts) -> tuple[Fraction, dict[str, Fraction]]:
    keys = dict.fromkeys(key for _, parts in hosts for key in parts)
    return (
        Fraction(sum(length for length, _ in hosts), len(hosts)),
        {key: Fraction(sum(parts.get(key, 0) for _, parts in hosts), len(hosts)) for key in keys},
    )


def _means(by_number: Mapping[int, _Hosts]) -> Iterable[tuple[Fraction, dict[str, Fraction]]]:
    return (_mean_of_hosts(by_number[number]) for number in sorted(by_number))


def _series(values: Iterable[Fraction | int]) -> Float64Array:
    return np.array([float(value) for value in values], dtype=np.float64)


def mean(values: Sequence[Fraction]) -> Fraction:
    """The exact mean."""
    return sum(values, Fraction(0)) / len(values)


def mean_of_captures(captures: Sequence[Mapping[K, Fraction]]) -> dict[K, Fraction]:
    """The mean of each part over the captures; what a capture does not have is 0 there."""
    keys = dict.fromkeys(key for parts in captures for key in parts)
    return {key: mean([parts.get(key, Fraction(0)) for parts in captures]) for key in keys}


def whole(parts: Mapping[K, Fraction]) -> dict[K, int]:
    """The parts as whole numbers that sum to their sum, rounded down."""
    rounded: dict[K, int] = {}
    total, below = Fraction(0), 0
    for key, part in parts.items():
        total += part
        rounded[key] = floor(total) - below
        below = floor(total)
    return rounded
