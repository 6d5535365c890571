"""How evenly do the devices work, which one is late, and what would a better balance be worth?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from traceview.analysis.activity import DeviceActivity
from traceview.analysis.balance import gradients
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
)
from traceview.analysis.balance.throughput import (
    Prediction,
    Throughput,
    prediction_of,
    throughput_of,
)
from traceview.analysis.balance.what_if import Moments, WhatIf, clocks_agree, what_ifs
from traceview.analysis.base import Skipped
from traceview.analysis.collectives.result import transfer_spans
from traceview.analysis.device_time.result import DeviceTime, DeviceTimeRow
from traceview.analysis.joined_steps import NEVER, JoinedSteps, joined_steps
from traceview.analysis.nvml.result import Nvml
from traceview.analysis.placement import Placement
from traceview.analysis.selection import Selection
from traceview.ids import unique_inverse
from traceview.intervals import Int64Array, IntervalSet, union
from traceview.record import Count, DeviceKey, Hostname, Integer, Picoseconds, Ratio, Record
from traceview.robust import median_ps
from traceview.trace.collectives import Collectives
from traceview.trace.gaps import Gaps
from traceview.trace.model import Trace
from traceview.trace.roles import step_groups
from traceview.xplane.planes import ActivityClass

_KINDS: Final = ("gpu", "tpu", "other", "replica")
"""Devices of one kind are compared with each other: the first of these that computed."""

UNEVEN_RATIO: Final = 0.80
UNEVEN_REPLICA_RATIO: Final = 0.50
"""A device got less of a batch if it computes less than this share of its usual step (replicas share cores, and vary)."""

NOT_ONE_CLOCK: Final = "nothing shows that the clocks of the hosts agree"

_USUAL_RATIO: Final = 0.90
"""… while another computes as much as usual: the batch was uneven, not short for all."""

SERIAL_RATIO: Final = 0.5
"""Devices take turns below this share of the concurrency that chance would give (METRICS: serial-gpus)."""

SERIAL_Z: Final = 1.64
"""… if chance alone would bring so little in one of twenty such runs only: steps are few, and so are kernels in them."""

_FEWEST_USUAL: Final = 3
"""Steps from which on one may be said to be unusual."""

MOST_UNEVEN_STEPS: Final = 20
"""Uneven steps that a report holds."""


class DeviceBalance(Record, frozen=True):
    """One device that takes part in the work, beside the others of its kind.

    Attributes:
        host: Name of the host.
        device: Key of the device.
        ordinal: Number of the device.
        status: As in device_time.
        compute_ps_per_step: Median over the steps of its compute, picoseconds; null without steps.
        longer_ratio: Median over the steps of its compute over the median of the others', less 1; null without
            steps, and for marginal devices, which are not compared.
        longest_count: Steps in which it computed longer than every other; null as above.
        step_count: Steps compared.
        start_lag_ps: How much later than the earliest device its first kernel of a step starts, median,
            picoseconds; null without steps, and where clocks of hosts cannot be compared.
        end_lead_ps: How much before that of the last device its compute of a step ends, median, picoseconds;
            null without steps, and where clocks of hosts cannot be compared.
        last_count: Collectives in which it started last; null without any.
        collective_count: Collectives of the steps that all their devices recorded; null without any.
        hardware: What the device is.
    """

    host: Hostname
    device: DeviceKey
    ordinal: Count
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


class UnevenStep(Record, frozen=True):
    """A step in which one device computed less than it usually does while another did not: an uneven batch.

    Attributes:
        host: Name of the host.
        device: Key of the device.
        number: Number of the step.
        is_last: Whether it is the last step compared.
        compute_ps: What the device computed in it, picoseconds.
        usual_ps: Its median over the steps, picoseconds.
    """

    host: Hostname
    device: DeviceKey
    number: Count
    is_last: bool
    compute_ps: Picoseconds
    usual_ps: Picoseconds


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
        concurrency_ratio: (Sum of compute - its union) over (sum - longest), in the window: 1 when the shorter
            run wholly inside the longest, 0 one after the other; null with fewer than two devices, and where
            clocks of hosts cannot be compared.
        chance_ratio: What that would be if the devices had nothing to do with each other: the longest compute
            over the time from the first kernel to the last; null as above.
        is_serial: Whether the devices compute one after the other, far less at once than chance would give and
            so often that it is none; null where concurrency_ratio is.
        clock_reason: Why concurrency_ratio, chance_ratio, is_serial, stagger_ps, start_lag_ps and end_lead_ps
            are null: they need one clock for all devices; null where they are told.
        effective_gpus: Sum over the devices of compute over the window: as many devices that compute all the
            time do the same.
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
        short_steps: Numbers of the steps in which every device computed less than usual, as of a short batch.
        what_if: Lower bounds of the step time if one thing were put right; empty without steps.
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


@dataclass(frozen=True, eq=False)
class BalanceInput:
    """What other analyses know already. By device index `input_idle`: the idle time for input of each step; `gaps`."""

    device_time: DeviceTime
    input_idle: Mapping[int, Int64Array]
    gaps: Mapping[int, Gaps]
    collectives: Collectives
    outside_view: Nvml | Skipped
    placement: Placement | Skipped


def devices_in_use(
    trace: Trace, selection: Selection, activities: Sequence[DeviceActivity]
) -> tuple[int, ...]:
    """The devices (device indices, by host and number) of one kind that computed in the window."""
    computing = [
        device
        for device, entry in enumerate(trace.device_list)
        if (window := selection.window_of_device(trace, device)) is not None
        and int(_compute(activities[device]).within(window.start_ps, window.end_ps)) > 0
        and entry.kind in _KINDS
    ]
    kinds = {trace.device_list[device].kind for device in computing}
    kind = next((one for one in _KINDS if one in kinds), None)
    return tuple(
        sorted(
            (device for device in computing if trace.device_list[device].kind == kind),
            key=lambda device: (trace.device_list[device].host, trace.device_list[device].ordinal),
        )
    )


def compute(
    trace: Trace,
    selection: Selection,
    activities: Sequence[DeviceActivity],
    known: BalanceInput,
) -> Balance | Skipped:
    """Compare the devices that computed in the window; `activities` by device index."""
    in_use = devices_in_use(trace, selection, activities)
    if not in_use:
        return Skipped("no device computed in the window")
    if not _make_steps_together(trace, in_use):
        return Skipped("the processes make their steps apart: none waits for a slower one")
    kind = trace.device_list[in_use[0]].kind
    rows = {row.device: row for row in known.device_time.devices}
    status = {device: rows[trace.device_key(device)].status for device in in_use}
    joined = joined_steps(trace, selection, activities, sorted(in_use))
    compared = joined.of([d for d in joined.devices if status[d] != "marginal"])
    lengths = _lengths(trace, selection, activities, in_use)
    effective = sum(covered / window for covered, window in lengths.values())
    visible = sum(device.kind == kind for device in trace.device_list)
    is_one_clock = clocks_agree(trace, in_use)
    turns = (
        _concurrency(trace, selection, activities, in_use, joined.count)
        if is_one_clock and len(in_use) > 1
        else None
    )
    take_turns = turns is not None and turns.is_serial
    uneven = _uneven(trace, compared)
    throughput = throughput_of(trace, selection, len(in_use))
    transfers = transfer_spans(trace, known.collectives)
    bounds = what_ifs(trace, selection, activities, joined, Moments(transfers, known.gaps))
    of_gradients = gradients.compute(trace, in_use, known.placement, known.outside_view)
    straggler = find_straggler(
        trace, selection, compared, known.collectives, known.input_idle, take_turns=take_turns
    )
    if straggler and of_gradients.is_single and straggler.device in of_gradients.computed:
        # As many kernels on an empty batch are no equal work.
        straggler = replace(straggler, cause="more_work")
    prediction = prediction_of(trace, selection, activities, joined, throughput, transfers)
    return Balance(
        kind=kind,
        visible_count=visible,
        in_use_count=len(in_use),
        step_count=joined.count,
        skew_ratio=_skew(joined),
        straggler=straggler,
        concurrency_ratio=turns.ratio if turns else None,
        chance_ratio=turns.chance if turns else None,
        is_serial=turns.is_serial if turns else None,
        clock_reason=None if is_one_clock else NOT_ONE_CLOCK,
        effective_gpus=effective,
        efficiency_ratio=effective / visible,
        in_use_efficiency_ratio=effective / len(in_use),
        stagger_ps=_stagger(joined) if is_one_clock else None,
        throughput=throughput,
        prediction=None if isinstance(prediction, Skipped) else prediction,
        prediction_reason=prediction.reason if isinstance(prediction, Skipped) else None,
        gradients=of_gradients,
        hardware=hardware_groups(trace, in_use),
        uneven_steps=tuple(uneven[:MOST_UNEVEN_STEPS]),
        uneven_step_count=len(uneven),
        short_steps=tuple(_short(trace, compared)),
        what_if=bounds.rows,
        what_if_missing=bounds.missing,
        devices=tuple(
            _devices(trace, in_use, rows, joined, compared, known, is_one_clock=is_one_clock)
        ),
    )


def _compute(activity: DeviceActivity) -> IntervalSet:
    return activity.by_class[ActivityClass.COMPUTE]


def _make_steps_together(trace: Trace, devices: Sequence[int]) -> bool:
    """Whether the hosts of the devices train together; beside parameter servers each works at its own pace."""
    hosts = {trace.device_list[device].host for device in devices}
    return any(hosts <= set(group) for group in step_groups(trace.hosts))


def _lengths(
    trace: Trace,
    selection: Selection,
    activities: Sequence[DeviceActivity],
    devices: Sequence[int],
) -> dict[int, tuple[int, int]]:
    """By device how long it computes in its window, and how long that is."""
    found = {}
    for device in devices:
        window = selection.windows[trace.device_list[device].host]
        inside = int(_compute(activities[device]).within(window.start_ps, window.end_ps))
        found[device] = (inside, window.length_ps)
    return found


@dataclass(frozen=True)
class _Concurrency:
    """The share of what can run at once that does, what chance would make of it, and whether that is turns."""

    ratio: float
    chance: float
    is_serial: bool


def _concurrency(
    trace: Trace,
    selection: Selection,
    activities: Sequence[DeviceActivity],
    devices: Sequence[int],
    step_count: int,
) -> _Concurrency:
    """For two devices or more whose clocks agree."""
    starts, ends, lengths = [], [], []
    for device in devices:
        window = selection.windows[trace.device_list[device].host]
        covered = _compute(activities[device])
        inside = (covered.end > window.start_ps) & (covered.start < window.end_ps)
        starts.append(np.maximum(covered.start[inside], window.start_ps))
        ends.append(np.minimum(covered.end[inside], window.end_ps))
        lengths.append(int((ends[-1] - starts[-1]).sum()))
    start, end = np.concatenate(starts), np.concatenate(ends)
    together, total, longest = union(start, end).length, sum(lengths), max(lengths)
    span = int(end.max() - start.min())
    ratio, chance = (total - together) / (total - longest), longest / span
    is_less = ratio < SERIAL_RATIO * chance
    less = 1 - ratio / chance
    shares = np.array(lengths) / span
    return _Concurrency(ratio, chance, is_less and less * _certainty(shares, step_count) > SERIAL_Z)


def _certainty(shares: npt.NDArray[np.float64], step_count: int) -> float:
    """Of the overlap of devices that compute these shares of a step each: its mean in standard deviations.

    Each is taken to compute in one piece per step, wherever chance puts that: in more pieces, chance varies less.
    Of two pieces a >= b of a circle of length 1, ab overlap in the mean, with a mean square of (a - b)b² + 2b³/3.
    """
    mean = variance = 0.0
    for place, one in enumerate(shares):
        other = shares[place + 1 :]
        mean += float((one * other).sum())
        # Of pieces that cannot miss each other the overlap varies as that of what they leave free.
        swap = one + other > 1
        first, second = np.where(swap, 1 - one, one), np.where(swap, 1 - other, other)
        a, b = np.maximum(first, second), np.minimum(first, second)
        variance += float(((a - b) * b**2 + 2 * b**3 / 3 - (a * b) ** 2).sum())
    deviation = float(np.sqrt(max(variance, 0.0) / max(step_count, 1)))
    return mean / deviation if deviation else float("inf")


def _skew(joined: JoinedSteps) -> float | None:
    if len(joined.devices) < 2 or not joined.count:
        return None
    middle = np.median(joined.compute_ps, axis=0)
    known = middle > 0
    if not known.any():
        return None
    longest = joined.compute_ps.max(axis=0)
    return float(np.median(longest[known] / middle[known])) - 1


def _stagger(joined: JoinedSteps) -> int | None:
    whole = (joined.first_ps != NEVER).all(axis=0)
    if len(joined.devices) < 2 or not whole.any():
        return None
    first = joined.first_ps[:, whole]
    return median_ps(first.max(axis=0) - first.min(axis=0))


def _usual_ps(compared: JoinedSteps) -> npt.NDArray[np.float64]:
    """What each device computes in a step, median over the steps."""
    usual: npt.NDArray[np.float64] = np.median(compared.compute_ps, axis=1)
    return usual


def _least_ratio(trace: Trace, compared: JoinedSteps) -> float:
    kind = trace.device_list[compared.devices[0]].kind
    return UNEVEN_REPLICA_RATIO if kind == "replica" else UNEVEN_RATIO


def _short(trace: Trace, compared: JoinedSteps) -> list[int]:
    """Steps in which all devices had less to do."""
    if not compared.devices or compared.count < _FEWEST_USUAL:
        return []
    share = compared.compute_ps / np.maximum(_usual_ps(compared), 1)[:, np.newaxis]
    is_short = (share < _least_ratio(trace, compared)).all(axis=0)
    return [compared.numbers[place] for place in np.flatnonzero(is_short).tolist()]


def _uneven(trace: Trace, compared: JoinedSteps) -> list[UnevenStep]:
    """Steps in which one device got less than its share."""
    if len(compared.devices) < 2 or compared.count < _FEWEST_USUAL:
        return []
    usual = _usual_ps(compared)
    share = compared.compute_ps / np.maximum(usual, 1)[:, np.newaxis]
    least = _least_ratio(trace, compared)
    is_less = (share < least) & (share.max(axis=0) >= _USUAL_RATIO)
    return [
        UnevenStep(
            host=trace.hosts[trace.device_list[device].host].name,
            device=trace.device_key(device),
            number=compared.numbers[place],
            is_last=place == compared.count - 1,
            compute_ps=int(compared.compute_ps[row, place]),
            usual_ps=int(usual[row]),
        )
        for place in np.flatnonzero(is_less.any(axis=0)).tolist()
        for row, device in enumerate(compared.devices)
        if is_less[row, place]
    ]


def _devices(
    trace: Trace,
    in_use: Sequence[int],
    rows: Mapping[str, DeviceTimeRow],
    joined: JoinedSteps,
    compared: JoinedSteps,
    known: BalanceInput,
    *,
    is_one_clock: bool,
) -> list[DeviceBalance]:
    last, count = _last_counts(trace, known.collectives, joined)
    is_compared = len(compared.devices) > 1 and compared.count > 0
    ratios = longer_ratios(compared) if is_compared else None
    counts = longest_counts(compared) if is_compared else None
    whole = (joined.first_ps != NEVER).all(axis=0)
    found = []
    for device in in_use:
        place = joined.devices.index(device)
        row = compared.devices.index(device) if device in compared.devices else None
        key, entry = trace.device_key(device), trace.device_list[device]
        lag = joined.first_ps[place, whole] - joined.first_ps[:, whole].min(axis=0, initial=2**62)
        lead = joined.last_ps[:, whole].max(axis=0, initial=0) - joined.last_ps[place, whole]
        found.append(
            DeviceBalance(
                host=trace.hosts[entry.host].name,
                device=key,
                ordinal=entry.ordinal,
                status=rows[key].status,
                compute_ps_per_step=median_ps(joined.compute_ps[place]),
                longer_ratio=None if ratios is None or row is None else float(ratios[row]),
                longest_count=None if counts is None or row is None else int(counts[row]),
                step_count=joined.count,
                start_lag_ps=median_ps(lag) if is_one_clock else None,
                end_lead_ps=median_ps(lead) if is_one_clock else None,
                last_count=last.get(device, 0) if count else None,
                collective_count=count or None,
                hardware=hardware_of(trace, device, known.outside_view),
            )
        )
    return found


def _last_counts(
    trace: Trace, collectives: Collectives | None, joined: JoinedSteps
) -> tuple[dict[int, int], int]:
    """How often each device was last, of how many collectives in the steps that all recorded."""
    if collectives is None or not joined.count:
        return {}, 0
    first_step = collectives.first_step[collectives.collective]
    counts = collectives.is_complete[collectives.collective]
    counts = counts & np.isin(first_step, joined.numbers)
    counts &= collectives.device_count[collectives.collective] > 1
    devices, index = unique_inverse(collectives.device[collectives.last_among(counts)])
    times = np.bincount(index, minlength=devices.size)
    number = unique_inverse(collectives.collective[counts])[0].size
    return dict(zip(devices.tolist(), times.tolist(), strict=True)), int(number)
