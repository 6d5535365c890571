"""How evenly did the devices work, which one is late, and what would a better balance be worth?"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from statistics import median
from typing import Final

from rich.text import Text

from traceview.analysis.balance.compute import Balance, DeviceBalance
from traceview.analysis.balance.findings import whole
from traceview.analysis.balance.gradients import DevicePhases, Gradients
from traceview.analysis.balance.straggler import FEWEST_STEPS, LONGER_RATIO, Straggler
from traceview.analysis.balance.throughput import Throughput
from traceview.analysis.balance.what_if import WhatIf
from traceview.analysis.scaling import Scaling
from traceview.document import numbers
from traceview.document.page import Page
from traceview.render import numbers
from traceview.render.columns import ROWS_IN, Column, add_fitting
from traceview.render.device_names import joined
from traceview.report.model import Report
from traceview.report.standing_out import standing_out

SHOWN_UNEVEN: Final = 3
WORTH_RATIO: Final = 0.01
"""What costs less than this share of the step, or saves less, is not shown in the report."""

VARY_RATIO: Final = 0.05
"""So far the median over the steps may be from what the median times show before that is explained."""

_WIDEST_NAME: Final = 24
_CAUSE_WORDS: Final = {
    "slower_device": "it is slower at the same kernels",
    "more_work": "it has more to do",
    "input": "its part of the batch comes late",
    "late_start": "its kernels are started later",
}
WHAT_IF_WORDS: Final = {
    "no_input_wait": "no waiting for input",
    "no_exposed_collectives": "communication hidden",
    "no_exposed_copies": "copies hidden",
    "concurrent_devices": "all computing at once",
    "balanced_devices": "work shared evenly",
}
PART_WORDS: Final = {
    "compute_ps": "compute",
    "imbalance_ps": "imbalance",
    "communication_ps": "communication",
    "input_ps": "input",
    "launch_ps": "launches",
    "other_ps": "other",
}
PARTS_REMARK: Final = (
    "Compute is the mean of the devices, imbalance what the one that computes longest in the step computes more, and "
    "the rest is that device's."
)
_CODES: Final = (
    "straggler-gpu",
    "mixed-gpus",
    "serial-gpus",
    "poor-scaling",
    "single-gpu-gradients",
)
NOUNS: Final = {"gpu": "GPU", "tpu": "TPU", "replica": "replica", "other": "device"}


def add_balance(page: Page, report: Report) -> None:
    """The section of the report: with several devices in use, or a finding on balance; and the baseline."""
    found = report.results.balance
    if found is not None:
        is_told = any(one.code in _CODES for one in report.findings)
        if found.in_use_count > 1 or is_told or found.gradients.is_single:
            chosen = standing_out(report)
            shown = [row.device for row in found.devices if row.device in chosen]
            add_comparison(page, found, chosen=shown, is_brief=True)
    if report.results.scaling is not None:
        add_scaling(page, report.results.scaling)


def add_comparison(
    page: Page,
    found: Balance,
    *,
    chosen: Collection[str] | None = None,
    is_brief: bool = False,
) -> None:
    """Numbers, a row per device, and what better balance would be worth.

    `chosen`: devices to show, None for all. `is_brief`: for a report, without the prediction and without
    bounds that save next to nothing or cannot be given.
    """
    noun = NOUNS.get(found.kind, found.kind)
    page.heading("Balance", balance_summary(found, noun))
    facts = list(balance_facts(found))
    if facts:
        page.facts(facts)
    shown = [row for row in found.devices if chosen is None or row.device in chosen]
    if found.in_use_count > 1:
        rest = "" if is_brief else ROWS_IN
        add_fitting(page, _columns(page, found, shown), rest=rest)
        left = [row for row in found.devices if row not in shown]
        if left:
            page.prose(page.styled(others_words(left), "dim"))
        unclear = unclear_words(*_last(found))
        if unclear is not None and not is_brief:
            page.prose(page.styled(f"{unclear[:1].upper()}{unclear[1:]}.", "dim"))
    for sentence in balance_sentences(found, WORTH_RATIO if is_brief else 0.0):
        page.prose(sentence, indent=4, label=Text("  - "))
    _add_bounds(page, found, WORTH_RATIO if is_brief else 0.0)
    if not is_brief:
        for sentence in (*not_bounded(found), prediction_words(found)):
            page.prose(page.styled(f"{sentence[:1].upper()}{sentence[1:]}.", "dim"))


def others_words(rows: Sequence[DeviceBalance]) -> str:
    """Between what the devices lie that have no row."""
    compute = numbers.times(row.compute_ps_per_step for row in rows)
    ratios = sorted(row.longer_ratio for row in rows if row.longer_ratio is not None)
    told = f"{numbers.plural(len(rows), 'other')}: compute {compute} per step"
    if ratios:
        least, most = signed_share(ratios[0]), signed_share(ratios[-1])
        told += f", {least if least == most else f'{least} to {most}'} beside the others"
    return f"{told}. traceview balance LOGDIR -o FILE.csv has all."


def balance_summary(found: Balance, noun: str) -> str:
    """How many devices do how much work, in a sentence."""
    count = found.in_use_count
    of = f" of {found.visible_count}" if found.visible_count > count else ""
    used = f"{count}{of} {noun if count == 1 and not of else noun + 's'}"
    if found.kind == "replica" and found.visible_count == 1:
        used = "the CPU"
    verb = "does" if count == 1 else "do"
    return (
        f"{used} {verb} the work of {whole(found.effective_gpus)} that compute all the time "
        f"({numbers.share(found.efficiency_ratio)})"
    )


def balance_facts(found: Balance) -> Iterator[str]:
    """The numbers on balance, a few words each."""
    if found.concurrency_ratio is not None:
        yield (
            f"overlap {numbers.share(found.concurrency_ratio)} of possible "
            f"(chance {numbers.share(found.chance_ratio)})"
        )
    ran = common_phases(found)
    if ran is not None and found.in_use_count > 1:
        yield f"each ran {ran}"
    if found.stagger_ps is not None:
        apart = numbers.time(found.stagger_ps)
        yield (
            f"first kernels {apart} apart" if found.stagger_ps else "first kernels at the same time"
        )
    if found.throughput.examples_per_second is not None:
        yield throughput_words(found.throughput, found.kind)


def throughput_words(throughput: Throughput, kind: str) -> str:
    """`1,487 examples per second, 743 per GPU, 128 per step`."""
    whole = throughput.examples_per_second or 0.0
    each = throughput.per_gpu_per_second or 0.0
    return (
        f"{_rate(whole)} examples per second, {_rate(each)} per {NOUNS.get(kind, kind)}, "
        f"{numbers.count(throughput.batch_size)} per step"
    )


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _columns(page: Page, found: Balance, rows: Sequence[DeviceBalance]) -> list[Column]:
    def numeric(heading: str, texts: list[str], droppable: int = 0) -> Column:
        return Column(heading, [page.styled(text) for text in texts], True, droppable)

    names = [Text(page.middle(row.device, _WIDEST_NAME), "bold") for row in rows]
    phases = {row.device: row for row in found.gradients.devices}
    columns = [
        Column("device", names),
        numeric("compute per step", [numbers.time(row.compute_ps_per_step) for row in rows]),
        numeric("vs others", [signed_share(row.longer_ratio) for row in rows], 1),
        numeric(
            "longest in", [part_of_count(row.longest_count, row.step_count) for row in rows], 3
        ),
    ]
    if found.clock_reason is None:
        columns += [
            numeric("starts later by", [numbers.time(row.start_lag_ps) for row in rows], 4),
            numeric("ends earlier by", [numbers.time(row.end_lead_ps) for row in rows], 5),
        ]
    if any(row.collective_count for row in rows):
        texts = [part_of_count(row.last_count, row.collective_count) for row in rows]
        columns.append(numeric("last in", texts, 1))
    told = [phases_run(phases.get(row.device)) for row in rows]
    if common_phases(found) is None and any(text != numbers.ABSENT for text in told):
        columns.append(Column("ran", [page.styled(text) for text in told], droppable=2))
    return columns


def _last(found: Balance) -> tuple[int, int]:
    """To how many collectives a device came last, and of how many."""
    rows = [row for row in found.devices if row.last_count is not None]
    whole = max((row.collective_count or 0 for row in rows), default=0)
    return sum(row.last_count or 0 for row in rows), whole


def unclear_words(told: int, of_count: int) -> str | None:
    """To how many collectives nobody came last, or not by more than clocks may feign; None if there are none."""
    if told >= of_count:
        return None
    return (
        f"no device was clearly the last to {part_of_count(of_count - told, of_count)} collectives"
    )


def signed_share(ratio: float | None) -> str:
    """A ratio that says more or less: `+20.0%`, `-3.1%`."""
    if ratio is None:
        return numbers.ABSENT
    return f"{ratio:+.1%}" if abs(ratio) >= 0.0005 else "0%"


def part_of_count(count: int | None, whole: int | None) -> str:
    """`3 of 8`."""
    if count is None or whole is None:
        return numbers.ABSENT
    return f"{numbers.count(count)} of {numbers.count(whole)}"


def common_phases(found: Balance) -> str | None:
    """What all devices ran, if they ran the same: `forward, backward`; None if they differ or it is not known."""
    ran = {phases_run(row) for row in found.gradients.devices}
    return ran.pop().replace(" ", ", ") if len(ran) == 1 and numbers.ABSENT not in ran else None


def phases_run(phases: DevicePhases | None) -> str:
    """Which parts of the step a device ran: `forward backward`."""
    if phases is None or phases.backward is None:
        return numbers.ABSENT
    ran = [
        word
        for word, has in (
            ("forward", phases.forward_count > 0),
            ("backward", phases.backward),
            ("optimizer", phases.optimizer_count > 0),
            ("reduction", phases.reduction_count > 0),
        )
        if has
    ]
    return " ".join(ran) or numbers.ABSENT


def balance_sentences(found: Balance, least: float) -> Iterator[str]:
    """What stands out; the straggler from `least` of the step on."""
    late = found.straggler
    saved = {one.name: one.saved_ps for one in found.what_if}
    step_ps = max((one.step_bound_ps + one.saved_ps for one in found.what_if), default=0)
    if found.is_serial:
        yield _of_turns(found, saved.get("concurrent_devices"))
    if late is not None and late.cost_ps_per_step >= least * step_ps:
        yield _of_straggler(late, saved.get("balanced_devices"))
    if late is None:
        yield from _of_unsteady(found)
    if found.clock_reason is not None:
        yield f"what runs at once, and who starts later, is not told: {found.clock_reason}"
    if _vary(found):
        yield (
            "how a device compares with the others is the median over the steps, each compared by itself; as steps "
            "vary, it is not the ratio of the median times"
        )
    if len(found.hardware) > 1:
        groups = [
            f"{group.model or 'model not recorded'} ({joined(group.devices)})"
            for group in found.hardware
        ]
        yield f"the devices differ: {numbers.listed(groups)}"
    yield from _of_gradients(found.gradients)
    yield from _of_uneven_steps(found)
    if found.short_steps:
        short = [str(number) for number in found.short_steps]
        yield (
            f"in step{'s' if len(short) > 1 else ''} {numbers.listed(short, most=SHOWN_UNEVEN)} every device "
            "computed less than usual, as on a short batch"
        )


def _vary(found: Balance) -> bool:
    """Whether the median ratio of a device is far from the ratio of the medians that stands beside it."""
    known = [
        (row.compute_ps_per_step, row.longer_ratio)
        for row in found.devices
        if row.compute_ps_per_step is not None and row.longer_ratio is not None
    ]
    for place, (length, longer) in enumerate(known):
        others = [one for row, (one, _) in enumerate(known) if row != place]
        usual = median(others) if others else 0
        if usual and abs(length / usual - 1 - longer) >= VARY_RATIO:
            return True
    return False


def _of_turns(found: Balance, saved_ps: int | None) -> str:
    nouns = f"{NOUNS.get(found.kind, found.kind)}s"
    told = (
        f"the {found.in_use_count} {nouns} take turns: while one computes, the others wait, though chance alone "
        f"would let {numbers.share(found.chance_ratio)} of what could run at once do so"
    )
    if not saved_ps:
        return told
    return f"{told}; all at once would save at most {numbers.time(saved_ps)} of each step"


def _of_straggler(late: Straggler, saved_ps: int | None) -> str:
    cost = numbers.time(late.cost_ps_per_step)
    told = f"the others wait for {late.device}: {_CAUSE_WORDS[late.cause]}"
    if late.wait_ps_per_step is not None:
        return f"{told}; they wait {cost} of each step"
    told += f", and computes {cost} per step longer than they do (median)"
    if not saved_ps or saved_ps >= late.cost_ps_per_step:
        return told
    return f"{told}; shared evenly, its work would save at most {numbers.time(saved_ps)}: they would then take longer"


def _of_unsteady(found: Balance) -> Iterator[str]:
    longer = [row for row in found.devices if (row.longer_ratio or 0) >= LONGER_RATIO]
    row = max(longer, key=lambda one: one.longer_ratio or 0, default=None)
    if row is not None and row.step_count >= FEWEST_STEPS:
        yield (
            f"{row.device} computed {numbers.share(row.longer_ratio)} longer than the others (median), but not "
            "steadily enough to say that they wait for it"
        )


def _of_uneven_steps(found: Balance) -> Iterator[str]:
    told = {
        number: [one for one in found.uneven_steps if one.number == number]
        for number in dict.fromkeys(one.number for one in found.uneven_steps)
    }
    for number, cases in list(told.items())[:SHOWN_UNEVEN]:
        least = min(cases, key=lambda one: one.compute_ps / one.usual_ps)
        where = f"step {number}" + (", the last," if least.is_last else "")
        devices = joined([one.device for one in cases])
        if not any(one.compute_ps for one in cases):
            yield f"in {where} {devices} computed nothing, and others as usual"
            continue
        whose = f"{least.device} " if len(cases) > 1 else ""
        yield (
            f"in {where} {devices} computed less than usual ({whose}{numbers.time(least.compute_ps)}, "
            f"usually {numbers.time(least.usual_ps)}), and others did not"
        )
    if len(told) > SHOWN_UNEVEN or found.uneven_step_count > len(found.uneven_steps):
        yield f"{found.uneven_step_count} such cases in all: results.balance.uneven_steps in the JSON report"


def _of_gradients(gradients: Gradients) -> Iterator[str]:
    yield from gradients.statements
    if gradients.is_single:
        yield f"only {gradients.computed[0]} computes gradients" + (
            ": " + "; ".join(one.text for one in gradients.reasons)
            if gradients.reasons
            else "; nothing recorded shows why"
        )
    elif gradients.computed and gradients.not_computed:
        yield f"no gradients on {joined(gradients.not_computed)}"
    elif gradients.remark is not None and any(
        row.forward_count + row.backward_count for row in gradients.devices
    ):
        yield gradients.remark


def prediction_words(found: Balance) -> str:
    """What twice as many devices could do, and under which assumptions; or why that is not told."""
    noun, prediction = NOUNS.get(found.kind, found.kind), found.prediction
    if prediction is None:
        return f"nothing is predicted for more {noun}s: {found.prediction_reason}"
    rate = prediction.examples_per_second_bound
    speed = f" ({_rate(rate)} examples per second)" if rate is not None else ""
    return (
        f"{numbers.plural(prediction.device_count, noun)} could do at most {prediction.speedup_bound:.2f} times as "
        f"much{speed}, if {numbers.listed(prediction.assumptions)}"
    )


def not_bounded(found: Balance) -> Iterator[str]:
    """Of several devices, which bounds of the step time cannot be given, and why."""
    if found.in_use_count < 2:
        return
    for reason in dict.fromkeys(found.what_if_missing.values()):
        names = [name for name, why in found.what_if_missing.items() if why == reason]
        yield f"no bound with {numbers.listed([WHAT_IF_WORDS.get(name, name) for name in names])}: {reason}"


def worth_showing(found: Balance, least: float) -> list[WhatIf]:
    """The bounds that save something, and at least `least` of the step; sharing work only if it saves more.

    Devices that compute equally long can still save by computing at once: work is shared then.
    """
    at_once = max(
        (one.saved_ps for one in found.what_if if one.name == "concurrent_devices"), default=0
    )
    worth = [
        one
        for one in found.what_if
        if one.saved_ps
        and one.saved_ps >= least * (one.saved_ps + one.step_bound_ps)
        and not (one.name == "balanced_devices" and one.saved_ps <= at_once)
    ]
    order = list(WHAT_IF_WORDS)
    return sorted(worth, key=lambda one: order.index(one.name) if one.name in order else len(order))


def _add_bounds(page: Page, found: Balance, least_saved: float) -> None:
    rows = worth_showing(found, least_saved)
    if not rows:
        return
    page.gap()
    bounds = [numbers.time(one.step_bound_ps) for one in rows]
    saved = [numbers.part(one.saved_ps, one.saved_ps + one.step_bound_ps) for one in rows]
    columns = [
        Column("step at least", [page.styled(text) for text in bounds], right=True),
        Column("saves at most", [page.styled(text) for text in saved], right=True, droppable=1),
        Column("with", [page.styled(WHAT_IF_WORDS.get(one.name, one.name)) for one in rows]),
    ]
    add_fitting(page, columns)


def add_scaling(page: Page, found: Scaling) -> None:
    """This run beside its baseline, and what makes the step longer."""
    this, base = found.this, found.baseline
    page.heading("Scaling", scaling_summary(found))
    page.facts(
        [
            f"step {numbers.time(this.step_ps)} on {numbers.plural(this.device_count, 'device')}",
            f"{numbers.time(base.step_ps)} on {base.device_count} in run {page.text(base.run)}",
        ]
    )
    ours, theirs, parts = vars(this.parts), vars(base.parts), vars(found.parts)
    keys = list(PART_WORDS)
    columns = [
        Column("part of step", [page.styled(PART_WORDS[key]) for key in keys]),
        Column(
            "baseline",
            [page.styled(numbers.time(theirs[key])) for key in keys],
            right=True,
            droppable=1,
        ),
        Column(
            "this run",
            [page.styled(numbers.time(ours[key])) for key in keys],
            right=True,
            droppable=2,
        ),
        Column("more", [page.styled(numbers.time(parts[key])) for key in keys], right=True),
    ]
    add_fitting(page, columns)
    page.prose(page.styled(PARTS_REMARK, "dim"))
    if found.reason is not None:
        page.prose(page.styled(f"{found.reason[:1].upper()}{found.reason[1:]}.", "dim"))


def scaling_summary(found: Scaling) -> str:
    """How much faster than the baseline, in a sentence."""
    times = found.this.device_count / found.baseline.device_count
    efficiency = numbers.share(found.scaling_efficiency_ratio)
    if found.speedup is None:
        return (
            f"{found.speedup_by_step:.2f} times the baseline by step time, on {times:g} times the devices "
            f"({efficiency})"
        )
    return (
        f"{found.speedup:.2f} times the examples per second of the baseline, on {times:g} times the devices "
        f"({efficiency})"
    )
