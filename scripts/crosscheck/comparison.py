"""Compares the numbers of traceview with those of XProf, and classifies each difference.

It takes the report, XProf's answer, and the answer that XProf's rules give on this trace (`recount`). Where the two
answers agree, XProf's rules are the reason; the trace shows which of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, TypeAlias

import numpy as np

from scripts.crosscheck.answer import Answer, KernelAnswer, StepAnswer
from scripts.crosscheck.recount import (
    MANY_STEPS,
    has_gpu_events,
    has_roots,
    is_named_for_xprof,
    steps_of_events,
    without_ends,
)
from traceview.base.ids import groups_of, is_in, unique_ids
from traceview.base.intervals import BoolArray, union
from traceview.base.units import PS_PER_NS
from traceview.ledger.columns import IDLE
from traceview.ledger.states import State
from traceview.ledger.table import Ledger
from traceview.report.model import Report
from traceview.trace.columns import NONE
from traceview.trace.model import Trace
from traceview.xplane.planes import CLASS_KEYS, ActivityClass


@dataclass(frozen=True)
class Facts:
    """What holds of a trace.

    `misread`: classes, as the report names them, with events whose names say something else to XProf.
    `classes`: classes with events. `has_unlinked`: some events have no launch or no step. `has_overlap`: kernels of a
    device ran at the same time. `has_unnamed`: some events of devices carry no op.
    """

    has_gpu_events: bool
    has_several_hosts: bool
    has_duplicates: bool
    is_marked: bool
    has_many_steps: bool
    has_unlinked: bool
    has_overlap: bool
    has_unnamed: bool
    classes: frozenset[str]
    misread: frozenset[str]


def facts_of(trace: Trace) -> Facts:
    """Look at every device event once."""
    columns = trace.device_columns
    first = np.array([of[0] for of in groups_of(columns.name, columns.class_)], dtype=np.int64)
    pairs = list(zip(columns.name[first].tolist(), columns.class_[first].tolist(), strict=True))
    return Facts(
        has_gpu_events=has_gpu_events(trace),
        has_several_hosts=len(trace.hosts) > 1,
        has_duplicates=any(file.duplicate_of is not None for file in trace.files),
        is_marked=has_roots(trace),
        has_many_steps=any(len(of_host.steps) > MANY_STEPS for of_host in trace.steps_by_host),
        has_unlinked=bool((steps_of_events(trace) == NONE).any()),
        has_overlap=_has_overlap(trace),
        has_unnamed=bool((columns.op == NONE).any()),
        classes=frozenset(CLASS_KEYS[class_] for _, class_ in pairs),
        misread=frozenset(
            CLASS_KEYS[class_]
            for name, class_ in pairs
            if not is_named_for_xprof(trace.names[name], class_)
        ),
    )


def _has_overlap(trace: Trace) -> bool:
    columns = trace.device_columns
    for device in unique_ids(columns.device).tolist():
        rows = columns.rows_of(device)
        kernel = columns.class_[rows] <= ActivityClass.COLLECTIVE
        start, end = columns.start_ps[rows][kernel], columns.end_ps[rows][kernel]
        if union(start, end).length < int((end - start).sum()):
            return True
    return False


Value: TypeAlias = int | float | str | None

_HALF_PRECISIONS: Final = ("bf16", "fp16", "fp8")
_HALF_STEP: Final = 0.0006
"""XProf shows that share in tenths of a percent."""

KERNEL_METRICS: Final = ("kernel_count", "kernel_ps")
"""The rows of one kernel, in this order."""

_IDLE_OF_BOTH: Final = {
    State.INPUT: "input_ps",
    State.LAUNCH: "launch_ps",
    State.HOST_OPS: "host_compute_ps",
    State.COMPILE: "compile_ps",
}
"""States of an idle device that are also parts of XProf's step."""

_KERNEL_ROWS: Final = 1000
"""XProf's table ends there; traceview does not recompute which kernels have its rows."""


