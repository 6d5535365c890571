"""Hooks the methods of TensorFlow and Keras through which steps can be seen, each when the script has imported its module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final
from weakref import WeakSet, ref

from traceview.capture.process.around import After, Before, Patches, around
from traceview.capture.process.imports import ImportWatch
from traceview.capture.steps.observer import Call, Observer


@dataclass(frozen=True)
class Place:
    """A method to hook. `is_optional`: other versions do the same elsewhere."""

    module: str
    class_name: str
    method: str
    is_optional: bool = False

    def __str__(self) -> str:
        return f"{self.module}.{self.class_name}.{self.method}"


_EAGER: Final = "tensorflow.python.eager"
_FUNCTIONS: Final = f"{_EAGER}.polymorphic_function"
_KERAS: Final = "keras.src.backend.tensorflow.trainer"
FUNCTION_CALL: Final = Place(f"{_FUNCTIONS}.polymorphic_function", "Function", "__call__")
CONCRETE_CALL: Final = Place(f"{_FUNCTIONS}.concrete_function", "ConcreteFunction", "__call__")
STRATEGY_RUN: Final = Place("tensorflow.python.distribute.distribute_lib", "StrategyBase", "run")
GRADIENT: Final = Place(f"{_EAGER}.backprop", "GradientTape", "gradient")
TAPE: Final = Place(f"{_EAGER}.backprop", "GradientTape", "__enter__")
DISTRIBUTED_NEXT: Final = Place(
    "tensorflow.python.distribute.input_lib", "DistributedIteratorBase", "__next__"
)
DATASET_NEXT: Final = Place("tensorflow.python.data.ops.iterator_ops", "OwnedIterator", "__next__")
INPUT_PLACES: Final = (DISTRIBUTED_NEXT, DATASET_NEXT)
TRAINERS: Final = (
    Place(_KERAS, "TensorFlowTrainer", "make_train_function"),
    Place("keras.src.engine.training", "Model", "make_train_function", is_optional=True),
    Place("tf_keras.src.engine.training", "Model", "make_train_function"),
)
KERAS_EPOCH: Final = Place(_KERAS, "TFEpochIterator", "__next__", is_optional=True)
OPTIMIZERS: Final = (
    Place("keras.src.optimizers.base_optimizer", "BaseOptimizer", "apply", is_optional=True),
    Place("keras.src.optimizers.optimizer", "Optimizer", "apply_gradients", is_optional=True),
    Place("tf_keras.src.optimizers.optimizer", "Optimizer", "apply_gradients"),
)


class Hooks:
    """The hooks of one observer, from `install` to `remove`. `missing`: those that this version lacks."""

    def __init__(self, observer: Observer, places: Sequence[Place] | None = None) -> None:
        self.missing: list[str] = []
        self._observer = observer
        self._surplus = 0
        self._trained_by: WeakSet[Callable[..., Any]] = WeakSet()
        inputs = (lambda it: observer.input_begins(it) or None), self._answered
        applies = (lambda *_, **__: observer.optimizer_reached()), self._ended
        pairs: dict[Place, tuple[Before, After]] = {
            FUNCTION_CALL: (self._calls, self._ended),
            CONCRETE_CALL: (self._calls, self._ended),
            STRATEGY_RUN: (self._runs, self._ended),
            GRADIENT: (lambda *_, **__: observer.gradient_reached(), self._ended),
            TAPE: (lambda *_: observer.tape_begins(), self._ended),
            **dict.fromkeys(INPUT_PLACES, inputs),
            KERAS_EPOCH: (
                lambda it: it if observer.is_between_steps else None,
                self._epoch_answered,
            ),
            **dict.fromkeys(TRAINERS, (lambda model, *_, **__: model, self._made_train_function)),
            **dict.fromkeys(OPTIMIZERS, applies),
        }
        self._pending = {place: pairs[place] for place in places or pairs}
        self._patches = Patches()
        self._watch = ImportWatch({place.module for place in self._pending}, self._patch)

    def install(self) -> None:
        """Hook every place whose module is loaded, and the others as soon as they are imported."""
        self._watch.install()

    def remove(self) -> None:
        """Unhook everything."""
        self._watch.remove()
        self._pending.clear()
        self._patches.undo()

    def _patch(self, module: ModuleType) -> None:
        for place in [place for place in self._pending if place.module == module.__name__]:
            before, after = self._pending.pop(place)
            owner = getattr(module, place.class_name, None)
            original = vars(owner).get(place.method) if isinstance(owner, type) else None
            if original is not None:
                self._patches.put(owner, place.method, around(original, before, after))
            elif not place.is_optional:
                self.missing.append(str(place))

    # What happens before and after each. The first lines also run for every nested call, so they stay short.

    def _calls(self, function: Any, /, *args: Any, **kwargs: Any) -> Call | None:
        observer = self._observer
        if observer.is_idle:
            return observer.begin(observer.function(function), 1, args, kwargs)
        observer.function_inside(function, args, kwargs)
        return None

    def _ended(self, call: Call, result: Any, error: BaseException | None) -> Any:
        self._observer.end(call, error)
        return result

    def _runs(self, _strategy: Any, /, *args: Any, **kwargs: Any) -> Call | None:
        observer = self._observer
        if observer.is_idle:
            callee = observer.replica_function(args[0] if args else kwargs.get("fn"))
            return observer.begin(callee, 1, args, kwargs)
        observer.replicas_reached()
        return None

    def _answered(self, _: bool, result: Any, error: BaseException | None) -> Any:
        if isinstance(error, StopIteration):
            self._observer.window.abandon()
        return result

    def _epoch_answered(self, epoch: Any, result: Any, error: BaseException | None) -> Any:
        """Keras 3's epoch iterator has handed out the next call, and counted it as a whole one."""
        observer = self._observer
        if error is None:
            batches = getattr(epoch, "_num_batches", None)
            self._surplus = max(0, epoch._steps_seen - batches) if batches else 0
            if observer.window.state == "recording":
                dataset = getattr(epoch, "_distributed_dataset", None)
                observer.inputs.asked(dataset, is_recorded=True)
        return result

    def _steps_of_call(self, model: Any) -> int:
        """How many steps the call runs that begins now: `steps_per_execution`, or what is left of an epoch (keras 3.15, `EpochIterator`)."""
        surplus, self._surplus = self._surplus, 0
        try:
            whole = getattr(model, "_steps_per_execution", None)
            return max(int(model.steps_per_execution if whole is None else whole) - surplus, 1)
        except (AttributeError, TypeError, ValueError):
            return 1

    def _made_train_function(self, model: Any, result: Any, error: BaseException | None) -> Any:
        original = model.train_function
        if error is not None or original is None or original in self._trained_by:
            return result
        wrapper = self.observe(model)
        return wrapper if result is original else result

    def observe(self, model: Any) -> Any:
        """Put something around the training of a model, which is not kept alive by that, and return it."""
        observer, model_ref = self._observer, ref(model)
        callee = observer.keras_model(model)
        # Keras 2 keeps it in a variable, which takes 10 µs to read. What it has made for one step stays that, unless its tuner runs.
        is_single = hasattr(model, "_steps_per_execution") and self._steps_of_call(model) == 1
        is_single &= not getattr(model, "autotune_steps_per_execution", False)

        def before(iterator: Any, *args: Any, **kwargs: Any) -> Call | None:
            if not observer.is_idle:
                return None
            # `train_on_batch` hands over one batch in a generator.
            is_one = is_single or not hasattr(iterator, "get_next")
            count = 1 if is_one else self._steps_of_call(model_ref())
            return observer.begin(callee, count, iterator, args, kwargs)

        def restore() -> None:
            model = model_ref()
            if model is not None and model.train_function in self._trained_by:
                model.train_function = model.train_function.__wrapped__

        wrapper = model.train_function = around(model.train_function, before, self._ended)
        self._trained_by.add(wrapper)
        self._patches.then(restore)
        return wrapper
