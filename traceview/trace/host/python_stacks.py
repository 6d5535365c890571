"""Reads stacks of Python: the user's line, what that calls, and what calls it (docs/method.md, "Line of Python")."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceview.base.intervals import BoolArray, Int64Array
from traceview.base.text import lazy_pattern
from traceview.trace.columns import NONE
from traceview.trace.sidecar.sidecar import PythonFrame, PythonSamples

_NEARLY_ALL: Final = 0.99
"""Of the samples of a thread: a function or line with so many is around all that it does. A choice of ours."""
_FRAMEWORKS: Final = ("tensorflow/", "keras/", "tf_keras/", "jax/", "jaxlib/")
_OF_DATA: Final = lazy_pattern(
    r"(?:tf_)?keras/src/(?:trainers/data_adapters|utils|legacy/preprocessing)/"
)
"""What Keras itself computes of data, in Python: it hands no work on (Keras 3.15)."""
_CALLBACK: Final = lazy_pattern(r"keras/src/callbacks/(?!callback(?:_list)?\.py)(\w+)\.py")
_CLASSES: Final = {
    "csv_logger": "CSVLogger",
    "reduce_lr_on_plateau": "ReduceLROnPlateau",
    "swap_ema_weights": "SwapEMAWeights",
    "tensorboard": "TensorBoard",
    "terminate_on_nan": "TerminateOnNaN",
}
"""Classes of Keras that are not called as their files; no sample names a class."""
_NOT_PUBLIC: Final = lazy_pattern(
    r"traceview/|.*/traceback_utils\.py|.* in (?:[_<]|\w*wrap)", re.DOTALL
)
"""Functions that nobody calls by name, or that a decorator made, and ours around those of the user."""
OURS: Final = "traceview"
"""What the capture itself calls below a line of the script."""
_CONNECTION: Final = "multiprocessing/connection.py"
_LOG: Final = "logging/"
_CALLER: Final = "tensorflow/python/ops/script_ops.py"
_TRAINER: Final = lazy_pattern(r"keras/src/backend/\w+/trainer\.py")
_NAMED_METHODS: Final = ("predict", "evaluate")

Place: TypeAlias = tuple[int, int]
"""The numbers of a stack and of the user's code around it."""


@lru_cache(maxsize=1024)
def _of_keras(frame: PythonFrame) -> str | None:
    """`ModelCheckpoint.on_train_batch_end` of a hook of a callback, `Model.predict` of what a loop calls; None of all else."""
    if _TRAINER.fullmatch(frame.file) and frame.function in _NAMED_METHODS:
        return f"Model.{frame.function}"
    hook = _CALLBACK.fullmatch(frame.file) if frame.function.startswith("on_") else None
    if hook is None:
        return None
    words = hook[1].split("_")
    return f"{_CLASSES.get(hook[1], ''.join(map(str.capitalize, words)))}.{frame.function}"


class Loop(Struct, frozen=True):
    """What calls what steps do. `depth`: of how many functions of the user it is the innermost. `through`: functions of the user that
    its lines call, by the line, perhaps through a library, as `np.vectorize`.
    """

    depth: int
    through: Mapping[PythonFrame, str]


def _depth(count: Mapping[Place, int], chains: Mapping[Place, Sequence[PythonFrame]]) -> int:
    """How many functions of the user are around what a loop calls: nearly all samples are in each of them."""
    least, depth = max(_NEARLY_ALL * sum(count.values()), 1), 0
    while True:
        codes, lines = Counter[str](), Counter[PythonFrame]()
        for place, chain in chains.items():
            if len(chain) > depth:
                codes[chain[depth].code] += count[place]
                lines[chain[depth]] += count[place]
        # A line that all is called from, as Keras' `fit`, is around the loop.
        if max(lines.values(), default=0) < least:
            return depth + (max(codes.values(), default=0) >= least)
        depth += 1


