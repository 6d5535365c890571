"""Describes how the training is distributed, which device the graph of each step function requests, and what it trains.

This shows, before any kernel runs, that all ops of a graph request one device, or that variables were created outside
`strategy.scope()`, so that one device holds them for all. Groups `strategy`, `batch`, `training`, `placement` and `graphs`.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from traceview.capture.sidecar.file import Facts, NoAnswerError, Sidecar, WindowListener
from traceview.capture.steps.callee import name_of_concrete
from traceview.capture.steps.graph_flops import describe_flops
from traceview.capture.steps.graphs import count_ops, describe_values, traces, training_loop
from traceview.capture.steps.observer import Observer
from traceview.capture.steps.op_lines import describe_lines
from traceview.capture.steps.step_inputs import Sizes, StepInputs


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
            if each.get("training_loop") is not None and each["step"] in single:
                loop = (
                    f"one call of {each['step']} counts as one step, but runs a whole training loop inside its "
                    f"graph ({each['training_loop']}); to record single steps, call the function that runs one step from "
                    "Python"
                )
                sidecar.note("steps", loop)

    def finished(self) -> None:
        """Let go of the datasets, also where the profile failed."""
        self._steps.inputs.forget()


def describe_steps(
    names: Iterable[str], steps: Observer, *, is_source_wanted: bool
) -> dict[str, dict[str, Any]]:
    """The groups for step functions of these names."""
    placement, graphs = Facts(), Facts()
    of_steps: list[Any] = []
    uses: dict[int, _Use] = {}
    described = []
    models = [model for callee in steps.callees if (model := callee.model()) is not None]
    frozen = {
        id(getattr(variable, "_value", variable))
        for model in models
        for variable in model.non_trainable_variables
    }
    for name in names:
        functions = steps.functions_of(name)
        if not functions:
            placement.missing[name] = (
                "no graph of it was recorded: it runs eagerly, the script no longer holds it, or the steps were marked by number"
            )
        runs = max((each.runs_per_call for each in steps.callees if each.name == name), default=0)
        for made in map(traces, functions):
            graph = made[-1].graph
            of_steps.append(graph)
            own = {id(use.variable): use for use in _uses(graph, frozen)}
            uses.update(own)
            facts = _describe_function(made, own.values())
            several = {"replica_runs": runs} if runs > 1 else {}
            described.append({"step": name, **facts, **several})
    placement.values["functions"] = described
    strategy_group, strategy = describe_strategy(
        (getattr(use.owner, "_distribute_strategy", None) for use in uses.values()),
        steps.inputs.strategies(),
    )
    devices = {device for function in described for device in function.get("ops_per_device", ())}
    if strategy_group.get("found_by") == "memory" and len(devices) < 2:
        # The script has a strategy, but these functions do not use it: their batch is not divided.
        strategy = None
    batch = describe_batch(steps.inputs, strategy)
    was_enabled = gc.isenabled()
    # What is made here is kept, and each collection would walk all ops, for half of the time.
    gc.disable()
    try:
        values = graphs.find("ops", lambda: describe_values(of_steps)) or {}
        if is_source_wanted:
            values |= graphs.find("lines", lambda: describe_lines(of_steps)) or {}
        graphs.ask("flops", lambda: describe_flops(of_steps, batch.get("per_replica")))
    finally:
        if was_enabled:
            gc.enable()
    return {
        "strategy": strategy_group,
        "batch": batch,
        "training": _describe_training(uses.values(), models, has_graphs=bool(of_steps)),
        "placement": placement.as_group(),
        "graphs": {**values, **graphs.as_group()},
    }


def _describe_function(made: Sequence[Any], uses: Iterable[_Use]) -> dict[str, Any]:
    """The fields of a function; `made`: its graphs as concrete functions, of which the newest counts."""
    facts = Facts()
    facts.ask("name", lambda: name_of_concrete(made[-1]))
    facts.ask("traced_by", lambda: what_differs(made))
    counts = facts.find("ops", lambda: count_ops(made[-1].graph))
    if counts is not None:
        facts.values["op_count"] = counts.total()
        facts.values["ops_per_device"] = {name: counts[name] for name in sorted(counts) if name}
        facts.values["training_loop"] = training_loop(made[-1].graph)
    alone = [use for use in uses if use.owner is use.variable]
    facts.ask("not_mirrored", lambda: sum(use.is_trained for use in alone))
    return facts.as_group()


class _Use(NamedTuple):
    """A variable on one device, as a graph uses it. `owner`: as the script knows it, however many devices mirror it.

    `is_frozen`: a Keras model says that it is not trainable, which TensorFlow's own variable need not know.
    """

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
    """The variables of a graph, each copy on a device."""
    for variable in graph.variables:
        # A variable that is used outside of replicas has all its copies here.
        for part in getattr(variable, "_values", None) or (variable,):
            places = (part, getattr(part, "handle", None))
            found = (getattr(place, "_distributed_container", None) for place in places)
            made = (reference() for reference in found if callable(reference))
            container = next((each for each in made if each is not None), None)
            owner = variable if container is None else container
            yield _Use(part, owner, id(owner) in frozen)


def _describe_training(
    uses: Iterable[_Use], models: Iterable[Any], *, has_graphs: bool
) -> dict[str, Any]:
    """The trainable variables of the step functions, each once and not once per replica.

    `gradient_bytes` are those of dense gradients; the sparse gradient of an embedding is smaller. `accumulation_steps`: over
    which the optimizer of a Keras model accumulates gradients, where it does.
    """
    facts = Facts()
    for model in models:
        count = getattr(getattr(model, "optimizer", None), "gradient_accumulation_steps", None)
        if isinstance(count, int) and count > 1:
            facts.values["accumulation_steps"] = count

    if not has_graphs:
        reason = "no graph of a step function was found"
        facts.missing = dict.fromkeys(("parameters", "gradient_bytes"), reason)
        return facts.as_group()

    def elements(variable: Any) -> int:
        number = variable.shape.num_elements()
        if number is None:
            raise NoAnswerError(f"{variable.name} has no fixed shape")
        return int(number)

    trained = {id(use.owner): use.variable for use in uses if use.is_trained}.values()
    facts.ask("parameters", lambda: sum(map(elements, trained)))
    facts.ask("gradient_bytes", lambda: sum(elements(v) * int(v.dtype.size) for v in trained))
    return facts.as_group()


_DIFFERENCES: Final = {
    "python": re.compile(r"Literal\[(?:'[^']{0,999}'|\"[^\"]{0,999}\"|[^\]]{0,999})\]"),
    "shape": re.compile(r"shape=(?:<unknown>|\([^)]*\)|None)"),
}
"""How the signature of a graph writes a value of Python and the shape of a tensor (TensorFlow 2.15 to 2.21)."""


def what_differs(graphs: Sequence[Any]) -> list[str]:
    """`python`: a value of Python, `shape`: the shape of a tensor, `other`: anything else; empty for one graph.

    `graphs`: concrete functions.
    """
    if len(graphs) < 2:
        return []
    types = ({n: p.type_constraint for n, p in g.function_type.parameters.items()} for g in graphs)
    signatures = [" ".join(f"{name}: {type_}" for name, type_ in each.items()) for each in types]
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
    """The group `strategy` of the sidecar, and the strategy itself, None without one.

    The strategy of the variables that the step uses comes first, then that of its input. Only without both is
    another strategy of the script taken: the script made it, though nothing in the step shows it.
    """
    facts = Facts()
    sources = {"variables": lambda: of_variables, "input": lambda: of_input, "memory": _in_memory}
    for found_by, candidates in sources.items():
        found = {id(each): each for each in candidates() if each is not None}
        strategies = [e for e in found.values() if not type(e).__name__.startswith(_DEFAULT)]
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
    def first_of(thing: Any, *names: str) -> Any:
        values = (getattr(thing, name, None) for name in names)
        return next((value for value in values if value is not None), None)

    extended = strategy.extended
    facts.values["class"] = type(strategy).__name__
    facts.ask("replicas", lambda: int(strategy.num_replicas_in_sync))
    facts.ask("devices", lambda: list(extended.worker_devices))
    facts.ask("parameter_devices", lambda: list(extended.parameter_devices))
    names = ("_cross_device_ops", "_inferred_cross_device_ops", "_collective_ops")
    operations = first_of(extended, *names)
    if operations is None:
        facts.missing["cross_device_ops"] = "this strategy has no cross-device ops so far"
        return
    facts.values["cross_device_ops"] = type(operations).__name__
    packs = first_of(operations, "_num_packs", "num_packs")
    if packs is None:
        facts.missing["packs"] = f"{type(operations).__name__} packs by bytes"
    else:
        facts.values["packs"] = int(packs)
    options = first_of(operations, "_options") or first_of(extended, "_communication_options")
    # 0: TensorFlow chooses.
    facts.ask("bytes_per_pack", lambda: getattr(options, "bytes_per_pack", None))


def _in_memory() -> list[Any]:
    """The strategies of the script.

    TensorFlow keeps no list of them. The garbage collector is asked once, after the window, for what refers to their
    classes, as every object does to its own (20 to 30 ms in a process with 300 000 objects).
    """
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
    facts = Facts()

    def sizes() -> Sizes:
        # Replicas of the job, and those that this process runs.
        if strategy is None:
            return inputs.sizes(1, 1)
        local = len(strategy.extended.worker_devices)
        return inputs.sizes(int(strategy.num_replicas_in_sync), local)

    found = facts.find("global", sizes)
    if found is None:
        facts.missing["per_replica"] = facts.missing["global"]
        return facts.as_group()
    found_by, total, each = found
    facts.values.update({"global": total, "found_by": found_by})
    if each is None:
        facts.missing["per_replica"] = f"{total} examples do not divide among the replicas"
    else:
        facts.values["per_replica"] = each
    return facts.as_group()
