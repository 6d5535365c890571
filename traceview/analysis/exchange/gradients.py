"""Gradients: which devices compute them, and why only one does though several should.

Names of ops show forward pass, backward pass, optimizer and reduction on each device. A gradient op alone does not show
that the backward pass was reached: its constants need no input and may run long before. So gradients have to be a share
of the compute.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from traceview.analysis.facts.devices import devices_in_use
from traceview.analysis.measures.context import Context
from traceview.analysis.rules.finding import Evidence, Finding
from traceview.analysis.rules.rule import Rule, devices_argument
from traceview.analysis.rules.words import Argument, Number
from traceview.base.ids import unique_inverse
from traceview.base.sweeping import SWEEPS
from traceview.ledger.states import State
from traceview.trace.device.op_names import Phase, event_phases, op_labels
from traceview.trace.model import Trace
from traceview.trace.sidecar.environment import RecordedEnvironment
from traceview.trace.strategy.replicas import gradient_counts
from traceview.xplane.planes import ActivityClass

BACKWARD_RATIO: Final = 0.05
"""A backward pass takes at least this share of the durations of forward, backward and optimizer."""

_FOLDED_RATIO: Final = 0.20
"""A replica with a smaller share of as many gradients as another one, or a device with a smaller share of their time, only ran constants."""

_REASONS: Final = {
    "unused_strategy": "The script has a strategy, but nothing in its step shows its use.",
    "one_replica": "The strategy has one replica.",
    "outside_scope": (
        "{variables:of the step is/of the step are} not mirrored, as in a model built outside `strategy.scope()`."
    ),
    "replicas_together": "It runs the gradients of {together}, as in a `tf.device` scope.",
}
"""Sentences for the reasons."""


def _backward(trace: Trace, device: int) -> tuple[int, float, int]:
    """How many kernels (on a CPU: ops) of the backward pass ran on a device in the whole recording, their share of the durations of
    forward, backward and optimizer, 0 where no name shows any of them, and how long they took, picoseconds.

    Each run of an op counts as long as its shortest one: any of them may have waited for a core.
    """
    columns = trace.device_columns
    events = columns.rows_of(device)
    is_kernel = columns.class_[events] <= ActivityClass.COLLECTIVE
    phase = trace.once(event_phases)[events][is_kernel].astype(np.int64)
    ops, op = unique_inverse(trace.once(op_labels).of_row[events][is_kernel])
    shortest = np.full(ops.size, np.iinfo(np.int64).max)
    np.minimum.at(shortest, op, columns.duration_ps[events][is_kernel])
    total = SWEEPS.totals(phase, shortest[op], len(Phase)).tolist()
    named = total[Phase.FORWARD] + total[Phase.BACKWARD] + total[Phase.OPTIMIZER]
    count = int((phase == Phase.BACKWARD).sum())
    backward_ps = total[Phase.BACKWARD]
    return count, backward_ps / named if named else 0.0, backward_ps


def _alike(trace: Trace, device: int) -> list[int]:
    """The devices of the same host and kind."""
    kinds = [(entry.host, entry.kind) for entry in trace.device_list]
    return [other for other, kind in enumerate(kinds) if kind == kinds[device]]


def _is_meant_for_several(trace: Trace, device: int) -> bool:
    captured = trace.hosts[trace.device_list[device].host].captured
    planned_count = len(captured.environment.strategy.devices or ())
    if captured.has_virtual_gpus:
        # Several replicas on parts of one GPU are one device of the trace.
        planned_count = min(planned_count, len(captured.physical_gpus))
    return max(len(_alike(trace, device)), planned_count) > 1 or _could_be_several(
        captured.environment
    )


def _could_be_several(environment: RecordedEnvironment) -> bool:
    """Whether a mirroring strategy has one replica of several visible devices of its kind."""
    strategy = environment.strategy
    if "Mirrored" not in (strategy.class_ or "") or strategy.replicas != 1:
        return False
    kind = "GPU" if any("GPU" in name for name in strategy.devices or ()) else "CPU"
    logical = [name for name in environment.devices.logical or () if kind in name]
    physical = [device for device in environment.devices.physical or () if device.type == kind]
    return max(len(logical), len(physical)) > 1


# Why only one


def _reasons(trace: Trace, device: int) -> Iterator[tuple[str, dict[str, Argument]]]:
    """The reasons that evidence shows for gradients on only one device, with what their sentences name."""
    captured = trace.hosts[trace.device_list[device].host].captured
    together = [] if captured.has_virtual_gpus else _replicas_together(trace, device)
    strategy = captured.environment.strategy
    replicas = strategy.replicas or 0
    is_several = len(strategy.devices or ()) > 1 or replicas > 1
    if strategy.class_ is not None and strategy.found_by == "memory" and is_several:
        yield "unused_strategy", {}
    elif strategy.class_ is not None and replicas == 1:
        yield "one_replica", {}
    outside = sum(graph.not_mirrored or 0 for graph in captured.placement.functions)
    if "Mirrored" in (strategy.class_ or "") and replicas > 1 and outside:
        yield "outside_scope", {"variables": Number(outside, "variable")}
    if together:
        yield "replicas_together", {"together": Number(len(together), "replica")}


def _replicas_together(trace: Trace, device: int) -> list[int]:
    """The replicas that computed gradients on one device, if several did."""
    counts = gradient_counts(trace, device)
    # Constants of another replica may be folded into this one. One event may have waited for a core: their time says less.
    least = _FOLDED_RATIO * max(counts.values(), default=0)
    replicas = sorted(replica for replica, count in counts.items() if count >= least)
    return replicas if len(replicas) > 1 else []


# The rule

_USE_THE_STRATEGY: Final = (
    "Build model and optimizer under `strategy.scope()`, and call `strategy.run(step, args=(batch,))`.",
    "Print `strategy.num_replicas_in_sync`. `traceview capture` records what shows the reason.",
)

SINGLE: Final = Rule(
    code="single-gpu-gradients",
    title="only {device} computes gradients: {others:trains/train} nothing",
    titles={"alone": "only {device} computes gradients"},
    meaning=(
        "Every replica of a mirrored step computes gradients of its own part of the batch. Here one device computes all of "
        "them: the whole time of the others is lost to the training."
    ),
    action=_USE_THE_STRATEGY[0],
    advice=_USE_THE_STRATEGY[1],
    actions={
        "one_replica": (
            "Give the strategy all devices: `tf.distribute.MirroredStrategy()` uses every visible GPU.",
            "Print `strategy.num_replicas_in_sync`.",
        ),
        "replicas_together": "Remove `tf.device` from the step; `strategy.run` places it.",
        "jax": ("Check that the shardings divide the batch over all devices of the mesh.", ""),
    },
    notes=_REASONS,
    reasons={"not-recorded": "the names of its kernels show it; the reason is not recorded"},
    metrics={
        "backward_ratio": "share of the backward pass",
        "backward_count": "kernels of the backward pass",
    },
    limits={"backward_ratio": BACKWARD_RATIO},
    starts_at=(
        "a backward pass, {backward_ratio} of the named compute or more, on only one of several devices that are in use or "
        "belong to the strategy; of several visible devices, {limit} of the GPU time on the others"
    ),
    states=tuple(State),
    explains=("straggler-gpu", "late-by-turns"),
    is_of_absence=True,
    example="Only GPU:0 computes gradients: 1 of 2 GPUs trains nothing",
)


def single_gradients(context: Context) -> Finding | None:
    """Gradients on only one of the devices that computed."""
    trace, ledger = context.trace, context.ledger
    backward = {device: _backward(trace, device) for device in devices_in_use(context)}
    clearly_ps = [ps for _, ratio, ps in backward.values() if ratio >= BACKWARD_RATIO]
    # One with much other work computes gradients for a small part of its time.
    least_ps = _FOLDED_RATIO * max(clearly_ps, default=0)
    computed = [
        device
        for device, (_, ratio, ps) in backward.items()
        if ratio >= BACKWARD_RATIO or (clearly_ps and ps >= least_ps)
    ]
    if len(computed) != 1 or not _is_meant_for_several(trace, computed[0]):
        return None
    (single,) = computed
    key, reasons = trace.device_key(single), dict(_reasons(trace, single))
    device = devices_argument(context, [key])
    arguments: dict[str, Argument] = {"device": device}
    for named in reasons.values():
        arguments.update(named)
    evidence = [
        Evidence("backward_count", count, None, trace.device_key(other))
        for other, (count, *_) in backward.items()
        if other != single
    ]
    others = [d for d in _alike(trace, single) if d != single and d in ledger.devices]
    of_finding: dict[str, Any] = {
        "confidence": ("high", "") if reasons else ("medium", "not-recorded"),
        "evidence": [
            Evidence("backward_ratio", backward[single][1], BACKWARD_RATIO, key),
            *evidence,
        ],
        "action": next(iter(reasons), ""),
        "notes": tuple(reasons),
    }
    if others:
        arguments["others"] = Number(len(others), device.noun, len(others) + 1)
        rows = ledger.rows(devices=others)
        return SINGLE.of_rows(context, rows, named=others, arguments=arguments, **of_finding)
    return SINGLE.finding(
        arguments=arguments,
        severity="info" if context.selection.has_few_steps else "critical",
        devices=[key],
        title="alone",
        **of_finding,
    )
