"""Holds the rules on side work in the step and on steps that are mostly the optimizer, and their findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from traceview.analysis.base import Confidence, Evidence, Finding, Rule
from traceview.analysis.selection import Selection
from traceview.analysis.step_ops.result import OPTIMIZER, DeviceStepOps, OpKind, StepOps
from traceview.document import numbers
from traceview.trace.side_work import SideWork

_CASES: Final = {
    SideWork.PYTHON.value: "for Python functions",
    SideWork.PRINTING.value: "for printing",
    SideWork.SUMMARIES.value: "for summaries",
    SideWork.CHECKS.value: "for checks for NaN",
    SideWork.TEXT.value: "for ops on strings",
}
"""By kind of side work the case of its advice."""

_SPARSE: Final = "for embeddings and other variables with sparse gradients"

HOST_OP: Final = Rule(
    code="host-op-in-step",
    starts_at=(
        "{warning_ratio} of the mean step in which the device on the critical path runs nothing but Python, printing, "
        "summaries, checks for NaN or text; only where the CPU is the device: on GPUs it is cpu-heavy-op"
    ),
    severities=("warning", "info"),
    limits={"warning_ratio": 0.05},
    meaning=(
        "Ops inside the step that are no part of the model: tf.py_function and tf.numpy_function, tf.print, tf.summary, "
        "checks for NaN, and ops on strings. On CPU devices they count as compute, so the device looks busy with the model. The cost is "
        "the time in which nothing else runs; where other ops run beside them, they take longer than that. Ops of the "
        "input pipeline do not count."
    ),
    evidence="path_ps_per_step in results.step_ops, of all devices of a host",
    advice=(
        "Take them out of the step function: return the tensors and use them outside, every 100th step for instance."
    ),
    advice_where={
        _CASES[SideWork.PYTHON.value]: (
            "Take Python functions out of the step function: Python's lock lets replicas run it only one after the other. Write "
            "the computation in TensorFlow ops, move what only needs the batch into dataset.map(...), or return the "
            "tensors and call Python after the step."
        ),
        _CASES[SideWork.PRINTING.value]: (
            "Take tf.print out of the step function, or print a scalar: formatting a tensor takes longer than computing it. "
            "Return the tensor and print it outside every 100th step: if step % 100 == 0: print(float(loss))."
        ),
        _CASES[SideWork.SUMMARIES.value]: (
            "Write summaries every 100th step: call a second tf.function that writes them, or wrap them in "
            "tf.summary.record_if(step % 100 == 0). Scalars cost little; histograms sort every weight into buckets."
        ),
        _CASES[SideWork.CHECKS.value]: (
            "Remove the checks once the NaN is found, or train without it until the loss is NaN, and from the last checkpoint "
            "with it."
        ),
        _CASES[SideWork.TEXT.value]: (
            "Move ops on strings into the input pipeline, dataset.map(...): there they run ahead of the step, beside the "
            "devices."
        ),
    },
    example="tf.print inside the step takes 12.9 ms of the mean 53.5 ms step on replica:0 (24.1%), counted as compute",
    explains=("straggler-gpu", "collective-wait"),
    path_causes=("compute",),
)

OPTIMIZER_BOUND: Final = Rule(
    code="optimizer-bound",
    starts_at=(
        "{compute_ratio} of the compute of a device in the optimizer, if nothing else runs on the critical path for "
        "{step_ratio} of the mean step"
    ),
    severities=("warning", "info"),
    limits={"compute_ratio": 0.60, "step_ratio": 0.30},
    meaning=(
        "The step updates variables for longer than it computes gradients. The work of an optimizer depends on the "
        "number of parameters and not on the batch. The cost is an upper bound: one update per step is needed."
    ),
    evidence="the optimizer's compute_ratio and path_ps_per_step in results.step_ops",
    advice=(
        "Use a larger batch per replica: it needs fewer updates per example, and an update takes no longer. An "
        "optimizer with less state, such as SGD, does less work per parameter."
    ),
    advice_where={
        _SPARSE: (
            "Train embeddings with tf.keras.optimizers.SGD without momentum, which updates only the rows that were looked "
            "up: their gradients are sparse (tf.IndexedSlices), but adaptive optimizers of Keras update the whole table."
        )
    },
    example="replica:0 spends 83.9% of its compute on the optimizer, which takes 30.1 ms of the mean 42.3 ms step on the critical path (71.2%)",
    path_causes=("compute",),
)

RULES: Final = (HOST_OP, OPTIMIZER_BOUND)

_NAMED_RATIO: Final = 0.5
"""A device with this share of the time of another one is named beside it."""

_FUNCTIONS: Final = {
    "EagerPyFunc": "tf.py_function",
    "PyFunc": "tf.numpy_function",
    "PyFuncStateless": "tf.numpy_function",
    "DebugNumericSummary": "tf.debugging.enable_check_numerics",
    "DebugNumericSummaryV2": "tf.debugging.enable_check_numerics",
}
"""By the type of an op the call that makes it (TensorFlow 2.21)."""

_WORDS: Final = {
    SideWork.PRINTING.value: "tf.print",
    SideWork.SUMMARIES.value: "tf.summary",
    SideWork.CHECKS.value: "tf.debugging.check_numerics",
    SideWork.TEXT.value: "work on text",
}

_ON_EVERY_OP: Final = "tf.debugging.enable_check_numerics"
"""It adds an op for every output of every op."""

_NOT_FUSED: Final = (
    "tf.debugging.enable_check_numerics adds one after every op, so ops that TensorFlow would fuse run one by one. The cost is a "
    "lower bound."
)


def diagnose(selection: Selection, result: StepOps) -> Iterator[Finding]:
    """What each kind costs the steps of a host: its time on the critical path, whichever device that is on."""
    for host in dict.fromkeys(row.host for row in result.devices):
        rows = [row for row in result.devices if row.host == host]
        for kind in dict.fromkeys(kind.kind for row in rows for kind in row.kinds):
            make = _optimizer if kind == OPTIMIZER else _side_work
            yield from make(selection, _OnPath.of(rows, kind))


class _OnPath(Struct, frozen=True):
    """What one kind of op takes on the path of a host. `most`: the device that has most of it; `kind`: there.

    `kinds`: by device those ops of all that are named, in the order of devices.
    """

    most: DeviceStepOps
    kind: OpKind
    kinds: dict[str, OpKind]
    ps_per_step: int

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that are named."""
        return tuple(self.kinds)

    @property
    def devices_by_type(self) -> dict[str, list[str]]:
        """By type of these ops where they ran, those of the device that has most of them first."""
        types = (
            *self.kind.op_types,
            *(type_ for kind in self.kinds.values() for type_ in kind.op_types),
        )
        return {
            type_: [device for device, kind in self.kinds.items() if type_ in kind.op_types]
            for type_ in dict.fromkeys(types)
        }

    @classmethod
    def of(cls, rows: Sequence[DeviceStepOps], name: str) -> _OnPath:
        """The sum over the devices. Named are those with half as much as the one with most."""
        found = [(row, kind) for row in rows for kind in row.kinds if kind.kind == name]
        most, kind = max(found, key=lambda pair: pair[1].path_ps_per_step)
        least_ps = _NAMED_RATIO * kind.path_ps_per_step
        named = {row.device: kind for row, kind in found if kind.path_ps_per_step >= least_ps}
        return cls(most, kind, named, sum(kind.path_ps_per_step for _, kind in found))


