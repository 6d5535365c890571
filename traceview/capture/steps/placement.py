"""Describes how the training is distributed, which device the graph of each step function requests, and what it trains."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from traceview.capture.sidecar.file import Sidecar, WindowListener, answers
from traceview.capture.steps.observer import Observer, name_of_concrete
from traceview.capture.steps.op_lines import describe_lines
from traceview.capture.steps.step_inputs import Sizes, StepInputs
from traceview.graphs.calls import (
    count_ops,
    makes_batches,
    traces,
    training_loop,
)
from traceview.graphs.flops import describe_flops
from traceview.graphs.values import describe_values


class PlacementListener(WindowListener):
    """Describes the step functions of the window. `steps` knows them by name, and what they are given."""

    def __init__(self, steps: Observer, *, is_source_wanted: bool = True) -> None:
        self._steps = steps
        self._is_source_wanted = is_source_wanted

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """Find and describe them; before, they may not be traced."""
        calls = sidecar.groups.get("window", {}).get("calls", ())
        parts = (callee.name for callee in self._steps.callees if callee.is_part)
        names = dict.fromkeys((*(call["function"] for call in calls), *parts))
        described = describe_steps(names, self._steps, is_source_wanted=self._is_source_wanted)
        for group, values in described.items():
            sidecar.add(group, values)
        single = {call["function"] for call in calls if call["count"] == 1}
        for each in described["placement"]["functions"]:
            step, loop = each["step"], each.get("training_loop")
            if loop is not None and step in single:
                runs = f"runs a whole training loop inside its graph ({loop})"
                sidecar.note("steps", f"one call of {step} counts as one step, but {runs}")

    def finished(self) -> None:
        """Let go of the datasets, also where the profile failed."""
        self._steps.inputs.forget()


def describe_steps(
    names: Iterable[str], steps: Observer, *, is_source_wanted: bool
) -> dict[str, dict[str, Any]]:
    """The groups for step functions of these names."""
    of_steps: list[Any] = []
    functions: list[Any] = []
    uses: dict[int, _Use] = {}
    described = []
    models = [model for callee in steps.callees if (model := callee.model()) is not None]
    fixed = (variable for model in models for variable in model.non_trainable_variables)
    frozen = {id(getattr(variable, "_value", variable)) for variable in fixed}
    for name in names:
        runs = max((each.runs_per_call for each in steps.callees if each.name == name), default=0)
        for made in map(traces, steps.functions_of(name)):
            graph = made[-1].graph
            functions.append(made[-1])
            of_steps.append(graph)
            own = {id(use.variable): use for use in _uses(graph, frozen)}
            uses.update(own)
            facts = _describe_function(made, own.values())
            several = {"replica_runs": runs} if runs > 1 else {}
            described.append({"step": name, **facts, **several})
    of_variables = (getattr(use.owner, "_distribute_strategy", None) for use in uses.values())
    strategy_group, strategy = describe_strategy(of_variables, steps.inputs.strategies())
    devices = {device for function in described for device in function.get("ops_per_device", ())}
    if strategy_group.get("found_by") == "memory" and len(devices) < 2:
        # The script has a strategy, but these functions do not use it: their batch is not divided.
        strategy = None
    batch = describe_batch(steps.inputs, strategy)
    if is_source_wanted:
        batch |= answers({"branches": steps.inputs.branches})
    handles = {id(getattr(use.variable, "handle", None)): use for use in uses.values()}
    trained = {handle for handle, use in handles.items() if use.is_trained}
    shapes = {
        handle: use.variable.shape.as_list() if use.variable.shape.rank else []
        for handle, use in handles.items()
    }
    was_enabled = gc.isenabled()
    # What is made here is kept, and each collection would walk all ops, for half of the time.
    gc.disable()
    try:
        graphs = answers({
            "values": lambda: describe_values(of_steps, shapes, trained),
            "lines": lambda: describe_lines(of_steps) if is_source_wanted else {},
            "flops": lambda: {"flops": describe_flops(of_steps, batch.get("per_replica"))},
            "batches": lambda: {"makes_batches": _batch_makers(steps, functions)},
            "layers": lambda: {"layers": layer_names()},
        })  # fmt: skip
    finally:
        if was_enabled:
            gc.enable()
    if not steps.inputs.is_fed and "values" in graphs:
        # Such a loop tests the speed of steps, or all its data are one batch.
        graphs["values"]["same_batch"] = 0
    return {
        "strategy": strategy_group,
        "batch": batch,
        "training": _describe_training(list(uses.values()), models),
        "placement": {"functions": described},
        "graphs": {field: value for part in graphs.values() for field, value in part.items()},
    }


def layer_names() -> list[str]:
    """The names of all layers of Keras 3: in graphs a number is added to each, because Keras opens the scope twice per call."""
    keras = sys.modules.get("keras")
    if not getattr(keras, "__version__", "").startswith("3."):
        return []
    layer: Any = getattr(keras, "Layer", ())
    # By the type: to ask an object for its class may run code of the script.
    return sorted({each.name for each in gc.get_objects() if issubclass(type(each), layer)})


def _batch_makers(steps: Observer, of_steps: Sequence[Any]) -> list[str]:
    """The names of other functions that give what those of the steps take."""
    called = (function for callee in steps.callees for function in callee.functions)
    others = [made[-1] for made in map(traces, called) if made and made[-1] not in of_steps]
    return sorted({name_of_concrete(each) for each in makes_batches(others, of_steps)})


def _describe_function(made: Sequence[Any], uses: Iterable[_Use]) -> dict[str, Any]:
    alone = [use for use in uses if use.owner is use.variable]
    group = answers({
        "name": lambda: name_of_concrete(made[-1]),
        "traced_by": lambda: what_differs(made),
        "ops_per_device": lambda: count_ops(made[-1].graph),
        "training_loop": lambda: training_loop(made[-1].graph),
        "not_mirrored": lambda: sum(use.is_trained for use in alone),
    })  # fmt: skip
    if counts := group.get("ops_per_device"):
        group["ops_per_device"] = {name: counts[name] for name in sorted(counts) if name}
    return group


class _Use(NamedTuple):
    """A variable on one device, as a graph uses it. `owner`: what the script knows; `is_frozen`: not trainable, says Keras."""

    variable: Any
    owner: Any
    is_frozen: bool

    @property
    def is_trained(self) -> bool:
        """Whether it has a gradient: not what Keras has frozen, and no counter."""
        kind = self.variable.dtype
        has_gradient = bool(kind.is_floating or kind.is_complex)
        return has_gradient and bool(self.variable.trainable) and not self.is_frozen


def _uses(graph: Any, frozen: set[int]) -> Iterator[_Use]:
    for variable in graph.variables:
        # A variable that is used outside of replicas has all its copies here.
        for part in getattr(variable, "_values", None) or (variable,):
            places = (part, getattr(part, "handle", None))
            found = (getattr(place, "_distributed_container", None) for place in places)
            made = (reference() for reference in found if callable(reference))
            container = next((each for each in made if each is not None), None)
            owner = variable if container is None else container
            yield _Use(part, owner, id(owner) in frozen)


def _describe_training(uses: Sequence[_Use], models: Iterable[Any]) -> dict[str, Any]:
    """The trainable variables of the step functions, each once and not once per replica, where all have a fixed shape.

    `gradient_bytes` are those of dense gradients; the sparse gradient of an embedding is smaller. `accumulation_steps`: over
    which the optimizer of a Keras model accumulates gradients, where it does.
    """
    trained = {id(use.owner): use.variable for use in uses if use.is_trained}.values()
    optimizers = [getattr(model, "optimizer", None) for model in models]
    counts = [getattr(each, "gradient_accumulation_steps", None) for each in optimizers]
    several = [count for count in counts if isinstance(count, int) and count > 1]

    def sizes() -> Iterator[tuple[int, int]]:
        return ((int(v.shape.num_elements()), int(v.dtype.size)) for v in trained)

    return answers({
        "accumulation_steps": lambda: several[-1] if several else None,
        "parameters": lambda: sum(size for size, _ in sizes()) if uses else None,
        "gradient_bytes": lambda: sum(size * each for size, each in sizes()) if uses else None,
    })  # fmt: skip


_DIFFERENCES: Final = {
    "python": re.compile(r"Literal\[(?:'[^']*'|\"[^\"]*\"|[^][]*)\]"),
    "shape": re.compile(r"shape=(?:<unknown>|\([^()]*\)|None)"),
}
"""How the signature of a graph writes a value of Python and the shape of a tensor (TensorFlow 2.15 to 2.21)."""


def what_differs(graphs: Sequence[Any]) -> list[str]:
    """Of concrete functions: `structure`: how many tensors an argument holds, else `python`: a value of Python, `shape`: the shape of a
    tensor, `other`: anything else; empty for one.
    """
    if len(graphs) < 2:
        return []
    types = ({n: p.type_constraint for n, p in g.function_type.parameters.items()} for g in graphs)
    signatures = [" ".join(f"{name}: {type_}" for name, type_ in each.items()) for each in types]
    counts = {signature.count("TensorSpec(") for signature in signatures}
    if len(counts) > 1 and 0 not in counts:
        return ["structure"]
    differences = []
    for kind, pattern in _DIFFERENCES.items():
        if len({" ".join(pattern.findall(signature)) for signature in signatures}) > 1:
            differences.append(kind)
        signatures = [pattern.sub("", signature) for signature in signatures]
    return [*differences, "other"] if len(set(signatures)) > 1 else differences


# Strategy and batch

_DEFAULT: Final = "_Default"
"""How the class of the strategy begins that TensorFlow uses without a strategy."""


def describe_strategy(
    of_variables: Iterable[Any], of_input: Iterable[Any]
) -> tuple[dict[str, Any], Any]:
    """The group `strategy`, and the strategy itself or None: that of the variables, else of the input, else one that the script made."""
    sources = {"variables": lambda: of_variables, "input": lambda: of_input, "memory": _in_memory}
    reason = "no strategy of tf.distribute is in use"
    for found_by, candidates in sources.items():
        found = {id(each): each for each in candidates() if each is not None}
        strategies = [e for e in found.values() if not type(e).__name__.startswith(_DEFAULT)]
        if len(strategies) == 1:
            return {"found_by": found_by, **_described(strategies[0])}, strategies[0]
        if strategies:
            names = ", ".join(sorted(type(strategy).__name__ for strategy in strategies))
            reason = f"several strategies: {names}"
            break
    return {"missing": {"class": reason}}, None


def _described(strategy: Any) -> dict[str, Any]:
    extended = strategy.extended
    names = ("_cross_device_ops", "_inferred_cross_device_ops", "_collective_ops")
    found = (getattr(extended, name, None) for name in names)
    operations = next((each for each in found if each is not None), None)
    packs = getattr(operations, "_num_packs", getattr(operations, "num_packs", None))
    options: Any = getattr(operations, "_options", None)
    options = options or (operations and getattr(extended, "_communication_options", None))
    return answers({
        "class": lambda: type(strategy).__name__,
        "replicas": lambda: int(strategy.num_replicas_in_sync),
        "devices": lambda: list(extended.worker_devices),
        "cross_device_ops": lambda: operations and type(operations).__name__,
        "packs": lambda: packs and int(packs),
        # 0: TensorFlow chooses.
        "bytes_per_pack": lambda: int(options.bytes_per_pack),
    })  # fmt: skip


def _in_memory() -> list[Any]:
    """The strategies of the script, by what refers to their classes: 20 to 30 ms in a process with 300 000 objects."""
    module: Any = sys.modules.get("tensorflow.python.distribute.distribute_lib")
    base = getattr(module, "StrategyBase", None)
    # Each class makes the search a millisecond longer; those of TensorFlow 1 are not used with functions.
    classes, waiting = set(), [base] if isinstance(base, type) else []
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        if not cls.__name__.endswith("V1") and not cls.__name__.startswith(_DEFAULT):
            classes.add(cls)
    # By the exact class: others may answer anything when asked what they are.
    return [thing for thing in gc.get_referrers(*classes) if type(thing) in classes]


def describe_batch(inputs: StepInputs, strategy: Any) -> dict[str, Any]:
    """The group `batch` of the sidecar: global and per-replica batch size, in examples."""

    def sizes() -> Sizes:
        if strategy is None:
            return inputs.sizes(1, 1)
        local = len(strategy.extended.worker_devices)
        return inputs.sizes(int(strategy.num_replicas_in_sync), local)

    found = answers({"sizes": sizes}).get("sizes")
    return dict(zip(("found_by", "global", "per_replica"), found, strict=True)) if found else {}
