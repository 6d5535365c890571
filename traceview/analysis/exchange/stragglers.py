"""Finds the device that the others wait for, and why it is late.

The ledger has each wait for a device with the device that is waited for. A straggler is the reason for most of that
time. Chance makes some device the last in every step, so its share has to lie far beyond what chance gives it. Why it is
late is where its steps differ most from those of the devices that wait: longer kernels, input, copies, or a later start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.analysis.measures.context import Context
from traceview.analysis.measures.op_work import counted_events
from traceview.analysis.rules.finding import OfDevice
from traceview.base.ids import is_in, unique_ids, unique_inverse
from traceview.base.intervals import BoolArray, Int64Array
from traceview.base.record import Activity, Share, one_of
from traceview.base.stats import student, variance_of_mean
from traceview.base.text import lazy_pattern
from traceview.ledger.columns import By
from traceview.ledger.states import State
from traceview.ledger.table import Ledger, totals
from traceview.trace.device.op_names import split_op
from traceview.trace.model import Trace, machine_of

Reason: TypeAlias = Literal["slower", "work", "input", "copies", "collective", "start"]
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)

LEAST_EXCESS: Final = 0.5
"""Of the waiting beyond what chance gives every device: the least that a straggler is the reason for."""

LEAST_STEADY_EXCESS: Final = 0.3
"""The same of a device that is late steadily. Of 34 healthy recordings three had such a one, with 0.26 of the waiting, or 7% of
the steps and less; a replica with twice the work, beside other processes, had 0.32 to 0.42."""

CHANCE: Final = 0.05
"""How often chance alone may let a device look like one that is late steadily."""

_KERNELS_NAMED: Final = 3
_WORTH_NAMING_RATIO: Final = 0.1
"""Only kernels with this share of all that take longer are named."""

_COPIES: Final = (State.H2D, State.D2H, State.D2D)
_COMPUTES: Final = (State.COMPUTE, State.NO_CORE)
"""Ops that other processes keep from cores take longer; who has more of them loses more."""
_OTHER_REASONS: Final = (
    *(*_COMPUTES, State.INPUT, State.COMMUNICATION),
    # That it waits itself, or has nothing to do, makes no device late.
    *(State.DEVICE_WAIT, State.TURN, State.NO_WORK),
)
_STARTS: Final = tuple(state for state in State if state not in (*_COPIES, *_OTHER_REASONS))
_REASONS: Final[dict[Reason, tuple[State, ...]]] = {
    "slower": _COMPUTES,
    "input": (State.INPUT,),
    "copies": _COPIES,
    "collective": (State.COMMUNICATION,),
    "start": _STARTS,
}
_EXPLAINING_RATIO: Final = 0.5
"""Of the waiting: so much later a reason makes a device at least."""

_UNEVEN_CORES_FACTOR: Final = 1.5
"""How much longer cores that are dealt out unevenly let one of several alike replicas compute; 1.2 was seen, on two cores."""

_MORE_WORK_FACTOR: Final = 4
"""As above in a single step, where chance gives one of several replicas all cores; in 64 healthy recordings at most 3.4% of the time
was spent waiting for such a one."""

_NUMBER: Final = lazy_pattern(r"_\d+$")


class LateDevice(OfDevice, frozen=True):
    """The device that the others wait for.

    Attributes:
        reason: slower (at the same kernels), work (more of it), input (its batch comes late), copies (they take longer),
            collective (it leaves one later) or start (the host starts its kernels late); null where none explains half of
            the waiting.
        share: Its share of all waiting for devices.
        kernels: Kernels (of replicas: ops) whose durations in sum exceed those of the others most; empty unless the
            reason is slower or work.
    """

    reason: Annotated[str, one_of(*REASONS)] | None
    share: Share
    kernels: tuple[Activity, ...]


class Straggler(Struct, frozen=True, eq=False):
    """The device that the others wait for.

    `rows` of the ledger: the waits for it; `is_steady`: more than chance explains; `shares_cores`: whether it is one of
    several replicas on a machine.
    """

    record: LateDevice
    rows: BoolArray
    is_steady: bool
    shares_cores: bool


def waits_for_known(ledger: Ledger) -> BoolArray:
    """The rows in which a device waits for another one that is late, and it is known which one of the ledger."""
    columns, waits = ledger.columns, ledger.rows(states=(State.DEVICE_WAIT,))
    waits &= (columns.by_kind == By.DEVICE) & is_in(columns.by, list(ledger.devices))
    return waits


def waits_for_more_work(ledger: Ledger) -> BoolArray:
    """The rows in which a device waits for one that computes much longer in that step: more than cores dealt out unevenly explain."""
    columns, waits = ledger.columns, waits_for_known(ledger)
    rows = np.flatnonzero(waits)
    compute_ps, place = _by_step(ledger, ledger.device, columns.state == State.COMPUTE)
    of_step = place[columns.step[rows]]
    own_ps, late_ps = (compute_ps[of[rows], of_step] for of in (ledger.device, columns.by))
    waits[rows] = late_ps >= _MORE_WORK_FACTOR * own_ps
    return waits


def _by_step(
    ledger: Ledger, device: npt.NDArray[np.integer], rows: BoolArray
) -> tuple[Int64Array, Int64Array]:
    """The sums of some rows by a device of each row and the number of its step; the place of the number by step.

    int64 `[devices of the list, numbers + 1]` and `[steps + 1]`; the last place is outside of steps.
    """
    columns = ledger.columns
    numbers = np.array([step.number for step in ledger.steps], dtype=np.int64)
    distinct, place = unique_inverse(numbers)
    place, count = np.append(place, distinct.size), distinct.size + 1
    key = device[rows].astype(np.int64) * count + place[columns.step[rows]]
    total = totals(key, columns.duration_ps[rows], len(ledger.trace.device_list) * count)
    return total.reshape(-1, count), place


def straggler(context: Context) -> Straggler | None:
    """The straggler of a run; None where no device is the reason for enough of the waiting."""
    ledger = context.ledger
    late_ps = _late_by_step(ledger)
    of_device = late_ps.sum(axis=1)
    whole = int(ledger.columns.duration_ps[ledger.rows(states=(State.DEVICE_WAIT,))].sum())
    count = len(ledger.devices)
    if count < 2 or not of_device.any():
        return None
    place = int(of_device.argmax())
    share = int(of_device[place]) / whole
    steady = is_steady(late_ps, place)
    least = LEAST_STEADY_EXCESS if steady else LEAST_EXCESS
    if (share - 1 / count) / (1 - 1 / count) < least:
        return None
    device = ledger.devices[place]
    rows = ledger.rows(states=(State.DEVICE_WAIT,), by_device=device)
    waiting = [d for d in ledger.devices if d != device and rows[ledger.rows_of(d)].any()]
    shares_cores = _shares_cores(context.trace, device, ledger.devices)
    longest_ps = max(int(ledger.by_step(rows, d).mean()) for d in waiting)
    reason, kernels = _reason(context, device, waiting, longest_ps, shares_cores=shares_cores)
    record = LateDevice(*context.trace.identity(device), reason, share, kernels)
    return Straggler(record, rows, steady, shares_cores)


def waited_for_ps(ledger: Ledger) -> dict[int, int]:
    """By device how long others wait for it in all used steps, summed over them."""
    return dict(zip(ledger.devices, _late_by_step(ledger).sum(axis=1).tolist(), strict=True))


def _late_by_step(ledger: Ledger) -> Int64Array:
    """How long others wait for each device, in all used steps of one number; int64 `[devices, steps]`."""
    late_ps, place = _by_step(ledger, ledger.columns.by, waits_for_known(ledger))
    late_ps = late_ps[list(ledger.devices)]
    used = unique_ids(place[:-1][ledger.is_used])
    return late_ps[:, used] if used.size else late_ps.sum(axis=1, keepdims=True)


def is_steady(late_ps: Int64Array, place: int) -> bool:
    """Whether one device is waited for longer than the others by more than chance explains.

    `late_ps`: how long others wait for each device, int64 `[devices, steps]`. Fewer than two steps show nothing.
    """
    count, step_count = late_ps.shape
    if step_count < 2:
        return False
    others = np.delete(late_ps, place, axis=0).mean(axis=0)
    beyond = late_ps[place] - others
    variance, degrees = variance_of_mean(beyond)
    # Any of the devices might be the one, and only longer waits count.
    inside = 1 - 2 * CHANCE / count
    return bool(beyond.mean() > student(inside, max(degrees, 1.0)) * np.sqrt(variance))


def _shares_cores(trace: Trace, device: int, devices: Sequence[int]) -> bool:
    machines = [machine_of(trace.hosts[trace.device_list[other].host]) for other in devices]
    own = machines[devices.index(device)]
    return trace.device_list[device].kind == "replica" and machines.count(own) > 1


# Why it is late


def _reason(
    context: Context, device: int, waiting: Sequence[int], waited_ps: int, *, shares_cores: bool
) -> tuple[Reason | None, tuple[str, ...]]:
    """Where its mean step differs most from that of the devices that wait, and the kernels that take longer."""
    own = _of_states(context.ledger, device)
    others = np.mean([_of_states(context.ledger, other) for other in waiting], axis=0)
    more = {
        reason: float((own - others)[list(states)].sum()) for reason, states in _REASONS.items()
    }
    reason = max(more, key=lambda reason: more[reason])
    if more[reason] < _EXPLAINING_RATIO * waited_ps:
        return None, ()
    if reason != "slower":
        return reason, ()
    is_more, kernels = _work(context, device, waiting, shares_cores=shares_cores)
    return "work" if is_more else "slower", kernels


def _of_states(ledger: Ledger, device: int) -> npt.NDArray[np.float64]:
    result = np.zeros(len(State))
    for state, ps in ledger.by_state(device).items():
        result[state] = ps / (ledger.steps_of_device[device] or 1)
    return result


def _work(
    context: Context, device: int, waiting: Sequence[int], *, shares_cores: bool
) -> tuple[bool, tuple[str, ...]]:
    """Whether a device computes longer because it has more to do, and its kernels that take longer in sum.

    Over the kernels by name, with counts c and mean durations m, the sums of durations differ by
    Σ (c - c')·m, which is work, and Σ c'·(m - m'), which is speed; c' and m' are those of the others. A device that takes
    no longer for half of its kernels is not slow. Replicas on shared cores are slow at any kernel, but not by much: one
    that takes much longer for the same kernels has more data.
    """
    trace = context.trace
    count, total = _kernels(context, [device, *waiting])
    mean = np.divide(total, count, out=np.zeros_like(total), where=count > 0)
    mean = np.where(count > 0, mean, mean[::-1])
    longer = total[0] - total[1]
    whole = float(longer[longer > 0].sum())
    order = np.argsort(-longer, kind="stable")[:_KERNELS_NAMED]
    names = tuple(
        _unnumbered(trace, name)
        if trace.device_list[device].kind == "replica"
        else trace.names.text(name) or ""
        for name in order.tolist()
        if longer[name] >= _WORTH_NAMING_RATIO * whole > 0
    )
    more_work = float(((count[0] - count[1]) * mean[0]).sum())
    slower = float((count[1] * (mean[0] - mean[1])).sum())
    if shares_cores:
        is_larger = total[0].sum() >= _UNEVEN_CORES_FACTOR * total[1].sum()
        return more_work > slower or bool(is_larger), names
    is_uniform = 2 * total[1][mean[0] > mean[1]].sum() >= total[1].sum()
    return more_work > slower or not is_uniform, names


def _kernels(
    context: Context, devices: Sequence[int]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """By name how often kernels run in the used steps, and the sums of their durations: of the first device, mean of the others."""
    trace, columns = context.trace, context.trace.device_columns
    known: dict[str, int] = {}
    count, total = np.zeros((2, 2, len(trace.names) + 1))
    for place, device in enumerate(devices):
        # Of kernels that run at once the ledger has only one.
        events = counted_events(context, device)
        names = columns.name[events].astype(np.int64)
        if trace.device_list[device].kind == "replica":
            names = _replica_free(trace, names, known)
        count[min(place, 1)] += np.bincount(names, minlength=count.shape[1])
        total[min(place, 1)] += np.bincount(names, columns.duration_ps[events], count.shape[1])
    count[1] /= len(devices) - 1
    total[1] /= len(devices) - 1
    return count, total


def _unnumbered(trace: Trace, name: int) -> str:
    return _NUMBER.sub("", split_op(trace.names.text(name) or "")[0])


def _replica_free(trace: Trace, names: Int64Array, known: dict[str, int]) -> Int64Array:
    """Equal numbers for ops that differ only in the number of the replica or of a second `MatMul`; `known`: by name."""
    values, index = unique_inverse(names)
    first = [known.setdefault(_unnumbered(trace, int(value)), int(value)) for value in values]
    return np.array(first, dtype=np.int64)[index] if first else names
