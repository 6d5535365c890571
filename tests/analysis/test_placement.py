"""The devices that a graph asks for are compared with those that ran work; only differences are reported."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.cuda_trace import CudaTrace
from scripts.scenarios.model import marked_steps, new_trace
from tests.sidecars import LOCAL, graph, mirrored, write_sidecar
from traceview.analysis.measures.placement import HostPlacement
from traceview.trace.sidecar.placement import local_device


def gpus(*steps_of: str, host: str = "host0") -> CudaTrace:
    """Four steps; GPU n computes in those that `steps_of[n]` names: "0123" in all."""
    trace = new_trace(host)
    for ordinal in range(len(steps_of)):
        trace.gpu(ordinal)
    for number, step in enumerate(marked_steps(trace)):
        for ordinal, numbers in enumerate(steps_of):
            if str(number) in numbers:
                step.kernel(ordinal, 2, 42)
    return trace


def compared(folder: Path, trace: CudaTrace, sidecar: dict[str, Any] | None) -> HostPlacement:
    path = trace.write(folder)
    if sidecar is not None:
        write_sidecar(path, sidecar)
    placement = traceview.analyze(folder).results.placement
    assert placement is not None
    (host,) = placement.hosts
    return host


def sidecar(*functions: dict[str, Any], **groups: Any) -> dict[str, Any]:
    return {
        "strategy": mirrored("GPU:0", "GPU:1"),
        "placement": {"functions": list(functions)},
        **groups,
    }


BOTH = graph({"GPU:0": 100, "GPU:1": 100}, {"GPU:0": (6, 6), "GPU:1": (6, 6)}, without_device=39)


def test_a_healthy_run_says_which_devices_worked_and_no_more(tmp_path: Path) -> None:
    host = compared(tmp_path, gpus("0123", "0123"), sidecar(BOTH))
    assert host.statements == ("GPU:0 and GPU:1 ran work in all 4 steps",)
    (function,) = host.functions
    assert function.graph.ops_per_device == {"GPU:0": 100, "GPU:1": 100}
    assert [
        (one.device, one.op_count, one.variable_count, one.mirrored_count, one.variable_bytes)
        for one in function.devices
    ] == [("GPU:0", 100, 6, 6, 24), ("GPU:1", 100, 6, 6, 24)]
    assert [(one.recorded, one.step_count) for one in function.devices] == [
        ("GPU:0", 4),
        ("GPU:1", 4),
    ]
    assert (host.step_count, host.missing) == (4, {})


def test_devices_that_change_are_named_with_their_steps(tmp_path: Path) -> None:
    host = compared(tmp_path, gpus("0123", "01", ""), None)
    assert [
        (one.first_step, one.last_step, one.step_count, one.devices) for one in host.active
    ] == [
        (0, 1, 2, ("GPU:0", "GPU:1")),
        (2, 3, 2, ("GPU:0",)),
    ]
    assert host.statements == (
        (
            "the devices that ran work changed once in 4 steps: steps 0 to 1 GPU:0 and GPU:1; "
            "steps 2 to 3 without GPU:1"
        ),
    )
    assert host.functions == ()
    assert host.missing["functions"].startswith("no sidecar")


def test_steps_without_any_work_are_said(tmp_path: Path) -> None:
    host = compared(tmp_path, gpus("02"), None)
    assert host.statements == (
        (
            "the devices that ran work changed 3 times in 4 steps: step 0 GPU:0; step 1 none; "
            "step 2 GPU:0; step 3 none"
        ),
    )


def test_copies_are_no_work_and_collectives_are(tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace):
        step.copy(0, "H2D", 2, 3, size=10)
        step.kernel(1, 2, 3, name="ncclDevKernel_AllReduce")
    host = compared(tmp_path, trace, None)
    assert host.statements == ("GPU:1 ran work in all 4 steps",)


def test_variables_outside_the_scope(tmp_path: Path) -> None:
    loose = graph({"GPU:0": 40, "GPU:1": 40}, {"GPU:0": (2, 0)})
    host = compared(tmp_path, gpus("0123", "0123"), sidecar(loose))
    assert host.statements[1:] == (
        (
            "2 trainable variables of train on GPU:0 are not mirrored (loose_0:0 and loose_1:0), as if created "
            "outside strategy.scope()"
        ),
    )
    assert [one.variable_count for one in host.functions[0].devices] == [2, 0]


@pytest.mark.parametrize(
    "changes",
    [
        {"class": "ParameterServerStrategyV2"},
        {"replicas": 1},
        {"replicas": None},
        {"class": None},
    ],
)
def test_variables_that_need_no_mirror(changes: dict[str, Any], tmp_path: Path) -> None:
    loose = graph({"GPU:0": 40, "GPU:1": 40}, {"GPU:0": (2, 0)})
    strategy = mirrored("GPU:0", "GPU:1") | changes
    host = compared(tmp_path, gpus("0123", "0123"), sidecar(loose, strategy=strategy))
    assert len(host.statements) == 1


def test_a_counter_on_one_device_is_no_model(tmp_path: Path) -> None:
    """Only trainable variables have to be on every replica."""
    counter = graph({"GPU:0": 40, "GPU:1": 40}, {"GPU:0": (1, 0)})
    counter["variables"]["not_mirrored"]["trainable"] = 0
    host = compared(tmp_path, gpus("0123", "0123"), sidecar(counter))
    assert len(host.statements) == 1


def test_everything_on_one_device(tmp_path: Path) -> None:
    pinned = graph({"GPU:0": 31}, {"GPU:0": (2, 2)}, without_device=8)
    host = compared(tmp_path, gpus("0123", ""), sidecar(pinned))
    assert host.statements[1:] == (
        (
            "train places 31 ops on GPU:0 and none on another device, though MirroredStrategy has 2 devices; "
            "8 ops of it may run anywhere"
        ),
    )
    assert [one.step_count for one in host.functions[0].devices] == [4, 0]


def test_everything_on_one_of_the_visible_gpus_without_a_strategy(tmp_path: Path) -> None:
    fields = {
        "devices": {"logical": ["/device:CPU:0", "/device:GPU:0", "/device:GPU:1"]},
        "placement": {"functions": [graph({}, without_device=8)]},
    }
    host = compared(tmp_path, gpus("0123", ""), fields)
    assert host.statements[1:] == (
        (
            "none of the 8 ops of train asks for a device, though 2 GPUs are visible: TensorFlow places "
            "them on the first device that can run them"
        ),
    )


def test_one_device_is_right_where_there_is_only_one(tmp_path: Path) -> None:
    """Also for one worker of several: its graph asks for its own devices."""
    strategy = mirrored("GPU:0") | {"class": "MultiWorkerMirroredStrategy", "replicas": 4}
    fields = sidecar(graph({"GPU:0": 31}, {"GPU:0": (2, 2)}), strategy=strategy)
    assert len(compared(tmp_path, gpus("0123"), fields).statements) == 1


def test_devices_of_other_workers_are_not_several_of_this_one(tmp_path: Path) -> None:
    names = [f"/job:worker/replica:0/task:{task}/device:GPU:0" for task in (0, 1)]
    fields = sidecar(
        graph({names[0]: 31}),
        strategy=mirrored() | {"replicas": 2, "devices": names},
        cluster={"role": "worker", "index": 0},
    )
    assert len(compared(tmp_path, gpus("0123"), fields).statements) == 1


def test_a_device_that_is_asked_and_never_works(tmp_path: Path) -> None:
    host = compared(tmp_path, gpus("0123", ""), sidecar(BOTH))
    assert host.statements[1:] == (
        "train places 100 ops on GPU:1, but it ran no work in any of 4 steps",
    )


def test_a_strategy_that_the_step_does_not_show(tmp_path: Path) -> None:
    fields = sidecar(BOTH, strategy=mirrored("GPU:0", "GPU:1", found_by="memory"))
    host = compared(tmp_path, gpus("0123", "0123"), fields)
    assert host.statements[1:] == (
        "the script creates a MirroredStrategy, but nothing in train shows that it is used",
    )


def test_divided_gpus_are_no_planes(tmp_path: Path) -> None:
    fields = sidecar(BOTH, devices={"physical": [{"type": "GPU", "logical_devices": 2}]})
    host = compared(tmp_path, gpus("0123"), fields)
    assert [(one.recorded, one.step_count) for one in host.functions[0].devices] == [
        (None, None),
        (None, None),
    ]
    assert len(host.statements) == 1


def test_replicas_are_the_devices_of_the_strategy_in_their_order(
    fixtures: Path, tmp_path: Path
) -> None:
    path = next((fixtures / "custom-loop-2").rglob("*.xplane.pb"))
    copied = tmp_path / path.name
    shutil.copy(path, copied)
    function = graph({"CPU:0": 90, "CPU:1": 100}, {"CPU:0": (6, 6), "CPU:1": (6, 6)})
    fields = sidecar(function, strategy=mirrored("CPU:1", "CPU:0"))
    write_sidecar(copied, fields)
    placement = traceview.analyze(tmp_path).results.placement
    assert placement is not None
    (found,) = placement.hosts[0].functions
    assert [(one.device, one.recorded) for one in found.devices] == [
        ("CPU:0", "replica:1"),
        ("CPU:1", "replica:0"),
    ]
    # A strategy that the step does not show does not say which device a replica is.
    write_sidecar(copied, {**fields, "strategy": mirrored("CPU:1", "CPU:0", found_by="memory")})
    placement = traceview.analyze(tmp_path).results.placement
    assert placement is not None
    assert {one.recorded for one in placement.hosts[0].functions[0].devices} == {None}


def test_a_device_of_the_strategy_that_is_not_seen(fixtures: Path, tmp_path: Path) -> None:
    path = next((fixtures / "custom-loop-2").rglob("*.xplane.pb"))
    copied = tmp_path / path.name
    shutil.copy(path, copied)
    function = graph({f"CPU:{n}": 100 for n in range(3)})
    write_sidecar(copied, sidecar(function, strategy=mirrored("CPU:0", "CPU:1", "CPU:2")))
    placement = traceview.analyze(tmp_path).results.placement
    assert placement is not None
    assert placement.hosts[0].statements[1:] == (
        "train places 100 ops on CPU:2, but no device of this report is known to be CPU:2",
    )


def test_without_a_graph_the_reason_is_kept(tmp_path: Path) -> None:
    fields = {"placement": {"functions": [], "missing": {"train": "it runs eagerly"}}}
    host = compared(tmp_path, gpus("0123"), fields)
    assert (host.functions, host.missing) == ((), {"train": "it runs eagerly"})


def test_what_is_not_known_of_a_graph_is_none(tmp_path: Path) -> None:
    function = {"step": "train", "missing": {"ops": "no", "variables": "no"}}
    host = compared(tmp_path, gpus("0123"), sidecar(function))
    (device,) = host.functions[0].devices
    assert (device.device, device.op_count, device.variable_count) == ("GPU:0", None, None)
    assert len(host.statements) == 1


def test_without_steps_nothing_is_said_of_them(tmp_path: Path) -> None:
    trace = new_trace()
    trace.gpu(1)
    trace.kernel(0, 10**9, 10**10)
    trace.kernel(0, 2 * 10**10, 3 * 10**10)
    host = compared(tmp_path, trace, sidecar(BOTH))
    assert (host.step_count, host.active, host.statements) == (0, (), ())
    assert {one.step_count for one in host.functions[0].devices} == {None}


def test_several_hosts_each_with_their_own(tmp_path: Path) -> None:
    task = {"role": "worker", "index": 1}
    name = "/job:worker/replica:0/task:{}/device:GPU:0"
    function = graph({name.format(0): 5, name.format(1): 100})
    first = gpus("0123").write(tmp_path)
    second = gpus("0123", host="host1").write(tmp_path)
    write_sidecar(first, sidecar(function, cluster={"role": "worker", "index": 0}))
    write_sidecar(second, sidecar(function, cluster=task))
    placement = traceview.analyze(tmp_path).results.placement
    assert placement is not None
    assert [
        [(one.device, one.op_count, one.recorded) for one in host.functions[0].devices]
        for host in placement.hosts
    ] == [
        [("GPU:0", 5, "host0/GPU:0"), ("worker:1/GPU:0", 100, None)],
        [("GPU:0", 100, "host1/GPU:0"), ("worker:0/GPU:0", 5, None)],
    ]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (f"{LOCAL}GPU:3", "GPU:3"),
        ("/device:CPU:1", "CPU:1"),
        ("/gpu:0", "GPU:0"),
        ("/job:worker/replica:0/task:2/device:GPU:0", "GPU:0"),
        ("/job:worker/task:1/device:GPU:0", "worker:1/GPU:0"),
        ("/job:chief/replica:0/task:0/device:CPU:0", "chief:0/CPU:0"),
        ("/job:ps/device:CPU:0", "ps:0/CPU:0"),
        ("somewhere", "somewhere"),
        ("/device:GPU:*", "/device:GPU:*"),
        ("", ""),
    ],
)
def test_names_of_devices(name: str, short: str) -> None:
    assert local_device(name, "worker", 2) == short
