"""Recognizes the calls of the script that are training steps.

An outermost eager call is a step if `GradientTape.gradient` was reached while it ran or was traced. If only
`Strategy.run` was reached, it is evaluation. Other calls are counted too, so that a message that no step was recognized
can name what was called. Gradients computed outside any call are the steps of a loop of their own (`eager_steps`).

Steps are those of one thread: the one that imports TensorFlow or, if another trains before it does, that one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Lock, current_thread, get_ident
from time import monotonic
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary, ref

from traceview.capture.process.hidden_frames import hidden
from traceview.capture.steps.callee import (
    KERAS,
    Callee,
    CallsBetween,
    Kind,
    name_of,
    name_of_concrete,
)
from traceview.capture.steps.eager_steps import EAGER_STEP, EagerSteps
from traceview.capture.steps.graphs import computes_gradients
from traceview.capture.steps.step_inputs import StepInputs
from traceview.capture.steps.step_objects import StepObjects, traces
from traceview.capture.window.step_window import StepWindow

Result = TypeVar("Result")

_REPLICA_THREAD: Final = "_MirroredReplicaThread"
"""MirroredStrategy runs and traces the replicas in threads of this class, one at a time."""
_END_OF_DATA: Final = ("OutOfRangeError",)


class Observer:
    """Follows the calls of one thread and reports the steps among them to `window`.

    `names`: the step functions to count, by default all. `steps` learns which objects the steps call, `inputs` what the
    recorded ones are given.
    """

    def __init__(
        self,
        window: StepWindow,
        names: Iterable[str],
        steps: StepObjects,
        inputs: StepInputs,
    ) -> None:
        self.window = window
        self.steps = steps
        self.inputs = inputs
        self.between = CallsBetween(inputs)
        self.names = frozenset(names)
        self.thread = get_ident()
        self.current: Callee | None = None
        self.callees: list[Callee] = []
        self.eager = EagerSteps(window, self._count_eager_step)
        self.elsewhere: dict[str, int] = {}
        """Calls in other threads, by name."""
        self.elsewhere_recorded: dict[str, int] = {}
        """Those of them that ended while the window was open."""
        self.has_moved = False
        """Whether the steps are those of another thread than the one that made this observer."""
        self.began_s: float | None = None
        """When training began, by the monotonic clock."""
        self.on_begin: list[Callable[[], None]] = []
        """Called once, when training begins."""
        self._functions: dict[int, tuple[ref[Any], Callee]] = {}
        self._by_name: dict[str, Callee] = {}
        self._is_eager: Callable[[], bool] | None = None
        self._scouted: dict[int, Callee] = {}
        """What other threads run while no step was recognized, by the thread."""
        self._moving = Lock()

    @property
    def is_outermost(self) -> bool:
        """Whether a call that begins now is an outermost eager one of the watched thread."""
        if get_ident() != self.thread or self.current is not None:
            return False
        return self.is_eager()

    @property
    def is_scouting(self) -> bool:
        """Whether a call that begins now is an outermost one of another thread, which may be the one that trains."""
        ident = get_ident()
        return (
            self.window.next_number == 0
            and ident != self.thread
            and ident not in self._scouted
            and not _is_replica_thread()
            and self.is_eager()
        )

    def begin_training(self) -> None:
        """TensorFlow runs something for the first time."""
        with self._moving:
            if self.began_s is not None:
                return
            self.began_s = monotonic()
        for action in self.on_begin:
            action()

    def is_eager(self) -> bool:
        """Whether TensorFlow executes here rather than building a graph."""
        if self._is_eager is None:
            context = sys.modules.get("tensorflow.python.eager.context")
            if context is None:
                return True
            self._is_eager = context.executing_eagerly
        return self._is_eager()

    def function(self, function: Any) -> Callee:
        """The callee of a `tf.function` object."""
        known = self._functions.get(id(function))
        if known is not None and known[0]() is function:
            return known[1]
        callee = self._new(name_of(function), "function")
        self._remember(function, callee)
        self.steps.add(callee.name, function)
        module = getattr(getattr(function, "_python_function", None), "__module__", None)
        callee.is_of_keras = str(module).partition(".")[0] in KERAS
        # What was traced before is not traced again, and reaches nothing.
        callee.is_train = any(computes_gradients(concrete) for concrete in traces(function))
        return callee

    def concrete_function(self, function: Any) -> Callee:
        """The callee of a concrete function: that of the `tf.function` of which it is a trace, if that is known."""
        known = self._functions.get(id(function))
        if known is not None and known[0]() is function:
            return known[1]
        callee = self._new(name_of_concrete(function), "function")
        callee.is_train = computes_gradients(function)
        self._remember(function, callee)
        return callee

    def replica_function(self, function: Any) -> Callee:
        """The callee of a function given to `Strategy.run` outside any `tf.function`."""
        name = name_of(function)
        callee = self._by_name.get(name)
        if callee is None:
            callee = self._by_name[name] = self._new(name, "replicas")
            callee.has_replicas = True
            self.steps.add(name, function)
        return callee

    def keras_model(self, model: Any) -> Callee:
        """The callee of the training of one Keras model."""
        callee = self._new(str(getattr(model, "name", type(model).__name__)), "keras")
        callee.is_train = True
        self.steps.add(callee.name, model)
        return callee

    @hidden
    def call(
        self,
        callee: Callee,
        count: int,
        action: Callable[..., Result],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> Result:
        """Make an outermost call, which is `count` steps if the callee is a step function."""
        window = self.window
        if self.began_s is None:
            self.begin_training()
        callee.calls += 1
        called_ns = window.now_ns() if window.next_number == 0 else None
        was_step = callee.is_step
        is_between = False
        if was_step:
            window.begin(count)
            if window.state == "recording":
                self.between.end(window)
                self.inputs.given(args, kwargs)
            self.inputs.step_begins()
        elif window.state == "recording":
            is_between = self.between.begin(args, kwargs)
        elif callee.is_evaluation:
            window.abandon()
        self.current = callee
        try:
            result = action(*args, **kwargs)
        except BaseException as error:
            self.current = None
            if isinstance(error, StopIteration) or type(error).__name__ in _END_OF_DATA:
                window.abandon()
            elif was_step:
                window.fail(callee.name, error, count)
            raise
        self.current = None
        if callee.is_step:
            self.eager.stop()
            callee.step_count += count
            window.end(callee.name, count, called_ns)
        elif is_between:
            self.between.returned(callee.between_name)
            # Its input was not that of a step, which has not begun.
            window.abandon()
        return result

    @hidden
    def scout(
        self,
        callee: Callee,
        count: int,
        action: Callable[..., Result],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> Result:
        """Make an outermost call in another thread. If it is the first step of all, that thread is watched from now on."""
        if self.began_s is None:
            self.begin_training()
        ident, called_ns = get_ident(), self.window.now_ns()
        self._scouted[ident] = callee
        try:
            result = action(*args, **kwargs)
        finally:
            del self._scouted[ident]
        with self._moving:
            if callee.is_step and self.window.next_number == 0 and self.current is None:
                self.thread, self.has_moved = ident, True
                callee.calls += 1
                callee.step_count += count
                self.eager.stop()
                self.window.end(callee.name, count, called_ns)
                return result
        self._count_elsewhere(callee.name)
        return result

    @hidden
    def trace(
        self, callee: Callee, action: Callable[..., Result], /, *args: Any, **kwargs: Any
    ) -> Result:
        """Trace a function without calling it."""
        ident = get_ident()
        is_watched = ident == self.thread
        if is_watched:
            self.current = callee
        else:
            self._scouted[ident] = callee
        try:
            result = action(*args, **kwargs)
        finally:
            if is_watched:
                self.current = None
            else:
                del self._scouted[ident]
        self._remember(result, callee)
        return result

    @hidden
    def nested(
        self, function: Any, action: Callable[..., Result], /, *args: Any, **kwargs: Any
    ) -> Result:
        """Call a `tf.function` inside one that is being traced: what the inner one does, the outer one does too.

        The inner one may be traced already, and then nothing in it is reached again.
        """
        outer = self.current
        if not _is_watched(self.thread):
            return self._nested_elsewhere(function, action, *args, **kwargs)
        if outer is None:
            return action(*args, **kwargs)
        inner = self.current = self.function(function)
        try:
            return action(*args, **kwargs)
        finally:
            self.current = outer
            outer.is_train |= inner.is_train
            outer.has_replicas |= inner.has_replicas
            self.window.traced()

    def _nested_elsewhere(
        self, function: Any, action: Callable[..., Result], /, *args: Any, **kwargs: Any
    ) -> Result:
        ident = get_ident()
        outer = self._scouted.get(ident)
        if outer is None:
            self._called_elsewhere(function)
            return action(*args, **kwargs)
        inner = self._scouted[ident] = self.function(function)
        try:
            return action(*args, **kwargs)
        finally:
            self._scouted[ident] = outer
            outer.is_train |= inner.is_train
            outer.has_replicas |= inner.has_replicas

    def replicas_reached(self) -> None:
        """`Strategy.run` is called inside the current call."""
        scouted = self._scouted.get(get_ident())
        if scouted is not None:
            scouted.has_replicas = True
        elif self.current is not None and get_ident() == self.thread:
            self.current.has_replicas = True
            if not self.is_eager():
                self.window.traced()
                self._count_run(self.current.runs_in_graph)

    def _count_run(self, runs: WeakKeyDictionary[Any, int]) -> None:
        ops = sys.modules.get("tensorflow.python.framework.ops")
        if ops is not None:
            graph = ops.get_default_graph()
            runs[graph] = runs.get(graph, 0) + 1

    def gradient_reached(self) -> None:
        """`GradientTape.gradient` is called."""
        scouted = self._scouted_here()
        if scouted is not None:
            scouted.is_train = True
        elif not _is_watched(self.thread):
            if self.began_s is None and self.is_eager():
                self.begin_training()
        elif self.current is not None:
            self.current.is_train = True
            if not self.is_eager():
                self.window.traced()
        elif self.is_eager() and not _is_replica_thread():
            if self.began_s is None:
                self.begin_training()
            self.eager.gradient_computed()

    def tape_begins(self) -> None:
        """`GradientTape.__enter__` is called."""
        if self.is_outermost:
            self.eager.tape_begins()

    def input_begins(self, iterator: object) -> None:
        """The watched thread asks for input outside any call."""
        self.eager.input_begins(iterator)
        self.window.input_begins()
        self.inputs.asked(iterator, is_recorded=self.window.state == "recording")

    def _scouted_here(self) -> Callee | None:
        """What this thread scouts; a replica works for the only thread that does, while no step runs."""
        scouted = self._scouted.get(get_ident())
        if scouted is None and self._scouted and self.current is None and _is_replica_thread():
            with suppress(ValueError):
                (scouted,) = self._scouted.values()
        return scouted

    def called_inside(self, function: Any, *arguments: object) -> None:
        """A `tf.function` is called eagerly in the current call, or in a thread that is not watched.

        `Strategy.run` calls copies of those that it is given, and these have the graphs. `train_on_batch` of Keras
        hands over its batch in a generator, and so shows it only here.
        """
        current = self.current
        if not _is_watched(self.thread):
            self._called_elsewhere(function)
        elif current is not None and current.kind == "replicas":
            self.steps.add(current.name, function)
        elif current is not None and current.kind == "keras" and self.window.state == "recording":
            self.inputs.given(arguments)

    def concrete_inside(self, function: Any) -> None:
        """A concrete function is called in another call, or in a thread that is not watched."""
        current = self._scouted_here()
        if current is None and _is_watched(self.thread):
            current = self.current
        if current is None:
            self._count_elsewhere(self.concrete_function(function).name)
        elif not self.is_eager():
            current.is_train |= self.concrete_function(function).is_train

    def _called_elsewhere(self, function: Any) -> None:
        self._count_elsewhere(name_of(function))

    def _count_elsewhere(self, name: str) -> None:
        self.elsewhere[name] = self.elsewhere.get(name, 0) + 1
        if self.window.state == "recording":
            self.elsewhere_recorded[name] = self.elsewhere_recorded.get(name, 0) + 1

    @property
    def step_functions(self) -> list[Callee]:
        """The callees whose calls were counted as steps."""
        return [callee for callee in self.callees if callee.step_count]

    def summary(self) -> list[str]:
        """What was called how often, most frequent first, one line each."""
        lines = [
            f"{callee.name} ({callee.words}) × {callee.calls}"
            for callee in sorted(self.callees, key=lambda callee: -callee.calls)
            if callee.calls
        ]
        eager = self.eager.gradients
        if eager and not any(callee.kind == "eager" for callee in self.callees):
            lines.append(f"GradientTape.gradient outside any function × {eager}")
        lines += [f"{name} in other threads × {count}" for name, count in self.elsewhere.items()]
        return lines

    def _count_eager_step(self) -> bool:
        callee = self._by_name.get(EAGER_STEP)
        if callee is None:
            callee = self._by_name[EAGER_STEP] = self._new(EAGER_STEP, "eager")
            callee.is_train = True
        callee.calls += 1
        callee.step_count += callee.is_step
        if self.window.state == "recording":
            self.between.end(self.window)
        self.inputs.step_begins()
        return callee.is_step

    def _remember(self, function: Any, callee: Callee) -> None:
        key = id(function)
        with suppress(TypeError):  # what cannot be referred to weakly is looked up each time
            self._functions[key] = (ref(function, lambda _: self._functions.pop(key, None)), callee)

    def _new(self, name: str, kind: Kind) -> Callee:
        callee = Callee(name, kind)
        callee.is_named = name in self.names
        callee.is_left_out = bool(self.names)
        self.callees.append(callee)
        return callee


def _is_watched(thread: int) -> bool:
    """Whether this is the watched thread, or runs a replica for it."""
    return get_ident() == thread or _is_replica_thread()


def _is_replica_thread() -> bool:
    return type(current_thread()).__name__ == _REPLICA_THREAD
