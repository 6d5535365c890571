"""Which unevenness between the devices costs enough to be changed?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from traceview.analysis.balance.gradients import BACKWARD_RATIO, Gradients
from traceview.analysis.balance.hardware import HardwareGroup
from traceview.analysis.balance.result import SERIAL_RATIO, Balance, DeviceBalance
from traceview.analysis.balance.straggler import (
    LONGER_RATIO,
    MOST_STEPS_RATIO,
    REPLICA_STEPS_RATIO,
    WAIT_RATIO,
    Straggler,
    clear_ratio,
)
from traceview.analysis.base import Confidence, Evidence, Finding, Skipped
from traceview.analysis.selection import Selection
from traceview.document import numbers

STRAGGLER_CRITICAL_RATIO: Final = 0.20
"""A straggler is critical if it costs this share of the step (METRICS: straggler-gpu)."""

STRAGGLER_LEAST_RATIO: Final = 0.01
"""A straggler that costs less of the step is not worth a finding, however regularly it is last."""

POOR_EFFICIENCY_RATIO: Final = 0.5
"""Devices in use that compute less of the time than this scale poorly (METRICS: poor-scaling)."""

THROTTLED_RATIO: Final = 0.10
"""Share of samples with a reason for lower clocks from which it is named as evidence (METRICS: gpu-throttled)."""

FEWEST_STEPS: Final = 2
"""Findings about speed from fewer used steps are information only (METRICS: findings)."""

FIRM_STEPS: Final = 5
"""Of fewer steps the same device may be the last one by chance."""

_SEVERAL: Final = 2
_LONGEST_NAME: Final = 60
_TWO_DECIMALS_FROM: Final = 0.1
_EXPLAINING: Final = ("marginal-gpu", "single-gpu-gradients", "unused-gpu")
"""Findings without a cost that say why devices in use have little to do."""

_CAUSES: Final = {
    "slower_device": (
        (
            "It runs the same kernels as the others and takes longer for them, so it is the device that is slower: "
            "its clocks, its cooling, its model, or another job on it."
        ),
        (
            "Compare its clocks and its neighbours while the job runs: nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE; "
            "traceview capture samples them. Exchange it, or give each replica a share of the batch that fits it."
        ),
    ),
    "more_work": (
        "It launches more than the others, or spends longer in some of its kernels only: it has more to do.",
        (
            "Give all replicas the same work: batches of one size (drop_remainder=True), sequences padded or bucketed "
            "by length, and nothing that only one replica does inside the step, such as metrics or summaries."
        ),
    ),
    "input": (
        "It computes no longer than the others, but begins later because its part of the batch came late.",
        (
            "traceview input LOGDIR shows the shards. Let the pipeline work ahead: dataset.prefetch(tf.data.AUTOTUNE), "
            "one file set per worker with tf.data.experimental.AutoShardPolicy.FILE, no slow disk under one of them."
        ),
    ),
    "late_start": (
        "It computes no longer than the others, but the host starts its kernels later.",
        (
            "traceview gaps LOGDIR --device {device} shows what the host did before. Let threads launch side by side "
            "(TF_GPU_THREAD_MODE=gpu_private), launch fewer kernels (jit_compile=True), and keep Python out of "
            "the step."
        ),
    ),
}

_HELD_BACK: Final = (
    (
        "It runs the same kernels as the others and takes longer for them. Its driver held its clocks back meanwhile, "
        "more than those of the others: gpu-throttled says for what reason."
    ),
    (
        "Do what gpu-throttled advises. If it is slower at full clocks, too, exchange it, or give each replica a share "
        "of the batch that fits it."
    ),
)
_OTHER_KIND: Final = (
    (
        "It runs the same kernels as the others and takes longer for them, and the devices are not alike: "
        "mixed-gpus says how they differ."
    ),
    "Train on one kind at a time, or give each replica a share of the batch that fits it.",
)


def diagnose(result: Balance | Skipped, selection: Selection) -> list[Finding]:
    """Stragglers, mixed devices, devices that take turns, and gradients on one device only."""
    if isinstance(result, Skipped):
        return []
    found = [
        _straggler(result, result.straggler, selection)
        if result.straggler and _costs(result.straggler, selection)
        else None,
        _mixed(result),
        _serial(result, selection),
        _single(result.gradients, selection),
    ]
    return [one for one in found if one is not None]


def diagnose_scaling(
    result: Balance | Skipped,
    selection: Selection,
    told: Sequence[Finding],
    *,
    has_baseline: bool,
) -> list[Finding]:
    """Devices in use that mostly idle, unless a finding of `told` says why.

    `has_baseline`: the run is set beside one on a single device already.
    """
    if isinstance(result, Skipped) or len(result.devices) < _SEVERAL:
        return []
    ratio = result.in_use_efficiency_ratio
    explained = any(
        one.severity != "info" and (one.cost_ratio is not None or one.code in _EXPLAINING)
        for one in told
    )
    if ratio >= POOR_EFFICIENCY_RATIO or explained:
        return []
    is_enough = _is_enough(selection)
    return [
        Finding(
            code="poor-scaling",
            severity="info",
            title=(
                f"{len(result.devices)} {_noun(result)} do the work of {whole(result.effective_gpus)} that compute "
                "all the time"
            ),
            explanation=(
                f"The devices in use compute {numbers.share(ratio)} of the time, and no other finding explains where the rest "
                "goes. What the GPUs wait for is in the section Idle."
            ),
            advice=(
                "The section Scaling shows which part of the step is longer than in the baseline. "
                if has_baseline
                else "Compare with a run on one GPU: traceview analyze LOGDIR --baseline LOGDIR_OF_ONE. "
            )
            + "See what the devices wait for with traceview gaps LOGDIR, and try a larger batch per replica.",
            confidence="medium" if is_enough else "low",
            confidence_reason=(
                "that it is low is measured, and why is not known"
                if is_enough
                else _few_steps(selection)
            ),
            evidence=(
                Evidence("in_use_efficiency_ratio", ratio, POOR_EFFICIENCY_RATIO, "devices in use"),
            ),
            devices=_keys(result),
        )
    ]


def whole(effective: float) -> str:
    """A number of devices that compute all the time: `1.40`, `0.044`."""
    return f"{effective:.2f}" if effective >= _TWO_DECIMALS_FROM else f"{effective:.2g}"


def _noun(result: Balance) -> str:
    return {"gpu": "GPUs", "tpu": "TPUs", "replica": "replicas"}.get(result.kind, "devices")


def _keys(result: Balance) -> tuple[str, ...]:
    return tuple(row.device for row in result.devices)


def _is_enough(selection: Selection) -> bool:
    return len(selection.used_steps) >= FEWEST_STEPS


def _few_steps(selection: Selection) -> str:
    used = len(selection.used_steps)
    return f"only {numbers.plural(used, 'used step')}" if used else "no used step"


def _is_held_back(result: Balance, row: DeviceBalance) -> bool:
    """Whether the driver held back the clocks of a device, and more than those of the others."""
    others = [one.hardware.throttled_ratio or 0 for one in result.devices if one is not row]
    return (row.hardware.throttled_ratio or 0) - max(others, default=0) >= THROTTLED_RATIO


def _is_of_other_kind(result: Balance, device: str) -> bool:
    """Whether a device is not of the kind that most are of."""
    own = sum(len(group.devices) for group in result.hardware if device in group.devices)
    return (
        0
        < own
        <= max(
            (len(group.devices) for group in result.hardware if device not in group.devices),
            default=0,
        )
    )


def _costs(one: Straggler, selection: Selection) -> bool:
    step_ps = selection.median_step_ps
    return step_ps is None or one.cost_ps_per_step >= STRAGGLER_LEAST_RATIO * step_ps


def _straggler(result: Balance, one: Straggler, selection: Selection) -> Finding:
    step_ps = selection.median_step_ps or 0
    ratio = one.cost_ps_per_step / step_ps if step_ps else None
    is_critical = ratio is not None and ratio >= STRAGGLER_CRITICAL_RATIO
    explanation, advice = _CAUSES[one.cause]
    is_longer = one.cause in ("slower_device", "more_work")
    row = next(row for row in result.devices if row.device == one.device)
    held_back = _is_held_back(result, row)
    if one.cause == "more_work" and one.top_kernels:
        named = numbers.listed([name[:_LONGEST_NAME] for name in one.top_kernels])
        explanation += f" Most of the difference is in {named}."
    if one.cause == "slower_device" and held_back:
        explanation, advice = _HELD_BACK
    elif one.cause == "slower_device" and _is_of_other_kind(result, one.device):
        explanation, advice = _OTHER_KIND
    elif held_back:
        explanation += " Its driver held its clocks back meanwhile."
    title = (
        f"{one.device} computes {numbers.share(one.longer_ratio)} longer than the others in every step"
        if is_longer and one.step_count == one.of_count
        else f"{one.device} usually computes {numbers.share(one.longer_ratio)} longer than the others"
        if is_longer
        else f"the others wait {numbers.time(one.cost_ps_per_step)} of each step for {one.device}"
    )
    confidence, reason = _trust(result, one)
    return Finding(
        code="straggler-gpu",
        severity="critical" if is_critical else "warning",
        title=title,
        explanation=(
            f"{explanation} The cost is a bound: what {one.device} "
            + (
                "computes longer than the others (median)."
                if is_longer
                else "lets the others wait."
            )
            + _shared_evenly(result, one)
        ),
        advice=advice.format(device=one.device),
        confidence=confidence,
        confidence_reason=reason,
        evidence=tuple(_evidence(one, row, step_ps, held_back=held_back)),
        devices=(one.device,),
        cost_ps_per_step=one.cost_ps_per_step,
        cost_ratio=ratio,
    )


def _shared_evenly(result: Balance, one: Straggler) -> str:
    """How the cost of a straggler and the bound with all work shared evenly belong together."""
    saved = [row.saved_ps for row in result.what_if if row.name == "balanced_devices"]
    if one.cause not in ("slower_device", "more_work") or not saved:
        return ""
    if not 0 < saved[0] < one.cost_ps_per_step:
        return ""
    return (
        f" Sharing what there is to do saves less, at most {numbers.time(saved[0])} of each step: the others would then "
        "compute longer."
    )


def _trust(result: Balance, one: Straggler) -> tuple[Confidence, str]:
    steps = f"{one.step_count} of {one.of_count}"
    if one.cause in ("slower_device", "more_work"):
        seen = f"it computes longest in {steps} steps"
    elif result.devices[0].collective_count:
        seen = f"it comes last to {steps} collectives"
    else:
        seen = f"its compute ends last in {steps} steps"
    if one.shares_cores:
        known: Confidence = "medium" if one.cause == "more_work" else "low"
        return known, f"{seen}; replicas share the host's cores"
    if one.of_count < FIRM_STEPS:
        return "medium", f"{seen}, which are few"
    return "high", seen


def _evidence(
    one: Straggler, row: DeviceBalance, step_ps: int, *, held_back: bool
) -> list[Evidence]:
    where = one.device
    share = one.step_count / one.of_count
    often = REPLICA_STEPS_RATIO if one.shares_cores else MOST_STEPS_RATIO
    clear = clear_ratio(row.step_count)
    found = [
        Evidence("cause", one.cause, None, where),
        Evidence("steps_ratio", share, often, where),
    ]
    if one.wait_ps_per_step is None:
        found.append(Evidence("longer_ratio", one.longer_ratio, LONGER_RATIO, where))
        varies = one.longer_ratio / clear
        found.append(Evidence("spread_ratio", one.spread_ratio, varies, where))
        if one.launches_ratio is not None:
            found.append(Evidence("launches_ratio", one.launches_ratio, None, where))
    elif step_ps:
        waits = one.wait_ps_per_step / step_ps
        found.append(Evidence("wait_ratio", waits, WAIT_RATIO, where))
        found.append(Evidence("spread_ratio", one.spread_ratio, waits / clear, where))
    if one.input_ps_per_step:
        found.append(Evidence("input_ps_per_step", one.input_ps_per_step, None, where))
    if held_back:
        ratio = row.hardware.throttled_ratio or 0
        found.append(Evidence("throttled_ratio", ratio, THROTTLED_RATIO, where))
    return found


def _mixed(result: Balance) -> Finding | None:
    if len(result.hardware) < _SEVERAL:
        return None
    late = result.straggler
    is_slower = late is not None and late.cause == "slower_device"
    told = [f"{_hardware(group)} ({numbers.listed(group.devices)})" for group in result.hardware]
    return Finding(
        code="mixed-gpus",
        severity="warning" if late is not None else "info",
        title=f"the devices in use are of {len(result.hardware)} kinds: {numbers.listed(told, most=4)}",
        explanation=(
            "Replicas of a mirrored step get equal parts of a batch and wait for each other, so all of them are "
            "as slow as the slowest kind."
            + (f" {late.device} is the one that they wait for." if late and is_slower else "")
        ),
        advice=(
            "Set the clocks alike: nvidia-smi -ac MEMORY,GRAPHICS."
            if _differ_by_clocks_only(result)
            else "Train on one kind at a time: choose with CUDA_VISIBLE_DEVICES."
        ),
        confidence="high",
        confidence_reason="the tracer wrote down what each device is",
        evidence=tuple(
            Evidence("hardware", _hardware(group), None, device)
            for group in result.hardware
            for device in group.devices
        ),
        devices=_keys(result),
        cost_ps_per_step=None,
    )


def _differ_by_clocks_only(result: Balance) -> bool:
    return len({(group.model, group.core_count) for group in result.hardware}) == 1


def _hardware(group: HardwareGroup) -> str:
    clock = group.clock_max_hz
    parts = [
        group.model,
        None if group.core_count is None else f"{group.core_count} cores",
        None if clock is None else f"{clock / 1e6:.0f} MHz",
    ]
    return ", ".join(part for part in parts if part) or "not recorded"


def _serial(result: Balance, selection: Selection) -> Finding | None:
    ratio, chance = result.concurrency_ratio, result.chance_ratio
    if not result.is_serial or ratio is None or chance is None:
        return None
    is_enough, is_replica = _is_enough(selection), result.kind == "replica"
    saved = next((one.saved_ps for one in result.what_if if one.name == "concurrent_devices"), None)
    step_ps = selection.median_step_ps
    return Finding(
        code="serial-gpus",
        severity="critical" if is_enough else "info",
        title=(
            f"the {len(result.devices)} {_noun(result)} in use compute one after the other: {numbers.share(ratio)} of what "
            "could run at once does"
        ),
        explanation=(
            f"If they had nothing to do with each other, {numbers.share(chance)} would. So something makes them wait for one "
            "another: they take turns. The cost is a bound: the time in a step in which one of them computes, "
            "beyond what the busiest one computes."
        ),
        advice=(
            "Run the step on all replicas at once: strategy.run(step, args=(batch,)) inside one tf.function, "
            "not a Python loop over tf.device scopes. In model parallelism split the batch into micro-batches, so "
            "that the stages overlap."
        ),
        confidence="low" if not is_enough else "medium" if is_replica else "high",
        confidence_reason=(
            f"over {numbers.plural(len(selection.used_steps), 'used step')}"
            + ("; replicas share the host's cores" if is_replica else "")
            if is_enough
            else _few_steps(selection)
        ),
        evidence=(
            Evidence(
                "concurrency_ratio", ratio, SERIAL_RATIO * chance, numbers.listed(_keys(result))
            ),
            Evidence("chance_ratio", chance, None, numbers.listed(_keys(result))),
        ),
        devices=_keys(result),
        cost_ps_per_step=saved,
        cost_ratio=saved / step_ps if step_ps and saved is not None else None,
    )


def _single(gradients: Gradients, selection: Selection) -> Finding | None:
    if not gradients.is_single:
        return None
    (device,) = gradients.computed
    is_enough = _is_enough(selection)
    reasons = gradients.reasons
    others = f" {numbers.listed(gradients.not_computed)} did not." if gradients.not_computed else ""
    told = "; ".join(reason.text for reason in reasons)
    # Whoever hides GPUs from a process may mean it.
    is_chosen = len(gradients.devices) == 1 and any(
        reason.code == "visible_devices" for reason in reasons
    )
    row = next(row for row in gradients.devices if row.device == device)
    named = row.forward_ps + row.backward_ps + row.optimizer_ps
    return Finding(
        code="single-gpu-gradients",
        severity="critical" if is_enough and not is_chosen else "info",
        title=f"only {device} computes gradients",
        explanation=(
            f"Every replica of a mirrored step computes gradients of its own part of the batch.{others} "
            + (f"Why: {told}." if reasons else "Why is not known: nothing recorded shows it.")
        ),
        advice=(
            " ".join(dict.fromkeys(reason.advice for reason in reasons))
            if reasons
            else "Build model and optimizer in with strategy.scope(): and call strategy.run(step, args=(batch,)); "
            "print strategy.num_replicas_in_sync. Captures by traceview capture hold what shows the reason."
        ),
        confidence="high" if is_enough and reasons else "medium" if is_enough else "low",
        confidence_reason=(
            _few_steps(selection)
            if not is_enough
            else "the names of its kernels say so"
            + ("" if reasons else ", and the reason is not recorded")
        ),
        evidence=(
            Evidence(
                "backward_ratio", row.backward_ps / named if named else 0.0, BACKWARD_RATIO, device
            ),
            *(
                Evidence("backward_count", one.backward_count, None, one.device)
                for one in gradients.devices
                if one.device != device
            ),
            *(Evidence("reason", reason.code, None, device) for reason in reasons),
        ),
        devices=(device,),
    )
