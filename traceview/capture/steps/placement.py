"""Describes how the training is distributed, which device the graph of each step function requests, and what it trains.

This shows, before any kernel runs, that all ops of a graph request one device, or that variables were created outside
`strategy.scope()`, so that one device holds them for all. Groups `strategy`, `batch`, `training`, `placement` and `graphs`.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from traceview.capture.sidecar.file import Facts, NoAnswerError, Sidecar, WindowListener
from traceview.capture.steps.callee import name_of_concrete
from traceview.capture.steps.graph_flops import describe_flops
from traceview.capture.steps.graphs import count_ops, describe_values, traces, training_loop
from traceview.capture.steps.observer import Observer
from traceview.capture.steps.op_lines import describe_lines
from traceview.capture.steps.step_inputs import Sizes, StepInputs

_FEWEST_DEVICES: Final = 2


class PlacementListener(WindowListener):
    """Describes the step functions of the window. `steps` knows them by name, `inputs` what they are given."""

    def __init__(
        self, steps: Observer, inputs: StepInputs, *, is_source_wanted: bool = True
    ) -> None:
        self._steps = steps
        self._inputs = inputs
        self._is_source_wanted = is_source_wanted

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """Find and describe them; before, they may not be traced."""
        calls = sidecar.groups.get("window", {}).get("calls", ())
        names = self._steps.with_parts(call["function"] for call in calls)
        described = describe_steps(
            names, self._steps, self._inputs, is_source_wanted=self._is_source_wanted
        )
        for group, values in described.items():
            sidecar.add(group, values)
        single = {call["function"] for call in calls if call["count"] == 1}
        loops = [
            f"one call of {each['step']} counts as one step, but runs a whole training loop inside its "
            f"graph ({each['training_loop']}); to record single steps, call the function that runs one step from Python"
            for each in sidecar.groups["placement"]["functions"]
            if each.get("training_loop") is not None and each["step"] in single
        ]
        if loops:
            sidecar.add("notes", {"steps": loops})

    def finished(self) -> None:
        """Let go of the datasets, also where the profile failed."""
        self._inputs.forget()


def describe_steps(
    names: Sequence[str], steps: Observer, inputs: StepInputs, *, is_source_wanted: bool
) -> dict[str, dict[str, Any]]:
    """The groups for step functions of these names."""
    placement = Facts()
    functions: list[Any] = []
    uses: dict[int, VariableUse] = {}
    described = []
    frozen = {
        id(getattr(variable, "_value", variable))
        for model in steps.models()
        for variable in model.non_trainable_variables
    }
    for name in names:
        for function in placement.find(name, partial(_step_functions, name, steps)) or ():
            functions.append(function)
            of_function = _variable_uses(traces(function)[-1], frozen)
            uses.update(of_function)
            described.append({"step": name, **_describe_function(function, of_function.values())})
    placement.values["functions"] = described
    strategy_group, strategy = describe_strategy(
        (use.strategy for use in uses.values()), inputs.strategies(), find_strategies
    )
    devices = {device for function in described for device in function.get("ops_per_device", ())}
    if strategy_group.get("found_by") == "memory" and len(devices) < _FEWEST_DEVICES:
        # The script has a strategy, but these functions do not use it: their batch is not divided.
        strategy = None
    batch = describe_batch(inputs, strategy)
    graphs = Facts()
    of_steps = [traces(function)[-1].graph for function in functions if traces(function)]
    with _without_collections():
        values = graphs.find("ops", lambda: describe_values(of_steps)) or {}
        if is_source_wanted:
            values |= graphs.find("lines", lambda: describe_lines(of_steps)) or {}
        graphs.ask("flops", lambda: describe_flops(of_steps, batch.get("per_replica")))
    return {
        "strategy": strategy_group,
        "batch": batch,
        "training": _describe_training(uses.values(), steps, has_functions=bool(functions)),
        "placement": placement.as_group(),
        "graphs": {**values, **graphs.as_group()},
    }


@contextmanager
def _without_collections() -> Iterator[None]:
    """Leave out Python's garbage collections: what is made here is kept, and each would walk all ops, for half of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _step_functions(name: str, steps: Observer) -> list[Any]:
    functions = steps.functions_of(name)
    if not functions:
        raise NoAnswerError(
            "no graph of it was recorded: it runs eagerly, the script no longer holds it, or the steps were marked by number"
        )
    return functions


