"""Sees every execution of a function that JAX compiled, without wrapping a function of the script.

An execution passes exactly one of two places:

- The C++ dispatch of what `jax.jit` and `jax.pmap` return, whose `__call__` no Python can replace. After each call it runs
  the post hook of JAX's own state, if there is one; JAX itself has one while it looks for NaN.
- `pxla.ExecuteReplicated.__call__`: the first call, and every call of a function that the C++ dispatch does not run.

`pxla.lower_sharding_computation` is called once per compilation, and knows the function and its arguments.

The training of a model of Keras that is not compiled as one is marked here, for it executes many functions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from threading import local
from typing import Any, Final, TypeAlias
from weakref import ref

from traceview.capture.process.around import Before, Patches, around
from traceview.capture.process.imports import ImportWatch
from traceview.capture.sidecar.file import Sidecar, WindowListener

_PXLA: Final = "jax._src.interpreters.pxla"
_API: Final = "jax._src.api"
_LIBRARIES: Final = "jax._src.lib"
_CONFIG: Final = "jax._src.config"
_ARRAY: Final = "jax._src.array"
_PROFILER: Final = "jax._src.profiler"
_KERAS: Final = "keras.src.backend.jax.trainer"
_KERAS_STEP: Final = "train_step"
_WRAPPING: Final = ("jax._src.pmap", "jax._src.linear_util")
PMAP: Final = ("call_wrapped", "_fun")
"""What `jax.pmap` names all that it compiles: in 0.8, and since then."""
PARALLEL: Final = "parallel computation"
"""What `jax.pmap` named all its programs before 0.8."""
_MOST_WRAPPERS: Final = 4


_After: TypeAlias = Callable[[Any, BaseException | None], None]


class _Thread(local):
    depth = 0


class JaxHooks(WindowListener):
    """The hooks of one capture, from `install` to `remove`. `steps`: a `JaxSteps`, which learns what JAX does.

    What goes wrong in one of them ends them, and not the script. While the profile runs it also sees where the script waits for
    results: `float(loss)`, `jax.device_get`, `block_until_ready`.
    """

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
        pxla, annotation = import_module(_PXLA), import_module(_PROFILER).StepTraceAnnotation
        put(pxla.ExecuteReplicated, "__call__", self._executes, self._executed)
        put(
            pxla,
            "lower_sharding_computation",
            lambda jaxpr, _, name, shardings, *__, **___: steps.compiles(name, jaxpr, shardings),
        )
        put(annotation, "__init__", lambda own, name, **_: setattr(own, "traceview_name", name))
        put(annotation, "__enter__", lambda own: steps.mark_begins(own.traceview_name))
        put(annotation, "__exit__", lambda own, _, e, __: steps.mark_ends(own.traceview_name, e))
        self._put_post_hook()
        self._imports.install()

    def remove(self) -> None:
        """Unhook everything: from here on nothing of traceview runs in the script."""
        self._is_over = True
        self._imports.remove()
        self._fetches.undo()
        self._patches.undo()

    def opened(self, sidecar: Sidecar) -> None:
        """Tell from here on where the script waits for results."""
        array, xla = import_module(_ARRAY).ArrayImpl, import_module(_LIBRARIES).xla_client
        fetches = (
            (array, "_value"),
            (array, "block_until_ready"),
            (xla, "batched_block_until_ready"),
        )
        for owner, name in fetches:
            self._put(self._fetches, owner, name, lambda *_: True, self._fetched)

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
        """Hook a method, property or function."""
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
        """Put a post hook in front of the one that may be there.

        From 0.8 on JAX sets the hook of a thread, None or its own, in front of that of all threads, whenever it or the script
        changes where it looks for NaN; and it does so itself while it traces.
        """
        state = getattr(import_module(_API), "_post_hook_state", None)
        if state is None:
            shared = import_module(_LIBRARIES).jax_jit.global_state()
            before = shared.post_hook
            shared.post_hook = self._post_hook(before)
            self._patches.then(lambda: setattr(shared, "post_hook", before))
            return
        before = state.get_global()
        hook = self._post_hook(before)

        def keep() -> None:
            own = state.get_local()
            if own is None:
                state.set_local(hook)
            elif callable(own) and own is not hook:
                state.set_local(self._post_hook(own))

        state.set_global(hook)
        self._patches.then(lambda: state.set_global(before))
        config, name = import_module(_CONFIG), "_update_thread_local_hook"
        for flag in (config.debug_nans, config.debug_infs):
            original = getattr(flag, name)
            setattr(flag, name, self._hooked(original, lambda _: True, lambda *_: keep()))
            self._patches.then(partial(setattr, flag, name, original))
        keep()
        # Other threads keep a hook that does nothing.
        self._patches.then(lambda: state.set_local(None) if callable(state.get_local()) else None)

    def _post_hook(self, before: Callable[..., None] | None) -> Callable[..., None]:
        thread, returned = self._thread, self._steps.returned
        called = self._safely(lambda function: returned(name_of(function), function))

        def hook(function: Any, args: Any, kwargs: Any, output: Any) -> None:
            if not (self._is_over or thread.depth):
                called(function)
            if before is not None:
                before(function, args, kwargs, output)

        return hook

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
        trainer, made = module.JAXTrainer, self._made_train_function
        self._put(
            self._patches, trainer, "make_train_function", lambda model, *_, **__: model, made
        )

    def _made_train_function(self, model: Any, error: BaseException | None) -> None:
        """Mark the calls of a training function that executes compiled functions one by one."""
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
    if type(function).__name__ == "PmapFunction":
        return True
    return getattr(function, "__name__", None) in PMAP and function.__module__ in _WRAPPING


def _pmapped(function: Any) -> str | None:
    """The name of the function that `jax.pmap` has wrapped in one of its own (0.8 and newer)."""
    for _ in range(_MOST_WRAPPERS):
        function = getattr(function, "__wrapped__", None)
        cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
        for holder in (getattr(function, "__self__", None), *cells):
            if hasattr(holder, "call_wrapped"):
                return str(holder.__name__)
    return None
