"""Recognizes which executions of a script with JAX are training steps, and reports them to the window.

A step is what the script marks with `jax.profiler.StepTraceAnnotation`. Without marks it is a call of the compiled function
that computes gradients; of several, and where none does, of the one whose calls compute most.

Of a call only the return is seen. So a step begins where the call before returned or, while the window is open, where
the script last got results after that: what it computes, logs or saves in between belongs to the step before.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import Any, Final

from traceview.capture.jax.functions import CompiledFunction, has_backward
from traceview.capture.jax.hooks import PARALLEL, PMAP, JaxHooks, is_pmapped
from traceview.capture.record.capture import Framework, Watched
from traceview.capture.record.profiler import JaxProfiler
from traceview.capture.record.settings import Settings
from traceview.capture.sidecar.file import Sidecar, WindowListener, answers
from traceview.capture.steps.callee import Recognizer, micro_batches
from traceview.capture.steps.hooks import Place
from traceview.capture.window.step_window import StepWindow

_NO_TRAINING: Final = ("test", "eval", "valid", "predict", "infer")
"""How the names of annotations begin that mark something else."""
_FEWEST_CALLS: Final = 3
"""Before a function without gradients is taken for the step: one that prepares the training is called once."""


class JaxSteps(Recognizer, WindowListener):
    """The functions and annotations whose calls are steps. Of a call only the return is seen, so none is `current`.

    Adds devices, processes, and functions with their arguments to the sidecar.
    """

    nothing_called = "no function of jax.jit or jax.pmap was called"
    how_to_mark = "mark the steps with jax.profiler.StepTraceAnnotation('train', step_num=number)"

    def __init__(
        self, window: StepWindow, names: Iterable[str] = (), *, are_marked: bool = False
    ) -> None:
        """`are_marked`: what counts the steps is none of this."""
        super().__init__(window, names)
        self.functions: dict[str, CompiledFunction] = {}
        self.hooks = JaxHooks(self)
        self._leading: CompiledFunction | None = None
        self._are_elsewhere = self._has_marks = are_marked
        self._pmapped = CompiledFunction(PARALLEL)
        self._lock = RLock()

    # What the rest of the capture asks

    @property
    def callees(self) -> Sequence[CompiledFunction]:
        """The functions of the script that were called, and the annotations."""
        return [function for function in list(self.functions.values()) if not function.is_of_jax]

    def remarks(self) -> Iterator[str]:
        """What the user should know about what counts as a step."""
        updates = [other for other in self.callees if other.is_update and not other.is_step]
        return micro_batches(self.step_functions, updates)

    def opening(self, sidecar: Sidecar) -> None:
        """Note all that does not change."""
        jax = sys.modules["jax"]
        described = answers({
            "backend": jax.default_backend,
            "process_count": jax.process_count,
            "devices": lambda: [
                {"id": each.id, "platform": each.platform, "kind": each.device_kind}
                for each in jax.local_devices()
            ],
        })  # fmt: skip
        sidecar.add("jax", described)

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """Note the functions, which may have been compiled in the window."""
        fields = ("name", "is_step", "calls", "computes_gradients", "arguments")
        called = [each for each in self.callees if each.calls and not each.is_mark]
        functions = [{field: getattr(each, field) for field in fields} for each in called]
        sidecar.add("jax", {"functions": functions})

    # Called by the hooks

    def compiles(self, name: str, jaxpr: Any, shardings: Any) -> None:
        """A function is compiled; the call that it is compiled for returns later."""
        if name in PMAP:
            self._pmapped = CompiledFunction(name)
            self._pmapped.learn(jaxpr, shardings)
        else:
            self._function(name).compiled(jaxpr, shardings)

    def returned(self, name: str, function: Any) -> None:
        """A call has returned."""
        if name in (PARALLEL, *PMAP):
            # What `jax.pmap` has compiled is called first under no name of its own.
            self._pmapped.computes_gradients |= name == PARALLEL and has_backward(function)
            self._pmapped.calls = 1
            return
        called = self.functions.get(name)
        if called is None and is_pmapped(function):
            called = self.functions[name] = replace(self._pmapped, name=name)
        elif called is None:
            called = self._function(name)
            called.is_of_jax = _is_of_jax(function)
        if called.is_of_jax:
            return
        self.begin_training()
        window = self.window
        with self._lock:
            called.calls += 1
            if self._has_marks or not self._is_step(called):
                return
            if called.was_compiled:
                called.was_compiled = False
                window.traced()
            called.is_step = True
            called.step_count += 1
            window.end(name)
            window.begins_after()

    def mark_begins(self, name: str) -> None:
        """The script marks the beginning of a step."""
        if not self._is_mark(name):
            return
        self.begin_training()
        with self._lock:
            if not self._has_marks and self.window.state != "waiting":
                return
            if not self._has_marks:
                self._has_marks = True
                self._function(name).is_mark = True
                self.window.count_from(0)
            self.window.begin()

    def mark_ends(self, name: str, error: BaseException | None) -> None:
        """It marks its end."""
        if not self._has_marks or not self._is_mark(name):
            return
        with self._lock:
            if error is not None:
                self.window.fail(name, error)
                return
            marked = self._function(name)
            marked.is_step = True
            marked.calls += 1
            marked.step_count += 1
            self.window.end(name)

    def fetched(self) -> None:
        """The script has got results: what follows belongs to the next step."""
        if not self._has_marks:
            with self._lock:
                self.window.begins_again()

    def _function(self, name: str) -> CompiledFunction:
        return self.functions.setdefault(name, CompiledFunction(name))

    def _is_mark(self, name: str) -> bool:
        if self._are_elsewhere:
            return False
        return name in self.names if self.names else not name.lower().startswith(_NO_TRAINING)

    def _is_step(self, called: CompiledFunction) -> bool:
        """Whether the calls of this function are the steps, as far as is known by now."""
        if self.names:
            return called.name in self.names
        leading = self._leading
        if called is leading:
            return True
        if leading is not None and (self.window.state != "waiting" or not _leads(called, leading)):
            return False
        if leading is None and not called.computes_gradients and called.calls < _FEWEST_CALLS:
            return False
        if leading is not None:
            leading.is_step, leading.step_count = False, 0
        self._leading = called
        self.window.count_from(called.calls - 1)
        return True


def _leads(called: CompiledFunction, leading: CompiledFunction) -> bool:
    """Whether this function is the step, and not the one that was taken for it."""
    if called.computes_gradients is not leading.computes_gradients:
        return called.computes_gradients
    computes_more = called.calls * called.work > leading.calls * leading.work
    return called.calls >= _FEWEST_CALLS and computes_more


def _is_of_jax(function: Any) -> bool:
    """Whether this is an operation of JAX, and no function of the script."""
    module = getattr(getattr(function, "__wrapped__", None), "__module__", None)
    return str(module).partition(".")[0] in ("jax", "jaxlib")


def _watch(window: StepWindow, settings: Settings, places: Sequence[Place] | None) -> Watched:
    """Programs of JAX hold their lines. Where `places` are given, the program itself says which its steps are."""
    steps = JaxSteps(window, settings.step_functions, are_marked=places is not None)
    return steps, steps.hooks, (steps, steps.hooks)


JAX: Final = Framework(("jax", "jaxlib", "flax", "optax", "keras", "numpy"), JaxProfiler, _watch)
"""0.4.30 to 0.11, with flax, optax, or Keras 3."""
