"""Says what else is not the same on both sides of a comparison, and whether it makes other work of the steps.

Step times compare a change of the program on the same work and the same hardware: other devices or another batch make
another step; another precision, version or option may be the change.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final

from traceview.analysis.machine.environment import PUBLIC_NAMES
from traceview.analysis.measures.environment import HostEnvironment
from traceview.comparison.model import Condition, OpDifference
from traceview.document import numbers
from traceview.document.vocabulary import DEVICE_KINDS, STEP_METHODS
from traceview.report.model import Report

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


def conditions_of(before: Sequence[Report], after: Sequence[Report]) -> list[Condition]:
    """What differs between the sides or among the captures of a side, what makes a comparison pointless first."""
    sides = [[_facts(report) for report in side] for side in (before, after)]
    conditions = []
    for name in dict.fromkeys(name for side in sides for facts in side for name in facts):
        old, new = (dict.fromkeys(facts[name] for facts in side if name in facts) for side in sides)
        # What one side does not say is not known to differ.
        if old and new and len({*old, *new}) > 1:
            conditions.append(Condition(name, ", ".join(old), ", ".join(new), name in BLOCKING))
    return sorted(conditions, key=lambda condition: not condition.is_blocking)


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
    hosts = report.results.environment.hosts if report.results.environment else ()
    for name, fact in _FACTS.items():
        values = list(dict.fromkeys(value for host in hosts if (value := fact(host)) is not None))
        if values:
            facts[name] = ", ".join(values)
    return facts | dict(hosts[0].variables or {}) if hosts else facts


def _count(number: int | None) -> str | None:
    return None if number is None else numbers.count(number)


def _strategy(host: HostEnvironment) -> str | None:
    name = host.strategy.class_
    return None if name is None else PUBLIC_NAMES.get(name, name)


def _precision(host: HostEnvironment) -> str | None:
    policies = sorted(set((host.precision.policy or {}).values()))
    return ", ".join(policies) or None


def _arguments(host: HostEnvironment) -> str | None:
    return shlex.join(host.command.script[1:]) or "none" if host.command.script else None


_FACTS: Final[Mapping[str, Callable[[HostEnvironment], str | None]]] = {
    "batch": lambda host: _count(host.batch.global_),
    "strategy": _strategy,
    "precision": _precision,
    "parameters": lambda host: _count(host.training.parameters),
    "XLA": lambda host: host.xla.auto_jit,
    "script arguments": _arguments,
    **{name: attrgetter(f"versions.{key}") for key, name in _VERSIONS.items()},
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
_NUMBERS: Final = re.compile(r"[\d_.]+")


def different_work(
    before: Sequence[Report],
    after: Sequence[Report],
    conditions: Sequence[Condition],
    ops: Sequence[OpDifference],
) -> list[str]:
    """In what the steps of both sides are not the same work, in words; empty where nothing shows that."""
    words = [row.words for row in conditions if row.is_blocking]
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
