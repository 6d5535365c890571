"""Hooks the methods of TensorFlow and Keras through which steps can be seen, and unhooks them again.

All of them are private. Each is looked up by itself when its module is imported; one that a version lacks is named in
`missing`, and the others still work. A module is patched after its import, and never imported from here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final
from weakref import ref

from traceview.capture.process.hidden_frames import hidden
from traceview.capture.process.imports import ImportWatch
from traceview.capture.steps.observer import Observer

Wrapper = Callable[..., Any]


@dataclass(frozen=True)
class Place:
    """A method to hook. `is_optional`: other versions do the same elsewhere. `is_static`: it is a static method."""

    module: str
    class_name: str
    method: str
    is_optional: bool = False
    is_static: bool = False

    def __str__(self) -> str:
        return f"{self.module}.{self.class_name}.{self.method}"


_FUNCTION_MODULE: Final = "tensorflow.python.eager.polymorphic_function.polymorphic_function"
FUNCTION_CALL: Final = Place(_FUNCTION_MODULE, "Function", "__call__")
FUNCTION_TRACE: Final = Place(_FUNCTION_MODULE, "Function", "get_concrete_function")
CONCRETE_CALL: Final = Place(
    "tensorflow.python.eager.polymorphic_function.concrete_function", "ConcreteFunction", "__call__"
)
STRATEGY_RUN: Final = Place("tensorflow.python.distribute.distribute_lib", "StrategyBase", "run")
GRADIENT: Final = Place("tensorflow.python.eager.backprop", "GradientTape", "gradient")
TAPE: Final = Place("tensorflow.python.eager.backprop", "GradientTape", "__enter__")
SESSION_RUN: Final = Place("tensorflow.python.client.session", "BaseSession", "run", True)
SERVER: Final = Place("tensorflow.python.training.server_lib", "Server", "__init__", True)
"""A process that only serves others, such as a parameter server, calls nothing else."""
DISTRIBUTED_NEXT: Final = Place(
    "tensorflow.python.distribute.input_lib", "DistributedIteratorBase", "__next__"
)
DATASET_NEXT: Final = Place("tensorflow.python.data.ops.iterator_ops", "OwnedIterator", "__next__")
FROM_GENERATOR: Final = Place(
    "tensorflow.python.data.ops.dataset_ops", "DatasetV2", "from_generator", is_static=True
)
"""Also what Keras makes of a generator, a `PyDataset` or a `Sequence`."""
KERAS_3: Final = Place(
    "keras.src.backend.tensorflow.trainer", "TensorFlowTrainer", "make_train_function"
)
KERAS_3_EPOCH: Final = Place(
    "keras.src.backend.tensorflow.trainer", "TFEpochIterator", "__next__", is_optional=True
)
KERAS_2: Final = Place("keras.src.engine.training", "Model", "make_train_function", True)
TF_KERAS: Final = Place("tf_keras.src.engine.training", "Model", "make_train_function")

INPUT_PLACES: Final = (DISTRIBUTED_NEXT, DATASET_NEXT, FROM_GENERATOR)
KERAS_EPOCHS: Final = (KERAS_3_EPOCH,)


class CallSizes:
    """Tells how many steps a call of Keras runs, following the epochs of one thread.

    A call runs `steps_per_execution` steps, and fewer where the data of an epoch ends before. Keras 2 sets its variable
    to what is left. Keras 3 tells not even its callbacks, but its epoch iterator counts the batches (keras 3.15,
    `EpochIterator._enumerate_iterator`). Where it does not know how many there are, a short call counts as a whole one.
    """

    def __init__(self) -> None:
        self._surplus = 0

    def call_follows(self, epoch: Any) -> None:
        """Keras 3's epoch iterator has handed out the next call, and counted it as a whole one."""
        batches = getattr(epoch, "_num_batches", None)
        self._surplus = max(0, epoch._steps_seen - batches) if batches else 0

    def take(self, model: Any) -> int:
        """Steps of the call of this model that begins now."""
        surplus, self._surplus = self._surplus, 0
        try:
            # Keras 2 keeps it in a variable, which its own tuner may change; to read it once takes 15 µs.
            whole = getattr(model, "_steps_per_execution", None)
            if whole is None:
                whole = model.steps_per_execution
            return max((1 if whole is None else int(whole)) - surplus, 1)
        except (AttributeError, TypeError, ValueError):
            return 1


