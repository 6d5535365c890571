"""Compares the devices of a run: how evenly they work, which one is late, and what better balance would save."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec.structs import asdict, replace

from traceview.analysis import device_time, nvml, placement
from traceview.analysis.activity import DeviceActivity
from traceview.analysis.balance import gradients
from traceview.analysis.balance.concurrency import Concurrency, concurrency_of
from traceview.analysis.balance.gradients import Gradients
from traceview.analysis.balance.hardware import (
    DeviceHardware,
    HardwareGroup,
    hardware_groups,
    hardware_of,
)
from traceview.analysis.balance.straggler import (
    Straggler,
    find_straggler,
    longer_ratios,
    longest_counts,
    mean_longer_ratios,
)
from traceview.analysis.balance.throughput import (
    Prediction,
    Throughput,
    prediction_of,
    throughput_of,
)
from traceview.analysis.balance.uneven_steps import UnevenStep, short_steps, uneven_steps
from traceview.analysis.balance.what_if import OTHER_CLOCKS, WhatIf, clocks_agree, what_ifs
from traceview.analysis.base import OfDevice, Skipped
from traceview.analysis.collectives.result import transfer_spans
from traceview.analysis.context import Context
from traceview.analysis.cost import mean_ps
from traceview.analysis.joined_steps import NEVER, JoinedSteps, joined_steps
from traceview.analysis.selection import Selection, covered_ps
from traceview.ids import is_in, unique_ids
from traceview.record import Count, Integer, Picoseconds, Ratio, Record
from traceview.robust import median, median_ps
from traceview.trace.collectives import Collectives
from traceview.trace.model import Trace
from traceview.trace.roles import step_groups

_KINDS: Final = ("gpu", "tpu", "other", "replica")
"""Devices of one kind are compared with each other: the first of these that computed."""

MOST_UNEVEN_STEPS: Final = 20
"""Uneven steps that a report holds."""


class DeviceBalance(OfDevice, frozen=True):
    """One device in use, compared with the others of its kind.

    Attributes:
        status: As in device_time.
        compute_ps_per_step: Median over the steps of its compute, picoseconds; null without steps.
        longer_ratio: Median over the steps of its compute over the median of the others', less 1; null without
            steps, and for marginal devices without gradients, which are not compared.
        longest_count: Steps in which it computed longer than every other; null as above.
        step_count: Steps compared.
        start_lag_ps: How much later than the earliest device its first kernel of a step starts, median,
            picoseconds; null without steps, and where clocks of hosts cannot be compared.
        end_lead_ps: How much before that of the last device its compute of a step ends, median, picoseconds;
            null without steps, and where clocks of hosts cannot be compared.
        last_count: Collectives in which it started last; null without any.
        collective_count: Collectives of the steps that all their devices recorded; null without any.
        hardware: What the device is.
        mean_compute_ps_per_step: As compute_ps_per_step, but mean over the steps, rounded down; null also in reports of
            earlier versions.
        mean_longer_ratio: Its mean compute over the mean of the others' (in each step their median), less 1; null as
            longer_ratio, where the others computed nothing, and in reports of earlier versions.
    """

    status: str
    compute_ps_per_step: Picoseconds | None
    longer_ratio: float | None
    longest_count: Count | None
    step_count: Count
    start_lag_ps: Picoseconds | None
    end_lead_ps: Picoseconds | None
    last_count: Count | None
    collective_count: Count | None
    hardware: DeviceHardware
    mean_compute_ps_per_step: Picoseconds | None = None
    mean_longer_ratio: float | None = None


class Balance(Record, frozen=True):
    """The devices of one kind that computed in the window.

    Attributes:
        kind: gpu, tpu, replica or other: the kind that is compared.
        visible_count: Devices of that kind on all hosts, used or not.
        in_use_count: Devices of it that computed in the window.
        step_count: Used steps that all hosts have: what per-step numbers are from.
        skew_ratio: Median over the steps of the longest compute over the median of the devices, less 1; null
            with fewer than two devices or without steps.
        straggler: The device that the others wait for; null if there is none.
        concurrency_ratio: Compute overlap as a share of the largest possible: (sum of compute - its union) over
            (sum - longest), in the window. 1 if the shorter compute runs wholly inside the longest, 0 if
            devices never compute at the same time; null with fewer than two devices, and where clocks of
            hosts cannot be compared.
        chance_ratio: The concurrency_ratio expected of devices that compute independently: the longest compute
            over the time from the first kernel to the last; null as above.
        is_serial: Whether the devices take turns: they overlap far less than by chance, in enough steps to rule
            chance out; null where concurrency_ratio is.
        clock_reason: Why concurrency_ratio, chance_ratio, is_serial, stagger_ps, start_lag_ps and end_lead_ps
            are null: they need one clock for all devices; null where there is one.
        effective_gpus: Sum over the devices of compute over the window: so many fully busy devices compute as
            much.
        efficiency_ratio: The same over all visible devices of the kind.
        in_use_efficiency_ratio: The same over the devices that computed.
        stagger_ps: From the first kernel of the earliest device in a step to that of the latest, median over
            the steps, picoseconds; null with fewer than two devices, without steps, and where clocks of hosts
            cannot be compared.
        throughput: Examples per second.
        prediction: A bound on twice as many devices; null where prediction_reason says why.
        prediction_reason: Why nothing is predicted; null where it is.
        gradients: Which devices ran which part of the training step.
        hardware: The devices by what they are, the largest group first.
        uneven_steps: The first steps in which one device computed less than it usually does while another did
            not.
        uneven_step_count: How many there are in all.
        short_steps: Numbers of the steps in which every device computed less than usual, as on a short batch.
        what_if: Lower bounds of the step time, each after one fix; empty without steps.
        what_if_missing: By name of a bound why it cannot be given.
        devices: The devices that computed, by host and number.
    """

    kind: str
    visible_count: Count
    in_use_count: Count
    step_count: Count
    skew_ratio: float | None
    straggler: Straggler | None
    concurrency_ratio: float | None
    chance_ratio: Ratio | None
    is_serial: bool | None
    clock_reason: str | None
    effective_gpus: Ratio
    efficiency_ratio: Ratio
    in_use_efficiency_ratio: Ratio
    stagger_ps: Picoseconds | None
    throughput: Throughput
    prediction: Prediction | None
    prediction_reason: str | None
    gradients: Gradients
    hardware: tuple[HardwareGroup, ...]
    uneven_steps: tuple[UnevenStep, ...]
    uneven_step_count: Count
    short_steps: tuple[Integer, ...]
    what_if: tuple[WhatIf, ...]
    what_if_missing: dict[str, str]
    devices: tuple[DeviceBalance, ...]

    def saved_ps(self, fix: str) -> int | None:
        """What a fix saves of a step at most; None where its bound is not known."""
        return next((bound.shown_ps for bound in self.what_if if bound.name == fix), None)


def devices_in_use(
    trace: Trace, selection: Selection, activities: Sequence[DeviceActivity]
) -> tuple[int, ...]:
    """The devices (device indices, by host and number) of one kind that computed in the window."""
    computing = [
        device
        for device, entry in enumerate(trace.device_list)
        if entry.kind in _KINDS and _compute_ps(trace, selection, activities, device) > 0
    ]
    kinds = {trace.device_list[device].kind for device in computing}
    kind = next((kind for kind in _KINDS if kind in kinds), None)
    return tuple(device for device in computing if trace.device_list[device].kind == kind)


def _compute_ps(
    trace: Trace, selection: Selection, activities: Sequence[DeviceActivity], device: int
) -> int:
    """How long a device computes in its window."""
    window = selection.window_of_device(trace, device)
    return covered_ps(activities[device].compute, window) if window else 0


def compute(context: Context) -> Balance | Skipped:
    """Compare the devices that computed in the window."""
    times = context.result(device_time.ANALYSIS)
    if isinstance(times, Skipped):
        return times
    trace, selection, activities = context.trace, context.selection, context.activities
    in_use = devices_in_use(trace, selection, activities)
    if not in_use:
        return Skipped("no device computed in the window")
    if not _make_steps_together(trace, in_use):
        return Skipped("each process steps on its own: none waits for a slower one")
    kind = trace.device_list[in_use[0]].kind
    statuses = {row.device: row.status for row in times.devices}
    joined = joined_steps(trace, selection, activities, in_use)
    of_gradients = gradients.compute(
        trace, in_use, context.result(placement.ANALYSIS), context.result(nvml.ANALYSIS)
    )
    compared = joined.of(
        [
            device
            for device in joined.devices
            if (key := trace.device_key(device)) in of_gradients.computed
            or statuses[key] != "marginal"
        ]
    )
    visible_count = sum(device.kind == kind for device in trace.device_list)
    effective = sum(
        _compute_ps(trace, selection, activities, device)
        / selection.windows[trace.device_list[device].host].length_ps
        for device in in_use
    )
    is_one_clock = clocks_agree(trace, in_use)
    concurrency = Concurrency()
    if is_one_clock and len(in_use) > 1:
        concurrency = concurrency_of(trace, selection, activities, in_use, joined.count)
    uneven = uneven_steps(trace, compared)
    throughput = throughput_of(trace, selection, len(in_use))
    transfers = transfer_spans(trace, context.collectives)
    bounds = what_ifs(trace, selection, activities, joined, transfers, context.idle)
    straggler = find_straggler(
        trace,
        selection,
        compared,
        context.collectives,
        context.input_idle,
        take_turns=bool(concurrency.is_serial),
    )
    if straggler and of_gradients.is_single and straggler.device in of_gradients.computed:
        # The others run as many kernels, on empty batches: that is not equal work.
        straggler = replace(straggler, cause="more_work")
    prediction = prediction_of(trace, selection, activities, joined, throughput, transfers)
    return Balance(
        kind=kind,
        visible_count=visible_count,
        in_use_count=len(in_use),
        step_count=joined.count,
        skew_ratio=_skew(joined),
        straggler=straggler,
        **asdict(concurrency),
        clock_reason=None if is_one_clock else OTHER_CLOCKS,
        effective_gpus=effective,
        efficiency_ratio=effective / visible_count,
        in_use_efficiency_ratio=effective / len(in_use),
        stagger_ps=_stagger(joined) if is_one_clock else None,
        throughput=throughput,
        prediction=None if isinstance(prediction, Skipped) else prediction,
        prediction_reason=prediction.reason if isinstance(prediction, Skipped) else None,
        gradients=of_gradients,
        hardware=hardware_groups(trace, in_use),
        uneven_steps=uneven[:MOST_UNEVEN_STEPS],
        uneven_step_count=len(uneven),
        short_steps=short_steps(trace, compared),
        what_if=bounds.rows,
        what_if_missing=bounds.missing,
        devices=tuple(_devices(context, statuses, joined, compared, is_one_clock=is_one_clock)),
    )


def _make_steps_together(trace: Trace, devices: Sequence[int]) -> bool:
    """Whether the hosts of the devices train together; with parameter servers each works at its own pace."""
    hosts = {trace.device_list[device].host for device in devices}
    return any(hosts <= set(group) for group in step_groups(trace.hosts))


def _skew(joined: JoinedSteps) -> float | None:
    if len(joined.devices) < 2 or not joined.count:
        return None
    middle = np.median(joined.compute_ps, axis=0)
    known = middle > 0
    if not known.any():
        return None
    longest = joined.compute_ps.max(axis=0)
    return median(longest[known] / middle[known]) - 1


def _stagger(joined: JoinedSteps) -> int | None:
    whole = (joined.first_ps != NEVER).all(axis=0)
    if len(joined.devices) < 2 or not whole.any():
        return None
    first = joined.first_ps[:, whole]
    return median_ps(first.max(axis=0) - first.min(axis=0))


def _devices(
    context: Context,
    statuses: Mapping[str, str],
    joined: JoinedSteps,
    compared: JoinedSteps,
    *,
    is_one_clock: bool,
) -> Iterator[DeviceBalance]:
    trace, outside = context.trace, context.result(nvml.ANALYSIS)
    last_counts, collective_count = _last_counts(context.collectives, joined)
    is_compared = len(compared.devices) > 1 and compared.count > 0
    ratios = longer_ratios(compared) if is_compared else None
    of_means = mean_longer_ratios(compared) if is_compared else None
    counts = longest_counts(compared) if is_compared else None
    whole = (joined.first_ps != NEVER).all(axis=0)
    for place, device in enumerate(joined.devices):
        row = compared.devices.index(device) if device in compared.devices else None
        lag = joined.first_ps[place, whole] - joined.first_ps[:, whole].min(axis=0, initial=2**62)
        lead = joined.last_ps[:, whole].max(axis=0, initial=0) - joined.last_ps[place, whole]
        yield DeviceBalance(
            *trace.identity(device),
            status=statuses[trace.device_key(device)],
            compute_ps_per_step=median_ps(joined.compute_ps[place]),
            longer_ratio=None if ratios is None or row is None else float(ratios[row]),
            longest_count=None if counts is None or row is None else int(counts[row]),
            step_count=joined.count,
            start_lag_ps=median_ps(lag) if is_one_clock else None,
            end_lead_ps=median_ps(lead) if is_one_clock else None,
            last_count=last_counts.get(device, 0) if collective_count else None,
            collective_count=collective_count or None,
            hardware=hardware_of(trace, device, outside),
            mean_compute_ps_per_step=mean_ps(joined.compute_ps[place]) if joined.count else None,
            mean_longer_ratio=None if of_means is None or row is None else of_means[row],
        )


def _last_counts(collectives: Collectives, joined: JoinedSteps) -> tuple[dict[int, int], int]:
    """How often each device was last, of how many collectives in the steps that all recorded."""
    if not joined.count:
        return {}, 0
    is_whole = collectives.is_complete & (collectives.device_count > 1)
    is_counted = (is_whole & is_in(collectives.first_step, joined.numbers))[collectives.collective]
    last = collectives.device[collectives.last_among(is_counted)].tolist()
    return Counter(last), unique_ids(collectives.collective[is_counted]).size