def _describe_function(function: Any, uses: Iterable[VariableUse]) -> dict[str, Any]:
    facts = Facts()
    facts.ask("name", lambda: name_of_concrete(traces(function)[-1]))
    facts.ask("traced_by", lambda: what_differs(traces(function)))
    counts = facts.find("ops", lambda: count_ops(traces(function)[-1].graph))
    if counts is not None:
        facts.values["op_count"] = counts.total()
        facts.values["ops_per_device"] = {name: counts[name] for name in sorted(counts) if name}
        facts.values["training_loop"] = training_loop(traces(function)[-1].graph)
    alone = [use for use in uses if use.container is None]
    facts.ask("not_mirrored", lambda: sum(use.is_trainable for use in alone))
    return facts.as_group()


class VariableUse(NamedTuple):
    """A variable on one device, as a graph uses it.

    `container`: the variable that mirrors it, or None. `is_frozen`: a Keras model says that it is not trainable,
    which TensorFlow's own variable need not know.
    """

    variable: Any
    container: Any
    is_frozen: bool = False

    @property
    def owner(self) -> Any:
        """The variable as the script knows it, however many devices mirror it."""
        return self.variable if self.container is None else self.container

    @property
    def strategy(self) -> Any:
        """The strategy under which it was created."""
        return getattr(self.owner, "_distribute_strategy", None)

    @property
    def is_trainable(self) -> bool:
        """Whether it has a gradient: not what Keras has frozen, and no counter."""
        kind = self.variable.dtype
        has_gradient = bool(kind.is_floating or kind.is_complex)
        return has_gradient and bool(self.variable.trainable) and not self.is_frozen

    @property
    def elements(self) -> int:
        """How many it has."""
        number = self.variable.shape.num_elements()
        if number is None:
            raise NoAnswerError(f"{self.variable.name} has no fixed shape")
        return int(number)


def _variable_uses(trace: Any, frozen: set[int]) -> dict[int, VariableUse]:
    """The variables of a graph, by the `id` of each copy on a device."""
    uses: dict[int, VariableUse] = {}
    for variable in trace.graph.variables:
        # A variable that is used outside of replicas has all its copies here.
        parts = getattr(variable, "_values", None) or (variable,)
        for part in parts:
            container = variable
            if len(parts) == 1:
                owners = (part, getattr(part, "handle", None))
                found = (getattr(owner, "_distributed_container", None) for owner in owners)
                made = (reference() for reference in found if callable(reference))
                container = next((each for each in made if each is not None), None)
            is_frozen = id(part if container is None else container) in frozen
            uses[id(part)] = VariableUse(part, container, is_frozen)
    return uses


def _describe_training(
    uses: Iterable[VariableUse], steps: Observer, *, has_functions: bool
) -> dict[str, Any]:
    """The trainable variables of the step functions, each once and not once per replica.

    `gradient_bytes` are those of dense gradients; the sparse gradient of an embedding is smaller. `accumulation_steps`: over
    which the optimizer of a Keras model accumulates gradients, where it does.
    """
    facts = Facts()
    for model in steps.models():
        count = getattr(getattr(model, "optimizer", None), "gradient_accumulation_steps", None)
        if isinstance(count, int) and count > 1:
            facts.values["accumulation_steps"] = count
    if not has_functions:
        reason = "no graph of a step function was found"
        facts.missing = dict.fromkeys(("parameters", "gradient_bytes"), reason)
        return facts.as_group()
    trained = {id(use.owner): use for use in uses if use.is_trainable}.values()
    facts.ask("parameters", lambda: sum(use.elements for use in trained))
    facts.ask(
        "gradient_bytes",
        lambda: sum(use.elements * int(use.variable.dtype.size) for use in trained),
    )
    return facts.as_group()


_SHAPE: Final = re.compile(r"shape=(?:<unknown>|\([^)]*\)|None)")
_PYTHON: Final = re.compile(r"Literal\[(?:'[^']{0,999}'|\"[^\"]{0,999}\"|[^\]]{0,999})\]")
"""How the signature of a graph writes the shape of a tensor and a value of Python (TensorFlow 2.15 to 2.21)."""

_KINDS: Final = (("python", _PYTHON), ("shape", _SHAPE))


def what_differs(graphs: Sequence[Any]) -> list[str]:
    """`python`: a value of Python, `shape`: the shape of a tensor, `other`: anything else; empty for one graph.

    `graphs`: concrete functions.
    """
    if len(graphs) < 2:
        return []
    signatures = []
    for graph in graphs:
        parameters = graph.function_type.parameters.items()
        each = (f"{name}: {parameter.type_constraint}" for name, parameter in parameters)
        signatures.append(" ".join(each))
    differences = []
    for kind, pattern in _KINDS:
        if len({" ".join(pattern.findall(signature)) for signature in signatures}) > 1:
            differences.append(kind)
        signatures = [pattern.sub("", signature) for signature in signatures]
    return [*differences, "other"] if len(set(signatures)) > 1 else differences


