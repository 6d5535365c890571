from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from traceview.base.errors import CaptureError
from traceview.capture.record.profiler import synchronise

TASK = "/job:worker/replica:0/task:"
DeviceNames = Sequence[str]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Callable[[DeviceNames], list[str]]:
    """A TensorFlow with these devices, itself task 1, that writes down who is waited for."""

    def make(names: DeviceNames) -> list[str]:
        done: list[str] = []

        @contextmanager
        def device(name: str) -> Iterator[None]:
            done.append(name)
            yield

        tensorflow = SimpleNamespace(
            config=SimpleNamespace(
                list_logical_devices=lambda: [SimpleNamespace(name=name) for name in names]
            ),
            constant=lambda _: SimpleNamespace(device=f"{TASK}1/device:CPU:0"),
            device=device,
            raw_ops=SimpleNamespace(SyncDevice=lambda: done.append("SyncDevice")),
            test=SimpleNamespace(
                experimental=SimpleNamespace(sync_devices=lambda: done.append("sync_devices"))
            ),
        )
        context = SimpleNamespace(
            executing_eagerly=lambda: "inside a graph" not in done,
            async_wait=lambda: done.append("async_wait"),
        )
        monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
        monkeypatch.setitem(sys.modules, "tensorflow.python.eager.context", context)
        return done

    return make


def test_in_a_cluster_only_this_tasks_devices_are_waited_for(
    log: Callable[[DeviceNames], list[str]],
) -> None:
    own = [f"{TASK}1/device:CPU:0", f"{TASK}1/device:GPU:0"]
    done = log([f"{TASK}0/device:CPU:0", *own, f"{TASK}10/device:GPU:0"])
    assert synchronise() > 0
    assert done == [own[0], "SyncDevice", own[1], "SyncDevice", "async_wait"]


@pytest.mark.parametrize(
    "names",
    [
        ["/device:CPU:0", "/device:GPU:0"],
        ["/job:localhost/replica:0/task:0/device:GPU:0"],
    ],
)
def test_elsewhere_tensorflow_waits_for_all(
    log: Callable[[DeviceNames], list[str]], names: DeviceNames
) -> None:
    done = log(names)
    synchronise()
    assert done == ["sync_devices"]


def test_inside_a_graph_nothing_can_be_waited_for(
    log: Callable[[DeviceNames], list[str]],
) -> None:
    done = log([f"{TASK}0/device:CPU:0", f"{TASK}1/device:CPU:0"])
    done.append("inside a graph")
    with pytest.raises(CaptureError, match="devices were not synchronised"):
        synchronise()
    assert done == ["inside a graph"]
