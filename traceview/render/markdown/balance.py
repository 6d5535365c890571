"""How evenly do the devices work, which one is late, and how short could the step be?"""

from __future__ import annotations

from typing import Final

from traceview.analyses.balance import Balance
from traceview.render import numbers
from traceview.render.markdown.blocks import Column, Section, bullets, table
from traceview.render.markdown.inline import code, plain, prose
from traceview.report.model import Report

SHOWN: Final = 64

_CAUSE_WORDS: Final = {
    "slower_device": "the same kernels take longer there",
    "more_work": "it launches more kernels",
    "input": "its batch comes late",
    "late_start": "it starts late",
}


def balance_section(report: Report) -> Section | None:
    """Skew, straggler and efficiency, bounds of the step time, and a row per device."""
    found = report.results.balance
    if found is None:
        return None
    facts = [*_facts(found), *_scaling(report)]
    return Section("Balance", (bullets(facts), _bounds(found), _devices(found)))


def _facts(found: Balance) -> list[str]:
    efficiency = plain(numbers.share(found.efficiency_ratio))
    facts = [
        f"compute of {found.effective_gpus:.2f} devices on {found.visible_count} visible: {efficiency}"
    ]
    if found.skew_ratio is not None:
        facts.append(
            f"the longest compute of a step is {plain(numbers.share(found.skew_ratio))} over the median device's"
        )
    if found.concurrency_ratio is not None:
        facts.append(
            f"{plain(numbers.share(found.concurrency_ratio))} of what could run at once did so; "
            f"by chance it would be {plain(numbers.share(found.chance_ratio))}"
        )
    late = found.straggler
    if late is not None:
        facts.append(
            f"{code(late.device)} is what the others wait for: {_CAUSE_WORDS.get(late.cause, late.cause)}, "
            f"{numbers.time(late.cost_ps_per_step)} per step"
        )
    speed = found.throughput
    if speed.examples_per_second is not None:
        facts.append(
            f"{speed.examples_per_second:,.1f} examples per second, "
            f"{speed.per_gpu_per_second or 0.0:,.1f} per device"
        )
    elif speed.reason:
        facts.append(f"examples per second are not known: {prose(speed.reason)}")
    return facts


def _scaling(report: Report) -> list[str]:
    """Beside the run on one device, where one was given."""
    scaling = report.results.scaling
    if scaling is None:
        return []
    base = scaling.baseline
    faster = scaling.speedup if scaling.speedup is not None else scaling.speedup_by_step
    share = plain(numbers.share(scaling.scaling_efficiency_ratio))
    whose = f"{numbers.plural(base.device_count, 'device')}, step {numbers.time(base.step_ps)}"
    return [
        f"{faster:.2f} times run {code(base.run)} of {code(base.logdir)} ({whose}): efficiency {share}"
    ]


def _bounds(found: Balance) -> str:
    rows = found.what_if
    return table(
        [
            Column("what if", [code(row.name) for row in rows]),
            Column("step, at least", [numbers.time(row.step_bound_ps) for row in rows], right=True),
            Column("saves, at most", [numbers.time(row.saved_ps) for row in rows], right=True),
            Column("because", [prose(row.reasoning) for row in rows]),
        ]
    )


def _devices(found: Balance) -> str:
    rows = found.devices[:SHOWN]
    return table(
        [
            Column("device", [code(row.device) for row in rows]),
            Column(
                "compute per step",
                [numbers.time(row.compute_ps_per_step) for row in rows],
                right=True,
            ),
            Column(
                "over the others",
                [plain(numbers.share(row.longer_ratio)) for row in rows],
                right=True,
            ),
            Column(
                "longest in, steps", [numbers.count(row.longest_count) for row in rows], right=True
            ),
            Column("starts later by", [numbers.time(row.start_lag_ps) for row in rows], right=True),
            Column(
                "last, collectives", [numbers.count(row.last_count) for row in rows], right=True
            ),
        ]
    )