@dataclass(frozen=True)
class Compared:
    """A number of traceview and the same number of XProf.

    `metric`: its name, which ends with the unit. `name`: the kernel, empty elsewhere. `ours_least`, `ours_most`:
    over the devices, where each has its own. `expected`: what XProf's rules give on this trace, None where they do not determine it.
    `status`: same; reproduced (XProf's rules give its number); known (a rule differs, but does not determine the
    number); unexplained (no rule applies, or the rules give another number). `reasons`: codes of `REASONS`.
    """

    metric: str
    name: str
    ours_least: Value
    ours_most: Value
    theirs: Value
    expected: Value
    status: str
    reasons: tuple[str, ...]

    @property
    def is_of_kernel(self) -> bool:
        """Whether the number is about a kernel, whose name may be empty."""
        return self.metric in KERNEL_METRICS


def compare(
    report: Report,
    ledger: Ledger,
    ours: Mapping[str, KernelAnswer],
    theirs: Answer,
    expected: Answer,
    facts: Facts,
    top: int,
) -> list[Compared]:
    """All numbers: counts, then per step, then totals, then the `top` kernels by time.

    `ours`: the kernels of traceview by name, over the whole profile as in XProf. Per step: the mean over the steps
    that XProf keeps.
    """
    return [
        *_counts(report, theirs, expected, facts),
        *_per_step(report, ledger, theirs, expected, facts),
        *_totals(report, theirs, expected, facts),
        *_kernels(ours, theirs, expected, facts, top),
    ]


def _compared(
    metric: str,
    ours: Sequence[Value],
    theirs: Value,
    expected: Value,
    reasons: Mapping[str, bool],
    *,
    name: str = "",
    tolerance: float = 0,
) -> Compared:
    """A row; `ours` by device, and `reasons` with whether each applies to the trace."""
    known = [number for number in ours if number is not None]
    least, most = (min(known, key=_order), max(known, key=_order)) if known else (None, None)
    grounds = tuple(code for code, applies in reasons.items() if applies)
    if _is_same(least, theirs, tolerance) and _is_same(most, theirs, tolerance):
        status, grounds = "same", ()
    elif theirs is None:
        status, grounds = "known", grounds or ("no-page",)
    elif expected is not None and _is_same(expected, theirs, tolerance):
        status, grounds = "reproduced", grounds or ("its-rules",)
    else:
        status = "known" if grounds and expected is None else "unexplained"
    return Compared(metric, name, least, most, theirs, expected, status, grounds)


def _order(value: Value) -> tuple[float, str]:
    return (0.0, value) if isinstance(value, str) else (value or 0, "")


def _is_same(ours: Value, theirs: Value, tolerance: float) -> bool:
    if isinstance(ours, (int, float)) and isinstance(theirs, (int, float)):
        return abs(ours - theirs) <= tolerance
    return ours == theirs


def _counts(report: Report, theirs: Answer, expected: Answer, facts: Facts) -> list[Compared]:
    times = report.results.device_time
    steps = report.results.steps
    return [
        _compared(
            "device_count",
            [len(times.devices) if times else 0],
            theirs.device_count,
            expected.device_count,
            {
                "counts-files-twice": facts.has_duplicates,
                "no-replicas": not facts.has_gpu_events,
            },
        ),
        _compared(
            "step_count",
            [steps.count if steps else 0],
            None if theirs.steps is None else len(theirs.steps),
            None if expected.steps is None else len(expected.steps),
            {
                "drops-end-steps": facts.has_many_steps and bool(theirs.steps),
                "needs-markers": not facts.is_marked,
                "several-hosts": facts.has_several_hosts,
            },
        ),
    ]


# Per step


