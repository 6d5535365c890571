"""Makes a comparison of two sides, each of one or several reports, and says how far it can be trusted."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from traceview.analysis.machine.environment import PUBLIC_NAMES, SOFTWARE
from traceview.analysis.machine.load import GPU_SHARED, GPU_THROTTLED, OTHER_PROCESSES
from traceview.analysis.measures.device_report import HostEnvironment
from traceview.analysis.rules.finding import OF_THE_RUN
from traceview.base.errors import ComparisonError
from traceview.base.location import Location
from traceview.base.text import lazy_pattern
from traceview.base.version import VERSION
from traceview.comparison.model import (
    SCHEMA_VERSION,
    ComparedRun,
    Comparison,
    Condition,
    StepDifference,
)
from traceview.comparison.noise import (
    ENOUGH,
    Difference,
    Earlier,
    RunSpread,
    run_spread_of,
)
from traceview.comparison.sides import (
    SIDES,
    Side,
    capture_steps,
    device_differences,
    finding_differences,
    state_differences,
    why_no_step,
)
from traceview.comparison.verdict import verdict_of
from traceview.comparison.work import op_differences, part_differences
from traceview.document import numbers
from traceview.document.vocabulary import DEVICE_KINDS, STEP_METHODS
from traceview.report.build import analyze
from traceview.report.formats import report_at
from traceview.report.model import PROFILER_FACTOR, Report, profiler_factor
from traceview.store.address import location_of
from traceview.trace.model import Trace


def _limits(
    before: Side, after: Side, step: StepDifference, spread: RunSpread, has_states: bool
) -> Iterator[str]:
    """Sentences without a full stop, what matters most first."""
    reports = (*before.reports, *after.reports)
    if not has_states:
        yield "A run has no step with device events, so no states explain the difference"
    sides_of: dict[str, list[str]] = {}
    for name, side in zip(SIDES, (before, after), strict=True):
        if causes := sorted(set[str]().union(*map(_disturbances, side.reports))):
            sides_of.setdefault(numbers.listed(causes), []).append(name)
    for disturbing, names in sides_of.items():
        yield f"{disturbing} made steps longer {' and '.join(names)}: a part of the difference may be theirs"
    if step.basis == "assumed":
        yield (
            "One capture of a side does not show how much runs differ without a change; "
            f"{numbers.share(spread.ratio)} are assumed: {ENOUGH}, by --before and --after"
        )
    for name, side in zip(SIDES, (before, after), strict=True):
        for report in side.reports:
            if report.capture.quality != "ok":
                yield f"The capture {name}, {report.source.run}, is {report.capture.quality}"
    unknown = dict.fromkeys(of.source.run for of in reports if of.results.environment is None)
    if unknown:
        runs = numbers.listed(list(unknown))
        yield f"Batch, precision, strategy and versions are not known of {runs}"


_DISTURBANCES: Final = {
    OTHER_PROCESSES.code: "other processes",
    GPU_SHARED.code: "another program on the GPU",
    GPU_THROTTLED.code: "a lower clock of the GPU",
}


def _disturbances(report: Report) -> set[str]:
    """What made the steps of a capture longer than the program does."""
    own = {of.code for of in report.findings if not OF_THE_RUN & {*of.sentences}}
    words = {words for code, words in _DISTURBANCES.items() if code in own}
    return words | (
        {"the profiler"} if profiler_factor(report.capture) >= PROFILER_FACTOR else set()
    )


Source = Trace | Report | str | Location
"""A report, or the source of one."""


def reports_of(sources: Sequence[Source]) -> list[Report]:
    """A report of each source: log directories, runs, single traces and saved reports, one after the other in memory.

    Raises what `load` and `load_report` raise.
    """
    return [
        source
        if isinstance(source, Report)
        else analyze(source)
        if isinstance(source, Trace)
        else report_at(location_of(source))
        for source in sources
    ]


def compare(
    before: Sequence[Report],
    after: Sequence[Report],
    *,
    earlier: Earlier = (),
    force: bool = False,
) -> Comparison:
    """Say what differs between two sides, each with at least one report.

    `earlier`: steps of earlier runs of the job, in groups without a change. `force`: also where the steps are not the same
    work or ran on other hardware. Raises `ComparisonError` with the reasons where they are not, and where a side has no
    used step. A capture that a side has several times counts once.
    """
    old, new = Side.of(before), Side.of(after)
    for name, side in zip(SIDES, (old, new), strict=True):
        for report in side.reports:
            if capture_steps(report) is None:
                raise ComparisonError(
                    f"the run {name}, {report.source.run}, has no step to compare: {why_no_step(report)}"
                )
    conditions = conditions_of(old.reports, new.reports)
    blocking = blocking_words(conditions)
    if blocking and not force:
        raise ComparisonError(
            f"these runs cannot be compared ({blocking})",
            hint="--force compares them all the same",
        )
    step = _step_difference(old, new, earlier)
    spread = run_spread_of((*old.reports, *new.reports))
    states = state_differences(old, new, spread)
    made = Comparison(
        schema_version=SCHEMA_VERSION,
        traceview_version=VERSION,
        verdict="",
        step=step,
        before=_runs(old),
        after=_runs(new),
        conditions=tuple(conditions),
        limits=tuple(_limits(old, new, step, spread, bool(states))),
        states=states,
        devices=device_differences(old.reports, new.reports),
        parts=part_differences(old.reports, new.reports, spread),
        ops=op_differences(old.reports, new.reports, spread),
        findings=finding_differences(old.reports, new.reports, step, states),
    )
    verdict = verdict_of(made, different_work(old.reports, new.reports, conditions))
    if new.is_same_as(old):
        time = numbers.time(new.step_ps)
        verdict = f"Both sides are one run, so nothing can differ: {time} per step"
    return replace(made, verdict=verdict)


_PROBABLE_RATIO: Final = 0.25
"""Of the step before: a difference between any two captures that is hardly chance, though nothing shows that; a choice of ours."""


def _is_probable(before: Side, after: Side, ratio: float) -> bool:
    """Whether the mean and the typical step differ so much, and that of any two captures: one slow step shows nothing."""
    old, new = ([of.typical.value for of in side.levels] for side in (before, after))
    is_apart = max(old) < min(new) if ratio > 0 else max(new) < min(old)
    typical = after.typical_ps / before.typical_ps - 1
    return is_apart and min(abs(ratio), abs(typical)) >= _PROBABLE_RATIO


def _step_difference(before: Side, after: Side, earlier: Earlier) -> StepDifference:
    change = before.change_to(after, earlier) or Difference(0.0)
    ratio = after.mean_ps / before.mean_ps - 1 if before.mean_ps else None
    is_open = change.direction == "none" and change.measure == "mean"
    return StepDifference(
        before_ps=before.step_ps,
        after_ps=after.step_ps,
        difference_ps=after.step_ps - before.step_ps,
        change_ratio=ratio,
        typical_before_ps=round(before.typical_ps),
        typical_after_ps=round(after.typical_ps),
        measure=change.measure,
        low_ratio=change.low,
        high_ratio=change.high,
        least_shown_ratio=change.least_shown,
        direction=change.direction,
        is_probable=is_open and _is_probable(before, after, ratio or 0.0),
        basis=change.basis,
    )


def _runs(side: Side) -> tuple[ComparedRun, ...]:
    return tuple(
        ComparedRun(
            logdir=report.source.logdir,
            run=report.source.run,
            step_count=int(steps.lengths_ps.size),
            step_ps=round(steps.mean_ps),
        )
        for report, steps in zip(side.reports, side.steps, strict=True)
    )


# What else is not the same on both sides. Other devices or another batch make another step; another precision, version or
# option may be the change.


def conditions_of(before: Sequence[Report], after: Sequence[Report]) -> list[Condition]:
    """The differences between sides, or among captures of a side; blocking ones come first."""
    old, new = _facts_among(before), _facts_among(after)
    # What one side does not say is not known to differ.
    conditions = [
        Condition(name, ", ".join(values), ", ".join(new[name]), name in BLOCKING)
        for name, values in old.items()
        if name in new and len({*values, *new[name]}) > 1
    ]
    return sorted(conditions, key=lambda condition: not condition.is_blocking)


def blocking_words(conditions: Iterable[Condition]) -> str:
    """The blocking conditions in words: `batch: 128 before, 256 after`."""
    return "; ".join(
        f"{row.name}: {row.before} before, {row.after} after"
        for row in conditions
        if row.is_blocking
    )


def _facts_among(reports: Sequence[Report]) -> dict[str, list[str]]:
    """By name the values of the facts that the steps depend on, in the order of the runs."""
    values: dict[str, dict[str, None]] = {}
    for facts in map(_facts, reports):
        for name, value in facts.items():
            values.setdefault(name, {})[value] = None
    return {name: list(known) for name, known in values.items()}


BLOCKING: Final = (
    "kind of devices",
    "devices",
    "model of GPU",
    "hosts",
    "batch",
    "steps per call",
)
"""Facts that make step times incomparable: another step, or another machine."""


def _facts(report: Report) -> dict[str, str]:
    facts: dict[str, str] = {}
    devices = report.device_times
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
        facts["steps per call"] = numbers.count(steps.steps_per_call or 1)
        facts["steps found"] = STEP_METHODS[steps.method].words
    hosts = report.results.environment.hosts if report.results.environment else ()
    of_hosts = list(map(_facts_of_host, hosts))
    for name in of_hosts[0] if of_hosts else ():
        values = list(dict.fromkeys(value for of in of_hosts if (value := of[name]) is not None))
        if values:
            facts[name] = ", ".join(values)
    return facts | dict(hosts[0].variables or {}) if hosts else facts


def _facts_of_host(host: HostEnvironment) -> dict[str, str | None]:
    """What a sidecar says; None where it does not."""
    batch, parameters, script = host.batch.global_, host.training.parameters, host.command.script
    strategy = host.strategy.class_
    return {
        "batch": None if batch is None else numbers.count(batch),
        "strategy": None if strategy is None else PUBLIC_NAMES.get(strategy, strategy),
        "precision": ", ".join(sorted(set((host.precision.policy or {}).values()))) or None,
        "parameters": None if parameters is None else numbers.count(parameters),
        "XLA": host.xla.auto_jit,
        "script arguments": (shlex.join(script[1:]) or "none") if script else None,
        "TensorFlow": host.versions.tensorflow,
        **{name: getattr(host.versions, field) for name, field in SOFTWARE.items()},
        "NumPy": host.versions.numpy,
    }


_LEAST_COMMON_KINDS: Final = 0.25
"""Of the kinds of ops: runs of one program have more of them in common."""
_NAMES: Final = 2
"""Of an op, from the end: those before them depend on the function that runs the model."""
_COMPILER: Final = "XLA"
"""The fact that explains other ops for the same work."""
_NUMBERS: Final = lazy_pattern(r"[\d_.]+")


def different_work(
    before: Sequence[Report], after: Sequence[Report], conditions: Sequence[Condition]
) -> list[str]:
    """In what the steps of both sides are not the same work, in words; empty where nothing shows that."""
    words = [row.words for row in conditions if row.is_blocking]
    old, new = _kinds_of_ops(before), _kinds_of_ops(after)
    environments = [report.results.environment for report in (*before, *after)]
    counts = {of.hosts[0].training.parameters if of and of.hosts else None for of in environments}
    # Of as many parameters it is one model. A compiler, as of `jit_compile`, makes other ops of the same work.
    is_one_model = len(counts) == 1 and None not in counts
    is_same = is_one_model or any(row.name == _COMPILER for row in conditions)
    if old and new and not is_same:
        common, whole = len(old & new), len(old | new)
        if common < _LEAST_COMMON_KINDS * whole:
            words.append(f"{common} of {numbers.plural(whole, 'kind')} of ops in common")
    return words


def _kinds_of_ops(side: Sequence[Report]) -> set[str]:
    """The kinds of the computing ops of a side, the ends of their names without numbers: `dense/MatMul`.

    A model that was built again has other numbers in the names of its ops.
    """
    rows = [row for report in side if (table := report.results.op_steps) for row in table.rows]
    return {
        _NUMBERS.sub("", "/".join((row.op or row.kernel or "").split("/")[-_NAMES:]))
        for row in rows
        if row.class_ == "compute"
    }
