"""Concludes which imbalance between the devices costs enough to be fixed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from traceview.analysis.balance.gradients import Gradients
from traceview.analysis.balance.hardware import Hardware
from traceview.analysis.balance.result import Balance, DeviceBalance
from traceview.analysis.balance.rules import MIXED, SERIAL, SINGLE, STRAGGLER
from traceview.analysis.balance.straggler import (
    Straggler,
    required_longer_ratio,
    required_spreads,
    required_steps_ratio,
)
from traceview.analysis.balance.what_if import even_share_ps
from traceview.analysis.base import Confidence, Evidence, Finding
from traceview.analysis.cost import Cost
from traceview.analysis.nvml.findings import GPU_THROTTLED
from traceview.analysis.selection import Selection
from traceview.document import numbers
from traceview.document.sanitize import shortened
from traceview.document.vocabulary import DEVICE_KINDS, look_of
from traceview.trace.cause import Cause

FIRM_STEPS: Final = 5
"""In fewer steps the same device may be last by chance."""

_NAMED_DEVICES: Final = 4
"""A title names up to so many waiting devices, and counts more of them."""

_LONGEST_NAME: Final = 60
"""Characters of a kernel or op; the start and the end of a longer name tell it from others."""

_MORE_KERNELS_RATIO: Final = 1.02
"""From so many kernels for each of another device on a device launches more of them; a choice of ours."""

_TITLES: Final = {
    "slower_device": "{device} computes {cost} longer per step ({longer} vs. the others)",
    "more_work": "{device} has {cost} more compute per step ({longer} vs. the others)",
    "input": "{device} gets its batch {cost} late",
    "late_start": "{device} starts its kernels {cost} late",
}
_CAUSES: Final = {
    "slower_device": (
        (
            "It runs the same kernels as the others and takes longer for them, so the device itself is slower: its "
            "clocks, its cooling, its model, or another job on it."
        ),
        (
            "Compare its clocks and other jobs on it while training runs: nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE; "
            "traceview capture samples them. If it stays slow, leave it out with CUDA_VISIBLE_DEVICES."
        ),
    ),
    "more_work": (
        "It has more to do: {work}.",
        (
            "Give all replicas the same work: batches of one size (drop_remainder=True), sequences padded or bucketed "
            "by length, and no metrics or summaries that only one replica computes inside the step."
        ),
    ),
    "input": (
        "It computes no longer than the others, but begins later because its part of the batch came late.",
        ("traceview input LOGDIR shows the shards. Prefetch: dataset.prefetch(tf.data.AUTOTUNE)."),
    ),
    "late_start": (
        "It computes no longer than the others, but the host starts its kernels later.",
        (
            "traceview gaps LOGDIR --device {device} shows what the host did before. Let threads launch in parallel "
            "(TF_GPU_THREAD_MODE=gpu_private), launch fewer kernels (a larger batch per replica), and keep Python out "
            "of the step."
        ),
    ),
}
_OF_SEVERAL_WORKERS: Final = " Give each worker its own files with tf.data.experimental.AutoShardPolicy.FILE, none of them on a slow disk."
"""The policy changes nothing where one worker feeds all replicas."""
_ON_PATH: Final = {
    "input": ("input",),
    "late_start": tuple(
        cause.key for cause in Cause if cause not in (Cause.INPUT, Cause.PEER, Cause.UNUSED)
    ),
}
"""What of the critical path a straggler is about, by its cause; of other causes its compute."""

_THROTTLED: Final = (
    (
        "It runs the same kernels as the others and takes longer for them. Its driver lowered its clocks more than "
        "those of the others: gpu-throttled gives the reason."
    ),
    (
        "Follow the advice of gpu-throttled. If it is slower at full clocks, too, leave it out with "
        "CUDA_VISIBLE_DEVICES."
    ),
)
_OTHER_KIND: Final = (
    (
        "It runs the same kernels as the others and takes longer for them, and the devices differ: mixed-gpus says how."
    ),
    "Train on one kind of device at a time: choose with CUDA_VISIBLE_DEVICES.",
)


def diagnose(result: Balance, selection: Selection) -> list[Finding]:
    """Stragglers, different devices, devices that take turns, and gradients on only one device."""
    findings = [
        _straggler(result, selection),
        _mixed(result),
        _serial(result, selection),
        _single(result.gradients, selection),
    ]
    return [finding for finding in findings if finding is not None]


def device_noun(kind: str, count: int = 2) -> str:
    """`GPUs`, `replica`: what devices of a kind are called."""
    return f"{look_of(DEVICE_KINDS, kind).words}{'' if count == 1 else 's'}"


# The straggler


def _straggler(result: Balance, selection: Selection) -> Finding | None:
    late = result.straggler
    if late is None:
        return None
    step_ps = selection.median_step_ps or 0
    priced = selection.cost("mean", late.mean_cost_ps_per_step or 0).as_bound("upper")
    severity = "warning" if priced.ratio is None else STRAGGLER.severity_of(priced.ratio)
    if severity is None:
        return None
    row = next(row for row in result.devices if row.device == late.device)
    is_throttled = _is_throttled(result, row)
    explanation, advice = _CAUSES[late.cause]
    if late.cause == "more_work":
        explanation = explanation.replace("{work}", _more_work(late))
        names = [shortened(name, _LONGEST_NAME) for name in late.top_kernels]
        if names:
            explanation += f" Most of the difference is in {numbers.listed(names)}."
    if late.cause == "input" and len(selection.windows) > 1:
        advice += _OF_SEVERAL_WORKERS
    if late.cause == "slower_device" and is_throttled:
        explanation, advice = _THROTTLED
    elif late.cause == "slower_device" and _is_of_rarer_kind(result, late.device):
        explanation, advice = _OTHER_KIND
    elif is_throttled:
        explanation += " Its driver also lowered its clocks."
    bound = (
        f"how much longer {late.device} computes than the others"
        if late.wait_ps_per_step is None
        else f"the time {late.device} keeps the others waiting"
    )
    title = _TITLES[late.cause].format(
        device=late.device,
        cost=numbers.time(priced.ps_per_step),
        longer=numbers.signed_share(late.mean_longer_ratio),
    )
    return STRAGGLER.finding(
        f"{title}{_of_step(priced)}; {_waiting(result, late)} for it",
        tuple(_evidence(late, row, step_ps, is_throttled=is_throttled)),
        severity=severity,
        confidence=_confidence(result, late),
        explanation=f"{explanation} The cost is an upper bound: {bound}.{_shared_evenly(result, late)}",
        advice=advice.format(device=late.device),
        devices=(late.device,),
        cost=priced,
        path_causes=_ON_PATH.get(late.cause),
    )


def _more_work(late: Straggler) -> str:
    """What shows that a straggler has more to do: more kernels, or longer ones."""
    ratio = late.launches_ratio
    if ratio is not None and ratio >= _MORE_KERNELS_RATIO:
        return f"it launches {numbers.share(ratio - 1)} more kernels than the others"
    return "it launches no more kernels than the others, but some of its kernels take longer than theirs"


def _of_step(priced: Cost) -> str:
    """`, 46.3% of the mean 14.5 ms step`; beside the waiting devices a share alone would be taken for theirs."""
    if priced.statistic is None or not priced.ratio or priced.ps_per_step is None:
        return ""
    step = numbers.time(priced.ps_per_step / priced.ratio)
    return f", {numbers.share(priced.ratio)} of the {priced.statistic} {step} step"


def _waiting(result: Balance, late: Straggler) -> str:
    """`GPU:0, 1 and 3 wait`, `the other 7 GPUs wait`."""
    compared = (row.device for row in result.devices if row.longer_ratio is not None)
    others = [device for device in compared if device != late.device]
    if len(others) == 1:
        return f"{others[0]} waits"
    if len(others) > _NAMED_DEVICES:
        return f"the other {len(others)} {device_noun(result.kind)} wait"
    return f"{' and '.join(numbers.joined_devices(others).rsplit(', ', 1))} wait"


def _is_throttled(result: Balance, row: DeviceBalance) -> bool:
    """Whether the driver lowered the clocks of a device more than those of the others."""
    others = [other.hardware.throttled_ratio or 0 for other in result.devices if other is not row]
    beyond_others = (row.hardware.throttled_ratio or 0) - max(others, default=0)
    return beyond_others >= GPU_THROTTLED.limits["throttled_ratio"]


def _is_of_rarer_kind(result: Balance, device: str) -> bool:
    """Whether no more devices are of its kind than of another."""
    own = sum(len(group.devices) for group in result.hardware if device in group.devices)
    others = [len(group.devices) for group in result.hardware if device not in group.devices]
    return 0 < own <= max(others, default=0)


def _shared_evenly(result: Balance, late: Straggler) -> str:
    """How the cost of a straggler fits the smaller bound for work that is shared evenly."""
    saved_ps = even_share_ps(result.what_if) or 0
    if late.wait_ps_per_step is not None or not 0 < saved_ps < (late.mean_cost_ps_per_step or 0):
        return ""
    return (
        f" Sharing its work evenly saves less, about {numbers.time(saved_ps)} of the mean step, because the others "
        "would compute longer."
    )


def _mean_saved_ps(result: Balance, fix: str) -> int | None:
    """What a bound saves in the mean step; None without it."""
    return next((bound.mean_saved_ps for bound in result.what_if if bound.name == fix), None)


def _confidence(result: Balance, late: Straggler) -> tuple[Confidence, str]:
    of_steps = f"{late.step_count} of {late.of_count}"
    if late.wait_ps_per_step is None:
        reason = f"it computes longest in {of_steps} steps"
    elif result.devices[0].collective_count:
        reason = f"it comes last to {of_steps} collectives"
    else:
        reason = f"its compute ends last in {of_steps} steps"
    if late.shares_cores:
        level: Confidence = "medium" if late.cause == "more_work" else "low"
        return level, f"{reason}; replicas share the cores of their host"
    if late.of_count < FIRM_STEPS:
        return "medium", f"{reason}, which are few"
    return "high", reason


def _evidence(
    late: Straggler, row: DeviceBalance, step_ps: int, *, is_throttled: bool
) -> Iterator[Evidence]:
    where = late.device
    least_steps_ratio = required_steps_ratio(shares_cores=late.shares_cores)
    spreads = required_spreads(row.step_count)
    yield Evidence("cause", late.cause, None, where)
    yield Evidence("steps_ratio", late.step_count / late.of_count, least_steps_ratio, where)
    if late.wait_ps_per_step is None:
        limit = required_longer_ratio(shares_cores=late.shares_cores)
        if late.mean_longer_ratio is not None:
            yield Evidence("mean_longer_ratio", late.mean_longer_ratio, limit, where)
        if late.launches_ratio is not None:
            yield Evidence("launches_ratio", late.launches_ratio, None, where)
    elif step_ps:
        wait = late.wait_ps_per_step / step_ps
        yield Evidence("wait_ratio", wait, STRAGGLER.limits["wait_ratio"], where)
    if late.spread_ps is not None:
        yield Evidence("spread_ps", late.spread_ps, int(late.cost_ps_per_step / spreads), where)
    if late.input_ps_per_step:
        yield Evidence("input_ps_per_step", late.input_ps_per_step, None, where)
    if is_throttled:
        ratio = row.hardware.throttled_ratio or 0
        yield Evidence("throttled_ratio", ratio, GPU_THROTTLED.limits["throttled_ratio"], where)


# Different devices


def _mixed(result: Balance) -> Finding | None:
    if len(result.hardware) < 2:
        return None
    late = result.straggler
    groups = [
        f"{_words(group)} ({numbers.joined_devices(group.devices)})" for group in result.hardware
    ]
    slower = ""
    if late and late.cause == "slower_device":
        slower = f" The others wait for {late.device}."
    differ_by_clocks = len({(group.model, group.core_count) for group in result.hardware}) == 1
    return MIXED.finding(
        f"the {device_noun(result.kind)} differ: {numbers.listed(groups, most=4)}",
        tuple(
            Evidence("hardware", _words(group), None, device)
            for group in result.hardware
            for device in group.devices
        ),
        severity="warning" if late is not None else "info",
        confidence=("high", "the tracer recorded the hardware of each device"),
        explanation=f"{MIXED.meaning}{slower}",
        advice="Set equal clocks: nvidia-smi -ac MEMORY,GRAPHICS." if differ_by_clocks else None,
        devices=[row.device for row in result.devices],
    )


def _words(hardware: Hardware) -> str:
    clock = hardware.clock_max_hz
    parts = [
        hardware.model,
        None if hardware.core_count is None else f"{hardware.core_count} cores",
        None if clock is None else f"{clock / 1e6:.0f} MHz",
    ]
    return ", ".join(part for part in parts if part) or "not recorded"


# Devices that take turns


def _serial(result: Balance, selection: Selection) -> Finding | None:
    ratio, chance = result.concurrency_ratio, result.chance_ratio
    if not result.is_serial or ratio is None or chance is None:
        return None
    is_replica = result.kind == "replica"
    saved = _mean_saved_ps(result, "concurrent_devices")
    keys = [row.device for row in result.devices]
    where = numbers.listed(keys)
    over_steps = f"over {numbers.plural(len(selection.used_steps), 'used step')}"
    cores = "; replicas share the cores of their host" if is_replica else ""
    cost = None if saved is None else selection.cost("mean", saved).as_bound("upper")
    bound = " The cost is an upper bound: the time in a step in which any of them computes, minus the compute of the busiest."
    return SERIAL.finding(
        (
            f"{len(result.devices)} {device_noun(result.kind)} run serially: {numbers.share(ratio)} of the possible "
            "overlap"
        ),
        (
            Evidence("concurrency_ratio", ratio, SERIAL.limits["of_chance_ratio"] * chance, where),
            Evidence("chance_ratio", chance, None, where),
        ),
        severity="info" if selection.few_steps else "critical",
        confidence=selection.few_steps
        or ("medium" if is_replica else "high", f"{over_steps}{cores}"),
        explanation=(
            f"Independent devices would reach {numbers.share(chance)}, so something makes them wait for each "
            f"other: they take turns.{bound if cost else ''}"
        ),
        devices=keys,
        cost=cost,
    )


# Gradients on one device


def _single(gradients: Gradients, selection: Selection) -> Finding | None:
    if not gradients.is_single:
        return None
    (device,) = gradients.computed
    reasons = gradients.reasons
    row = next(row for row in gradients.devices if row.device == device)
    named_ps = row.forward_ps + row.backward_ps + row.optimizer_ps
    # Somebody who hides GPUs from a process may mean to.
    is_chosen = len(gradients.devices) == 1 and any(
        reason.code == "visible_devices" for reason in reasons
    )
    others = f" {numbers.listed(gradients.not_computed)} did not." if gradients.not_computed else ""
    why = (
        f"The reason: {'; '.join(reason.text for reason in reasons)}."
        if reasons
        else "No recorded evidence shows the reason."
    )
    confidence: tuple[Confidence, str] = ("high", "the names of its kernels show it")
    if not reasons:
        confidence = ("medium", "the names of its kernels show it; the reason is not recorded")
    return SINGLE.finding(
        f"only {device} computes gradients",
        (
            Evidence(
                "backward_ratio",
                row.backward_ps / named_ps if named_ps else 0.0,
                SINGLE.limits["backward_ratio"],
                device,
            ),
            *(
                Evidence("backward_count", other.backward_count, None, other.device)
                for other in gradients.devices
                if other.device != device
            ),
            *(Evidence("reason", reason.code, None, device) for reason in reasons),
        ),
        severity="info" if selection.few_steps or is_chosen else "critical",
        confidence=selection.few_steps or confidence,
        explanation=(
            f"Every replica of a mirrored step computes gradients of its own part of the batch.{others} {why}"
        ),
        advice=" ".join(dict.fromkeys(reason.advice for reason in reasons)) or None,
        devices=(device,),
    )