def _per_step(
    report: Report, ledger: Ledger, theirs: Answer, expected: Answer, facts: Facts
) -> list[Compared]:
    steps = report.results.steps
    if steps is None or not theirs.steps:
        return []
    their_mean, expected_mean = _mean(theirs.steps), _mean(expected.steps or ())
    kept = _kept(report, len(theirs.steps))
    columns, hosts = ledger.columns, ledger.trace.hosts
    of_steps = {
        index
        for index, step in enumerate(ledger.steps)
        if (hosts[step.host].name, step.number) in kept
    }
    is_idle = columns.activity == IDLE

    def means(rows: BoolArray) -> list[Value]:
        return _means(ledger, of_steps, rows)

    compute = means(columns.activity == ActivityClass.COMPUTE)
    waits = means(is_idle & (columns.state == State.INPUT))
    gpu, one_host = facts.has_gpu_events, not facts.has_several_hosts
    rows: list[Compared] = []

    def add(metric: str, ours: Sequence[Value], part: str, reasons: dict[str, bool]) -> None:
        settled = expected_mean is not None and (gpu or metric == "step_ps")
        rows.append(
            _compared(
                metric,
                ours,
                getattr(their_mean, part),
                getattr(expected_mean, part) if settled else None,
                {**reasons, "several-hosts": not one_host},
                tolerance=PS_PER_NS,
            )
        )

    durations = [step.duration_ps for step in steps.steps if (step.host, step.number) in kept]
    add(
        "step_ps",
        [_rounded_mean(durations)],
        "duration_ps",
        {"device-span": gpu, "marker-length": not gpu},
    )
    if not gpu:
        add("compute_ps", compute, "host_compute_ps", {"no-replicas": True})
        add("input_ps", waits, "input_ps", {"any-thread-waits": True})
        return rows

    copies_misread = bool(facts.misread & {"h2d", "d2h", "d2d"})
    unlinked = {"only-linked-events": facts.has_unlinked}
    add(
        "compute_ps",
        compute,
        "compute_ps",
        {
            "copies-by-name": copies_misread,
            "fills-as-compute": "memset" in facts.misread,
            "collectives-by-name": "collective" in facts.misread,
            "merges-devices": _is_of_several(compute),
            **unlinked,
        },
    )
    for class_, part in (
        ("collective", "collective_ps"),
        ("h2d", "input_ps"),
        ("d2h", "d2h_ps"),
        ("d2d", "d2d_ps"),
    ):
        ours = means(columns.activity == ActivityClass[class_.upper()])
        by_name = "collectives-by-name" if class_ == "collective" else "copies-by-name"
        reasons = {
            by_name: class_ in facts.misread,
            "merges-devices": _is_of_several(ours),
            "other-order": len(facts.classes - {"compute"}) > 1 and bool(getattr(their_mean, part)),
            **({} if class_ in facts.misread else unlinked),
        }
        add(f"{class_}_ps", ours, part, reasons)
    waiting = {"no-host-waits": True}
    add(
        "input_ps",
        waits,
        "input_ps",
        {**waiting, "one-input-number": bool(their_mean and their_mean.input_ps)},
    )
    for state, of_state in list(_IDLE_OF_BOTH.items())[1:]:
        ours = means(is_idle & (columns.state == state))
        add(f"{state.key}_ps", ours, of_state, waiting)
    others = [state for state in State if state not in _IDLE_OF_BOTH]
    rest = means(is_idle & is_in(columns.state, others))
    add(
        "idle_other_ps",
        rest,
        "other_ps",
        {"rest-of-span": True, "merges-devices": len(set(rest)) > 1},
    )
    return rows


def _is_of_several(values: Sequence[Value]) -> bool:
    """Whether no single number stands for all devices: they differ, or several have a part of it."""
    return len(set(values)) > 1 or sum(1 for value in values if value) > 1


def _kept(report: Report, count: int) -> set[tuple[str, int]]:
    """Our steps that XProf has too, as host and number: without the ends where it leaves those out."""
    steps = report.results.steps
    places: set[tuple[str, int]] = set()
    by_host: dict[str, list[int]] = {}
    for step in steps.steps if steps else ():
        by_host.setdefault(step.host, []).append(step.number)
    for host, numbers in by_host.items():
        kept = without_ends(numbers)
        places |= {(host, number) for number in (kept if len(kept) == count else numbers)}
    return places


