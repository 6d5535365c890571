"""Holds the sides of a comparison: their captures, each run once, and what else is not the same on both.

Steps are exactly as long and by state as they were. Step times compare a change of the program on the same work and the
same hardware: other devices or another batch make another step; another precision, version or option may be the change.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import floor
from typing import Final, TypeVar

import numpy as np
from msgspec import Struct

from traceview.analysis.machine.environment import PUBLIC_NAMES
from traceview.analysis.measures.environment import HostEnvironment
from traceview.analysis.measures.step_report import StepRow
from traceview.base.stats import Float64Array
from traceview.comparison.model import Condition, OpDifference
from traceview.document import numbers
from traceview.document.sanitize import shortened
from traceview.document.vocabulary import DEVICE_KINDS, STEP_METHODS
from traceview.report.model import Report, traces_of

SIDES: Final = ("before", "after")

K = TypeVar("K")


class CaptureSteps(Struct, frozen=True, eq=False):
    """The used steps of one capture, in their order; steps of the same number on several hosts are one, their mean.

    `lengths_ps`: float64 `[steps]`. `states`: by state its exact mean over devices and steps, which sum to `mean_ps`;
    empty without devices. `state_lengths_ps`: by the same key float64 `[steps]`.
    """

    lengths_ps: Float64Array
    mean_ps: Fraction
    states: Mapping[str, Fraction]
    state_lengths_ps: Mapping[str, Float64Array]


def capture_steps(report: Report) -> CaptureSteps | None:
    """The used steps of a report; None without any."""
    found = report.results.steps
    used = [row for row in (found.steps if found else ()) if row.used]
    by_number: dict[int, list[Mapping[str, Fraction]]] = {}
    for row in [row for row in used if row.devices] or used:
        by_number.setdefault(row.number, []).append(_mean_of_devices(row))
    if not by_number:
        return None
    steps = [mean_of(by_number[number]) for number in sorted(by_number)]
    states = mean_of(steps)
    lengths = [sum(step.values(), Fraction(0)) for step in steps]
    return CaptureSteps(
        lengths_ps=_series(lengths),
        mean_ps=mean(lengths),
        states={} if _WHOLE in states else states,
        state_lengths_ps={
            key: _series(step.get(key, Fraction(0)) for step in steps)
            for key in states
            if key != _WHOLE
        },
    )


_WHOLE: Final = "step"


def step_time_ps(report: Report) -> int | None:
    """The mean step of a report, rounded down, as comparisons count it; None without a used step."""
    steps = capture_steps(report)
    return None if steps is None else floor(steps.mean_ps)


def _mean_of_devices(row: StepRow) -> dict[str, Fraction]:
    """By state the mean of the devices of the host; of a step without devices its length."""
    if not row.devices:
        return {_WHOLE: Fraction(row.duration_ps)}
    total: Counter[str] = Counter()
    for device in row.devices:
        total.update(device.states)
    return {key: Fraction(ps, len(row.devices)) for key, ps in total.items()}


def _series(values: Iterable[Fraction]) -> Float64Array:
    return np.array([float(value) for value in values], dtype=np.float64)


def mean(values: Sequence[Fraction]) -> Fraction:
    """The exact mean."""
    return sum(values, Fraction(0)) / len(values)


def mean_of(parts: Sequence[Mapping[K, Fraction]]) -> dict[K, Fraction]:
    """The exact mean by key; where a key is missing it is 0."""
    keys = dict.fromkeys(key for of in parts for key in of)
    return {key: mean([of.get(key, Fraction(0)) for of in parts]) for key in keys}


def whole(parts: Mapping[K, Fraction]) -> dict[K, int]:
    """The parts as whole numbers that sum to their sum, rounded down."""
    rounded: dict[K, int] = {}
    total, below = Fraction(0), 0
    for key, part in parts.items():
        total += part
        rounded[key] = floor(total) - below
        below = floor(total)
    return rounded


# Captures that are given more than once are no further evidence


def distinct(side: Sequence[Report]) -> list[Report]:
    """The captures of a side, each once: a saved report and its own trace are one, and the first given is kept."""
    known: set[frozenset[str]] = set()
    kept = []
    for report in side:
        traces = traces_of(report)
        if not traces or traces not in known:
            kept.append(report)
        known.add(traces)
    return kept


def is_one_run(before: Sequence[Report], after: Sequence[Report]) -> bool:
    """Whether both sides, each without repeats, are the same steps of the same runs."""
    return len(before) == len(after) == len(_on_both(before, after))


AGAIN: Final = "A capture that is given again counts once"


def repeats_of(before: Sequence[Report], after: Sequence[Report]) -> Iterator[str]:
    """Remarks on the captures as they were given: sentences without a full stop."""
    sides = distinct(before), distinct(after)
    if sum(map(len, sides)) < len(before) + len(after):
        yield AGAIN
    shared = _on_both(*sides)
    if shared and not is_one_run(*sides):
        verb = "is" if len(shared) == 1 else "are"
        yield f"{numbers.listed(shared)} {verb} on both sides, which hides a difference"


def _on_both(before: Sequence[Report], after: Sequence[Report]) -> list[str]:
    """The names of the runs after of which the other side has the same steps, too."""
    return [
        new.source.run
        for new in after
        if any(
            traces_of(new) and traces_of(new) == traces_of(old) and _have_same_steps(old, new)
            for old in before
        )
    ]


def _have_same_steps(old: Report, new: Report) -> bool:
    """Reports on other steps of one trace can be compared with each other."""
    steps = [capture_steps(report) for report in (old, new)]
    first, second = (of.lengths_ps if of else np.empty(0) for of in steps)
    return np.array_equal(first, second)


# What else differs

_VERSIONS: Final = {
    "tensorflow": "TensorFlow",
    "keras": "Keras",
    "tf_keras": "tf_keras",
    "python": "Python",
    "numpy": "NumPy",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "nccl": "NCCL",
    "driver": "driver",
}

_Fact = Callable[[HostEnvironment], str | None]


def conditions_of(before: Sequence[Report], after: Sequence[Report]) -> list[Condition]:
    """What differs between the sides or among the captures of a side, what makes a comparison pointless first."""
    sides = [[_facts(report) for report in side] for side in (before, after)]
    names = dict.fromkeys(name for side in sides for facts in side for name in facts)
    return sorted(_differing(names, *sides), key=lambda condition: not condition.is_blocking)


def blocking_words(conditions: Iterable[Condition]) -> str:
    """What makes the steps of both sides other work, or work on other hardware: `batch: 128 before, 256 after`."""
    return "; ".join(
        f"{row.name}: {row.before} before, {row.after} after"
        for row in conditions
        if row.is_blocking
    )


def differing_among(reports: Sequence[Report]) -> dict[str, list[str]]:
    """What is not the same of all runs, by its name: the values in the order of the runs; the number of devices is left out."""
    values: dict[str, dict[str, None]] = {}
    for facts in map(_facts, reports):
        for name, value in facts.items():
            values.setdefault(name, {})[value] = None
    return {
        name: list(known) for name, known in values.items() if len(known) > 1 and name != "devices"
    }


def _differing(
    names: Iterable[str], before: Sequence[Mapping[str, str]], after: Sequence[Mapping[str, str]]
) -> Iterator[Condition]:
    for name in names:
        old, new = (
            list(dict.fromkeys(facts[name] for facts in side if name in facts))
            for side in (before, after)
        )
        # What one side does not say is not known to differ.
        if old and new and (len({*old, *new}) > 1):
            yield Condition(name, ", ".join(old), ", ".join(new), name in BLOCKING)


BLOCKING: Final = (
    "kind of devices",
    "devices",
    "model of GPU",
    "hosts",
    "batch",
    "steps per call",
)
"""What makes another step, or another machine."""


def _facts(report: Report) -> dict[str, str]:
    """What the steps of a report depend on, in words."""
    facts: dict[str, str] = {}
    devices = report.results.device_time.devices if report.results.device_time else ()
    if devices:
        kinds = dict.fromkeys(device.kind for device in devices)
        facts["kind of devices"] = ", ".join(DEVICE_KINDS[kind].words for kind in kinds)
        facts["devices"] = numbers.count(len(devices))
        models = sorted({device.model for device in devices if device.model})
        if models:
            facts["model of GPU"] = ", ".join(models)
    if report.capture.hosts:
        facts["hosts"] = numbers.count(len(report.capture.hosts))
    steps = report.results.steps
    if steps is not None:
        calls = steps.steps_per_call or steps.updates_per_step or steps.loop_iterations
        facts["steps per call"] = numbers.count(calls or 1)
        facts["steps found"] = STEP_METHODS[steps.method].words
    levels = [host.tracer_levels for host in report.capture.hosts if host.tracer_levels]
    if levels:
        facts["tracer levels"] = ", ".join(
            f"{name} {level}" for name, level in sorted(levels[0].items())
        )
    environment = report.results.environment
    if environment is not None:
        facts |= _of_environment(environment.hosts)
    return facts


def _of_environment(hosts: Sequence[HostEnvironment]) -> dict[str, str]:
    facts: dict[str, str] = {}
    for name, fact in _FACTS.items():
        values = list(dict.fromkeys(value for host in hosts if (value := fact(host)) is not None))
        if values:
            facts[name] = ", ".join(values)
    return facts | dict(hosts[0].variables or {}) if hosts else facts


def _version(key: str) -> _Fact:
    def version(host: HostEnvironment) -> str | None:
        value: str | None = getattr(host.versions, key)
        return value

    return version


def _batch(host: HostEnvironment) -> str | None:
    count = host.batch.global_
    return None if count is None else numbers.count(count)


def _strategy(host: HostEnvironment) -> str | None:
    name = host.strategy.class_
    return None if name is None else PUBLIC_NAMES.get(name, name)


def _precision(host: HostEnvironment) -> str | None:
    policies = sorted(set((host.precision.policy or {}).values()))
    return ", ".join(policies) or None


def _parameters(host: HostEnvironment) -> str | None:
    count = host.training.parameters
    return None if count is None else numbers.count(count)


def _arguments(host: HostEnvironment) -> str | None:
    return shlex.join(host.command.script[1:]) or "none" if host.command.script else None


_FACTS: Final[Mapping[str, _Fact]] = {
    "batch": _batch,
    "strategy": _strategy,
    "precision": _precision,
    "parameters": _parameters,
    "XLA": lambda host: host.xla.auto_jit,
    "script arguments": _arguments,
    **{name: _version(key) for key, name in _VERSIONS.items()},
}


_LEAST_COMMON_TIME: Final = 0.5
"""Of the time of the ops: runs of one program have more of it in ops of the same name."""
_LEAST_COMMON_OPS: Final = 0.2
"""Of the ops: a model that was built again has other numbers in the names of its ops, but as many ops of each kind."""
_NAMES: Final = 2
"""Of an op, from the end: those before them depend on the function that runs the model."""
_COMPILER: Final = "XLA"
"""What this decides makes other ops of the same work."""
_FRAMEWORKS: Final = ("tensorflow", "jax")
_LONGEST_VALUE: Final = 40
_NUMBERS: Final = re.compile(r"[\d_.]+")


def different_work(
    before: Sequence[Report],
    after: Sequence[Report],
    conditions: Sequence[Condition],
    ops: Sequence[OpDifference],
) -> list[str]:
    """In what the steps of both sides are not the same work, in words; empty where nothing shows that."""
    words = [
        f"{row.name} {shortened(row.before, _LONGEST_VALUE)} → {shortened(row.after, _LONGEST_VALUE)}"
        for row in conditions
        if row.is_blocking
    ]
    old, new = _frameworks(before), _frameworks(after)
    if old and new and old != new:
        words.append(f"{numbers.listed(sorted(old))} → {numbers.listed(sorted(new))}")
    elif not any(row.name == _COMPILER for row in conditions):
        words += _few_common(ops)
    return words


def _frameworks(side: Sequence[Report]) -> set[str]:
    """The frameworks whose versions a side recorded."""
    environments = [report.results.environment for report in side]
    return {
        name
        for environment in environments
        for host in (environment.hosts if environment else ())
        for name in _FRAMEWORKS
        if getattr(host.versions, name, None)
    }


def _few_common(ops: Sequence[OpDifference]) -> list[str]:
    computing = [row for row in ops if row.class_ == "compute"]
    old = Counter(_kind(row) for row in computing if row.before_ps)
    new = Counter(_kind(row) for row in computing if row.after_ps)
    whole_ps = sum(row.before_ps + row.after_ps for row in computing)
    common = [row for row in computing if row.before_ps and row.after_ps]
    common_ps = sum(row.before_ps + row.after_ps for row in common)
    if not old or not new or common_ps >= _LEAST_COMMON_TIME * whole_ps:
        return []
    if (old & new).total() >= _LEAST_COMMON_OPS * (old | new).total():
        return []
    return [f"{len(common)} of {numbers.plural(len(computing), 'op')} in common"]


def _kind(row: OpDifference) -> str:
    """The end of the name of an op, without numbers: `dense/MatMul`."""
    return _NUMBERS.sub("", "/".join((row.op or row.kernel or "").split("/")[-_NAMES:]))
