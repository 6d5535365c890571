"""Recognizes the calls of the script that are training steps.

An outermost eager call is a step if a graph that it runs computes gradients, or if `GradientTape.gradient` was reached while
it ran. If only `Strategy.run` was reached, it is evaluation. Gradients computed outside any call are the steps of a loop of their own.
Where calls of step functions in several threads overlap in time, the steps are those of the thread that came first.

A call between two recorded steps that gets an iterator or a distributed dataset, or follows a batch of another iterator than
theirs, is evaluation, unless the next step takes its batch from that iterator too. Two functions that train in turn, as those of a
GAN, make one step together. So do calls that compute gradients, together with what applies an optimizer: micro-batches.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from threading import Lock, current_thread, get_ident, main_thread
from threading import enumerate as threads
from time import monotonic, perf_counter_ns
from typing import Any, ClassVar, Final, Literal
from weakref import WeakKeyDictionary, ref

from traceview.capture.steps.step_inputs import StepInputs
from traceview.capture.window.step_window import StepWindow, is_end_of_data
from traceview.graphs.calls import (
    computes_gradients,
    is_concrete,
    trace_count,
    traces,
    updates_alone,
)

Kind = Literal["function", "replicas", "keras", "eager"]
_KINDS: Final[dict[Kind, str]] = {
    "function": "tf.function",
    "replicas": "strategy.run",
    "keras": "Keras",
    "eager": "outside any function",
}


@dataclass(eq=False)
class Callee:
    """Something that may be a step: a `tf.function`, a replica function, the training of a Keras model, which `model` gives.

    `is_chosen`: whether the user names it as a step, None where none is named. `applies`: whether an optimizer of Keras was
    applied in it. `is_part`: whether something else ends the step that it begins, `is_update`: whether it ends micro-batches.
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
    eager_gradients = 0

    def __init__(self, window: StepWindow, names: Iterable[str]) -> None:
        self.window = window
        self.names = frozenset(names)
        self.began_s: float | None = None
        """When the framework first ran something, by the monotonic clock; `on_begin` is called once, then."""
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
        """The run has ended."""
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


EAGER_STEP: Final = "GradientTape"
_REPLICA_THREAD: Final = "_MirroredReplicaThread"
"""MirroredStrategy runs and traces the replicas in threads of this class, one at a time."""
_OF_KERAS: Final = {
    "multi_step_on_iterator": "evaluate",
    "one_step_on_data_distributed": "predict",
    "multi_step_on_data": "predict",
    "test_function": "evaluate",
    "predict_function": "predict",
}
"""What the functions inside Keras do for the user where they do not train."""


@dataclass(slots=True, eq=False)
class Call:
    """An outermost call that has begun. `iterator`: what was asked before it, by its `id`, where it may be evaluation."""

    callee: Callee
    count: int
    thread: int
    was_step: bool = False
    begun_ns: int = 0
    ended_ns: int = 0
    iterator: int | None = None


class EagerSteps:
    """The steps of a loop outside any function: each ends with the next request for input or tape, after an update where there are."""

    def __init__(self, window: StepWindow, count: Callable[[], bool]) -> None:
        self.is_off = False
        """Whether a step function was recognized: gradients outside of it are no steps then."""
        self._window = window
        self._count = count
        self._is_counted = self._has_gradient = self._is_complete = self.ends_by_update = False
        self._iterator: int | None = None

    def gradient_computed(self) -> None:
        """A gradient was computed that belongs to the step."""
        self._has_gradient = not self.is_off
        self._is_complete = not self.ends_by_update

    def applied(self) -> bool:
        """An optimizer was applied; whether what ended so far were micro-batches, and no steps."""
        is_known = self.is_off or self.ends_by_update
        is_first = self._window.state == "waiting" and not is_known
        if is_first and self._window.next_number:
            self._window.count_from(0)
        self.ends_by_update |= is_first
        self._is_complete = True
        return is_first

    def input_begins(self, iterator: object) -> None:
        """The loop asks an iterator for input."""
        if self._has_gradient:
            self._end_step()
        elif self._is_counted and self._iterator == id(iterator) and not self.is_off:
            self._window.abandon()
        self._iterator = id(iterator)

    def call_begins(self) -> None:
        """The loop begins to compute a gradient."""
        if self._has_gradient:
            self._end_step()
        if self._is_counted and not self.is_off:
            self._window.begin()

    def finish(self) -> None:
        """The run has ended: its last step has an unknown end."""
        if self._has_gradient and self._is_counted and self._window.state != "recording":
            self._end_step()
        self._has_gradient = False

    def _end_step(self) -> None:
        if self._is_complete:
            self._has_gradient = False
            self._is_counted = not self.is_off and self._count()
            if self._is_counted:
                self._window.end(EAGER_STEP)