# Strategy and batch


def describe_strategy(
    of_variables: Iterable[Any], of_input: Iterable[Any], others: Callable[[], Iterable[Any]]
) -> tuple[dict[str, Any], Any]:
    """The group `strategy` of the sidecar, and the strategy itself, None without one.

    The strategy of the variables that the step uses comes first, then that of its input. Only without both is
    another strategy of the script taken: the script made it, though nothing in the step shows it.
    """
    facts = Facts()
    sources: dict[str, Callable[[], Iterable[Any]]] = {
        "variables": lambda: of_variables,
        "input": lambda: of_input,
        "memory": others,
    }
    for found_by, candidates in sources.items():
        found = {id(each): each for each in candidates() if each is not None}
        strategies = [each for each in found.values() if not is_default_strategy(each)]
        if len(strategies) > 1:
            names = ", ".join(sorted(type(strategy).__name__ for strategy in strategies))
            facts.missing["class"] = f"several strategies: {names}"
            return facts.as_group(), None
        if strategies:
            facts.values["found_by"] = found_by
            _describe(facts, strategies[0])
            return facts.as_group(), strategies[0]
    facts.missing["class"] = "no strategy of tf.distribute is in use"
    return facts.as_group(), None


def _describe(facts: Facts, strategy: Any) -> None:
    extended = strategy.extended
    facts.values["class"] = type(strategy).__name__
    facts.ask("replicas", lambda: int(strategy.num_replicas_in_sync))
    facts.ask("devices", lambda: list(extended.worker_devices))
    facts.ask("parameter_devices", lambda: list(extended.parameter_devices))
    names = ("_cross_device_ops", "_inferred_cross_device_ops", "_collective_ops")
    operations = _first_of(extended, names)
    if operations is None:
        facts.missing["cross_device_ops"] = "this strategy has no cross-device ops so far"
        return
    facts.values["cross_device_ops"] = type(operations).__name__
    packs = _first_of(operations, ("_num_packs", "num_packs"))
    if packs is None:
        facts.missing["packs"] = f"{type(operations).__name__} packs by bytes"
    else:
        facts.values["packs"] = int(packs)
    options = getattr(operations, "_options", None) or getattr(
        extended, "_communication_options", None
    )
    # 0: TensorFlow chooses.
    facts.ask("bytes_per_pack", lambda: getattr(options, "bytes_per_pack", None))


def _first_of(thing: Any, names: Iterable[str]) -> Any:
    values = (getattr(thing, name, None) for name in names)
    return next((value for value in values if value is not None), None)


def describe_batch(inputs: StepInputs, strategy: Any) -> dict[str, Any]:
    """The group `batch` of the sidecar: global and per-replica batch size, in examples."""
    facts = Facts()

    def sizes() -> Sizes:
        # Replicas of the job, and those that this process runs.
        if strategy is None:
            return inputs.sizes(1, 1)
        local = len(strategy.extended.worker_devices)
        return inputs.sizes(int(strategy.num_replicas_in_sync), local)

    found = facts.find("sizes", sizes)
    if found is None:
        reason = facts.missing.pop("sizes")
        facts.missing.update(dict.fromkeys(("global", "per_replica"), reason))
        return facts.as_group()
    found_by, total, each = found
    facts.values.update({"global": total, "found_by": found_by})
    if each is None:
        facts.missing["per_replica"] = f"{total} examples do not divide among the replicas"
    else:
        facts.values["per_replica"] = each
    return facts.as_group()


def find_strategies() -> list[Any]:
    """The strategies of the script, without TensorFlow's own default.

    TensorFlow keeps no list of them. The garbage collector is asked once, after the window, for what refers to their
    classes, as every object does to its own (20 to 30 ms in a process with 300 000 objects).
    """
    base = getattr(
        sys.modules.get("tensorflow.python.distribute.distribute_lib"), "StrategyBase", None
    )
    if not isinstance(base, type):
        return []
    # Each class makes the search a millisecond longer; those of TensorFlow 1 are not used with functions.
    classes, waiting = set(), [base]
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        if not cls.__name__.endswith("V1") and not cls.__name__.startswith("_Default"):
            classes.add(cls)
    # By the exact class: others may answer anything when asked what they are.
    return [thing for thing in gc.get_referrers(*classes) if type(thing) in classes]


def is_default_strategy(strategy: Any) -> bool:
    """Whether it is the one that TensorFlow uses without a strategy."""
    return type(strategy).__name__.startswith("_Default")