def _side_work(selection: Selection, ops: _OnPath) -> Iterator[Finding]:
    cost = selection.cost("mean", ops.ps_per_step)
    if cost.ratio is None or HOST_OP.severity_of(cost.ratio) is None:
        return
    where, types = numbers.listed(ops.devices), ops.devices_by_type
    calls = dict.fromkeys(_FUNCTIONS[type_] for type_ in types if type_ in _FUNCTIONS)
    words = numbers.listed(list(calls)) or _WORDS[ops.kind.kind]
    # The path is in one place at a time.
    turns = ", one after the other" if len(ops.devices) > 1 else ""
    is_bound = _ON_EVERY_OP in calls
    least = "at least " if is_bound else ""
    yield HOST_OP.finding(
        f"{words} inside the step {'take' if len(calls) > 1 else 'takes'} {least}{cost.words} on {where}{turns} "
        f"({numbers.share(cost.ratio)}), counted as compute",
        (
            Evidence("path_ratio", cost.ratio, HOST_OP.limits["warning_ratio"], where),
            *(Evidence("op_count", kind.count, None, device) for device, kind in ops.kinds.items()),
            *(
                Evidence("op_type", type_, None, numbers.listed(devices))
                for type_, devices in types.items()
            ),
        ),
        severity="info" if selection.few_steps else None,
        confidence=_confidence(selection),
        explanation=f"{HOST_OP.meaning} {_NOT_FUSED}" if is_bound else None,
        advice=HOST_OP.advice_where[_CASES[ops.kind.kind]],
        devices=ops.devices,
        cost=cost.as_bound("lower") if is_bound else cost,
    )


def _optimizer(selection: Selection, ops: _OnPath) -> Iterator[Finding]:
    limits, compute_ratio = OPTIMIZER_BOUND.limits, ops.kind.compute_ratio
    several = len(ops.devices) > 1
    cost = selection.cost("mean", ops.ps_per_step).as_bound("upper")
    if compute_ratio < limits["compute_ratio"] or (cost.ratio or 0.0) < limits["step_ratio"]:
        return
    where = numbers.listed(ops.devices)
    shares = numbers.share_range(kind.compute_ratio for kind in ops.kinds.values())
    yield OPTIMIZER_BOUND.finding(
        f"{where} {'spend' if several else 'spends'} {shares} of {'their' if several else 'its'} compute on the optimizer, "
        # The path is in one place at a time, so that its part may be longer than the compute of each device.
        f"which takes {'by turns ' if several else ''}{cost.words} on the critical path ({numbers.share(cost.ratio)})",
        (
            *(
                Evidence("compute_ratio", kind.compute_ratio, limits["compute_ratio"], device)
                for device, kind in ops.kinds.items()
            ),
            Evidence("path_ratio", cost.ratio or 0.0, limits["step_ratio"], where),
        ),
        severity="info" if selection.few_steps else None,
        confidence=_confidence(selection),
        advice=_optimizer_advice(ops),
        devices=ops.devices,
        cost=cost,
    )


def _optimizer_advice(ops: _OnPath) -> str:
    """What makes updates rarer or cheaper, first of all where most of a table is updated for nothing."""
    rule = OPTIMIZER_BOUND
    return f"{rule.advice_where[_SPARSE]} {rule.advice}" if ops.most.updates_sparse else rule.advice


def _confidence(selection: Selection) -> tuple[Confidence, str]:
    return selection.few_steps or ("high", "the names of the ops show it")
