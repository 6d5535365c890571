"""Balance: how evenly the devices work, which one the others wait for, and whether they run one after another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import fsum
from typing import Final

from msgspec.structs import asdict

from traceview.analysis.exchange.stragglers import (
    LEAST_EXCESS,
    LEAST_STEADY_EXCESS,
    LateDevice,
    Straggler,
    straggler,
    waited_for_ps,
    waits_for_known,
    waits_for_more_work,
)
from traceview.analysis.facts.devices import (
    OF_CHANCE_RATIO,
    Concurrency,
    compute_ps,
    concurrency,
    devices_in_use,
    make_steps_together,
    model_of,
)
from traceview.analysis.facts.run import Throughput, throughput_of
from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.rules.finding import Evidence, Finding, OfDevice, Skipped
from traceview.analysis.rules.rule import Rule, devices_argument
from traceview.analysis.rules.words import Argument, Names, Number, Ops
from traceview.base.record import (
    Count,
    ModelName,
    Picoseconds,
    Ratio,
    Record,
    Share,
    Words,
)
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import DEVICE, Shown
from traceview.document.vocabulary import DEVICE_KINDS, look_of
from traceview.ledger.states import State
from traceview.ledger.table import totals
from traceview.trace.device.table import Table, record_columns, texts
from traceview.trace.device.table import table as table_of_columns
from traceview.trace.strategy.replicas import CPU
from traceview.xplane.planes import ActivityClass

_TITLES: Final = {
    "slower": "{who:waits/wait} {loss} for {late}, slower at the same kernels",
    "work": "{who:waits/wait} {loss} for {late}, which has more work",
    "input": "{who:waits/wait} {loss} for {late}, whose batch comes late",
    "copies": "{who:waits/wait} {loss} for {late}, whose copies take longer",
    "collective": "{who:waits/wait} {loss} for {late}, which leaves the collective later",
    "start": "{who:waits/wait} {loss} for {late}, whose kernels start late",
}
"""Of a straggler, by the reason why it is late."""


class DeviceBalance(OfDevice, frozen=True):
    """One device in use, compared with the others of its kind.

    Attributes:
        compute_ps_per_step: Mean over the used steps of its compute, rounded down, picoseconds; null without steps.
        longer_ratio: That over the mean of the others', less 1; null without steps or others.
        waits_ps_per_step: Mean time that it waits for other devices, picoseconds; null without steps.
        waited_for_ps_per_step: Mean time that another device waits for it, picoseconds; null without steps or others.
        model: Model; null where not recorded.
    """

    compute_ps_per_step: Picoseconds | None
    longer_ratio: float | None
    waits_ps_per_step: Picoseconds | None
    waited_for_ps_per_step: Picoseconds | None
    model: ModelName | None


class Balance(Record, frozen=True):
    """The devices of one kind that computed in the window.

    Attributes:
        kind: gpu, tpu, replica or other: the kind that is compared.
        visible_count: Devices of that kind on all hosts, used or not.
        in_use_count: Devices of it that computed in the window.
        efficiency_ratio: Mean share of the window in which the visible devices of the kind compute.
        in_use_efficiency_ratio: The same of the devices that computed.
        concurrency_ratio: Compute overlap as a share of the largest possible: (sum of compute - its union) over
            (sum - longest), both sums over the used steps. 1 if the shorter compute runs wholly inside the longest, 0 if
            devices never compute at the same time; null with fewer than two devices, and where clocks of
            hosts cannot be compared.
        chance_ratio: The concurrency_ratio expected of devices that compute independently: the longest compute
            of a step over its length, from the first kernel of the run to the last; null as above.
        is_serial: Whether the devices run one after another: they overlap far less than by chance, in enough steps to
            rule chance out; null where concurrency_ratio is.
        straggler: The device that the others wait for; null if there is none.
        throughput: Examples per second.
        devices: The devices that computed, by host and number.
    """

    kind: Words
    visible_count: Count
    in_use_count: Count
    efficiency_ratio: Ratio
    in_use_efficiency_ratio: Ratio
    concurrency_ratio: Share | None
    chance_ratio: Ratio | None
    is_serial: bool | None
    straggler: LateDevice | None
    throughput: Throughput
    devices: tuple[DeviceBalance, ...]


def compute(context: Context) -> Balance | Skipped:
    """Compare the devices that computed in the window."""
    trace, selection, in_use = context.trace, context.selection, devices_in_use(context)
    if not in_use:
        return Skipped("no device computed in the window")
    if not make_steps_together(trace, in_use):
        return Skipped("each process steps on its own: none waits for a slower one")
    kind = trace.device_list[in_use[0]].kind
    visible_count = sum(device.kind == kind for device in trace.device_list)
    effective = fsum(
        compute_ps(context, device) / selection.windows[trace.device_list[device].host].length_ps
        for device in in_use
    )
    overlap, late = context.once(concurrency), context.once(straggler)
    return Balance(
        kind=kind,
        visible_count=visible_count,
        in_use_count=len(in_use),
        efficiency_ratio=effective / visible_count,
        in_use_efficiency_ratio=effective / len(in_use),
        **(asdict(overlap) if overlap else dict.fromkeys(Concurrency.__struct_fields__)),
        straggler=late.record if late else None,
        throughput=throughput_of(trace, selection, len(in_use)),
        devices=tuple(_devices(context, in_use)),
    )


def _devices(context: Context, in_use: Sequence[int]) -> Iterator[DeviceBalance]:
    trace, ledger = context.trace, context.ledger
    waits, waited_for = (
        ledger.per_step(ledger.rows(states=(State.DEVICE_WAIT,))),
        waited_for_ps(ledger),
    )
    computes = ledger.counts & (ledger.columns.activity == ActivityClass.COMPUTE)
    compute_ps, steps, whole = (
        ledger.per_step(computes),
        ledger.steps_of_device,
        ledger.by_device(computes),
    )
    means = [whole[device] / (steps[device] or 1) for device in in_use]
    others = len(in_use) - 1
    for device, mean_ps in zip(in_use, means, strict=True):
        count = steps[device]
        others_ps = (fsum(means) - mean_ps) / others if others and count else 0.0
        yield DeviceBalance(
            *trace.identity(device),
            compute_ps_per_step=compute_ps[device],
            longer_ratio=mean_ps / others_ps - 1 if others_ps else None,
            waits_ps_per_step=waits[device],
            waited_for_ps_per_step=waited_for[device] // (count * others)
            if count and others
            else None,
            model=model_of(trace, device),
        )


# Rules

STRAGGLER: Final = Rule(
    code="straggler-gpu",
    title="{who:waits/wait} {loss} for {late}",
    titles=_TITLES,
    meaning="A mirrored step is as fast as its slowest replica: the others wait for this device.",
    action="See what it does while the others wait: `traceview report LOGDIR --open report`.",
    actions={
        "slower": (
            "Compare clocks and other jobs on it: `nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE`.",
            "`traceview capture` samples them. If it stays slow, leave it out with `CUDA_VISIBLE_DEVICES`.",
        ),
        "mixed": (
            "Train on one kind of device at a time: choose with `CUDA_VISIBLE_DEVICES`.",
            "",
        ),
        "jax-work": (
            "Give all devices equal work: shards of one size, and no branch or loop that takes longer on one of them.",
            "",
        ),
        "work": (
            "Give all replicas equal work: batches of one size and one length, and no ops that only one of them runs.",
            "Share such ops among all, or run them outside the step. `dataset.batch(n, drop_remainder=True)` makes equal batches.",
        ),
        "input": (
            "Prefetch: end the pipeline with `dataset.prefetch(tf.data.AUTOTUNE)`.",
            (
                "`traceview show input LOGDIR` shows the shards. With several workers give each its own files: "
                "`tf.data.experimental.AutoShardPolicy.FILE`."
            ),
        ),
        "copies": (
            "Compare the links of the GPUs: `nvidia-smi topo -m`, `nvidia-smi -q -d PCIE`.",
            "`traceview show copies LOGDIR` shows the copies of each device.",
        ),
        "start": (
            "Let one thread per GPU launch: `TF_GPU_THREAD_MODE=gpu_private`.",
            (
                "`traceview show gaps LOGDIR` shows what the host did before. Launch fewer kernels (a larger batch per replica), "
                "and keep Python out of the step."
            ),
        ),
    },
    notes={
        "slower": "It runs the same kernels as the others and takes longer for them.",
        "mixed": "The devices are {models}: all of them are as slow as the slowest kind.",
        "kernels": "Most of the difference is in {kernels}.",
    },
    reasons={
        "unsteady": "in so few steps chance alone may make it the last",
    },
    metrics={"waited_for_ratio": "share of the waiting for devices"},
    limits={"excess_ratio": LEAST_EXCESS, "steady_excess_ratio": LEAST_STEADY_EXCESS},
    starts_at=(
        "{limit} of the GPU time is spent waiting for one device, and of the waiting beyond the equal share that every device has "
        "{excess_ratio} is for it, or {steady_excess_ratio} if chance does not make it so; of replicas that share cores, where it has more work or its batch comes late"
    ),
    states=(State.DEVICE_WAIT,),
    example="GPU:0, 1 and 3 wait 6.00 of 50.0 ms (12%) for GPU:2, slower at the same kernels",
)

LATE_BY_TURNS: Final = Rule(
    code="late-by-turns",
    title="the {all} wait for each other in turns: {loss} in collectives",
    meaning=(
        "In each step another device reaches the collectives last, and the others wait there. No device is late steadily: "
        "the work of a step varies from replica to replica."
    ),
    action="Even out the work of a step: sequences of one length per batch, input ready in time on all replicas.",
    advice="`traceview show collectives LOGDIR` shows who came last. Fewer, larger steps (gradient accumulation) average it out.",
    metrics={"waited_for_ratio": "share of the waiting for devices"},
    reasons={
        "cores": "replicas share the cores of their host, but the late one computes much longer in each of these steps"
    },
    starts_at=(
        "{limit} of the GPU time is spent waiting for devices, and none is the reason for most of it; of replicas that share "
        "cores, for one that computes much longer in that step"
    ),
    states=(State.DEVICE_WAIT,),
    example="The 4 GPUs wait for each other in turns: 4.50 of 50.0 ms (9.0%) in collectives",
)

SERIAL: Final = Rule(
    code="serial-gpus",
    title="the {all} run one after another: each idles {loss}",
    meaning=(
        "Each device idles while another one computes, so several are no faster than one. Independent devices would overlap "
        "far more."
    ),
    action="Run the step on all replicas at once: `strategy.run(step, args=(batch,))` inside one `tf.function`.",
    advice=(
        "A Python loop over `tf.device` scopes runs them one by one. In model parallelism split the batch into "
        "micro-batches, so that stages overlap."
    ),
    reasons={"cores": "replicas share the cores of their host"},
    metrics={
        "concurrency_ratio": "compute overlap of the possible",
        "chance_ratio": "overlap of independent devices",
    },
    limits={"of_chance_ratio": OF_CHANCE_RATIO},
    starts_at=(
        "compute overlap below {of_chance_ratio} of what chance would give, in enough steps to rule chance out, and {limit} of "
        "the GPU time lost to it"
    ),
    states=(State.TURN,),
    explains=("straggler-gpu", "late-by-turns"),
    example="The 4 GPUs run one after another: each idles 33.2 of 44.2 ms (75%)",
)


def diagnose(context: Context, result: Balance) -> Iterator[Finding | None]:
    """A straggler, devices that are late by turns, or run one after another."""
    late = context.once(straggler)
    yield _straggler(context, result, late) if late else _by_turns(context, result)
    yield _serial(context, result)


def _straggler(context: Context, result: Balance, late: Straggler) -> Finding | None:
    # Cores that are dealt out unevenly make a replica slow or late, but give it no more to do.
    record = late.record
    if late.shares_cores and record.reason not in ("work", "input"):
        return None
    key, reason = record.device, record.reason or ""
    arguments: dict[str, Argument] = {"late": devices_argument(context, [key])}
    evidence = [Evidence("waited_for_ratio", record.share, None, key)]
    notes: list[str] = []
    action: str = reason
    if reason == "work" and record.kernels:
        notes.append("kernels")
        arguments["kernels"] = Ops(record.kernels)
    if reason == "slower":
        notes.append("slower")
        models = Counter(row.model for row in result.devices)
        own = next((row.model for row in result.devices if row.device == key), None)
        others = max((count for model, count in models.items() if model != own), default=0)
        if None not in models and models[own] <= others:
            action = "mixed"
            notes.append("mixed")
            arguments["models"] = Names(tuple(filter(None, models)), "model")
    return STRAGGLER.of_rows(
        context,
        late.rows,
        arguments=arguments,
        confidence=("high", "") if late.is_steady else ("medium", "unsteady"),
        evidence=evidence,
        title=reason,
        action=action,
        notes=notes,
    )


def _by_turns(context: Context, result: Balance) -> Finding | None:
    ledger, trace = context.ledger, context.trace
    # Replicas take the cores of their host from each other.
    shares_cores = result.kind == "replica"
    waits = waits_for_more_work(ledger) if shares_cores else waits_for_known(ledger)
    by, duration_ps = ledger.columns.by[waits], ledger.columns.duration_ps[waits]
    late_ps = totals(by, duration_ps, len(trace.device_list))
    return LATE_BY_TURNS.of_rows(
        context,
        waits,
        arguments={"all": _all(result)},
        confidence=("medium", "cores") if shares_cores else ("high", ""),
        evidence=[
            Evidence("waited_for_ratio", ps / int(late_ps.sum()), None, trace.device_key(device))
            for device, ps in enumerate(late_ps.tolist())
            if ps
        ],
    )


def _serial(context: Context, result: Balance) -> Finding | None:
    if not result.is_serial or result.concurrency_ratio is None:
        return None
    chance = result.chance_ratio or 0.0
    return SERIAL.of_rows(
        context,
        context.ledger.rows(states=(State.TURN,)),
        named=devices_in_use(context),
        arguments={"all": _all(result)},
        confidence=("medium", "cores") if result.kind == "replica" else ("high", ""),
        evidence=(
            Evidence("concurrency_ratio", result.concurrency_ratio, OF_CHANCE_RATIO * chance, ""),
            Evidence("chance_ratio", chance, None, ""),
        ),
    )


def _all(result: Balance) -> Number:
    return Number(result.in_use_count, _noun(result))


def _noun(result: Balance) -> str:
    """The name of the devices: those of XLA on the CPU are no replicas of a strategy."""
    if result.kind == "replica" and {row.model for row in result.devices} == {CPU}:
        return CPU
    return look_of(DEVICE_KINDS, result.kind).words


# The section


def balance_section(view: View, result: Balance) -> doc.Section | None:
    """How much of the time the devices compute, how much at the same time, and how each compares with the others."""
    if view.is_brief and result.in_use_count < 2:
        return None
    rows = result.devices if result.in_use_count > 1 else ()
    blocks = (
        *doc.facts(*_facts(result)),
        *view.device_table("Balance by device", rows, _COLUMNS, "balance"),
    )
    return doc.Section("balance", "Balance", blocks, lead=_summary(result))


def _summary(result: Balance) -> str:
    """The share of the time in which the devices compute."""
    count, of_all = result.in_use_count, numbers.share(result.efficiency_ratio)
    noun = _noun(result)
    if result.kind == "replica" and result.visible_count == 1:
        return f"The CPU computes {of_all} of the time."
    if result.visible_count == count:
        verb = "computes" if count == 1 else "compute"
        return f"{numbers.plural(count, noun)} {verb} {of_all} of the time."
    return (
        f"{count} of {numbers.plural(result.visible_count, noun)} {'computes' if count == 1 else 'compute'}, "
        f"{numbers.share(result.in_use_efficiency_ratio)} of the time ({of_all} over all {result.visible_count})."
    )


def _facts(result: Balance) -> Iterator[str]:
    noun = _noun(result)
    if result.concurrency_ratio == 0:
        yield f"{noun}s never compute at the same time"
    elif result.concurrency_ratio is not None:
        yield (
            f"compute overlap {numbers.share(result.concurrency_ratio)} of the maximum "
            f"(independent devices would reach {numbers.share(result.chance_ratio)})"
        )
    speed = result.throughput
    if speed.examples_per_second is not None:
        yield (
            f"{numbers.number(speed.examples_per_second)} examples per second in the median step, "
            f"{numbers.number(speed.per_gpu_per_second)} per {noun}, "
            f"{numbers.count(speed.batch_size)} per step"
        )


_COLUMNS: Final = (
    DEVICE,
    Shown("compute per step", "compute_ps_per_step"),
    Shown(
        "vs. others",
        "longer_ratio",
        1,
        "signed_share",
        "mean compute beyond the mean of the other devices",
    ),
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


# The table


def balance_table(context: Context) -> Table:
    """A row per device that computed, in the order of hosts and numbers; with a reason if the others wait for it."""
    balance = context.record(ANALYSIS)
    rows = balance.devices if balance else ()
    late = balance.straggler if balance else None
    reasons = [late.reason if late and late.device == row.device else None for row in rows]
    columns = record_columns(DeviceBalance, rows)
    return table_of_columns("balance", *columns, texts("straggler_reason", reasons))


ANALYSIS: Final = Analysis[Balance](
    "balance",
    compute=compute,
    rules=(STRAGGLER, LATE_BY_TURNS, SERIAL),
    diagnose=diagnose,
    sections=(balance_section,),
    table=balance_table,
)
