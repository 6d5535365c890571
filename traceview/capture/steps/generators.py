"""Notes the sizes of the batches that a Python generator yields to a tf.data dataset.

`from_generator` keeps it in a state of its own, to which the functions of the dataset refer (tensorflow 2.15 to 2.21,
`from_generator_op._from_generator`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from inspect import getclosurevars
from typing import Any, Final

from traceview.capture.process.around import around

_MOST_SIZES: Final = 64


class GeneratedSizes:
    """The sizes of the last batches that one Python generator has yielded. `sizes_of`: those of the tensors of a batch."""

    def __init__(self, sizes_of: Callable[[object], set[int]]) -> None:
        self._sizes_of = sizes_of
        self._counts: Counter[int] = Counter()

    def noted(self, batch: Any) -> Any:
        """The generator yields this, which is returned."""
        if self._counts.total() < _MOST_SIZES:
            with suppress(Exception):
                self._counts.update(self._sizes_of(batch))
        return batch

    @property
    def usual(self) -> int | None:
        """The most frequent size: the last batch of an epoch may be smaller."""
        return self._counts.most_common(1)[0][0] if self._counts else None


class FollowedGenerator:
    """The generator of a dataset, until `leave`. `sizes` learns of its batches, which stay as they are."""

    def __init__(self, state: Any, sizes: GeneratedSizes) -> None:
        self.sizes = sizes
        self._state = state
        self._original = state._generator
        self._followed: list[tuple[Any, Any]] = []
        """Iterators, as TensorFlow has them now and had them before."""
        state._generator = self._replacement = around(
            self._original, lambda *_: True, lambda _, batches, error: self._of(batches, error)
        )
        for number, batches in list(state._iterators.items()):
            self._exchange(number, batches, self._of(batches, None))

    @classmethod
    def of(cls, dataset: Any, sizes: GeneratedSizes) -> FollowedGenerator | None:
        """Follow the generator of a dataset that `from_generator` made; None for any other dataset."""
        function: Any = getattr(getattr(dataset, "_map_func", None), "_func", None)
        try:
            makes_iterator = getclosurevars(function).nonlocals["get_iterator_id_fn"]
            return cls(getclosurevars(makes_iterator).nonlocals["generator_state"], sizes)
        except (AttributeError, KeyError, TypeError):
            return None

    def leave(self) -> None:
        """Let TensorFlow ask the generator itself again."""
        if self._state._generator is self._replacement:
            self._state._generator = self._original
        for number, batches in list(self._state._iterators.items()):
            for followed, original in self._followed:
                if batches is followed:
                    self._exchange(number, followed, original)
        self._followed.clear()

    def _of(self, batches: Any, error: BaseException | None) -> Any:
        """The same batches. `map` has no frame that a traceback of the generator would show."""
        if error is not None:
            return batches
        iterator = iter(batches)
        followed = map(self.sizes.noted, iterator)
        self._followed.append((followed, iterator))
        return followed

    def _exchange(self, number: int, old: Any, new: Any) -> None:
        # The pass over the generator may have ended meanwhile, in a thread of TensorFlow's.
        if self._state._iterators.get(number) is old:
            self._state._iterators[number] = new
