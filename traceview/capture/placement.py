"""What does the graph of each step function ask of which device, and where are its variables?

Known before any kernel runs: a graph whose ops all ask for one device, and variables that were created
outside `strategy.scope()`, so that one device holds them for all. Groups `strategy`, `batch`, `training` and
`placement`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final

from traceview.capture.facts import Absent, Facts
from traceview.capture.graphs import count_ops, training_loop
from traceview.capture.live import LiveObjects, find_live, find_strategies
from traceview.capture.sidecar import Sidecar
from traceview.capture.step_objects import StepObjects, traces
from traceview.capture.strategy import describe_batch, describe_strategy, takes_distributed_input

_MOST_NAMES: Final = 20
_FEWEST_DEVICES: Final = 2


class PlacementListener:
    """Writes down what the step functions of the window are made of. `steps` knows them by name."""

    def __init__(self, steps: StepObjects) -> None:
        self._steps = steps

    def opening(self, sidecar: Sidecar) -> None:
        """Nothing: the step functions may not be traced yet."""

    def opened(self, sidecar: Sidecar) -> None:
        """Nothing: the profile runs."""

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """Find and describe the functions that the window saw."""
        begun = perf_counter_ns()
        window = sidecar.groups.get("window", {})
        calls = window.get("calls", ())
        names = list(dict.fromkeys(call["function"] for call in calls))
        for group, values in describe_steps(names, self._steps, find_live()).items():
            sidecar.add(group, values)
        single = {call["function"] for call in calls if call["count"] == 1}
        loops = list(_looping(sidecar.groups["placement"]["functions"], single))
        if loops:
            sidecar.add("notes", {"steps": loops})
        sidecar.add("listener_cost_ns", {"placement": perf_counter_ns() - begun})


def _looping(functions: Sequence[Mapping[str, Any]], single: Collection[str]) -> Iterator[str]:
    """A line for each function whose calls count as one step, and make more."""
    for described in functions:
        loop = described.get("training_loop")
        if loop is not None and described["step"] in single:
            yield (
                f"one call of {described['step']} is one step here, but its training loop runs inside the "
                f"graph ({loop}): a step is coarser than asked for; call the function that makes one "
                "step from Python, or let one call make fewer"
            )


def describe_steps(
    names: Sequence[str], steps: StepObjects, live: LiveObjects
) -> dict[str, dict[str, Any]]:
    """The groups for step functions of these names."""
    facts = Facts()
    functions: list[Any] = []
    uses: dict[int, VariableUse] = {}
    described = []
    frozen = _frozen(steps)
    for name in names:
        for function in facts.ask(name, partial(_step_functions, name, steps)) or ():
            functions.append(function)
            found = _variable_uses(traces(function)[-1], frozen)
            of_function = {use.key: use for use in found}
            uses.update(of_function)
            described.append({"step": name, **_describe_function(function, of_function.values())})
        facts.values.pop(name, None)
    facts.values["functions"] = described
    datasets = (*live.distributed_datasets, *live.datasets_from_function)
    strategy_group, strategy = describe_strategy(
        (use.strategy for use in uses.values()),
        (d._strategy for d in datasets if takes_distributed_input(functions)),
        find_strategies,
    )
    devices = {device for one in described for device in one.get("ops_per_device", ())}
    if strategy_group.get("found_by") == "memory" and len(devices) < _FEWEST_DEVICES:
        # The script has it, and these functions do not use it: their batch is not divided.
        strategy = None
    return {
        "strategy": strategy_group,
        "batch": describe_batch(functions, live, strategy),
        "training": _describe_training(list(uses.values()), is_seen=bool(functions)),
        "placement": facts.as_group(),
    }


def _step_functions(name: str, steps: StepObjects) -> list[Any]:
    functions = steps.functions(name)
    if not functions:
        raise Absent(
            "no graph of it is known: it runs eagerly, is no tf.function that is still held, or was marked by number"
        )
    return functions


def _describe_function(function: Any, uses: Iterable[VariableUse]) -> dict[str, Any]:
    facts = Facts()
    facts.ask("name", lambda: str(function._name))
    facts.ask("traces", lambda: len(traces(function)))
    facts.values["jit_compile"] = bool(getattr(function, "_jit_compile", None))
    counts = facts.ask("ops", lambda: count_ops(traces(function)[-1].graph))
    if counts is not None:
        facts.values.update(counts.as_json())
        del facts.values["ops"]
        facts.values["training_loop"] = training_loop(traces(function)[-1].graph)
    facts.ask("variables", lambda: _describe_variables(list(uses)))
    return facts.as_group()


@dataclass(frozen=True)
class VariableUse:
    """A variable on one device, as a graph uses it.

    `container`: what mirrors it, or None. `is_frozen`: a Keras model says that it is not trainable, which
    TensorFlow's own variable need not know.
    """

    variable: Any
    container: Any
    is_frozen: bool = False

    @property
    def key(self) -> int:
        """Equal for equal variables."""
        return id(self.variable)

    @property
    def strategy(self) -> Any:
        """The strategy under which it was created."""
        owner = self.variable if self.container is None else self.container
        return getattr(owner, "_distribute_strategy", None)

    @property
    def is_trainable(self) -> bool:
        """Whether it has a gradient: not what Keras has frozen, and no counter."""
        kind = self.variable.dtype
        has_gradient = bool(kind.is_floating or kind.is_complex)
        return has_gradient and bool(self.variable.trainable) and not self.is_frozen

    @property
    def count(self) -> int:
        """Its elements."""
        number = self.variable.shape.num_elements()
        if number is None:
            raise Absent(f"{self.variable.name} has no fixed shape")
        return int(number)

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.count * int(self.variable.dtype.size)


def _frozen(steps: StepObjects) -> set[int]:
    """The variables, by `id`, that Keras models do not train."""
    return {
        id(getattr(variable, "_value", variable))
        for model in steps.models()
        for variable in model.non_trainable_variables
    }


def _variable_uses(trace: Any, frozen: set[int]) -> list[VariableUse]:
    found: dict[int, VariableUse] = {}
    for variable in trace.graph.variables:
        # One that is used outside of replicas is there as a whole.
        parts = getattr(variable, "_values", None) or (variable,)
        for part in parts:
            container = _container(part) if len(parts) == 1 else variable
            is_frozen = id(part if container is None else container) in frozen
            found[id(part)] = VariableUse(part, container, is_frozen)
    return list(found.values())


def _container(variable: Any) -> Any:
    for owner in (variable, getattr(variable, "handle", None)):
        reference = getattr(owner, "_distributed_container", None)
        container = reference() if callable(reference) else None
        if container is not None:
            return container
    return None


def _describe_variables(uses: list[VariableUse]) -> dict[str, Any]:
    devices: dict[str, dict[str, int]] = {}
    for use in uses:
        device = devices.setdefault(
            use.variable.device, {"count": 0, "bytes": 0, "mirrored": 0, "trainable": 0}
        )
        device["count"] += 1
        device["bytes"] += use.size
        device["mirrored"] += use.container is not None
        device["trainable"] += use.is_trainable
    alone = [use for use in uses if use.container is None]
    classes = Counter(type(one).__name__ for one in _owners(uses))
    return {
        "per_device": dict(sorted(devices.items())),
        "classes": dict(classes.most_common()),
        "not_mirrored": {
            "count": len(alone),
            "trainable": sum(use.is_trainable for use in alone),
            "names": sorted(str(use.variable.name) for use in alone)[:_MOST_NAMES],
        },
    }


def _owners(uses: list[VariableUse]) -> list[Any]:
    """Each variable once, however many devices mirror it."""
    owners = [use.variable if use.container is None else use.container for use in uses]
    return list({id(owner): owner for owner in owners}.values())


def _describe_training(uses: list[VariableUse], *, is_seen: bool) -> dict[str, Any]:
    """Parameters once, not once per replica, and the bytes of one dense gradient of each.

    These are the trainable variables that the step functions use. An embedding's sparse gradient is smaller.
    """
    facts = Facts()
    fields = ("parameters", "parameter_bytes", "gradient_bytes", "trainable_variables")
    if not is_seen:
        facts.missing = dict.fromkeys(fields, "no graph of a step function was found")
        return facts.as_group()
    trainable = {
        id(use.variable if use.container is None else use.container): use
        for use in uses
        if use.is_trainable
    }.values()
    facts.ask("trainable_variables", lambda: len(trainable))
    facts.ask("parameters", lambda: sum(use.count for use in trainable))
    facts.ask("parameter_bytes", lambda: sum(use.size for use in trainable))
    facts.ask("gradient_bytes", lambda: sum(use.size for use in trainable))
    return facts.as_group()
