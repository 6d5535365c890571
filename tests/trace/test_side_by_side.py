"""Tests of what two threads make of devices: all of it, in order, with its errors, also where no thread can be started."""

from __future__ import annotations

from threading import get_ident
from types import SimpleNamespace
from typing import Any

import pytest

from traceview.trace.device import side_by_side


def trace_of(device_count: int, events_per_device: int) -> Any:
    return SimpleNamespace(
        device_columns=SimpleNamespace(count=device_count * events_per_device),
        device_list=(None,) * device_count,
    )


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
@pytest.mark.parametrize(
    "events", [side_by_side.FEWEST_PER_DEVICE - 1, side_by_side.FEWEST_PER_DEVICE]
)
def test_each_device_has_its_result_in_order(count: int, events: int) -> None:
    threads = set()

    def make(device: int) -> int:
        threads.add(get_ident())
        return device * 10

    trace = trace_of(count, events)
    made = list(side_by_side.for_devices(trace, make, range(count)))

    assert made == [0, 10, 20, 30, 40][:count]
    is_worth = events >= side_by_side.FEWEST_PER_DEVICE and count > 1
    assert (get_ident() in threads) == (count > 0)
    assert len(threads) == (2 if is_worth else min(count, 1))


@pytest.mark.parametrize("failing", [2, 3])
def test_an_error_comes_at_its_device(failing: int) -> None:
    def make(device: int) -> int:
        if device == failing:
            raise ValueError(device)
        return device

    made = side_by_side.for_devices(trace_of(5, 10**6), make, range(5))
    assert [next(made), next(made)] == [0, 1]
    with pytest.raises(ValueError, match=str(failing)):
        list(made)


def test_without_a_thread_this_one_makes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", start)
    assert list(side_by_side.for_devices(trace_of(3, 10**6), str, range(3))) == ["0", "1", "2"]
