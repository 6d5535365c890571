"""Describes the calls that are in the profile: which steps they ran, and what ran between them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class RecordedCall:
    """A call in the profile: `count` steps from `number` on; `begun_ns` by the monotonic clock.

    `input_ns`: from asking for the input to the call, 0 where the call itself asks. `is_edge`: it is no requested step, or
    no step followed it in time. `is_traced`: a `tf.function` was traced in it. `error`: the class of the exception by which it
    ended.
    """

    number: int
    count: int
    function: str
    begun_ns: int
    input_ns: int
    ended_ns: int
    is_edge: bool = False
    is_traced: bool = False
    error: str | None = None

    @property
    def is_cut(self) -> bool:
        """Whether it ended by an exception."""
        return self.error is not None


@dataclass
class Evaluation:
    """What was evaluated in the profile after step `after`: calls by function, and when, by the monotonic clock."""

    after: int
    functions: dict[str, int]
    begun_ns: int
    ended_ns: int
