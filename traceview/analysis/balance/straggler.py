"""Finds the device that the others wait for, the cause, and what it costs them.

A device that computes longer than the others is late wherever it started. A device that computes no longer is late
because it began late: its batch came late if it waited for input itself, otherwise the host started its kernels late.

In every step chance makes some device the last, and with few steps the same device in most of them. So a delay has to
stand out from its own step-to-step variation: both in time, for a device that has more to do is as much later in short
steps as in long ones, while its share varies with what the others do. Replicas on one CPU also take its cores from each
other, so being late to a few steps, or by little, is no property of a replica.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.analysis.balance.rules import STRAGGLER
from traceview.analysis.base import FEWEST_STEPS, OfDevice
from traceview.analysis.cost import mean_ps
from traceview.analysis.joined_steps import NEVER, JoinedSteps
from traceview.analysis.selection import Selection
from traceview.ids import unique_inverse
from traceview.intervals import BoolArray, Int64Array
from traceview.record import Activity, Count, Picoseconds, Ratio
from traceview.robust import MAD_TO_SIGMA, median, median_ps, quartile_range
from traceview.trace.collectives import Collectives
from traceview.trace.model import NONE, Trace
from traceview.trace.op_names import split_op
from traceview.trace.roles import machine_of

FloatArray: TypeAlias = npt.NDArray[np.float64]
Cause: TypeAlias = Literal["slower_device", "more_work", "input", "late_start"]

TOP_KERNELS: Final = 3
"""Kernels named as those that take longer in sum than elsewhere."""

_WORTH_NAMING_RATIO: Final = 0.1
"""Only kernels with this share of all that take longer are named."""

_FEWEST_FOR_DEVIATIONS: Final = 4
"""The spread of fewer devices does not show what is usual."""

_EXPLAINING_RATIO: Final = 0.5
"""A cause explains a delay if it makes up this share of it."""

_NUMBER: Final = re.compile(r"_\d+$")


class Straggler(OfDevice, frozen=True):
    """The device that the others wait for.

    Attributes:
        cause: slower_device (the same kernels, longer), more_work (more launches), input (its batch came late)
            or late_start.
        cost_ps_per_step: What it computes longer than the median of the others, or what its peers wait for it,
            median over the steps, picoseconds.
        longer_ratio: Median over the steps of its compute over the median of the others', less 1.
        step_count: Steps in which it computed longest; for the causes input and late_start collectives (without
            any: steps) in which it was last.
        of_count: Steps or collectives compared.
        wait_ps_per_step: What its peers wait, median over the steps, picoseconds; null for slower_device and
            more_work.
        launches_ratio: Its kernels over the mean of the others'; null for input and late_start.
        top_kernels: Kernels (of replicas: ops) whose durations in sum exceed those of the others most; empty
            for input and late_start.
        input_ps_per_step: How much longer than its peers it waited for input, median over the steps,
            picoseconds; null for slower_device and more_work.
        spread_ratio: How much longer_ratio varies over the steps (interquartile range); for input and
            late_start what its peers wait, over the median step.
        shares_cores: Whether it is one of several replicas on a machine, which share its cores.
        spread_ps: How much its delay behind the others varies over the steps (interquartile range, rounded down),
            picoseconds; the delay has to stand out from it. Null in reports of earlier versions.
        mean_cost_ps_per_step: What it computes longer, or its peers wait, as in cost_ps_per_step, but mean over the steps,
            rounded down, picoseconds. Null in reports of earlier versions.
        mean_longer_ratio: Its mean compute over the mean of the others' (in each step their median), less 1; null where
            they computed nothing, and in reports of earlier versions.
    """

    cause: Cause
    cost_ps_per_step: Picoseconds
    longer_ratio: float
    step_count: Count
    of_count: Count
    wait_ps_per_step: Picoseconds | None
    launches_ratio: Ratio | None
    top_kernels: tuple[Activity, ...]
    input_ps_per_step: Picoseconds | None
    spread_ratio: Ratio
    shares_cores: bool
    spread_ps: Picoseconds | None = None
    mean_cost_ps_per_step: Picoseconds | None = None
    mean_longer_ratio: float | None = None


class _Late(Struct, frozen=True, eq=False):
    """A device that is last: how often, of how many, and what its peers wait for it.

    `peers_ps` `[steps]`: the median wait of its peers. `later_ps` `[steps]`: its delay behind its peers, below 0 where it is earlier. `begins_late_ps`: how much later
    than theirs its compute begins; None where a collective shows it.
    """

    row: int
    count: int
    of_count: int
    peers_ps: Int64Array
    later_ps: Int64Array
    begins_late_ps: int | None

    @property
    def wait_ps(self) -> int:
        """What its peers wait in a step, median."""
        return median_ps(self.peers_ps) or 0


def find_straggler(
    trace: Trace,
    selection: Selection,
    steps: JoinedSteps,
    collectives: Collectives | None,
    input_idle: Mapping[int, Int64Array],
    *,
    take_turns: bool,
) -> Straggler | None:
    """The straggler among the devices of `steps`, which take full part in the work; None if there is none.

    `input_idle`: by device index the idle picoseconds of cause input in each step of `selection.steps`.
    `take_turns`: the devices compute in turns, so being last is not the fault of the last device.
    """
    if len(steps.devices) < 2 or steps.count < FEWEST_STEPS:
        return None
    longest = _computes_longest(trace, steps)
    if longest is not None:
        return _slow_straggler(trace, steps, longest)
    if take_turns:
        return None
    late = _starts_last(trace, steps, collectives) if collectives is not None else None
    is_one_host = len({trace.device_list[device].host for device in steps.devices}) == 1
    # Hosts that share no collective do not wait for each other, nor are their clocks known to agree.
    if is_one_host and (collectives is None or not collectives.count):
        late = _ends_last(steps)
    step_ps = selection.median_step_ps
    if late is None or not step_ps or late.wait_ps < STRAGGLER.limits["wait_ratio"] * step_ps:
        return None
    is_often = late.count >= _least_often(trace, steps, late.row) * late.of_count
    if not is_often or not _is_clear(late.later_ps):
        return None
    return _late_straggler(trace, selection, steps, late, input_idle, step_ps)


def longer_ratios(steps: JoinedSteps) -> FloatArray:
    """For each device the median over the steps of its compute over the median of the others', less 1."""
    longer = [_longer(steps, row) for row in range(len(steps.devices))]
    return np.array([median(ratios) if ratios.size else 0.0 for ratios in longer])


