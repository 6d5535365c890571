"""Balance: how evenly the devices work, which one the others wait for and why it is late, and whether they run one after another.

The ledger has each wait for a device with the device that is waited for. Chance makes some device the last in every step, so the
share of a straggler has to lie far beyond what chance gives it (docs/method.md, "Straggler").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import asdict

from traceview.analysis.exchange.balance_rules import (
    LATE_BY_TURNS,
    LEAST_EXCESS,
    LEAST_STEADY_EXCESS,
    PIPELINE,
    SERIAL,
    STRAGGLER,
)
from traceview.analysis.exchange.collective_sums import per_step, sent_one_by_one
from traceview.analysis.exchange.gradients import SINGLE, single_gradients
from traceview.analysis.facts.async_ops import longest_section, section_waits
from traceview.analysis.facts.devices import (
    OF_CHANCE_RATIO,
    Concurrency,
    concurrency,
    devices_in_use,
    make_steps_together,
    model_of,
)
from traceview.analysis.facts.functions import functions_called
from traceview.analysis.facts.run import Throughput, throughput_of
from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.measures.op_work import (
    FloatArray,
    flops_by_device,
    line_of_rows,
    time_by_label,
)
from traceview.analysis.rules.finding import Confidence, Evidence, Finding, OfDevice, Skipped
from traceview.analysis.rules.rule import devices_argument, is_of_jax
from traceview.analysis.rules.words import Argument, Line, Names, Number, Ops
from traceview.base.ids import is_in, unique_ids, unique_inverse
from traceview.base.intervals import NEVER, BoolArray, Int64Array
from traceview.base.record import (
    ModelName,
    Picoseconds,
    Words,
)
from traceview.base.stats import student, variance_of_mean
from traceview.base.text import lazy_pattern
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import DEVICE, Shown
from traceview.document.vocabulary import DEVICE_KINDS, look_of
from traceview.ledger.columns import By
from traceview.ledger.states import State
from traceview.ledger.table import Ledger, totals
from traceview.trace.columns import NONE
from traceview.trace.device.op_names import graph_lines, op_labels, split_op
from traceview.trace.model import machine_of
from traceview.trace.strategy.replicas import CPU

CHANCE: Final = 0.05
"""How often chance alone may let a device look like one that is late steadily."""

_KERNELS_NAMED: Final = 3
_WORTH_NAMING_RATIO: Final = 0.1
"""Only kernels with this share of all that take longer are named."""

_NEVER_LATE: Final = (State.DEVICE_WAIT, State.TURN, State.NO_WORK)
"""That it waits itself, or has nothing to do, makes no device late."""

_REASONS: Final = {
    # Ops that other processes keep from cores take longer; who has more of them loses more.
    "slower": (State.COMPUTE, State.NO_CORE),
    "input": (State.INPUT,),
    "copies": (State.H2D, State.D2H, State.D2D),
    "collective": (State.COMMUNICATION,),
}
"""By reason the states in which a device that is late is longer than others; its other states are that it starts late."""

_EXPLAINING_RATIO: Final = 0.5
"""Of the waiting: so much later a reason makes a device at least."""

_AT_A_LINE_RATIO: Final = 0.5
"""Of the time of turns: in a function with less no line is named. A choice of ours."""

_UNEVEN_CORES_FACTOR: Final = 1.5
"""How much longer cores that are dealt out unevenly let one of several alike replicas compute; 1.2 was seen, on two cores."""

_NUMBER: Final = lazy_pattern(r"_\d+$")


class DeviceBalance(OfDevice, frozen=True):
    """One device in use, compared with the others of its kind.

    Attributes:
        compute_ps_per_step: Mean over the used steps of its compute, rounded down, picoseconds; null without steps.
        waits_ps_per_step: Mean time that it waits for other devices, picoseconds; null without steps.
        waited_for_ps_per_step: Mean time that another device waits for it, picoseconds; null without steps or others.
        model: Model; null where not recorded.
    """

    compute_ps_per_step: Picoseconds | None
    waits_ps_per_step: Picoseconds | None
    waited_for_ps_per_step: Picoseconds | None
    model: ModelName | None


class Balance(Concurrency, frozen=True):
    """The devices of one kind that computed in the window.

    Attributes:
        kind: gpu, tpu, replica or other: the kind that is compared.
        throughput: Examples per second.
        devices: The devices that computed, by host and number.
    """

    kind: Words
    throughput: Throughput
    devices: tuple[DeviceBalance, ...]


def compute(context: Context) -> Balance | Skipped:
    """Compare the devices that computed in the window."""
    trace, in_use = context.trace, devices_in_use(context)
    if not in_use:
        return Skipped("no device computed in the window")
    if not make_steps_together(trace, in_use):
        return Skipped("each process steps on its own: none waits for a slower one")
    return Balance(
        **asdict(context.once(concurrency)),
        kind=trace.device_list[in_use[0]].kind,
        throughput=throughput_of(trace, context.selection, len(in_use)),
        devices=tuple(_devices(context, in_use)),
    )


def _devices(context: Context, in_use: Sequence[int]) -> Iterator[DeviceBalance]:
    trace, ledger = context.trace, context.ledger
    waits = ledger.per_step(ledger.rows(states=(State.DEVICE_WAIT,)))
    late_ps = context.once(_late_by_step).sum(axis=1)
    waited_for = dict(zip(ledger.devices, late_ps.tolist(), strict=True))
    compute_ps = ledger.per_step(ledger.rows(states=(State.COMPUTE,)))
    for device in in_use:
        waiting = ledger.steps_of_device[device] * (len(in_use) - 1)
        yield DeviceBalance(
            *trace.identity(device),
            compute_ps_per_step=compute_ps[device],
            waits_ps_per_step=waits[device],
            waited_for_ps_per_step=waited_for[device] // waiting if waiting else None,
            model=model_of(trace, device),
        )


# The straggler


class Straggler(Struct, frozen=True, eq=False):
    """The device that the others wait for. `rows` of the ledger: the waits for it; `is_steady`: more than chance explains.

    `share`: of all waiting for devices. `reason`: slower (at the same kernels), work (more of it), input (its batch comes late),
    copies (they take longer), collective (it leaves one later) or start (the host starts its kernels late); "" where none explains
    half of the waiting. `kernels`: of replicas ops, whose durations in sum exceed those of the others most, if they are the reason.
    `is_shared`: it has more of the same work as the others, which could have a part of it.
    """

    device: int
    rows: BoolArray
    share: float
    is_steady: bool
    reason: str
    kernels: tuple[str, ...]
    is_shared: bool


def _waits_for_known(ledger: Ledger) -> BoolArray:
    """The rows in which a device waits for another one that is late, and it is known which one of the ledger."""
    columns, waits = ledger.columns, ledger.rows(states=(State.DEVICE_WAIT,))
    waits &= (columns.by_kind == By.DEVICE) & is_in(columns.by, list(ledger.devices))
    return waits


def straggler(context: Context) -> Straggler | None:
    """The straggler of a run; None where no device is the reason for enough of the waiting."""
    ledger, late_ps = context.ledger, context.once(_late_by_step)
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
    longest_ps = max(int(ledger.by_step(rows, d).mean()) for d in waiting)
    return Straggler(device, rows, share, steady, *_reason(context, device, waiting, longest_ps))


def _late_by_step(context: Context) -> Int64Array:
    """How long others wait for each device of the ledger, in all used steps of one number; int64 `[devices, steps]`."""
    ledger = context.ledger
    columns, waits = ledger.columns, _waits_for_known(ledger)
    numbers = np.array([step.number for step in ledger.steps], dtype=np.int64)
    distinct, place = unique_inverse(numbers)
    # The last place is outside of steps.
    place, count = np.append(place, distinct.size), distinct.size + 1
    key = columns.by[waits].astype(np.int64) * count + place[columns.step[waits]]
    total = totals(key, columns.duration_ps[waits], len(ledger.trace.device_list) * count)
    late_ps = total.reshape(-1, count)[list(ledger.devices)]
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


def _shares_cores(context: Context, device: int) -> bool:
    """Whether a device is one of several replicas on a machine."""
    trace, devices = context.trace, context.ledger.devices
    machines = [machine_of(trace.hosts[trace.device_list[other].host]) for other in devices]
    own = machines[devices.index(device)]
    return trace.device_list[device].kind == "replica" and machines.count(own) > 1


# Why it is late


def _reason(
    context: Context, device: int, waiting: Sequence[int], waited_ps: int
) -> tuple[str, tuple[str, ...], bool]:
    """Where its mean step differs most from that of the devices that wait, the kernels that take longer, and whether it has more of
    the same work.
    """
    own = _of_states(context.ledger, device)
    others = np.mean([_of_states(context.ledger, other) for other in waiting], axis=0)
    longer = own - others
    longer[list(_NEVER_LATE)] = 0
    more = {reason: float(longer[list(states)].sum()) for reason, states in _REASONS.items()}
    more["start"] = float(longer.sum()) - sum(more.values())
    reason = max(more, key=lambda reason: more[reason])
    if more[reason] < _EXPLAINING_RATIO * waited_ps:
        return "", (), False
    if reason != "slower":
        return reason, (), False
    is_more, kernels, is_shared = _work(context, device, waiting)
    return "work" if is_more else "slower", kernels, is_more and is_shared


def _of_states(ledger: Ledger, device: int) -> npt.NDArray[np.float64]:
    of_state, count = ledger.by_state(device), ledger.steps_of_device[device] or 1
    return np.array([of_state.get(state, 0) / count for state in State])


def _work(
    context: Context, device: int, waiting: Sequence[int]
) -> tuple[bool, tuple[str, ...], bool]:
    """Whether a device computes longer because it has more to do, its kernels that take longer in sum, and whether others run most of
    these, too.

    Over the kernels by name, with counts c and mean durations m, the sums of durations differ by
    Σ (c - c')·m, which is work, and Σ c'·(m - m'), which is speed; c' and m' are those of the others. A device that takes
    no longer for half of its kernels is not slow. Replicas on shared cores are slow at any kernel, but not by much: one
    that takes much longer for the same kernels has more data.
    """
    texts, (count, total) = _kernels(context, [device, *waiting])
    mean = np.divide(total, count, out=np.zeros_like(total), where=count > 0)
    mean = np.where(count > 0, mean, mean[::-1])
    longer = total[0] - total[1]
    whole = float(longer[longer > 0].sum())
    order = np.argsort(-longer, kind="stable")[:_KERNELS_NAMED].tolist()
    names = tuple(texts[at] for at in order if longer[at] >= _WORTH_NAMING_RATIO * whole > 0)
    is_shared = 2 * float(longer[(longer > 0) & (count[1] > 0)].sum()) >= whole
    more_work = float(((count[0] - count[1]) * mean[0]).sum())
    slower = float((count[1] * (mean[0] - mean[1])).sum())
    if _shares_cores(context, device):
        # Programs of XLA do the same whatever their data.
        is_larger = context.trace.device_list[device].model != CPU
        is_larger &= total[0].sum() >= _UNEVEN_CORES_FACTOR * total[1].sum()
        return more_work > slower or bool(is_larger), names, is_shared
    is_uniform = 2 * total[1][mean[0] > mean[1]].sum() >= total[1].sum()
    return more_work > slower or not is_uniform, names, is_shared


def _kernels(context: Context, devices: Sequence[int]) -> tuple[list[str], FloatArray]:
    """The names of kernels, and float64 `[2, 2, names]` how often they run in the used steps and how long: on the first device, mean
    of the others. Ops of replicas that differ only in the number of the replica or of a second `MatMul` are one.
    """
    trace, name_of = context.trace, context.trace.names.text
    names = trace.device_columns.name[trace.once(op_labels).row].tolist()
    texts = [name_of(name) or "" for name in names]
    is_replica = trace.device_list[devices[0]].kind == "replica"
    if is_replica:
        texts = [_NUMBER.sub("", split_op(text)[0]) for text in texts]
    number_of: dict[str, int] = {}
    number = np.array([number_of.setdefault(text, len(number_of)) for text in texts])
    sums = np.zeros((2, 2, len(number_of)))
    computed = context.once(time_by_label)
    for place, device in enumerate(devices):
        of = context.once(flops_by_device).get(device)
        if of is None:
            continue
        # Of kernels that run at once the ledger has only one, and of replicas what they computed on a core.
        lasted = computed[device] if is_replica else of.duration_ps
        for what, values in enumerate((of.count, lasted)):
            np.add.at(sums[what, min(place, 1)], number[values.label], values.value)
    sums[:, 1] /= len(devices) - 1
    return list(number_of), sums


# Findings


def diagnose(context: Context, result: Balance) -> Iterator[Finding | None]:
    """A straggler, stages of a pipeline, devices that are late by turns, or run one after another; and gradients on only one of them."""
    late = context.once(straggler)
    found = _straggler(context, late) if late else None
    # A finding on what is sent one by one holds the waits for it.
    is_by_one = bool((context.once(sent_one_by_one)[0] & _waits_for_known(context.ledger)).any())
    found = found or (None if is_by_one else _pipeline(context, result))
    yield found if late or found or is_by_one else _by_turns(context, result)
    yield _serial(context, result)
    yield single_gradients(context)


def _straggler(context: Context, late: Straggler) -> Finding | None:
    # Cores that are dealt out unevenly make a replica slow or late, but give it no more to do.
    if late.reason not in ("work", "input") and _shares_cores(context, late.device):
        return None
    key = context.trace.device_key(late.device)
    arguments: dict[str, Argument] = {"late": devices_argument(context, [key])}
    notes = ["slower"] if late.reason == "slower" else []
    if late.reason == "work" and late.kernels:
        notes.append("kernels")
        arguments["kernels"] = Ops(late.kernels)
    return STRAGGLER.of_rows(
        context,
        late.rows,
        arguments=arguments,
        confidence=("high", "") if late.is_steady else ("medium", "unsteady"),
        evidence=[Evidence("waited_for_ratio", late.share, None, key)],
        title=late.reason,
        action=late.reason,
        notes=notes,
        is_divided=late.is_shared,
    )


def _pipeline(context: Context, result: Balance) -> Finding | None:
    """Waits for what another device sends, where most of the waiting is that, and a step has few micro-batches."""
    collectives, waits = context.collectives, _waits_for_known(context.ledger)
    sends = waits & context.ledger.rows(events=collectives.sends)
    duration_ps = context.ledger.columns.duration_ps
    if not sends.any() or 2 * int(duration_ps[sends].sum()) < int(duration_ps[waits].sum()):
        return None
    is_send = is_in(collectives.row, collectives.sends)
    stages = int(collectives.device_count[collectives.collective[is_send]].max())
    count = per_step(context, is_send)
    # Forward and back each stage sends each micro-batch once, in turns that follow each other.
    batches = max(count // 2 - stages + 1, 1)
    if batches >= PIPELINE.limits["batches_per_stage"] * stages:
        return None
    return PIPELINE.of_rows(
        context,
        waits,
        arguments={
            **line_of_rows(context, sends),
            "sends": Number(count, "exchange"),
            "batches": Number(batches, "micro-batch"),
            "stages": Number(stages, "stage"),
        },
        notes=("batches",),
        evidence=[Evidence("batch_count", batches, None, "")],
        confidence=("low", "cores") if result.kind == "replica" else ("high", ""),
    )


def _by_turns(context: Context, result: Balance) -> Finding | None:
    if result.kind == "replica":
        return None
    ledger, late_ps = context.ledger, context.once(_late_by_step).sum(axis=1)
    return LATE_BY_TURNS.of_rows(
        context,
        _waits_for_known(ledger),
        named=devices_in_use(context),
        arguments={"all": _all(result)},
        evidence=[
            Evidence("waited_for_ratio", ps / int(late_ps.sum()), None, key)
            for key, ps in zip(ledger.keys(ledger.devices), late_ps.tolist(), strict=True)
            if ps
        ],
    )


def _serial(context: Context, result: Balance) -> Finding | None:
    rows = context.ledger.rows(states=(State.TURN,))
    sure: tuple[Confidence, str] = ("medium", "cores") if result.kind == "replica" else ("high", "")
    if not result.is_serial or result.concurrency_ratio is None:
        if context.once(section_waits):
            return _in_sections(context, rows, sure)
        return _beside_function(context, rows, sure)
    limit = OF_CHANCE_RATIO * (result.chance_ratio or 0.0)
    return SERIAL.of_rows(
        context,
        rows,
        named=devices_in_use(context),
        arguments={"all": _all(result), **_line_of_turns(context, rows)},
        confidence=sure,
        evidence=[Evidence("concurrency_ratio", result.concurrency_ratio, limit, "")],
        action="dependent_ops" if _noun(result) == CPU and not is_of_jax(context.trace) else "",
    )


def _in_sections(context: Context, rows: BoolArray, sure: tuple[Confidence, str]) -> Finding | None:
    """Turns of devices that do not run serially otherwise, and the line of the section that was waited for longest."""
    name = context.once(longest_section)
    line, _ = context.trace.once(graph_lines).of(name)
    return SERIAL.of_rows(
        context,
        rows,
        arguments={"line": Line(line)} if line else {},
        confidence=sure,
        evidence=[Evidence("op", name, None, "", value_is="op")] if name else [],
        keeps_waiting=True,
        title="section",
        action="section",
        notes=("section",),
    )


def _beside_function(
    context: Context, rows: BoolArray, sure: tuple[Confidence, str]
) -> Finding | None:
    """Turns of what is called between the steps and runs on one device, and the line that calls it."""
    trace, columns = context.trace, context.ledger.columns
    functions, events = trace.once(functions_called), trace.device_columns
    time, holders = Counter[int](), Counter[int]()
    for holder in unique_ids(columns.by[rows]).tolist():
        spans = context.ledger.spans_of(context.ledger.devices, rows & (columns.by == holder))
        runs = events.rows_of(holder)
        shared = spans.within(events.start_ps[runs], events.end_ps[runs])
        holders[holder] += int(shared.sum())
        for function in unique_ids(functions.of_event[runs][shared > 0]).tolist():
            time[function] += int(shared[functions.of_event[runs] == function].sum())
    if not holders:
        return None
    other = trace.device_key(max(holders, key=holders.__getitem__))
    arguments = {"other": devices_argument(context, (other,)), **_line_of_turns(context, rows)}
    most = max(time, key=time.__getitem__, default=NONE)
    if most != NONE:
        arguments["function"] = Names(functions.names[most : most + 1], "function")
    return SERIAL.of_rows(
        context, rows, arguments=arguments, confidence=sure, title="function", action="function"
    )


def _line_of_turns(context: Context, rows: BoolArray) -> dict[str, Argument]:
    """The line that the threads of the steps were at for most of some rows; nothing without samples."""
    lines, ledger = Counter[str](), context.ledger
    for host, python in context.idle.python.items():
        own = [each for each in ledger.devices if context.trace.device_list[each].host == host]
        spans = ledger.spans_of(own, rows) if own else NEVER
        line = python.lines.at(python.caller, spans.start, spans.end) if spans.start.size else None
        if line is not None and line.ratio >= _AT_A_LINE_RATIO:
            lines[str(line)] += line.sampled_ps
    return {"line": Line(max(lines, key=lines.__getitem__))} if lines else {}


def _all(result: Balance) -> Number:
    return Number(len(result.devices), _noun(result))


def _noun(result: Balance) -> str:
    """The name of the devices: those of XLA on the CPU are no replicas of a strategy."""
    if result.kind == "replica" and {row.model for row in result.devices} == {CPU}:
        return CPU
    return look_of(DEVICE_KINDS, result.kind).words


# The section


def balance_section(view: View, result: Balance) -> doc.Section | None:
    """How much of the time the devices compute, how much at the same time, and how each compares with the others."""
    facts = doc.facts(*_facts(result))
    if len(result.devices) < 2:
        # One is compared with none.
        shown = facts and not view.is_brief
        return doc.Section("balance", "Balance", facts) if shown else None
    blocks = (
        *facts,
        *view.device_table("Balance by device", result.devices, _COLUMNS, "balance"),
    )
    return doc.Section("balance", "Balance", blocks, lead=_overlap(result))


def _overlap(result: Balance) -> str:
    """How much of the compute is at the same time."""
    ratio, chance = result.concurrency_ratio, min(result.chance_ratio or 0.0, 1.0)
    if ratio is None:
        return ""
    below = "they run one after another" if result.is_serial else "low"
    return (
        f"The compute of the {_noun(result)}s overlaps in {numbers.share(ratio)} of the possible time: "
        f"{'good' if ratio >= chance else below}; by chance it would be {numbers.share(chance)}."
    )


def _facts(result: Balance) -> Iterator[str]:
    speed = result.throughput
    if speed.examples_per_second is not None:
        yield (
            f"{numbers.number(speed.examples_per_second)} examples per second in the median step, "
            f"{numbers.number(speed.per_gpu_per_second)} per {_noun(result)}, "
            f"{numbers.count(speed.batch_size)} per step"
        )


_COLUMNS: Final = (
    DEVICE,
    Shown("compute per step", "compute_ps_per_step"),
    Shown(
        "waits for others",
        "waits_ps_per_step",
        2,
        meaning="time per step in which it waits for a device that is late",
    ),
    Shown(
        "others wait for it",
        "waited_for_ps_per_step",
        1,
        meaning="time per step in which another device waits for it, mean over the others",
    ),
    Shown("model", "model", 3, if_several=True),
)


ANALYSIS: Final = Analysis[Balance](
    "balance",
    compute=compute,
    rules=(STRAGGLER, PIPELINE, LATE_BY_TURNS, SERIAL, SINGLE),
    diagnose=diagnose,
    sections=(balance_section,),
    rows=(DeviceBalance, lambda balance: balance.devices),
)
