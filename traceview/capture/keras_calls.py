"""How many steps does Keras make in one call?

`steps_per_execution`, and fewer where the data of an epoch ends before. Keras 2 sets its variable to what is left.
Keras 3 tells nobody, its callbacks included, but its epoch iterator counts the batches (keras 3.15,
`EpochIterator._enumerate_iterator`). Where it does not know how many there are, a short call counts as a whole one.
"""

from __future__ import annotations

from typing import Any


class CallSizes:
    """Follows the epochs of one thread, and sizes each call when it begins."""

    def __init__(self) -> None:
        self._lacking = 0

    def call_follows(self, epoch: Any) -> None:
        """Keras 3's epoch iterator has given out the next call, and counted it as a whole one."""
        there = getattr(epoch, "_num_batches", None)
        self._lacking = max(0, epoch._steps_seen - there) if there else 0

    def take(self, model: Any) -> int:
        """Steps of the call of this model that begins now."""
        lacking, self._lacking = self._lacking, 0
        try:
            # Keras 2 keeps it in a variable, which its own tuner may change.
            whole = getattr(model, "_steps_per_execution", None) or model.steps_per_execution or 1
            return max(int(whole) - lacking, 1)
        except (AttributeError, TypeError, ValueError):
            return 1
