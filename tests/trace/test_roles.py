"""Roles of hosts, groups that make their steps together, and steps that a host lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scripts.cuda_trace import PROFILE_START_NS, CudaTrace
from scripts.scenarios.model import marked_steps
from tests.sidecars import write_sidecar
from traceview.trace.model import (
    Role,
    Trace,
    missing_steps,
    missing_tasks,
    role_of,
    step_groups,
    unrecorded_tasks,
)
from traceview.trace.reading.load import load


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


def two_workers(sizes: dict[str, int]) -> dict[str, dict[str, Any] | None]:
    return {f"vm_w{i}": {"role": "worker", "index": i, "sizes": sizes} for i in range(2)}


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
    trace = run(tmp_path, two_workers({"worker": 2, "ps": 1}), vm_w1=3)
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
    trace = run(tmp_path, two_workers(sizes))
    assert list(missing_tasks(trace.hosts)) == missing
    assert list(unrecorded_tasks(trace.hosts)) == unrecorded


def test_an_evaluator_makes_steps_of_its_own(tmp_path: Path) -> None:
    trace = run(tmp_path, {"vm_w0": None, "vm_evaluator0": None}, vm_evaluator0=1)
    assert missing_steps(trace) == ((), ())