def mean_longer_ratios(steps: JoinedSteps) -> tuple[float | None, ...]:
    """For each device its mean compute over the mean of the others' (in each step their median), less 1."""
    return tuple(_mean_longer(steps, row) for row in range(len(steps.devices)))


def _longer(steps: JoinedSteps, row: int) -> FloatArray:
    """By step the compute of a device over the median of the others, less 1; only steps in which they compute."""
    others = np.median(np.delete(steps.compute_ps, row, axis=0), axis=0)
    known = others > 0
    result: FloatArray = steps.compute_ps[row, known] / others[known] - 1
    return result


def _longer_ps(steps: JoinedSteps, row: int) -> Int64Array:
    """By step how much longer a device computes than the median of the others, picoseconds; below 0 if shorter."""
    longer: Int64Array = steps.compute_ps[row] - _of_others(steps.compute_ps, row)
    return longer


def _of_others(values: Int64Array, row: int) -> Int64Array:
    """The median of the other devices in each step, rounded down."""
    median: FloatArray = np.median(np.delete(values, row, axis=0), axis=0)
    return median.astype(np.int64)


def _is_clear(delay_ps: Int64Array) -> bool:
    """Whether a delay, by step, stands out from its variation over the steps."""
    return bool(median(delay_ps) >= required_spreads(delay_ps.size) * quartile_range(delay_ps))


def required_spreads(step_count: int) -> float:
    """How many interquartile ranges a delay has to be."""
    limits = STRAGGLER.limits
    usual = "spreads" if step_count >= limits["many_steps_count"] else "spreads_of_few_steps"
    return limits.get(f"spreads_of_{step_count}_steps", limits[usual])


