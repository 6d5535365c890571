"""Recognizes which executions of a script with JAX are training steps, and reports them to the window.

A step is what the script marks with `jax.profiler.StepTraceAnnotation`. Without marks it is a call of the compiled function
that computes gradients; of several, and where none does, of the one whose calls compute most.

Of a call only the return is seen. So a step begins where the call before returned or, while the window is open, where
the script last got results after that: what it computes, logs or saves in between belongs to the step before.

An execution passes either the C++ dispatch of what `jax.jit` and `jax.pmap` return, which runs the post hook of JAX's own state, if
there is one, after each call; or `pxla.ExecuteReplicated.__call__`: the first call, and all that the C++ dispatch does not run.
`pxla.lower_sharding_computation` is called once per compilation, and knows the name of the function and its arrays; `pjit._infer_params`,
which every call passes that the C++ dispatch does not run, knows the function itself and its static arguments. Of these the
values are compared, and the types noted.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from itertools import islice, product
from pathlib import Path
from threading import RLock, local
from time import time_ns
from typing import Any, Final, NamedTuple, TypeAlias
from weakref import ref

from traceview.capture.process.around import Before, Patches, around
from traceview.capture.process.imports import ImportWatch
from traceview.capture.sidecar.file import Sidecar, WindowListener, answers
from traceview.capture.steps.observer import Recognizer, micro_batches
from traceview.capture.window.step_window import StepWindow

_LIBRARIES: Final = "jax._src.lib"
_KERAS: Final = "keras.src.backend.jax.trainer"
_KERAS_STEP: Final = "train_step"
PMAP: Final = ("call_wrapped", "_fun")
"""What `jax.pmap` names all that it compiles: in 0.8, and since then."""
PARALLEL: Final = "parallel computation"
_After: TypeAlias = Callable[[Any, BaseException | None], None]
_MOST_CHANGES: Final = 4
"""Of one compilation: where all weights have changed, some of them show it."""
_PMAP_FILE: Final = "/jax/_src/pmap.py"
_PLAIN: Final = (bool, bytes, complex, float, frozenset, int, str, tuple, type(None))


class Compilation(NamedTuple):
    """What a function, which is defined at `source`, was compiled for.

    `arguments`: by name the abstract value and the sharding of an array, the type and the value of one that is static.
    """

    source: str
    function: ref[Any]
    arguments: Mapping[str, tuple[Any, Any]]

    @classmethod
    def begun(cls, *given: Any) -> Compilation | None:
        """With the static arguments alone, of what `_infer_params` is given (JAX 0.4.30 to 0.10); None for anything else."""
        with suppress(Exception):
            info, args, kwargs = given[-3:]
            static, named = info.static_argnames, {}
            if static:
                named = info.fun_signature.bind_partial(*args, **kwargs).arguments
            # 1 and 1.0 are equal, and not the same to JAX.
            kept = {name: (type(named[name]), named[name]) for name in static if name in named}
            function, source = getattr(info, "fun", given[0]), info.fun_sourceinfo
            if _PMAP_FILE in source:
                # All that it compiles is a function of its own around that of the script.
                function = _of_pmap(function)
                source = str(function.__code__)
            return cls(source, ref(function), kept)
        return None

    def of(self, jaxpr: Any, shardings: Any) -> Compilation:
        """The whole, for the arrays of a closed `jaxpr`, each with its sharding."""
        avals, known = jaxpr.in_avals, getattr(jaxpr.jaxpr.debug_info, "arg_names", None)
        names = known if known and len(known) == len(avals) else [None] * len(avals)
        each = shardings if isinstance(shardings, tuple | list) else [None] * len(avals)
        shown = (name or f"array {number}" for number, name in enumerate(names, 1))
        arrays = dict(zip(shown, zip(avals, each, strict=False), strict=False))
        return self._replace(arguments={**arrays, **self.arguments})

    def described(self) -> list[dict[str, Any]]:
        """The arguments as they are in the sidecar."""
        return [{"name": n, **_described(*a)} for n, a in islice(self.arguments.items(), 200)]

    def since(self, before: Compilation) -> dict[str, Any]:
        """What differs from an earlier one, as it is in the sidecar."""
        olds, news = before.arguments, self.arguments
        pairs = {name: (olds.get(name), news.get(name)) for name in {**olds, **news}}
        changes = [
            {"name": name, "old": old and _described(*old), "new": new and _described(*new)}
            for name, (old, new) in pairs.items()
            if old != new
        ][:_MOST_CHANGES]
        return {"is_new_function": before.function() is not self.function(), "changes": changes}


def _of_pmap(function: Any) -> Any:
    """The function of the script that one of `jax.pmap` calls (0.8 and newer); that one where none is found."""
    waiting = [function]
    for _ in range(16):
        each = waiting.pop(0) if waiting else function
        if hasattr(each, "call_wrapped"):
            return each.f
        waiting += [cell.cell_contents for cell in getattr(each, "__closure__", None) or ()]
    return function


def _described(kind: Any, sharding: Any) -> dict[str, Any]:
    if isinstance(kind, type):
        return {"static": kind.__name__ if kind in _PLAIN else "object"}
    # `~` is how JAX shows the type of a Python number, which adapts to that of an array.
    weak, shape = "~" * bool(getattr(kind, "weak_type", False)), getattr(kind, "shape", ())
    known: dict[str, Any] = {"type": f"{weak}{getattr(kind, 'dtype', '')}[{_sizes(shape)}]"}
    # An array that nobody has put on chosen devices has none.
    with suppress(AttributeError, ValueError):
        known |= {"devices": len(sharding.device_set), "shard": _sizes(sharding.shard_shape(shape))}
        known["sharding"] = type(sharding).__name__
        known["mesh"] = {str(axis): int(size) for axis, size in sharding.mesh.shape.items()}
    return known


def _sizes(shape: Any) -> str:
    return ",".join(map(str, shape))


class _Thread(local):
    depth = 0
    calls = 0
    call: Compilation | None = None


class JaxHooks(WindowListener):
    """The hooks of one capture, from `install` to `remove`. `steps`: a `JaxSteps`. What goes wrong in one of them ends them all."""

    def __init__(self, steps: Any) -> None:
        self.missing: list[str] = []
        self._steps = steps
        self._thread = _Thread()
        self._patches = Patches()
        self._fetches = Patches()
        self._imports = ImportWatch((_KERAS,), self._safely(self._hook_keras))
        self._is_over = False

    def install(self) -> None:
        """Hook JAX, which is imported."""
        steps, put = self._steps, partial(self._put, self._patches)
        pxla = import_module("jax._src.interpreters.pxla")
        annotation = import_module("jax._src.profiler").StepTraceAnnotation
        put(pxla.ExecuteReplicated, "__call__", self._executes, self._executed)
        put(pxla, "lower_sharding_computation", self._compiles)
        put(import_module("jax._src.pjit"), "_infer_params", self._traces, self._traced)
        put(annotation, "__init__", lambda own, name, **_: setattr(own, "traceview_name", name))
        put(annotation, "__enter__", lambda own: steps.mark_begins(own.traceview_name))
        put(annotation, "__exit__", lambda own, _, e, __: steps.mark_ends(own.traceview_name, e))
        self._put_post_hook()
        self._imports.install()

    def remove(self) -> None:
        """Unhook everything."""
        self._is_over = True
        self._imports.remove()
        self._fetches.undo()
        self._patches.undo()

    def opened(self, sidecar: Sidecar) -> None:
        """Tell from here on where the script waits for results: `float(loss)`, `jax.device_get`, `block_until_ready`."""
        array = import_module("jax._src.array").ArrayImpl
        put = partial(self._put, self._fetches)
        put(array, "_value", lambda *_: True, self._fetched)
        put(array, "block_until_ready", lambda *_: True, self._fetched)
        client = import_module(_LIBRARIES).xla_client
        put(client, "batched_block_until_ready", lambda *_: True, self._fetched)

    def finished(self) -> None:
        """Tell it no longer."""
        self._fetches.undo()

    def _safely(self, action: Callable[..., Any]) -> Callable[..., Any]:
        """What does the same, and where it fails unhooks everything: this version of JAX is not as expected."""

        def safe(*arguments: Any, **keywords: Any) -> Any:
            try:
                return action(*arguments, **keywords)
            except Exception as error:
                self.remove()
                failure = f"this version of JAX is not as expected: {error!r}"
                self._steps.window.failures.append(failure)
            return None

        return safe

    def _put(self, patches: Patches, owner: Any, name: str, before: Before, *after: _After) -> None:
        original = vars(owner).get(name, getattr(owner, name, None))
        if original is None:
            self.missing.append(f"{owner.__name__}.{name}")
        elif isinstance(original, property) and original.fget is not None:
            patches.put(owner, name, property(self._hooked(original.fget, before, *after)))
        else:
            patches.put(owner, name, self._hooked(original, before, *after))

    def _hooked(self, function: Callable[..., Any], before: Before, *after: _After) -> Any:
        """`after` gets what `before` returned, unless that is None, and the error."""
        ends = [*map(self._safely, after)]

        def seen(token: Any, result: Any, error: BaseException | None) -> Any:
            for end in ends:
                end(token, error)
            return result

        return around(function, self._safely(before), seen)

    def _put_post_hook(self) -> None:
        """Put a post hook before the one that is there; from 0.8 on JAX sets its own before all, as it traces or looks for NaN."""
        state = getattr(import_module("jax._src.api"), "_post_hook_state", None)
        if state is None:
            shared = import_module(_LIBRARIES).jax_jit.global_state()
            own = shared.post_hook
            shared.post_hook = self._post_hook([own])
            self._patches.then(lambda: setattr(shared, "post_hook", own))
            return
        before: list[Callable[..., None] | None] = [None]
        hook = self._post_hook(before)

        def keep() -> None:
            own = state.get_local()
            if state.get_global() is not hook:
                before[0] = state.get_global()
                state.set_global(hook)
            if own is None:
                state.set_local(hook)
            elif callable(own) and own is not hook:
                state.set_local(self._post_hook([own]))

        self._patches.then(lambda: state.set_global(before[0]))
        config, names = (
            import_module("jax._src.config"),
            ("_update_global_hook", "_update_thread_local_hook"),
        )
        for flag, name in product((config.debug_nans, config.debug_infs), names):
            original = getattr(flag, name)
            setattr(flag, name, self._hooked(original, lambda _: True, lambda *_: keep()))
            self._patches.then(partial(setattr, flag, name, original))
        keep()
        # Other threads keep a hook that does nothing.
        self._patches.then(lambda: state.set_local(None) if callable(state.get_local()) else None)

    def _post_hook(self, before: Sequence[Callable[..., None] | None]) -> Callable[..., None]:
        thread, returned = self._thread, self._steps.returned
        called = self._safely(lambda function: returned(name_of(function), function))

        def passes_on(function: Any, args: Any, kwargs: Any, output: Any) -> None:
            if not (self._is_over or thread.depth):
                called(function)
            if (goes_on := before[0]) is not None:
                goes_on(function, args, kwargs, output)

        return passes_on

    def _traces(self, *given: Any) -> bool:
        # Functions that are called while this one is traced are part of it.
        if not self._thread.calls:
            self._thread.call = Compilation.begun(*given)
        self._thread.calls += 1
        return True

    def _traced(self, _: bool, _error: BaseException | None) -> None:
        self._thread.calls -= 1

    def _compiles(self, jaxpr: Any, _: Any, name: str, places: Any, *__: Any, **___: Any) -> None:
        call = None
        if not self._thread.calls:
            # Compiled after it is the gradient of a call outside of any function, and while it is traced, what makes constants.
            call, self._thread.call = self._thread.call, None
        self._steps.compiles(program_name(name), jaxpr, places, call)

    def _executes(self, program: Any, *_args: Any) -> Any:
        # A callback to Python that it makes may run functions of its own.
        self._thread.depth += 1
        return program

    def _executed(self, program: Any, error: BaseException | None) -> None:
        self._thread.depth -= 1
        if error is None and not self._thread.depth:
            self._steps.returned(program_name(program.name), program)

    def _fetched(self, _: bool, _error: BaseException | None) -> None:
        if not self._thread.depth:
            self._steps.fetched()

    def _hook_keras(self, module: Any) -> None:
        makes, made = (lambda model, *_, **__: model), self._made_train_function
        self._put(self._patches, module.JAXTrainer, "make_train_function", makes, made)

    def _made_train_function(self, model: Any, error: BaseException | None) -> None:
        train = model.train_function
        is_compiled = model.jit_compile and not model.run_eagerly
        if error is not None or self._is_over or is_compiled or hasattr(train, "traceview_marks"):
            return
        steps, model_ref = self._steps, ref(model)

        def begins(*_: Any, **__: Any) -> Any:
            steps.mark_begins(_KERAS_STEP)
            return True

        def ends(_: bool, error: BaseException | None) -> None:
            if isinstance(error, StopIteration):  # the data of an epoch has ended
                steps.window.abandon()
            else:
                steps.mark_ends(_KERAS_STEP, error)

        def restore() -> None:
            trained = model_ref()
            if trained is not None and hasattr(trained.train_function, "traceview_marks"):
                trained.train_function = train

        model.train_function = self._hooked(train, begins, ends)
        model.train_function.traceview_marks = True
        self._patches.then(restore)


def name_of(function: Any) -> str:
    """The name by which JAX records the calls of a compiled function, or that of the function given to `jax.pmap`."""
    name = getattr(function, "__name__", None)
    if name is None:
        # What `lower(...).compile()` returns, and gradients that are taken outside any `jax.jit`.
        return program_name(str(function.__getstate__()["function_name"]))
    return (_pmapped(function) if is_pmapped(function) else None) or str(name)


def program_name(name: str) -> str:
    """`step` for `jit(step)`."""
    inner = name[4:-1] if name.startswith("jit(") and name.endswith(")") else name
    return inner.replace("unnamed wrapped function", "unnamed function")


def is_pmapped(function: Any) -> bool:
    """Whether a compiled function is one that `jax.pmap` returned."""
    is_named = getattr(function, "__name__", None) in PMAP
    is_of_jax = is_named and function.__module__ in ("jax._src.pmap", "jax._src.linear_util")
    return type(function).__name__ == "PmapFunction" or is_of_jax


def _pmapped(function: Any) -> str | None:
    """The name of the function that `jax.pmap` has wrapped in one of its own (0.8 and newer)."""
    for _ in range(4):
        function = getattr(function, "__wrapped__", None)
        cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
        for holder in (getattr(function, "__self__", None), *cells):
            if hasattr(holder, "call_wrapped"):
                return str(holder.__name__)
    return None


_BACKWARD: Final = "transpose"
"""The transformation by which `jax.grad` makes the backward pass; JAX names its operations `transpose(jvp(...))`."""
_OWN: Final = ("/jax/_src/", "/jax/experimental/", "/jax/numpy/", "/jaxlib/")
"""Folders of JAX itself: operations that a script calls outside any function of its own."""


@dataclass(eq=False)
class CompiledFunction:
    """A function that JAX compiled. `work`: about how many operations a call makes.

    `latest`: what each was compiled for, by where it is defined. `compilations`: those again in the window.
    """

    name: str
    calls: int = 0
    step_count: int = 0
    work: int = 0
    computes_gradients: bool = False
    is_update: bool = False
    is_of_jax: bool = False
    is_step: bool = False
    is_mark: bool = False
    was_compiled: bool = False
    latest: dict[str, Compilation] = field(default_factory=dict)
    compilations: list[dict[str, Any]] = field(default_factory=list)

    @property
    def arguments(self) -> list[dict[str, Any]]:
        """Those that it was last compiled for."""
        return [*self.latest.values()][-1].described() if self.latest else []

    @property
    def kind(self) -> str:
        """What it is in the sidecar."""
        return "annotation" if self.is_mark else "jit"

    @property
    def words(self) -> str:
        """What it is in a list of what was called."""
        if self.is_mark:
            return "marked steps"
        return "computes gradients" if self.computes_gradients else "computes no gradients"

    def compiled(
        self, jaxpr: Any, shardings: Any, call: Compilation | None, *, is_recorded: bool
    ) -> None:
        """Learn from what is compiled now."""
        self.was_compiled = True
        # Whether a computation is an operation of JAX alone; one whose place is not known is none.
        place = str(getattr(jaxpr.jaxpr.debug_info, "func_src_info", None)).rpartition(" at ")[2]
        if self.name not in PMAP and any(folder in place for folder in _OWN):
            self.is_of_jax = not self.calls
            return
        self.is_of_jax = False
        self.work, self.computes_gradients = measured(jaxpr.jaxpr)
        given, made = (sum(map(_numbers, avals)) for avals in (jaxpr.in_avals, jaxpr.out_avals))
        # What takes gradients, and returns the weights.
        self.is_update = not self.computes_gradients and 0 < given <= 2 * made
        if call is not None:
            before = self.latest.pop(call.source, None)
            now = self.latest[call.source] = call.of(jaxpr, shardings)
            if before is not None and is_recorded and self._is_again(before, now):
                again = {"t_ns": time_ns(), **now.since(before)}
                self.compilations = [*self.compilations, again][:_MOST_COMPILATIONS]

    def _is_again(self, before: Compilation, now: Compilation) -> bool:
        """Whether one compilation takes the place of another of one line: two functions that it has made, and that both live, are two.

        JAX keeps what it has compiled for `jax.pmap`, and with it the function, whose wrapper is gone.
        """
        earlier = before.function()
        if earlier is None or earlier is now.function():
            return True
        return self.name in PMAP and not any(
            isinstance(each, dict) and each.get("__wrapped__") is earlier
            for each in gc.get_referrers(earlier)
        )


def has_backward(program: Any) -> bool:
    """Whether a program of which only the compiled form is known has a backward pass."""
    modules = program.xla_executable.hlo_modules()
    return any(f"{_BACKWARD}(jvp" in module.to_string() for module in modules)


def measured(jaxpr: Any) -> tuple[int, bool]:
    """About how many operations on numbers a computation makes, one round of an open loop, and whether it has a backward pass."""
    waiting, left = [(jaxpr, 1)], 100_000
    work, has_backward = 0, False
    while waiting and left > 0:
        inner, times = waiting.pop()
        left -= len(inner.eqns)
        for equation in inner.eqns:
            parts = [part for value in equation.params.values() for part in _jaxprs(value)]
            rounds = equation.params.get("length", 1) if parts else 1
            waiting += [(part, times * rounds) for part in parts]
            work += 0 if parts else times * _operations(equation)
            # A script may name a scope like that.
            scopes = equation.source_info.name_stack.stack
            around = {(type(scope).__name__, scope.name) for scope in scopes}
            has_backward |= ("Transform", _BACKWARD) in around
    return work, has_backward


def _numbers(aval: Any) -> int:
    shape: Sequence[int] = getattr(aval, "shape", (0,))
    return math.prod(shape)


def _operations(equation: Any) -> int:
    """Of a product of matrices or a convolution those of each sum; of all else one per number."""
    made = sum(_numbers(variable.aval) for variable in equation.outvars)
    numbers = equation.params.get("dimension_numbers")
    if equation.primitive.name == "dot_general":
        shape: Sequence[int] = equation.invars[0].aval.shape
        return int(made * math.prod([shape[axis] for axis in numbers[0][0]]))
    if equation.primitive.name == "conv_general_dilated":
        kernel: Sequence[int] = equation.invars[1].aval.shape
        return int(made * math.prod(kernel) // max(kernel[numbers.rhs_spec[0]], 1))
    return made


def _jaxprs(value: Any) -> Iterator[Any]:
    parts = value if isinstance(value, tuple | list) else (value,)
    inner = (getattr(part, "jaxpr", part) for part in parts)
    return (part for part in inner if hasattr(part, "eqns"))


_NO_TRAINING: Final = ("test", "eval", "valid", "predict", "infer")
_MOST_COMPILATIONS: Final = 16
_FEWEST_CALLS: Final = 3
"""Before a function without gradients is taken for the step: one that prepares the training is called once."""


class JaxSteps(Recognizer, WindowListener):
    """The functions and annotations whose calls are steps. Adds devices, and what functions were compiled for, to the sidecar."""

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
        self._pmapped_again: dict[str, CompiledFunction] = {}
        self._lock = RLock()

    @property
    def callees(self) -> Sequence[CompiledFunction]:
        """The functions of the script that were called, and the annotations."""
        return [function for function in list(self.functions.values()) if not function.is_of_jax]

    def remarks(self) -> Iterator[str]:
        """What the user should know about what counts as a step."""
        updates = [other for other in self.callees if other.is_update and not other.is_step]
        return micro_batches(self.step_functions, updates)

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """Note the functions, which may have been compiled in the window."""
        own = (each for each in self.callees if each.calls and not each.is_mark)
        called = (*own, *self._pmapped_again.values())
        fields = ("name", "is_step", "arguments", "compilations")
        functions = [{field: getattr(each, field) for field in fields} for each in called]
        jax = import_module("jax")
        asked = {name: getattr(jax, name) for name in ("device_count", "process_count")}
        asked["device_kind"] = lambda: str(jax.devices()[0].device_kind)
        sidecar.add("jax", {"functions": functions, **answers(asked)})
        for function in list(self.functions.values()):
            function.latest.clear()  # static arguments may be large

    def compiles(self, name: str, jaxpr: Any, shardings: Any, call: Compilation | None) -> None:
        """A function is compiled; the call that it is compiled for returns later."""
        if name in PMAP:
            self._pmapped = CompiledFunction(name, latest=self._pmapped.latest)
        function = self._pmapped if name in PMAP else self._function(name)
        is_recorded = self.window.state == "recording"
        function.compiled(jaxpr, shardings, call, is_recorded=is_recorded)
        if name in PMAP and call is not None and function.compilations:
            # Made anew for each call it is never called under its own name.
            own = str(getattr(call.function(), "__name__", name))
            again = self._pmapped_again.setdefault(own, CompiledFunction(own))
            again.compilations = [*again.compilations, *function.compilations]

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
            module = getattr(getattr(function, "__wrapped__", None), "__module__", None)
            called.is_of_jax = str(module).partition(".")[0] in ("jax", "jaxlib")
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
            self._counted(called)
            window.begins_after()

    def mark_begins(self, name: str) -> None:
        """The script marks the beginning of a step."""
        if not self._is_mark(name):
            return
        self.begin_training()
        with self._lock:
            if not self._has_marks:
                if self.window.state != "waiting":
                    return
                self._has_marks = self._function(name).is_mark = True
                self.window.count_from(0)
            self.window.begin()

    def mark_ends(self, name: str, error: BaseException | None) -> None:
        """It marks its end."""
        if not self._has_marks or not self._is_mark(name):
            return
        with self._lock:
            if error is not None:
                self.window.fail(name, error)
            else:
                self._counted(self._function(name))

    def fetched(self) -> None:
        """The script has got results: what follows belongs to the next step."""
        if not self._has_marks:
            with self._lock:
                self.window.begins_again()

    def _counted(self, step: CompiledFunction) -> None:
        step.is_step = True
        step.step_count += 1
        # The calls of a mark are its steps.
        step.calls = max(step.calls, step.step_count)
        self.window.end(step.name)

    def _function(self, name: str) -> CompiledFunction:
        return self.functions.setdefault(name, CompiledFunction(name))

    def _is_mark(self, name: str) -> bool:
        is_step = name in self.names if self.names else not name.lower().startswith(_NO_TRAINING)
        return is_step and not self._are_elsewhere

    def _is_step(self, called: CompiledFunction) -> bool:
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
    if called.computes_gradients is not leading.computes_gradients:
        return called.computes_gradients
    computes_more = called.calls * called.work > leading.calls * leading.work
    return called.calls >= _FEWEST_CALLS and computes_more
