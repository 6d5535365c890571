"""Shows how evenly the devices work, which one is late, and the best case per fix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from traceview.analysis import steps
from traceview.analysis.balance.findings import device_noun
from traceview.analysis.balance.gradients import DevicePhases, Gradients
from traceview.analysis.balance.result import Balance, DeviceBalance
from traceview.analysis.balance.rules import MIXED, SERIAL, SINGLE, STRAGGLER
from traceview.analysis.balance.straggler import Straggler, required_longer_ratio
from traceview.analysis.balance.uneven_steps import UnevenStep
from traceview.analysis.balance.what_if import WhatIf, even_share_ps
from traceview.analysis.base import FEWEST_STEPS
from traceview.analysis.collectives.section import unclear_words
from traceview.analysis.context import View
from traceview.analysis.cost import cost_words
from traceview.analysis.idle.profiler_time import PROFILER_PS
from traceview.analysis.input.result import Input, keeps_waiting
from traceview.analysis.input.rules import INPUT_BOUND
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.vocabulary import BOUNDS, look_of

TITLE: Final = "Balance"
SHOWN_UNEVEN: Final = 3
"""Steps that are named; the others are counted."""
WORTH_RATIO: Final = 0.01
"""A brief document leaves out costs and savings below this share of the step."""

_BOUND_OF_CAUSE: Final = {
    "input": "no_input_wait",
    "collective": "no_exposed_collectives",
    "h2d": "no_exposed_copies",
    "d2h": "no_exposed_copies",
    "d2d": "no_exposed_copies",
}
_BOUND_OF_CODE: Final = {"straggler-gpu": "balanced_devices", "serial-gpus": "concurrent_devices"}
_LEAST_OF_COST: Final = 0.8
"""A row that saves less than this share of the cost of its finding needs an explanation: beyond rounding and the median of the
one beside the mean of the other. A choice of ours."""

_CODES: Final = {rule.code for rule in (STRAGGLER, MIXED, SERIAL, SINGLE)} | {"poor-scaling"}
_CAUSES: Final = {
    "slower_device": "{device} is slower at the same kernels: it computes {cost} longer in the mean step",
    "more_work": "{device} has more to do: it computes {cost} longer in the mean step",
    "input": "{device} gets its part of the batch late: the others wait {cost} of the mean step",
    "late_start": "{device} starts its kernels late: the others wait {cost} of the mean step",
}


def balance_section(view: View, result: Balance) -> doc.Section | None:
    """Efficiency, what stands out, the devices, and the bounds of the step time."""
    is_single = result.gradients.is_single
    has_finding = any(finding.code in _CODES for finding in view.findings)
    if view.is_brief and result.in_use_count < 2 and not has_finding and not is_single:
        return None
    least_ratio = WORTH_RATIO if view.is_brief else 0.0
    return doc.Section(
        "balance",
        TITLE,
        (
            *doc.facts(*_facts(result)),
            *_by_device(view, result),
            *doc.notes(*map(numbers.sentence, _statements(result, least_ratio))),
            *_bounds(view, result, least_ratio),
            *(() if view.is_brief else doc.remarks(*map(numbers.sentence, _limits(result)))),
        ),
        lead=_summary(result),
    )


def _summary(result: Balance) -> str:
    """The share of the time in which the devices compute."""
    count, of_all = result.in_use_count, numbers.share(result.efficiency_ratio)
    if result.kind == "replica" and result.visible_count == 1:
        return f"The CPU computes {of_all} of the time."
    verb, mean = ("computes", "") if count == 1 else ("compute", " on average")
    if result.visible_count == count:
        return f"{count} {device_noun(result.kind, count)} {verb} {of_all} of the time{mean}."
    return (
        f"{count} of {result.visible_count} {device_noun(result.kind)} {verb}, "
        f"{numbers.share(result.in_use_efficiency_ratio)} of the time{mean} ({of_all} over all "
        f"{result.visible_count})."
    )


def _facts(result: Balance) -> Iterator[str]:
    """The numbers on balance, a few words each."""
    noun = device_noun(result.kind)
    if result.concurrency_ratio == 0:
        yield f"{noun} never compute at the same time"
    elif result.concurrency_ratio is not None:
        yield (
            f"compute overlap {numbers.share(result.concurrency_ratio)} of the maximum "
            f"(independent devices would reach {numbers.share(result.chance_ratio)})"
        )
    phases = _common_phases(result)
    if phases and result.in_use_count > 1:
        yield f"phases on each: {phases}"
    if result.stagger_ps:
        yield f"start delay from first to last device {numbers.time(result.stagger_ps)} (median)"
    elif result.stagger_ps is not None:
        yield "no start delay between devices"
    speed = result.throughput
    if speed.examples_per_second is not None:
        yield (
            f"{numbers.number(speed.examples_per_second)} examples per second in the median step, "
            f"{numbers.number(speed.per_gpu_per_second)} per {device_noun(result.kind, 1)}, "
            f"{numbers.count(speed.batch_size)} per step"
        )


# The devices


def _by_device(view: View, result: Balance) -> Iterator[doc.Block]:
    if result.in_use_count < 2:
        return
    rows, others = view.split(result.devices)
    yield from doc.table(
        "Balance by device",
        _columns(result, rows[: view.most_rows]),
        row_count=len(rows),
        rest=view.command("balance"),
    )
    if others:
        yield doc.Remark(
            f"{_range(others)} All devices:", f"{view.command('balance')} -o balance.csv"
        )
    if not view.is_brief:
        last_count = sum(row.last_count or 0 for row in result.devices)
        count = max((row.collective_count or 0 for row in result.devices), default=0)
        yield from doc.remarks(unclear_words(last_count, count))
    yield from doc.remarks("Compute per step is the mean over the steps, delays are medians.")


def _columns(result: Balance, rows: Sequence[DeviceBalance]) -> Iterator[doc.Column]:
    yield doc.devices("device", [row.device for row in rows])
    yield doc.times(
        "compute per step",
        [row.mean_compute_ps_per_step for row in rows],
        meaning="mean over the steps",
    )
    yield doc.signed_shares(
        "vs. others",
        [row.mean_longer_ratio for row in rows],
        priority=1,
        meaning="mean compute beyond the mean of the other devices, of which each step counts the median",
    )
    yield doc.counts(
        "steps slowest",
        [_of(row.longest_count, row.step_count) for row in rows],
        priority=3,
        meaning="steps in which it computed longer than every other device",
    )
    if result.clock_reason is None:
        yield doc.times(
            "start delay",
            [row.start_lag_ps for row in rows],
            priority=4,
            meaning="its first kernel of the step after that of the first device, median over the steps",
        )
        yield doc.times(
            "ends early by",
            [row.end_lead_ps for row in rows],
            priority=5,
            meaning="its last kernel of the step before that of the last device, median over the steps",
        )
    if any(row.collective_count for row in rows):
        yield doc.counts(
            "last to arrive",
            [_of(row.last_count, row.collective_count) for row in rows],
            priority=1,
            meaning="collectives that it started after all other devices",
        )
    phases = {row.device: row for row in result.gradients.devices}
    if _common_phases(result) is None:
        yield doc.words("ran", [_phases(phases.get(row.device)) for row in rows], priority=2)


def _range(rows: Sequence[DeviceBalance]) -> str:
    """The range of the devices without a row."""
    compute = numbers.time_range(row.mean_compute_ps_per_step for row in rows)
    ratios = sorted(row.mean_longer_ratio for row in rows if row.mean_longer_ratio is not None)
    ends = dict.fromkeys(map(numbers.signed_share, (ratios[:1] + ratios[-1:])))
    versus = f", {' to '.join(ends)} vs. the others" if ends else ""
    return f"{numbers.plural(len(rows), 'other device')}: compute {compute} per step{versus}."


def _of(count: int | None, whole: int | None) -> str | None:
    """`3 of 8`."""
    return None if count is None or whole is None else f"{count:,} of {whole:,}"


def _common_phases(result: Balance) -> str | None:
    """The parts of the step that all devices ran; None if they differ or are not known."""
    phases = {_phases(row) for row in result.gradients.devices}
    return phases.pop() if len(phases) == 1 else None


def _phases(row: DevicePhases | None) -> str | None:
    """The parts of the step that a device ran: `forward, backward`; None where no name shows them."""
    if row is None or row.backward is None:
        return None
    parts = (
        ("forward", row.forward_count > 0),
        ("backward", row.backward),
        ("optimizer", row.optimizer_count > 0),
        ("reduction", row.reduction_count > 0),
    )
    return ", ".join(name for name, has_run in parts if has_run) or None


# What stands out


def _statements(result: Balance, least_ratio: float) -> Iterator[str]:
    """What stands out; the straggler only if it costs the least share of the step."""
    late = result.straggler
    step_ps = max((bound.step_bound_ps + bound.saved_ps for bound in result.what_if), default=0)
    if result.is_serial:
        turns = f"{result.in_use_count} {device_noun(result.kind)} run serially: while one computes, the others wait"
        saved_ps = result.saved_ps("concurrent_devices")
        saved = f"; computing all at once saves at most {numbers.time(saved_ps)} per step"
        yield f"{turns}{saved if saved_ps else ''}"
    if late is not None and late.cost_ps_per_step >= least_ratio * step_ps:
        yield _of_straggler(late, even_share_ps(result.what_if))
    if late is None:
        yield from _of_unsteady(result)
    if result.clock_reason is not None:
        yield f"compute overlap and start times are not compared: {result.clock_reason}"
    if len(result.hardware) > 1:
        groups = [
            f"{group.model or 'model not recorded'} ({numbers.joined_devices(group.devices)})"
            for group in result.hardware
        ]
        yield f"the {device_noun(result.kind)} differ: {numbers.listed(groups)}"
    yield from _of_gradients(result.gradients)
    yield from _of_uneven_steps(result)
    if result.short_steps:
        steps = "steps" if len(result.short_steps) > 1 else "step"
        listed = numbers.listed(list(map(str, result.short_steps)), most=SHOWN_UNEVEN)
        yield f"every device computed less than usual in {steps} {listed}, as on a short batch"


def _of_straggler(late: Straggler, saved_ps: int | None) -> str:
    """Its cost in the mean step, as in its finding; `saved_ps`: by sharing its work evenly."""
    # Reports of earlier versions have the median only.
    cost_ps = late.mean_cost_ps_per_step or late.cost_ps_per_step
    cost = numbers.time(cost_ps)
    cause = _CAUSES[late.cause].format(device=late.device, cost=cost)
    if late.wait_ps_per_step is not None:
        return cause
    if not saved_ps or saved_ps >= cost_ps:
        return f"{cause}, and the others wait"
    return (
        f"{cause}, and the others wait; sharing its work evenly saves about {numbers.time(saved_ps)}, because they "
        "would compute longer"
    )


def _of_unsteady(result: Balance) -> Iterator[str]:
    limit = required_longer_ratio(shares_cores=result.kind == "replica")
    longer = [row for row in result.devices if (row.mean_longer_ratio or 0) >= limit]
    row = max(longer, key=lambda row: row.mean_longer_ratio or 0, default=None)
    if row is not None and row.step_count >= FEWEST_STEPS:
        yield (
            f"{row.device} computed {numbers.share(row.mean_longer_ratio)} longer than the others, but too "
            "unsteadily to be a straggler"
        )


def _of_gradients(gradients: Gradients) -> Iterator[str]:
    yield from gradients.statements
    if gradients.is_single:
        reasons = "; ".join(reason.text for reason in gradients.reasons)
        why = f": {reasons}" if reasons else "; no recorded evidence shows why"
        yield f"only {gradients.computed[0]} computes gradients{why}"
    elif gradients.computed and gradients.not_computed:
        yield f"{numbers.joined_devices(gradients.not_computed)} computed no gradients"
    elif gradients.remark is not None and any(
        row.forward_count + row.backward_count for row in gradients.devices
    ):
        yield gradients.remark


def _of_uneven_steps(result: Balance) -> Iterator[str]:
    by_number: dict[int, list[UnevenStep]] = {}
    for step in result.uneven_steps:
        by_number.setdefault(step.number, []).append(step)
    for number, rows in list(by_number.items())[:SHOWN_UNEVEN]:
        least = min(rows, key=lambda step: step.compute_ps / max(step.usual_ps, 1))
        where = f"step {number}" + (" (the last)" if least.is_last else "")
        keys = numbers.joined_devices([step.device for step in rows])
        if not any(step.compute_ps for step in rows):
            yield f"{keys} computed nothing in {where}, the others as usual"
            continue
        whose = f"{least.device} " if len(rows) > 1 else ""
        yield (
            f"{keys} computed less than usual in {where}: {whose}{numbers.time(least.compute_ps)} instead of "
            f"{numbers.time(least.usual_ps)}, the others as usual"
        )
    if len(by_number) > SHOWN_UNEVEN or result.uneven_step_count > len(result.uneven_steps):
        yield f"{result.uneven_step_count} uneven steps in all: results.balance.uneven_steps of the JSON report"


# Bounds


def _bounds(view: View, result: Balance, least_ratio: float) -> tuple[doc.Block, ...]:
    rows = _worth_showing(result, least_ratio)
    if not rows:
        return ()
    mean_ps = _mean_step_ps(view)
    statistic, step_ps = "median", rows[0].step_bound_ps + rows[0].saved_ps
    # Costs are of the mean step. Reports of earlier versions have bounds of the median step only.
    if mean_ps is not None and all(row.mean_saved_ps is not None for row in rows):
        statistic, step_ps = "mean", mean_ps
    return (
        doc.Subheading("Best case per fix"),
        *doc.table(
            "Best case per fix",
            (
                doc.words("fix", [look_of(BOUNDS, row.name).words for row in rows]),
                doc.times(f"{statistic} step at least", [step_ps - row.shown_ps for row in rows]),
                doc.times("saves at most", [row.shown_ps for row in rows], priority=2),
                doc.shares(
                    f"of the {statistic} step",
                    [doc.ratio(row.shown_ps, step_ps) for row in rows],
                    priority=1,
                ),
                None
                if view.is_brief
                else doc.words("because", [row.reasoning for row in rows], priority=3),
            ),
        ),
        *doc.remarks(
            f"{_statistics(view)}A bound is the least that a step takes, not a forecast.",
            _of_input(view, rows),
            _of_first_finding(view, rows),
        ),
    )


def _statistics(view: View) -> str:
    """How long the median step is, and the mean one, of which costs are shares."""
    result, mean_ps = view.result(steps.ANALYSIS), _mean_step_ps(view)
    if result is None or result.median_ps is None or mean_ps is None:
        return ""
    mean = f", the mean step {numbers.time(mean_ps)}" if result.used_count > 1 else ""
    return f"The median step takes {numbers.time(result.median_ps)}{mean}. "


def _mean_step_ps(view: View) -> int | None:
    """The mean of the used steps, rounded down; None without any."""
    result = view.result(steps.ANALYSIS)
    used = [step.duration_ps for step in (result.steps if result else ()) if step.used]
    return sum(used) // len(used) if used else None


def _of_input(view: View, rows: Sequence[WhatIf]) -> str | None:
    """Why the row for input saves another time than `input-bound` costs, or saves some although the pipeline keeps up."""
    if all(row.name != "no_input_wait" for row in rows):
        return None
    bound = next((row for row in view.findings if row.code == INPUT_BOUND.code), None)
    counted = "The row for input counts the moments in which any device waits for a batch"
    if bound is not None:
        metrics = {item.metric for item in bound.evidence}
        if "input_cost_ratio" in metrics:
            costs = [words for metric, words in _COSTS_OF_INPUT.items() if metric in metrics]
            rest = "the rest of what" if "input_wait_ps" in metrics else "what"
            return f"{counted}. It leaves out {rest} {bound.code} costs: {numbers.listed(costs, len(costs))}."
        return (
            f"{counted}; {bound.code} costs the wait of the device that is idle least."
            if bound.cost_statistic == "mean"
            else None
        )
    result: Input | None = view.results.get("input")
    hosts = result.hosts if result else ()
    if not hosts or any(keeps_waiting(host) for host in hosts):
        return None
    return f"The input pipeline keeps up: batches are ready in time. {counted} to be handed over."


_COSTS_OF_INPUT: Final = {
    "lock_wait_ps": "waiting for Python's lock",
    "slowed_ops_ps": "ops that take longer because the pipeline takes cores",
    "slowed_dispatch_ps": "dispatch of ops that takes longer because of that",
}
"""What the input pipeline costs beside waiting for it, by the metric of evidence."""


def _of_first_finding(view: View, rows: Sequence[WhatIf]) -> str | None:
    """Why the fix of the first finding has no row, or one that saves less than the finding costs."""
    first = next((row for row in view.findings if row.code == view.first_code), None)
    if first is None or first.cost_ps_per_step is None:
        return None
    names = {_BOUND_OF_CAUSE.get(cause, "") for cause in first.path_causes}
    names.add(_BOUND_OF_CODE.get(first.code, ""))
    saved_ps = max((row.shown_ps for row in rows if row.name in names), default=None)
    cost = cost_words(first.cost_ps_per_step, first.cost_ratio, first.cost_statistic)
    if any(item.metric == PROFILER_PS for item in first.evidence):
        cost += " without the profiler"
    if saved_ps is None:
        return (
            f"{first.code} has no row: bounds are computed for input, communication, copies and balance only. Its cost, "
            f"{cost}, is the most that its fix saves."
        )
    if first.code in _BOUND_OF_CODE or first.code == INPUT_BOUND.code:
        return None  # notes of their own say what sharing the work, and a ready batch, saves
    if saved_ps < _LEAST_OF_COST * first.cost_ps_per_step:
        return (
            f"{first.code} costs {cost}, more than its row saves: the row takes away only the time that is recorded "
            "under that cause."
        )
    return None


def _worth_showing(result: Balance, least_ratio: float) -> list[WhatIf]:
    """The bounds that save something, and the least share of the step; an even share only if it saves more.

    Devices that compute equally long still save by computing at once: their work is shared evenly already.
    """
    at_once = result.saved_ps("concurrent_devices") or 0
    rows = [
        bound
        for bound in result.what_if
        if bound.shown_ps
        and bound.shown_ps >= least_ratio * (bound.saved_ps + bound.step_bound_ps)
        and not (bound.name == "balanced_devices" and bound.shown_ps <= at_once)
    ]
    order = list(BOUNDS)
    return sorted(rows, key=lambda row: order.index(row.name) if row.name in order else len(order))


def _limits(result: Balance) -> Iterator[str]:
    """Which bounds and numbers are missing, and why; and the bound for twice as many devices."""
    if result.in_use_count > 1:
        for reason in dict.fromkeys(result.what_if_missing.values()):
            bounds = [
                look_of(BOUNDS, name).words
                for name, why in result.what_if_missing.items()
                if why == reason
            ]
            yield f"no bound for {numbers.listed(bounds)}: {reason}"
    yield _prediction(result)
    if result.throughput.reason is not None:
        yield f"examples per second are not known: {result.throughput.reason}"


def _prediction(result: Balance) -> str:
    """What twice as many devices would do at best, and under which assumptions; or why that is not known."""
    prediction = result.prediction
    if prediction is None:
        return f"no prediction for more {device_noun(result.kind)}: {result.prediction_reason}"
    rate = prediction.examples_per_second_bound
    speed = "" if rate is None else f" ({numbers.number(rate)} examples per second)"
    return (
        f"{prediction.device_count} {device_noun(result.kind, prediction.device_count)} would train at most "
        f"{prediction.speedup_bound:.2f}× as fast{speed}, if {numbers.listed(prediction.assumptions)}"
    )