def required_longer_ratio(*, shares_cores: bool) -> float:
    """How much longer a straggler computes than the others, for a replica that shares cores or another device."""
    return STRAGGLER.limits["replica_longer_ratio" if shares_cores else "longer_ratio"]


def _least_often(trace: Trace, steps: JoinedSteps, row: int) -> float:
    """The share of the steps in which a device has to be last."""
    return required_steps_ratio(shares_cores=_shares_cores(trace, steps, row))


def required_steps_ratio(*, shares_cores: bool) -> float:
    """The share of the steps in which a straggler is last, for a replica that shares cores or another device."""
    return STRAGGLER.limits["replica_steps_ratio" if shares_cores else "steps_ratio"]


def _shares_cores(trace: Trace, steps: JoinedSteps, row: int) -> bool:
    """Whether a device is a replica and others of `steps` are on its machine."""
    entries = [trace.device_list[device] for device in steps.devices]
    machines = [machine_of(trace.hosts[entry.host]) for entry in entries]
    return entries[row].kind == "replica" and machines.count(machines[row]) > 1


def longest_counts(steps: JoinedSteps) -> Int64Array:
    """In how many steps each device computed longer than every other."""
    ordered = np.sort(steps.compute_ps, axis=0)
    alone = ordered[-1] > ordered[-2] if len(steps.devices) > 1 else np.zeros(steps.count, np.bool_)
    is_longest = (steps.compute_ps == ordered[-1]) & alone
    result: Int64Array = is_longest.sum(axis=1).astype(np.int64)
    return result


def _computes_longest(trace: Trace, steps: JoinedSteps) -> int | None:
    """The device that clearly computes longer than the others; of several the slowest."""
    of_means = np.array([ratio or 0.0 for ratio in mean_longer_ratios(steps)])
    ratios, counts = np.minimum(longer_ratios(steps), of_means), longest_counts(steps)
    for row in np.argsort(-ratios, kind="stable").tolist():
        shares_cores = _shares_cores(trace, steps, row)
        if ratios[row] < required_longer_ratio(shares_cores=shares_cores):
            return None
        usually = counts[row] >= _least_often(trace, steps, row) * steps.count
        far_out = not shares_cores and _deviations(steps, row) >= STRAGGLER.limits["deviations"]
        if (usually or far_out) and _is_clear(_longer_ps(steps, row)):
            return int(row)
    return None


def _deviations(steps: JoinedSteps, row: int) -> float:
    """How many robust standard deviations the compute of a device is above the median of all."""
    if len(steps.devices) < _FEWEST_FOR_DEVIATIONS:
        return 0.0
    typical = np.median(steps.compute_ps, axis=1)
    deviation = np.abs(typical - median(typical))
    sigma = MAD_TO_SIGMA * median(deviation)
    above = float(typical[row] - median(typical))
    return above / sigma if sigma else float("inf") if above > 0 else 0.0


def _slow_straggler(trace: Trace, steps: JoinedSteps, row: int) -> Straggler:
    longer = _longer_ps(steps, row)
    work = _work(trace, steps, row)
    return Straggler(
        *trace.identity(steps.devices[row]),
        cause="more_work" if work.is_more else "slower_device",
        cost_ps_per_step=max(median_ps(longer) or 0, 0),
        longer_ratio=float(longer_ratios(steps)[row]),
        step_count=int(longest_counts(steps)[row]),
        of_count=steps.count,
        wait_ps_per_step=None,
        launches_ratio=work.launches_ratio,
        top_kernels=work.top_kernels,
        input_ps_per_step=None,
        spread_ratio=quartile_range(_longer(steps, row)),
        shares_cores=_shares_cores(trace, steps, row),
        spread_ps=int(quartile_range(longer)),
        mean_cost_ps_per_step=max(mean_ps(longer), 0),
        mean_longer_ratio=_mean_longer(steps, row),
    )


