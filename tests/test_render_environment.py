"""Is the job told in a few lines, once where hosts agree, and without what nobody knows?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.reports import bare_report, environment, full_report
from traceview.analysis.environment.result import Environment, HostEnvironment
from traceview.document.page import Page
from traceview.render.environment import add_environment, add_job
from traceview.report.model import Report

NOTHING: dict[str, Any] = dict.fromkeys(
    ("command", "versions", "strategy", "batch", "training", "precision", "variables")
)


def told(*hosts: HostEnvironment, unknown: tuple[str, ...] = (), width: int = 400) -> list[str]:
    """The lines of the job and, without their heading, those of the environment."""
    page = Page(width)
    report = full_report()
    report = replace(report, results=with_environment(report, Environment(hosts, unknown)))
    add_job(page, report)
    add_environment(page, report)
    return [line for line in page.render().splitlines() if line not in ("", "Environment")]


def with_environment(report: Report, found: Environment) -> Any:
    return replace(report.results, environment=found)


def test_one_host() -> None:
    assert told(environment()) == [
        (
            "MirroredStrategy on 2 replicas · batch 64 (32 per replica) · 1.2 M parameters · mixed_float16 · "
            "TensorFlow 2.21.0"
        ),
        (
            "train.py --name 'a b' · Keras 3.15.1, CUDA 12.5, Python 3.11.7 · NcclAllReduce in 1 pack · "
            "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5"
        ),
    ]


def test_without_a_sidecar_there_is_no_line() -> None:
    page = Page(100)
    add_job(page, bare_report())
    add_environment(page, bare_report())
    assert page.render() == ""


def test_an_empty_sidecar_claims_nothing() -> None:
    assert told(environment(**NOTHING)) == []


@pytest.mark.parametrize(
    ("groups", "first"),
    [
        (
            {"strategy": {"missing": {"class": "no strategy in the step"}}},
            "no strategy in the step",
        ),
        (
            {"strategy": {"class": "MirroredStrategy", "found_by": "memory", "replicas": 2}},
            "MirroredStrategy in the script, not seen in the step",
        ),
        ({"strategy": {"class": "MirroredStrategy", "found_by": "input"}}, "MirroredStrategy"),
        (
            {
                "strategy": {
                    "class": "CollectiveAllReduceStrategy",
                    "found_by": "input",
                    "replicas": 2,
                }
            },
            "MultiWorkerMirroredStrategy on 2 replicas",
        ),
        ({"command": {"script": ["/home/me/runs/train.py", "--lr=1"]}}, "train.py --lr=1"),
        ({"batch": {"global": 64, "missing": {"per_replica": "no"}}}, "batch 64"),
        ({"batch": {"global": 4096, "per_replica": 1024}}, "batch 4,096 (1,024 per replica)"),
        ({"training": {"parameters": 641}}, "641 parameters"),
        ({"training": {"parameters": 999_950}}, "1.0 M parameters"),
        ({"training": {"parameters": 12_345}}, "12.3 k parameters"),
        ({"training": {"parameters": 175 * 10**9}}, "175.0 G parameters"),
        (
            {"precision": {"policy": {"keras": "float32", "tf_keras": "float32"}}},
            "float32",
        ),
        (
            {"precision": {"policy": {"keras": "float32", "tf_keras": "mixed_float16"}}},
            "keras float32, tf_keras mixed_float16",
        ),
        ({"cluster": {"role": "worker", "index": 1, "sizes": {"worker": 2}}}, "worker 1 of 2"),
        ({"cluster": {"role": "chief", "index": 0}}, "chief 0"),
        ({"xla": {"auto_jit": "1"}}, "XLA compiles by itself (1)"),
        (
            {"devices": {"physical": [{"type": "GPU", "memory_growth": True}]}},
            "memory growth on",
        ),
        (
            {"links": {"gpus": [{"pcie_generation_max": 4, "pcie_width_max": 16}] * 2}},
            "PCIe 4 x16",
        ),
        (
            {
                "links": {
                    "gpus": [
                        {"pcie_generation_max": 5, "pcie_width_max": 16, "nvlinks": {"active": 18}}
                    ]
                }
            },
            "PCIe 5 x16 and 18 NVLinks",
        ),
    ],
)
def test_single_facts(groups: dict[str, Any], first: str) -> None:
    assert told(environment(**{**NOTHING, **groups})) == [first]


def test_what_hosts_agree_on_is_said_once_and_the_rest_with_their_names() -> None:
    one = environment("a", cluster={"role": "worker", "index": 0}, batch={"global": 64})
    two = environment("b", cluster={"role": "worker", "index": 1}, batch={"global": 64})
    three = environment("c", cluster={"role": "worker", "index": 2}, batch={"global": 32})
    job, details = told(one, two, three, unknown=("d",))
    assert job.count("MirroredStrategy on 2 replicas") == 1
    assert "batch 64 on a and b · batch 32 on c" in job
    assert "worker 0 on a · worker 1 on b · worker 2 on c" in details
    assert details.endswith("no sidecar of d")


def test_what_only_one_host_says_is_not_said_of_all() -> None:
    job, _ = told(environment("a"), environment("b", batch=None))
    assert "batch 64 (32 per replica) on a" in job


def test_many_different_values_are_cut() -> None:
    hosts = [environment(f"h{n}", batch={"global": n}) for n in range(1, 9)]
    job, _ = told(*hosts)
    assert "batch 1 on h1 · batch 2 on h2 · batch 3 on h3 · 5 other values on other hosts" in job


def test_long_texts_and_many_variables_are_cut() -> None:
    variables = {f"NCCL_{n}": "v" * 1000 for n in range(9)}
    host = environment(command={"script": ["x" * 1000]}, variables=variables)
    lines = told(host)
    assert max(len(fact) for line in lines for fact in line.split(" · ")) <= 60
    assert lines[-1].endswith("5 more variables")
    assert [line for line in told(host, width=40) if len(line) > 40] == []