def _mean(steps: Sequence[StepAnswer]) -> StepAnswer | None:
    if not steps:
        return None
    return StepAnswer(
        **{
            field.name: _rounded_mean([getattr(step, field.name) for step in steps])
            for field in fields(StepAnswer)
        }
    )


def _rounded_mean(values: Sequence[int]) -> int:
    return round(sum(values) / len(values)) if values else 0


def _means(ledger: Ledger, steps: Collection[int], rows: BoolArray) -> list[Value]:
    """The mean of some rows over these steps, by device."""
    inside = rows & is_in(ledger.columns.step, sorted(steps))
    means: list[Value] = []
    for device in ledger.devices:
        host = ledger.trace.device_list[device].host
        count = sum(ledger.steps[index].host == host for index in steps)
        own = ledger.rows_of(device)
        total = int(ledger.columns.duration_ps[own][inside[own]].sum())
        means.append(round(total / count) if count else 0)
    return means


# Totals and kernels


def _totals(report: Report, theirs: Answer, expected: Answer, facts: Facts) -> list[Compared]:
    rows = []
    times = report.results.device_time
    if theirs.idle_ps is not None and times is not None:
        idle = [row.idle_ps for row in times.devices if row.idle_ps is not None]
        rows.append(
            _compared(
                "idle_total_ps",
                [sum(idle)],
                theirs.idle_ps,
                expected.idle_ps,
                {
                    "only-spans": True,
                    "sums-streams": facts.has_overlap,
                    "only-named-kernels": facts.has_unnamed or bool(facts.classes - {"compute"}),
                    "counts-files-twice": facts.has_duplicates,
                },
                tolerance=PS_PER_NS,
            )
        )
    precisions = report.results.precision
    if theirs.half_ratio is not None and precisions is not None and theirs.steps:
        ratios = [
            sum(row.precision_ps.get(precision, 0) for precision in _HALF_PRECISIONS)
            / row.compute_ps
            for row in precisions.devices
            if row.compute_ps
        ]
        rows.append(
            _compared(
                "half_ratio",
                ratios,
                theirs.half_ratio,
                expected.half_ratio,
                {"names-of-shapes": True},
                tolerance=_HALF_STEP,
            )
        )
    pipeline = report.results.input
    our_verdict = pipeline.verdict if pipeline else None
    if (our_verdict or "none", theirs.verdict or "none") != ("none", "none"):
        rows.append(
            _compared(
                "input_verdict",
                [our_verdict],
                theirs.verdict,
                expected.verdict,
                {"from-other-numbers": True, "no-host-waits": facts.has_gpu_events},
            )
        )
    return rows


def _kernels(
    ours: Mapping[str, KernelAnswer], theirs: Answer, expected: Answer, facts: Facts, top: int
) -> list[Compared]:
    if theirs.kernels is None:
        return []
    by_name, recounted = theirs.kernels, expected.kernels or {}
    is_cut = theirs.kernel_row_count >= _KERNEL_ROWS
    longest = {
        name: max(kernels[name].total_ps for kernels in (ours, by_name) if name in kernels)
        for name in {**ours, **by_name}
    }
    rows = []
    for name in sorted(longest, key=lambda name: (-longest[name], name))[:top]:
        our, their = ours.get(name), by_name.get(name)
        again = recounted.get(name, KernelAnswer(0, 0))
        shown = their or KernelAnswer(0, 0)
        reasons = {
            "counts-files-twice": facts.has_duplicates and their is not None,
            "only-details": our is None or (their is None and again.count == 0),
            "first-thousand": is_cut,
        }
        rows += [
            _compared(
                "kernel_count",
                [our.count if our else None],
                shown.count,
                None if is_cut else again.count,
                reasons,
                name=name,
            ),
            _compared(
                "kernel_ps",
                [our.total_ps if our else None],
                shown.total_ps,
                None if is_cut else again.total_ps,
                reasons,
                name=name,
                tolerance=PS_PER_NS * max(1, shown.count),
            ),
        ]
    return rows