def _mean_longer(steps: JoinedSteps, row: int) -> float | None:
    """The ratio of the mean times, which is not the mean of the steps' ratios."""
    others_ps = int(_of_others(steps.compute_ps, row).sum())
    return int(steps.compute_ps[row].sum()) / others_ps - 1 if others_ps else None


class _Work(Struct, frozen=True):
    is_more: bool
    launches_ratio: float | None
    top_kernels: tuple[Activity, ...]


def _work(trace: Trace, steps: JoinedSteps, row: int) -> _Work:
    """Whether one device computes longer because it launches more.

    Over the kernels by name, with counts c and mean durations m, the sums of durations differ by
    Σ (c - c')·m, which is work, and Σ c'·(m - m'), which is speed; c' and m' are those of the others.
    """
    key, is_own, duration = _kernels(trace, steps, row)
    if key.size == 0:
        return _Work(is_more=False, launches_ratio=None, top_kernels=())
    size = int(key.max()) + 1
    others = len(steps.devices) - 1
    masks = (is_own, ~is_own)
    count = np.stack([np.bincount(key[mask], minlength=size).astype(np.float64) for mask in masks])
    total = np.stack([np.bincount(key[mask], duration[mask], minlength=size) for mask in masks])
    count[1] /= others
    total[1] /= others
    mean = np.divide(total, count, out=np.zeros_like(total), where=count > 0)
    mean[0] = np.where(count[0] > 0, mean[0], mean[1])
    mean[1] = np.where(count[1] > 0, mean[1], mean[0])
    more = total[0] - total[1]
    is_replica = trace.device_list[steps.devices[row]].kind == "replica"
    top = [
        _unnumbered(trace, int(place)) if is_replica else trace.names.text(int(place)) or ""
        for place in np.argsort(-more, kind="stable")[:TOP_KERNELS]
        if more[place] >= _WORTH_NAMING_RATIO * more[more > 0].sum() > 0
    ]
    more_work = float(((count[0] - count[1]) * mean[0]).sum())
    slower = float((count[1] * (mean[0] - mean[1])).sum())
    # A device that takes no longer for half of its kernels is not slow.
    is_longer = mean[0] > mean[1]
    is_uniform = total[1][is_longer].sum() >= _EXPLAINING_RATIO * total[1].sum()
    launches = float(count[0].sum() / count[1].sum()) if count[1].sum() else None
    return _Work(more_work > slower or not bool(is_uniform), launches, tuple(top))


def _kernels(
    trace: Trace, steps: JoinedSteps, row: int
) -> tuple[Int64Array, BoolArray, Int64Array]:
    """The kernels of all devices in the steps: a number per name, whether they ran on `row`, and their durations."""
    columns = trace.device_columns
    keys, is_own, durations = [], [], []
    for place, device in enumerate(steps.devices):
        chosen = steps.kernels(trace, place)
        names = columns.name[chosen].astype(np.int64)
        if trace.device_list[device].kind == "replica":
            names = _replica_free(trace, names)
        keys.append(names)
        is_own.append(np.full(chosen.size, place == row, dtype=np.bool_))
        durations.append(columns.duration_ps[chosen])
    return np.concatenate(keys), np.concatenate(is_own), np.concatenate(durations)


def _unnumbered(trace: Trace, name: int) -> str:
    return _NUMBER.sub("", split_op(trace.names.text(name) or "")[0])


def _replica_free(trace: Trace, names: Int64Array) -> Int64Array:
    """Equal numbers for ops that differ only in the number of the replica or of a second `MatMul`."""
    values, index = unique_inverse(names)
    known: dict[str, int] = {}
    first = [known.setdefault(_unnumbered(trace, int(value)), int(value)) for value in values]
    return np.array(first, dtype=np.int64)[index] if first else names