class Hooks:
    """The hooks of one observer, from `install` to `remove`."""

    def __init__(self, observer: Observer, places: Sequence[Place] | None = None) -> None:
        self.missing: list[str] = []
        self.call_sizes = CallSizes()
        self._observer = observer
        self._keras_models: list[tuple[ref[Any], Wrapper]] = []
        wrappers = self._wrappers()
        self._pending = {place: wrappers[place] for place in places or wrappers}
        self._patched: list[tuple[type, str, Any, Any]] = []
        self._watch = ImportWatch(self.module_names, self.patch)

    def install(self) -> None:
        """Hook every place whose module is loaded, and the others as soon as they are imported."""
        self._watch.install()

    def watch_input(self, model: Any) -> None:
        """Note what this model's training reads. A callback begins when `fit` has made all that is otherwise hooked."""
        original = getattr(model, "train_function", None)
        if original is None:
            return
        observer = self._observer

        @functools.wraps(original)
        @hidden
        def train_function(iterator: Any, *args: Any, **kwargs: Any) -> Any:
            state = observer.window.state
            if state == "recording":
                observer.inputs.given(iterator)
            elif state == "waiting":
                observer.inputs.follow(iterator)
            return original(iterator, *args, **kwargs)

        model.train_function = train_function
        self._keras_models.append((ref(model), train_function))

    def remove(self) -> None:
        """Unhook everything."""
        self._watch.remove()
        self._pending.clear()
        for owner, method, original, replacement in reversed(self._patched):
            if vars(owner).get(method) is replacement:
                setattr(owner, method, original)
        self._patched.clear()
        for model_ref, wrapper in self._keras_models:
            model = model_ref()
            if model is not None and model.train_function is wrapper:
                model.train_function = wrapper.__wrapped__
        self._keras_models.clear()

    def module_names(self) -> set[str]:
        """The modules that still have to be imported."""
        return {place.module for place in self._pending}

    def patch(self, module: ModuleType) -> None:
        """Hook the places of a module that was just imported."""
        for place in [place for place in self._pending if place.module == module.__name__]:
            wrap = self._pending.pop(place)
            owner = getattr(module, place.class_name, None)
            original = vars(owner).get(place.method) if isinstance(owner, type) else None
            if owner is None or original is None:
                if not place.is_optional:
                    self.missing.append(str(place))
                continue
            function = original.__func__ if place.is_static else original
            replacement: Any = functools.wraps(function)(hidden(wrap(function)))
            if place.is_static:
                replacement = staticmethod(replacement)
            setattr(owner, place.method, replacement)
            self._patched.append((owner, place.method, original, replacement))

    def _wrappers(self) -> dict[Place, Callable[[Wrapper], Wrapper]]:
        return {
            FUNCTION_CALL: self._function_call,
            FUNCTION_TRACE: self._function_trace,
            CONCRETE_CALL: self._concrete_call,
            STRATEGY_RUN: self._strategy_run,
            GRADIENT: self._gradient,
            TAPE: self._tape,
            SESSION_RUN: self._training_begins,
            SERVER: self._training_begins,
            DISTRIBUTED_NEXT: self._next,
            DATASET_NEXT: self._next,
            FROM_GENERATOR: self._from_generator,
            KERAS_3: self._make_train_function,
            KERAS_3_EPOCH: self._epoch_next,
            KERAS_2: self._make_train_function,
            TF_KERAS: self._make_train_function,
        }

    # The replacements. The first lines of each also run for every nested call, so they stay short.

    def _function_call(self, original: Wrapper) -> Wrapper:
        observer = self._observer

        def call(function: Any, /, *args: Any, **kwargs: Any) -> Any:
            if observer.current is not None or not observer.is_outermost:
                if not observer.is_eager():
                    return observer.nested(function, original, function, *args, **kwargs)
                if observer.is_scouting:
                    callee = observer.function(function)
                    return observer.scout(callee, 1, original, function, *args, **kwargs)
                observer.called_inside(function, args, kwargs)
                return original(function, *args, **kwargs)
            callee = observer.function(function)
            return observer.call(callee, 1, original, function, *args, **kwargs)

        return call

    def _function_trace(self, original: Wrapper) -> Wrapper:
        observer = self._observer

        def get_concrete_function(function: Any, /, *args: Any, **kwargs: Any) -> Any:
            if not observer.is_outermost and not observer.is_scouting:
                return original(function, *args, **kwargs)
            return observer.trace(observer.function(function), original, function, *args, **kwargs)

        return get_concrete_function

    def _concrete_call(self, original: Wrapper) -> Wrapper:
        observer = self._observer

        def call(function: Any, /, *args: Any, **kwargs: Any) -> Any:
            if observer.current is None and observer.is_outermost:
                callee = observer.concrete_function(function)
                return observer.call(callee, 1, original, function, *args, **kwargs)
            if observer.is_scouting:
                callee = observer.concrete_function(function)
                return observer.scout(callee, 1, original, function, *args, **kwargs)
            observer.concrete_inside(function)
            return original(function, *args, **kwargs)

        return call

    def _strategy_run(self, original: Wrapper) -> Wrapper:
        observer = self._observer

        def run(strategy: Any, /, *args: Any, **kwargs: Any) -> Any:
            if not observer.is_outermost:
                if not observer.is_scouting:
                    observer.replicas_reached()
                    return original(strategy, *args, **kwargs)
                callee = observer.replica_function(args[0] if args else kwargs.get("fn"))
                return observer.scout(callee, 1, original, strategy, *args, **kwargs)
            callee = observer.replica_function(args[0] if args else kwargs.get("fn"))
            return observer.call(callee, 1, original, strategy, *args, **kwargs)

        return run

    def _gradient(self, original: Wrapper) -> Wrapper:
        observer = self._observer

        def gradient(tape: Any, /, *args: Any, **kwargs: Any) -> Any:
            observer.gradient_reached()
            return original(tape, *args, **kwargs)

        return gradient

    def _tape(self, original: Wrapper) -> Wrapper:
        observer = self._observer

        def enter(tape: Any) -> Any:
            observer.tape_begins()
            return original(tape)

        return enter

    def _training_begins(self, original: Wrapper) -> Wrapper:
        observer = self._observer

        def method(owner: Any, /, *args: Any, **kwargs: Any) -> Any:
            if observer.began_s is None:
                observer.begin_training()
            return original(owner, *args, **kwargs)

        return method

    def _next(self, original: Wrapper) -> Wrapper:
        observer = self._observer

        def next_element(iterator: Any) -> Any:
            if not observer.is_outermost:
                return original(iterator)
            observer.input_begins(iterator)
            try:
                return original(iterator)
            except StopIteration:
                observer.window.abandon()
                raise

        return next_element

    def _from_generator(self, original: Wrapper) -> Wrapper:
        observer = self._observer

        def from_generator(generator: Any, *args: Any, **kwargs: Any) -> Any:
            if not callable(generator) or observer.window.state == "closed":
                return original(generator, *args, **kwargs)
            watched, made = observer.inputs.watched(generator)
            dataset = original(watched, *args, **kwargs)
            made(dataset)
            return dataset

        return from_generator

    def _epoch_next(self, original: Wrapper) -> Wrapper:
        observer, sizes = self._observer, self.call_sizes

        def next_call(epoch: Any) -> Any:
            call = original(epoch)
            if observer.is_outermost:
                sizes.call_follows(epoch)
                if observer.window.state == "recording":
                    observer.inputs.asked(
                        getattr(epoch, "_distributed_dataset", None), is_recorded=True
                    )
            return call

        return next_call

    def _make_train_function(self, original: Wrapper) -> Wrapper:
        def make_train_function(model: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(model, *args, **kwargs)
            original_function = model.train_function
            if original_function is None or any(
                original_function is wrapper for _, wrapper in self._keras_models
            ):
                return result
            wrapper = self._train_function(model, original_function)
            model.train_function = wrapper
            self._keras_models.append((ref(model), wrapper))
            return wrapper if result is original_function else result

        return make_train_function

    def _train_function(self, model: Any, original: Wrapper) -> Wrapper:
        observer, sizes = self._observer, self.call_sizes
        callee = observer.keras_model(model)
        # Weak: the wrapper, which the model holds, must not keep the model alive.
        model_ref = ref(model)

        @functools.wraps(original)
        @hidden
        def train_function(iterator: Any, *args: Any, **kwargs: Any) -> Any:
            if not observer.is_outermost:
                if observer.is_scouting:
                    return observer.scout(callee, 1, original, iterator, *args, **kwargs)
                return original(iterator, *args, **kwargs)
            # `train_on_batch` hands over one batch in a generator.
            count = sizes.take(model_ref()) if hasattr(iterator, "get_next") else 1
            return observer.call(callee, count, original, iterator, *args, **kwargs)

        return train_function
