"""Describes what the script calls: whether its calls are steps or evaluation, what it is named, and how often it ran."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from threading import Lock
from time import monotonic
from typing import Any, ClassVar, Final, Literal
from weakref import WeakKeyDictionary

from traceview.capture.steps.graphs import computes_gradients, trace_count, traces
from traceview.capture.window.step_window import StepWindow

Kind = Literal["function", "replicas", "keras", "eager"]
_KINDS: Final[dict[Kind, str]] = {
    "function": "tf.function",
    "replicas": "strategy.run",
    "keras": "Keras",
    "eager": "outside any function",
}


@dataclass(eq=False)
class Callee:
    """Something that may be a step: a `tf.function`, a replica function, the training of a Keras model.

    `calls` counts the outermost calls. `is_chosen`: whether the user names it as a step, None where none is named. `applies`:
    whether an optimizer of Keras was applied in it. `is_part`: whether something else ends the step that it begins: what trains
    in turn with it, or updates after micro-batches; `is_update`: whether it ends those. `model`: gives the Keras model.
    """

    name: str
    kind: Kind
    is_train: bool = False
    has_replicas: bool = False
    is_chosen: bool | None = None
    applies: bool = False
    is_part: bool = False
    is_update: bool = False
    calls: int = 0
    step_count: int = 0
    is_of_keras: bool = False
    model: Callable[[], Any] = lambda: None
    functions: WeakKeyDictionary[Any, None] = field(default_factory=WeakKeyDictionary)
    """The `tf.function` that it is, or those that it calls eagerly."""
    graph_count: int = 0
    runs_in_graph: WeakKeyDictionary[Any, int] = field(default_factory=WeakKeyDictionary)
    """Calls of `Strategy.run` while each graph was made."""

    def calls_function(self, function: Any) -> None:
        """It is this `tf.function`, or calls it."""
        with suppress(TypeError):  # what cannot be referred to weakly is forgotten
            self.functions[function] = None

    def learns(self) -> bool:
        """Whether graphs were made since the last time, from which it learns whether it trains."""
        functions = list(self.functions)
        count = sum(map(trace_count, functions))
        if count == self.graph_count:
            return False
        self.graph_count = count
        graphs = (graph for function in functions for graph in traces(function))
        self.is_train = self.is_train or any(map(computes_gradients, graphs))
        return True

    def step_graphs(self) -> list[Any]:
        """The traced functions of a step; of Keras, which calls others too, those that train."""
        traced = {each: graphs for each in list(self.functions) if (graphs := traces(each))}
        are_all = self.kind != "keras"
        return [each for each in traced if are_all or any(map(computes_gradients, traced[each]))]

    @property
    def runs_per_call(self) -> int:
        """How often the graph of one call has `Strategy.run`, one after the other; 0 if Python calls it."""
        return max(self.runs_in_graph.values(), default=0)

    @property
    def is_step(self) -> bool:
        """Whether each call is one step or more, or the last part of one."""
        if self.is_chosen is None:
            return self.is_update or (self.is_train and not self.is_part)
        return self.is_chosen

    @property
    def words(self) -> str:
        """What it is and does: `tf.function, trains`."""
        does = ", trains" if self.is_train else ", evaluates" if self.has_replicas else ""
        return f"{_KINDS[self.kind]}{does}"


def name_of(function: Any) -> str:
    """The name of a function, or of its class without one."""
    name = getattr(function, "__name__", None) or getattr(function, "_name", None)
    return name if isinstance(name, str) else type(function).__name__


def name_of_model(model: Any) -> str:
    """The name of a Keras model, or of its class without one."""
    return str(getattr(model, "name", type(model).__name__))


def name_of_concrete(function: Any) -> str:
    """`train_step` for the concrete function `__inference_train_step_123`."""
    name = function.name
    text = name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
    return re.sub(r"^__inference_(.+?)_\d+$", r"\1", text)


def micro_batches(steps: Iterable[Any], updates: Iterable[Any]) -> Iterator[str]:
    """A line for each function that updates variables and ran half as often as a step. Both have a name and `calls`."""
    for step, update in product(steps, updates):
        if 0 < update.calls * 2 <= step.calls:
            yield (
                f"the steps are the calls of {step.name}; {update.name}, which updates variables, ran once for about "
                f"{step.calls // update.calls} of them: --step-function {update.name} counts its calls"
            )


class Recognizer(ABC):
    """Counts the steps of a process, and reports them to `window`. `names`: what counts as a step, by default recognized."""

    nothing_called: ClassVar[str]
    how_to_mark: ClassVar[str]
    """What there is to say where no step is recognized."""
    eager_gradients = 0
    """How many gradients were computed outside of functions, as only TensorFlow does."""

    def __init__(self, window: StepWindow, names: Iterable[str]) -> None:
        self.window = window
        self.names = frozenset(names)
        self.began_s: float | None = None
        """When training began, which is when the framework first ran something, by the monotonic clock."""
        self.on_begin: list[Callable[[], None]] = []
        self._beginning = Lock()

    @property
    @abstractmethod
    def callees(self) -> Sequence[Any]:
        """What the script has called: `name`, `kind`, `words`, `calls`, `step_count` and `is_step` of each."""

    @property
    def current(self) -> Any:
        """What was called and has not returned, where that is seen."""
        return None

    @abstractmethod
    def remarks(self) -> Iterator[str]:
        """What the user should know about what counts as a step, one line each."""

    def finish(self) -> None:
        """The run has ended: nothing begins any more."""
        self.on_begin.clear()

    def functions_of(self, _name: str) -> list[Any]:
        """The traced `tf.function`s that the steps of this name call, where the framework has some."""
        return []

    def begin_training(self) -> None:
        """The framework runs something, perhaps for the first time."""
        if self.began_s is None and self._beginning.acquire(blocking=False):
            self.began_s = monotonic()
            for action in self.on_begin:
                action()

    @property
    def step_functions(self) -> list[Any]:
        """The callees whose calls were counted as steps."""
        return [callee for callee in self.callees if callee.step_count]

    def summary(self) -> list[str]:
        """What was called how often, most frequent first, one line each."""
        called = sorted(self.callees, key=lambda callee: -callee.calls)
        return [f"{each.name} ({each.words}) × {each.calls}" for each in called if each.calls]