def _starts_last(trace: Trace, steps: JoinedSteps, collectives: Collectives) -> _Late | None:
    """The device that started last in most of the collectives in the steps."""
    place = _places(steps.devices, collectives.device)
    step = _places(steps.numbers, collectives.first_step[collectives.collective])
    counts = collectives.is_complete[collectives.collective] & (place != NONE) & (step != NONE)
    last = collectives.last_among(counts)
    if not last.any():
        return None
    of_device = np.bincount(place[last], minlength=len(steps.devices))
    row = int(of_device.argmax())
    known = np.zeros(collectives.count, dtype=np.bool_)
    known[collectives.collective[counts]] = True
    of_count = int(known.sum())
    if of_device[row] < STRAGGLER.limits["steps_ratio"] * of_count:
        return None
    was_last = np.zeros(collectives.count, dtype=np.bool_)
    was_last[collectives.collective[last & (place == row)]] = True
    waited = counts & (place != row) & was_last[collectives.collective]
    wait = np.zeros((len(steps.devices), steps.count), dtype=np.int64)
    np.add.at(wait, (place[waited], step[waited]), collectives.wait_ps[waited])
    peers = _of_others(wait, row)
    own = np.zeros(steps.count, dtype=np.int64)
    np.add.at(own, step[counts & (place == row)], collectives.wait_ps[counts & (place == row)])
    return _Late(row, int(of_device[row]), of_count, peers, peers - own, None)


def _places(known: tuple[int, ...], values: npt.NDArray[np.integer]) -> Int64Array:
    """The place of each value among the known numbers, which are sorted; `NONE` for others."""
    numbers = np.array(known, dtype=np.int64)
    place = np.minimum(np.searchsorted(numbers, values), numbers.size - 1)
    result: Int64Array = np.where(numbers[place] == values, place, NONE)
    return result


def _ends_last(steps: JoinedSteps) -> _Late | None:
    """Without collectives: the device whose compute ends last in most steps."""
    whole = (steps.last_ps != NEVER).all(axis=0)
    ends = steps.last_ps[:, whole]
    if ends.shape[1] < FEWEST_STEPS:
        return None
    ordered = np.sort(ends, axis=0)
    is_last = (ends == ordered[-1]) & (ordered[-1] > ordered[-2])
    counts = is_last.sum(axis=1)
    row = int(counts.argmax())
    if counts[row] < STRAGGLER.limits["steps_ratio"] * ends.shape[1]:
        return None
    wait = np.where(is_last[row], ends[row] - np.delete(ends, row, axis=0), 0)
    peers = np.median(wait, axis=0).astype(np.int64)
    begins = steps.first_ps[:, whole]
    return _Late(
        row,
        int(counts[row]),
        int(ends.shape[1]),
        peers_ps=peers,
        later_ps=ends[row] - _of_others(ends, row),
        begins_late_ps=median_ps(begins[row] - _of_others(begins, row)) or 0,
    )


def _late_straggler(
    trace: Trace,
    selection: Selection,
    steps: JoinedSteps,
    late: _Late,
    input_idle: Mapping[int, Int64Array],
    step_ps: int,
) -> Straggler | None:
    waited = steps.placed(trace, selection, input_idle)
    longer = max(median_ps(waited[late.row] - _of_others(waited, late.row)) or 0, 0)
    is_input = longer >= _EXPLAINING_RATIO * late.wait_ps
    begins_late = (
        late.begins_late_ps is None or late.begins_late_ps >= _EXPLAINING_RATIO * late.wait_ps
    )
    if not is_input and not begins_late:
        # It ends last because it still works after the others are done, which is no delay.
        return None
    shares_cores = _shares_cores(trace, steps, late.row)
    if not is_input and shares_cores:
        # The host does not start the kernels of a replica: it computes when it gets a core.
        return None
    return Straggler(
        *trace.identity(steps.devices[late.row]),
        cause="input" if is_input else "late_start",
        cost_ps_per_step=late.wait_ps,
        longer_ratio=float(longer_ratios(steps)[late.row]),
        step_count=late.count,
        of_count=late.of_count,
        wait_ps_per_step=late.wait_ps,
        launches_ratio=None,
        top_kernels=(),
        input_ps_per_step=longer,
        spread_ratio=quartile_range(late.later_ps) / step_ps,
        shares_cores=shares_cores,
        spread_ps=int(quartile_range(late.later_ps)),
        mean_cost_ps_per_step=mean_ps(late.peers_ps),
    )
