from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from traceview.capture.steps.hooks import CallSizes


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (SimpleNamespace(steps_per_execution=5), 5),
        (SimpleNamespace(steps_per_execution=None), 1),
        (SimpleNamespace(_steps_per_execution=2, steps_per_execution=5), 2),
        (SimpleNamespace(steps_per_execution="auto"), 1),
        (None, 1),
    ],
)
def test_a_whole_call(model: Any, count: int) -> None:
    assert CallSizes().take(model) == count


@pytest.mark.parametrize(
    ("seen", "there", "count"), [(30, 32, 5), (35, 32, 2), (32, 32, 5), (35, None, 5), (99, 32, 1)]
)
def test_the_call_at_the_end_of_an_epoch(seen: int, there: int | None, count: int) -> None:
    sizes, model = CallSizes(), SimpleNamespace(steps_per_execution=5)
    sizes.call_follows(SimpleNamespace(_steps_seen=seen, _num_batches=there))
    assert sizes.take(model) == count
    # It is the size of that call alone.
    assert sizes.take(model) == 5