class PythonStacks(Struct, frozen=True, eq=False, dict=True):
    """The stacks of some samples, by number; all arrays are `[stacks]`."""

    samples: PythonSamples

    def frame(self, number: int) -> PythonFrame:
        """A frame."""
        return self.samples.frames[number]

    def frames(self, stack: int) -> list[PythonFrame]:
        """The frames of a stack up to the user's line, the innermost first."""
        return [self.frame(number) for number in self.samples.stacks[stack]]

    # A stack

    def line(self, stack: int) -> PythonFrame:
        """The line that stands for a stack; the function of Keras that it called is named, where one does the work."""
        frames = self.frames(stack)
        if self.is_user[stack]:
            own = frames[0].function if _OF_DATA.match(frames[0].file) else None
            named = own or next(filter(None, map(_of_keras, frames[-2::-1])), None)
            return replace(frames[-1], function=named) if named else frames[-1]
        return next((frame for frame in frames if frame.state != "waits"), frames[0])

    def inner(self, stack: int) -> PythonFrame:
        """The innermost frame; where that waits, the first below the user's line that does not, or that was called from there.

        A connection to another process waits for whoever asks through it.
        """
        frames = self.frames(stack)
        called = frames[:-1] if self.is_user[stack] and frames[0].state == "waits" else ()
        asks = (each for each in called if each.state != "waits" and each.file != _CONNECTION)
        return next(asks, [frames[0], *called][-1])

    def called(self, stack: int) -> PythonFrame | None:
        """What the user's line calls of a library, by its first public name, else the first; None where it runs itself, or native
        code that goes on in a module of its own, as `datetime` does in `_strptime`.
        """
        frames = self.frames(stack)[-2::-1]
        if not self.is_user[stack] or not frames:
            return None
        named = (each for each in frames if _NOT_PUBLIC.match(each.code) is None)
        called = next(named, frames[0])
        return None if called.file.startswith(("_", f"{OURS}/")) else called

    # What is around it

    def chain(self, place: Place) -> list[PythonFrame]:
        """The frames of the user, the outermost first; none where the stack reaches none.

        Of a function that calls itself, or a generator or function that is written in it, the innermost alone.
        """
        stack, around = place
        own = self.samples.stacks[stack][-1:] if self.is_user[stack] else ()
        frames = [self.frame(each) for each in (*self.samples.callers[around][::-1], *own)]
        last = [before for before, after in pairwise(frames) if before.code != after.code]
        return [*last, *frames[-1:]]

    def loop_of(self, count: Mapping[Place, int]) -> Loop:
        """The loop around these samples. `count`: how many of the thread that runs it have each place."""
        chains = {place: self.chain(place) for place in count}
        depth = _depth(count, chains)
        codes_of: dict[PythonFrame, Counter[str]] = {}
        for place, chain in chains.items():
            for line, called in pairwise(chain[max(depth - 1, 0) : depth + 1]):
                codes_of.setdefault(line, Counter())[called.code] += count[place]
        return Loop(depth, {line: of.most_common(1)[0][0] for line, of in codes_of.items()})

    def cause(self, place: Place, loop: Loop) -> str:
        """What a loop calls: a function of the user, perhaps through a library, or a library; "" where no call tells.

        What is logged has one cause, whichever functions do: the handlers of the log take the time.
        """
        if any(each.file.startswith(_LOG) for each in self.frames(place[0])):
            return _LOG
        chain = self.chain(place)
        if len(chain) > loop.depth:
            return chain[loop.depth].code
        if chain and (code := loop.through.get(chain[-1])):
            return code
        return "".join(each.file.partition("/")[0] for each in self.frames(place[0])[-2:-1])

    def called_by_loop(self, count: Mapping[Place, int], loop: Loop) -> dict[str, str]:
        """By line of the user's code what the loop mostly calls there, as `cause`. `count`: samples of the thread that runs it."""
        found: dict[str, Counter[str]] = {}
        for place, times in count.items():
            for frame in self.chain(place)[max(loop.depth - 1, 0) :]:
                found.setdefault(str(frame), Counter())[self.cause(place, loop)] += times
        return {line: called.most_common(1)[0][0] for line, called in found.items()}

    # All stacks

    def calls(self, functions: re.Pattern[str]) -> BoolArray:
        """Which are in a call of functions, by `file function`."""
        frames = [
            functions.fullmatch(f"{each.file} {each.function}") for each in self.samples.frames
        ]
        inside = [any(map(frames.__getitem__, stack)) for stack in self.samples.stacks]
        return np.array(inside, dtype=np.bool_)

    @cached_property
    def ends(self) -> Int64Array:
        """The innermost and the outermost frame of each stack, `NONE` without any, int64 `[2, stacks]`."""
        ends = [(stack[0], stack[-1]) if stack else (NONE, NONE) for stack in self.samples.stacks]
        return np.array(ends, dtype=np.int64).reshape(-1, 2).T

    def _where(self, end: int, holds: Callable[[PythonFrame], bool]) -> BoolArray:
        """For which stacks something holds of the innermost frame, `end` 0, or of the outermost, 1."""
        frames = np.array([*map(holds, self.samples.frames), False], dtype=np.bool_)
        result: BoolArray = frames[self.ends[end]]
        return result

    @cached_property
    def is_user(self) -> BoolArray:
        """Which reach code of the user."""
        return self._where(1, lambda frame: frame.is_user)

    @cached_property
    def is_asked_for(self) -> BoolArray:
        """Which TensorFlow has called, for an element of a generator or as `tf.py_function`, and reach no code of the user."""
        return ~self.is_user & self._where(1, lambda frame: frame.file == _CALLER)

    @cached_property
    def user_frame(self) -> Int64Array:
        """The frame of the user's line, `NONE` where it has none, int64."""
        return np.where(self.is_user, self.ends[1], NONE)

    @cached_property
    def is_innermost_user(self) -> BoolArray:
        """Whether the innermost frame is the user's line."""
        innermost, outermost = self.ends
        result: BoolArray = self.is_user & (innermost == outermost)
        return result

    @cached_property
    def is_of_framework(self) -> BoolArray:
        """Whether the user's line, or what no user's line calls, is in a call of the framework, which does not compute of data there itself."""
        called = [
            stack[-2 if len(stack) > 1 and is_user else -1] if stack else NONE
            for stack, is_user in zip(self.samples.stacks, self.is_user.tolist(), strict=True)
        ]
        frames = [frame.file.startswith(_FRAMEWORKS) for frame in self.samples.frames]
        result: BoolArray = np.array([*frames, False], dtype=np.bool_)[called]
        return result & ~self._where(0, lambda frame: _OF_DATA.match(frame.file) is not None)

    @cached_property
    def is_native(self) -> BoolArray:
        """Whether the innermost frame is in native code of TensorFlow."""
        return self._where(0, lambda frame: frame.state == "native")

    @cached_property
    def waits(self) -> BoolArray:
        """Whether the innermost frame waits."""
        return self._where(0, lambda frame: frame.state == "waits")
