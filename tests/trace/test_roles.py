"""Roles of hosts, groups that make their steps together, and steps that a host lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scripts.cuda_trace import PROFILE_START_NS, CudaTrace
from scripts.scenarios.model import marked_steps
from tests.sidecars import write_sidecar
from traceview.trace.model import NONE, Trace
from traceview.trace.reading.load import load
from traceview.trace.strategy.roles import (
    Role,
    machine_of,
    missing_steps,
    missing_tasks,
    part_in_training,
    role_of,
    step_groups,
    unrecorded_tasks,
)
from traceview.trace.windows import step_numbers_at


def run(folder: Path, hosts: dict[str, dict[str, Any] | None], **counts: int) -> Trace:
    """A host per name, with the group `cluster` of its sidecar, and four steps unless `counts` says."""
    for host, cluster in hosts.items():
        trace = CudaTrace(host, start_ns=PROFILE_START_NS)
        for step in marked_steps(trace, count=counts.get(host, 4)):
            step.kernel(0, 2, 42)
        path = trace.write(folder)
        if cluster is not None:
            write_sidecar(path, {"cluster": cluster})
    return load(folder)


@pytest.mark.parametrize(
    ("host", "cluster", "role"),
    [
        ("vm", {"role": "worker", "index": 3}, "worker 3"),
        ("vm_w1", {"role": "chief", "index": 0}, "chief 0"),
        ("vm_w1", None, "worker 1"),
        ("vm_ps0", None, "ps 0"),
        ("vm_chief0", {}, "chief 0"),
        ("vm_r3", None, "rank 3"),
        ("vm_r3_p2", None, "rank 3"),
        ("vm_r3", {"role": "rank", "index": 3}, "rank 3"),
        ("vm_p2", None, None),
        ("vm-1", None, None),
        ("gpu_w", None, None),
        ("w3", None, None),
    ],
)
def test_role(host: str, cluster: dict[str, Any] | None, role: str | None, tmp_path: Path) -> None:
    found = role_of(run(tmp_path, {host: cluster}).hosts[0])
    assert (None if found is None else str(found)) == role


@pytest.mark.parametrize(
    ("host", "machine"),
    [
        ("vm_w1", "vm"),
        ("vm_w1_ps0", "vm_w1"),
        ("gpu_worker12", "gpu"),
        ("vm_1", "vm_1"),
        ("vm_p2", "vm"),
        ("vm_r3_p2", "vm"),
    ],
)
def test_machine(host: str, machine: str, tmp_path: Path) -> None:
    assert machine_of(run(tmp_path, {host: None}).hosts[0]) == machine


@pytest.mark.parametrize(
    ("host", "part"),
    [
        ("vm", "worker"),
        ("vm_w1", "worker"),
        ("vm_chief0", "worker"),
        ("vm_ps0", "ps"),
        ("vm_evaluator0", "evaluator"),
    ],
)
def test_part_in_training(host: str, part: str, tmp_path: Path) -> None:
    assert part_in_training(run(tmp_path, {host: None}).hosts[0]) == part


@pytest.mark.parametrize(
    ("names", "groups"),
    [
        (("a", "b"), ((0, 1),)),
        (("vm_chief0", "vm_w0", "vm_w1"), ((0, 1, 2),)),
        (("vm_evaluator0", "vm_w0", "vm_w1"), ((1, 2), (0,))),
        (("vm_ps0", "vm_w0", "vm_w1"), ((0,), (1,), (2,))),
        (("vm_evaluator0",), ((0,),)),
    ],
)
def test_who_makes_steps_together(
    names: tuple[str, ...], groups: tuple[tuple[int, ...], ...], tmp_path: Path
) -> None:
    assert step_groups(run(tmp_path, dict.fromkeys(names)).hosts) == groups


def test_a_size_of_the_cluster_tells_of_servers_that_were_not_recorded(tmp_path: Path) -> None:
    sizes = {"worker": 2, "ps": 1}
    hosts: dict[str, dict[str, Any] | None] = {
        f"vm_w{i}": {"role": "worker", "index": i, "sizes": sizes} for i in range(2)
    }
    trace = run(tmp_path, hosts, vm_w1=3)
    assert step_groups(trace.hosts) == ((0,), (1,))
    assert missing_steps(trace) == ((), ())


@pytest.mark.parametrize(
    ("sizes", "missing", "unrecorded"),
    [
        ({"worker": 3}, [Role("worker", 2)], [Role("worker", 2)]),
        ({"worker": 2, "ps": 1}, [], [Role("ps", 0)]),
        ({"worker": 2, "evaluator": 1}, [], [Role("evaluator", 0)]),
        ({"worker": 2}, [], []),
    ],
)
def test_who_was_not_recorded(
    sizes: dict[str, int], missing: list[Role], unrecorded: list[Role], tmp_path: Path
) -> None:
    hosts: dict[str, dict[str, Any] | None] = {
        f"vm_w{i}": {"role": "worker", "index": i, "sizes": sizes} for i in range(2)
    }
    trace = run(tmp_path, hosts)
    assert list(missing_tasks(trace.hosts)) == missing
    assert list(unrecorded_tasks(trace.hosts)) == unrecorded


def test_missing_steps_are_those_of_the_others(tmp_path: Path) -> None:
    assert missing_steps(run(tmp_path, {"a": None, "b": None, "c": None}, b=2, c=3)) == (
        (),
        (2, 3),
        (3,),
    )


def test_an_evaluator_makes_steps_of_its_own(tmp_path: Path) -> None:
    trace = run(tmp_path, {"vm_w0": None, "vm_evaluator0": None}, vm_evaluator0=1)
    assert missing_steps(trace) == ((), ())


def test_the_step_of_an_instant_is_that_of_its_host(tmp_path: Path) -> None:
    trace = run(tmp_path, {"a": None, "b": None}, b=2)
    first, last = (trace.steps_by_host[0].steps[place] for place in (0, -1))
    times = [first.start_ps - 1, first.start_ps, first.end_ps, last.end_ps - 1, last.end_ps]
    host = np.repeat([0, 1], len(times))
    number, in_step = step_numbers_at(trace.steps_by_host, host, np.array(times * 2))
    # The second host ends after two steps.
    assert number.tolist() == [NONE, 0, 1, 3, NONE, NONE, 0, 1, NONE, NONE]
    assert in_step.tolist() == (number != NONE).tolist()