class Observer(Recognizer):
    """Follows the calls of all threads."""

    nothing_called = "no tf.function was called"
    how_to_mark = "mark the steps with traceview.capture_steps(...) and session.step(number)"

    def __init__(self, window: StepWindow, names: Iterable[str]) -> None:
        super().__init__(window, names)
        self.inputs = StepInputs()
        self._between: list[Call] = []
        self.open: dict[int, Callee] = {}
        """What each thread has called, by the thread."""
        self._callees: list[Callee] = []
        self.eager = EagerSteps(window, self._count_eager_step)
        self._elsewhere: Counter[str] = Counter()
        """Calls of step functions that overlapped with a step of another thread, by name."""
        self._of_function: WeakKeyDictionary[Any, Callee] = WeakKeyDictionary()
        # Threads: the main one, and those of the last step, of the first one, of the step that runs, and the one whose calls are
        # the steps, where those of several overlap.
        self._main = self._last = main_thread().ident
        self._first: int | None = None
        self._stepping: int | None = None
        self._only: int | None = None
        self._pair: tuple[Callee, Callee] | None = None
        self._trained: deque[Callee] = deque(maxlen=3)
        self._of_replicas: Callee | None = None

    @property
    def current(self) -> Callee | None:
        """What was called and has not returned; of several threads, what began last."""
        return next(reversed([*self.open.values()]), None)

    @property
    def is_idle(self) -> bool:
        """Whether a call that begins now in this thread is an outermost eager one."""
        ident = get_ident()
        is_replica = ident != self._main and self._is_replica()
        return ident not in self.open and not is_replica and self.is_eager()

    @property
    def is_between_steps(self) -> bool:
        """Whether this thread may prepare the next step: it ran the last one, or is the main thread, and calls nothing."""
        ident = get_ident()
        return (ident in {self._last, self._main}) and ident not in self.open and self.is_eager()

    def is_eager(self) -> bool:
        """Whether TensorFlow executes here rather than building a graph."""
        context = sys.modules.get("tensorflow.python.eager.context")
        return context is None or context.executing_eagerly()

    def _open_here(self) -> Callee | None:
        """What this thread has called; a replica works for what has called `Strategy.run`."""
        ident = get_ident()
        callee = self.open.get(ident)
        if callee is None and ident != self._main and self._is_replica():
            return self._of_replicas
        return callee

    def _is_replica(self) -> bool:
        return type(current_thread()).__name__ == _REPLICA_THREAD

    def function(self, function: Any) -> Callee:
        """The callee of a `tf.function` object, and of a concrete function, which may be one of it by its name."""
        callee = self._of_function.get(function)
        if callee is None:
            named = is_concrete(function)
            name = name_of_concrete(function) if named else name_of(function)
            callee = (self._named if named else self._new)(name, "function")
            self._of_function[function] = callee
            callee.calls_function(function)
            callee.learns()
            module = getattr(getattr(function, "_python_function", None), "__module__", None)
            callee.is_of_keras |= str(module).partition(".")[0] in ("keras", "tf_keras")
        return callee

    def replica_function(self, function: Any) -> Callee:
        """The callee of a function given to `Strategy.run` outside any `tf.function`."""
        callee = self._of_replicas = self._named(name_of(function), "replicas")
        callee.has_replicas = True
        return callee

    def keras_model(self, model: Any) -> Callee:
        """The callee of the training of one Keras model."""
        callee = self._new(name_of_model(model), "keras")
        callee.is_train, callee.model = True, ref(model)
        return callee

    def _named(self, name: str, kind: Kind) -> Callee:
        same = (each for each in self._callees if (each.name, each.kind) == (name, kind))
        return next(same, None) or self._new(name, kind)

    def _new(self, name: str, kind: Kind) -> Callee:
        callee = Callee(name, kind, is_chosen=name in self.names if self.names else None)
        self._callees.append(callee)
        return callee

    def begin(self, callee: Callee, count: int, *given: object) -> Call:
        """An outermost call begins, which is `count` steps if the callee is a step function. `given`: its arguments."""
        ident, window = get_ident(), self.window
        if self.began_s is None:
            self.begin_training()
        for thread, running in list(self.open.items()) if self.open else ():
            # The same function in another thread may turn out to be a step.
            if running is callee and thread != ident and self._only is None:
                self._only = thread
        call = Call(callee, count, ident)
        callee.calls += 1
        if window.state == "waiting" and callee.is_train:
            self._find_pair(callee)
        if callee.is_part:
            self.eager.call_begins()
        if not callee.is_step and not callee.is_part:
            self._begin_other(call, given)
        elif self._may_step(ident):
            call.was_step, self._stepping = True, ident
            window.begin(count)
            if window.state == "recording":
                callee.learns()
                self._step_called()
                self.inputs.given(given)
            self.inputs.step_begins()
        self.open[ident] = callee
        return call

    def end(self, call: Call, error: BaseException | None) -> None:
        """That call has returned, or failed."""
        callee, window = call.callee, self.window
        self.open.pop(call.thread, None)
        if call.was_step:
            self._stepping = None
        # Later graphs matter where a step is recorded; to look for them takes a microsecond.
        is_unsure = not callee.is_train or window.state == "recording"
        if is_unsure and callee.learns() and (callee.is_step or callee.is_part):
            window.traced()
        if window.state == "waiting":
            if callee.is_train:
                self._trained.append(callee)
            elif callee.applies and not callee.is_update:
                callee.is_update = self._find_parts()
        if error is not None:
            if call.was_step or is_end_of_data(error):
                window.fail(callee.name, error, call.count)
        elif callee.is_step and (call.was_step or self._may_step(call.thread)):
            self.eager.is_off = True
            callee.step_count += call.count
            self._first, self._last = self._first or call.thread, call.thread
            window.end(callee.name, call.count)
        elif callee.is_step:
            self._elsewhere[callee.name] += 1
        elif callee.is_part:
            self.eager.gradient_computed()
        elif call.begun_ns:
            call.ended_ns = perf_counter_ns()
            self._between.append(call)
            # Its input was not that of a step, which has not begun.
            window.abandon()

    def _find_pair(self, callee: Callee) -> None:
        """Make one step of two functions that train in turn, or two again where one of them goes on alone."""
        trained, (first, _) = self._trained, self._pair or (None, None)
        if not trained or trained[-1] is callee:
            if first is not None:
                first.is_part, self._pair = False, None
        elif [*trained] == [trained[-1], callee, trained[-1]] and callee.is_step:
            first = trained[-1]
            if first.is_step and first.is_chosen is None:
                first.is_part, first.step_count, self._pair = True, 0, (first, callee)
                self.window.count_from(self.window.next_number - 2)

    def _find_parts(self) -> bool:
        """Something updates variables: make parts of the calls that compute gradients alone. Whether there are such calls."""
        steps = (each for each in self._callees if each.is_step and not each.applies)
        parts = [each for each in steps if each.kind in ("function", "replicas")]
        if not parts or self.names:
            return False
        for each in parts:
            each.is_part, each.step_count = True, 0
        self.window.count_from(0)
        return True

    def _begin_other(self, call: Call, given: tuple[object, ...]) -> None:
        if not self.is_between_steps:
            return
        callee = call.callee
        if self.window.state == "recording":
            has_source = self.inputs.holds_source(given)
            if has_source or self.inputs.has_other_input:
                call.iterator = None if has_source else self.inputs.last_asked
                call.begun_ns = perf_counter_ns()
        elif callee.has_replicas and not callee.is_train and callee.calls > 1:
            # It evaluates, as its first call has shown.
            self.window.abandon()

    def _step_called(self) -> None:
        calls, self._between = self._between, []
        for call in calls:
            if call.iterator is None or call.iterator != self.inputs.last_asked:
                name = call.callee.name
                shown = _OF_KERAS.get(name, name) if call.callee.is_of_keras else name
                self.window.evaluated(shown, call.begun_ns, call.ended_ns)

    def _may_step(self, ident: int) -> bool:
        if self._stepping is not None and self._stepping != ident:
            self._only = ident if ident == self._first else self._stepping
            return False
        if self._only is None or self._only == ident:
            return True
        if any(thread.ident == self._only for thread in threads()):
            return False
        self._only = None
        return True

    def function_inside(self, function: Any, *given: object) -> None:
        """A `tf.function` is called inside another call, such as a copy of one that `Strategy.run` was given, which has the graphs."""
        outer = self._open_here()
        if outer is None or outer.kind == "function" or not self.is_eager():
            return
        outer.calls_function(function)
        if outer.kind == "keras" and self.window.state == "recording":
            self.inputs.given(given)

    def replicas_reached(self) -> None:
        """`Strategy.run` is called inside a call."""
        callee = self._open_here()
        if callee is None:
            return
        self._of_replicas = callee
        callee.has_replicas = True
        ops = None if self.is_eager() else sys.modules.get("tensorflow.python.framework.ops")
        if ops is not None:
            graph, runs = ops.get_default_graph(), callee.runs_in_graph
            runs[graph] = runs.get(graph, 0) + 1

    def gradient_reached(self) -> None:
        """`GradientTape.gradient` is called."""
        callee = self._open_here()
        if callee is not None:
            # In a graph it is found when the call has returned.
            callee.is_train = callee.is_train or self.is_eager()
        elif self.is_idle:
            self.begin_training()
            if self.is_between_steps:
                self.eager_gradients += 1
                self.eager.gradient_computed()

    def optimizer_reached(self) -> None:
        """An optimizer of Keras is applied."""
        callee = self._open_here()
        if callee is not None:
            callee.applies = True
        elif self.is_between_steps:
            if self.window.state == "waiting" and self._find_parts():
                self.eager.is_off = False
                self.eager.gradient_computed()
            if self.eager.applied():
                self._named(EAGER_STEP, "eager").step_count = 0

    def tape_begins(self) -> None:
        """`GradientTape.__enter__` is called."""
        if self.is_between_steps:
            self.eager.call_begins()

    def input_begins(self, iterator: object) -> bool:
        """An iterator is asked for input; whether that may be the input of the next step."""
        if not self.is_between_steps:
            return False
        self.eager.input_begins(iterator)
        self.window.input_begins()
        self.inputs.asked(iterator, is_recorded=self.window.state == "recording")
        return True

    def _count_eager_step(self) -> bool:
        callee = self._named(EAGER_STEP, "eager")
        callee.is_train = True
        callee.calls += 1
        callee.step_count += callee.is_step
        if self.window.state == "recording":
            self._step_called()
        self.inputs.step_begins()
        return callee.is_step

    def finish(self) -> None:
        """The run has ended."""
        self.eager.finish()

    @property
    def callees(self) -> Sequence[Callee]:
        """Functions, replicas and models, and what is outside of them, in the order in which they were first called."""
        return self._callees

    def functions_of(self, name: str) -> list[Any]:
        """The traced `tf.function`s that the steps of this name call, each once."""
        named = (callee for callee in self._callees if callee.name == name)
        return list(dict.fromkeys(each for callee in named for each in callee.step_graphs()))

    def summary(self) -> list[str]:
        """What was called how often, and gradients that are no step."""
        lines, eager = super().summary(), self.eager_gradients
        if eager and not any(callee.kind == "eager" for callee in self.callees):
            lines.append(f"GradientTape.gradient outside any function × {eager}")
        return lines

    def remarks(self) -> Iterator[str]:
        """What the user should know about what counts as a step, one line each."""
        steps = self.step_functions
        if self._first not in (None, self._main):
            yield "another thread than the main one trains; its steps were counted"
        update = next((callee.name for callee in self._callees if callee.is_update), None)
        for part in (callee for callee in self._callees if callee.is_part):
            times = round(part.calls / max(sum(step.step_count for step in steps), 1))
            calls = "a call" if times < 2 else f"about {times} calls"
            end = "an update by the optimizer"
            if self._pair is not None and part is self._pair[0]:
                end = f"one of {self._pair[1].name}, which train in turn"
            elif update:
                end = f"one of {update}, which updates variables"
            yield f"a step is {calls} of {part.name} and {end}; --step-function NAME counts the calls of one of them"
        for callee in steps:
            times, runs = round(self.eager_gradients / callee.step_count), callee.runs_per_call
            if callee.kind == "eager" and self.eager.ends_by_update and times > 1:
                yield f"a step is about {times} gradients and an update by the optimizer"
            if runs > 1:
                yield f"one call of {callee.name} counts as one step, but calls strategy.run {runs} times in its graph"
        for name, count in self._elsewhere.items() if steps else ():
            yield f"the steps are those of one thread; meanwhile other threads called {name} {count} times, which is not counted"
        others = (callee for callee in self._callees if not callee.is_step)
        newest = {each: [traces(one)[-1] for one in each.step_graphs()] for each in others}
        updates = [each for each, made in newest.items() if any(map(updates_alone, made))]
        yield from micro_batches(steps, updates)
