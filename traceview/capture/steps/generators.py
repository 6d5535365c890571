"""Notes the sizes of the batches that a Python generator yields to a tf.data dataset.

A generator is watched where its dataset is made, or followed later: `from_generator` keeps it in a state of its own, to
which the functions of the dataset refer (tensorflow 2.15 to 2.21, `from_generator_op._from_generator`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from inspect import getclosurevars
from typing import Any, Final

from traceview.capture.process.hidden_frames import hidden

_MOST_SIZES: Final = 64


class GeneratedSizes:
    """The sizes of the last batches that one Python generator has yielded. `sizes_of`: those of the tensors of a batch."""

    def __init__(self, sizes_of: Callable[[object], set[int]]) -> None:
        self._sizes_of = sizes_of
        self._counts: Counter[int] = Counter()

    def note(self, batch: object) -> None:
        """The generator yields this."""
        if self._counts.total() < _MOST_SIZES:
            self._counts.update(self._sizes_of(batch))

    @property
    def usual(self) -> int | None:
        """The most frequent size: the last batch of an epoch may be smaller."""
        return self._counts.most_common(1)[0][0] if self._counts else None


class _Watched:
    """The batches of a generator, unchanged."""

    def __init__(self, batches: Any, sizes: GeneratedSizes) -> None:
        self.batches = iter(batches)
        self.sizes = sizes
        self._next = self.batches.__next__

    def __iter__(self) -> Iterator[Any]:
        return self

    @hidden
    def __next__(self) -> Any:
        batch = self._next()
        with suppress(Exception):
            self.sizes.note(batch)
        return batch


def watching(generator: Callable[..., Any], sizes: GeneratedSizes) -> Callable[..., Any]:
    """The same generator function, of whose batches `sizes` learns."""

    @hidden
    def generate(*arguments: Any) -> Any:
        return _Watched(generator(*arguments), sizes)

    return generate


class FollowedGenerator:
    """The generator of a dataset that was there before the capture, until `leave`."""

    def __init__(self, state: Any, sizes: GeneratedSizes) -> None:
        self.sizes = sizes
        self._state = state
        self._original = state._generator
        state._generator = self._replacement = watching(self._original, sizes)
        for number, batches in list(state._iterators.items()):
            self._exchange(number, batches, _Watched(batches, sizes))

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
            if isinstance(batches, _Watched) and batches.sizes is self.sizes:
                self._exchange(number, batches, batches.batches)

    def _exchange(self, number: int, old: Any, new: Any) -> None:
        # The pass over the generator may have ended meanwhile, in a thread of TensorFlow's.
        if self._state._iterators.get(number) is old:
            self._state._iterators[number] = new
