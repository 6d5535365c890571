"""The job is described in a few facts, once where hosts agree, and without what is unknown."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.sections import lines_of, markdown_of, view_of
from tests.reports import environment
from traceview.analysis.machine.environment import (
    LONGEST_FACT,
    environment_section,
    job_details,
    job_facts,
)
from traceview.analysis.measures.environment import Environment, HostEnvironment

NOTHING: dict[str, Any] = dict.fromkeys(
    ("command", "versions", "strategy", "batch", "training", "precision", "variables")
)


def facts_of(*hosts: HostEnvironment, unknown: tuple[str, ...] = ()) -> tuple[list[str], list[str]]:
    """What a document begins with, and the details."""
    recorded = Environment(hosts, unknown)
    return job_facts(recorded), job_details(recorded)


def test_one_host() -> None:
    assert facts_of(environment()) == (
        [
            "MirroredStrategy on 2 replicas",
            "batch 64 (32 per replica)",
            "1.2 M parameters",
            "Keras policy mixed_float16",
            "TensorFlow 2.21.0",
        ],
        [
            "train.py --name 'a b'",
            "Keras 3.15.1, CUDA 12.5, Python 3.11.7",
            "gradients summed by NcclAllReduce in 1 pack",
            "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5",
        ],
    )


def test_an_empty_sidecar_claims_nothing() -> None:
    nothing = environment(**NOTHING)
    assert facts_of(nothing) == ([], [])
    assert environment_section(view_of(), Environment((nothing,), ())) is None


@pytest.mark.parametrize(
    ("groups", "fact"),
    [
        (
            {"strategy": {"missing": {"class": "no strategy in the step"}}},
            "no strategy in the step",
        ),
        (
            {"strategy": {"class": "MirroredStrategy", "found_by": "memory", "replicas": 2}},
            "MirroredStrategy in the script, not used by the step",
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
            "Keras policy float32",
        ),
        (
            {"precision": {"policy": {"keras": "float32", "tf_keras": "mixed_float16"}}},
            "keras float32, tf_keras mixed_float16",
        ),
        ({"cluster": {"role": "worker", "index": 1, "sizes": {"worker": 2}}}, "worker 1 of 2"),
        ({"cluster": {"role": "chief", "index": 0}}, "chief 0"),
        ({"xla": {"auto_jit": "1"}}, "XLA auto-clustering on (1)"),
        ({"devices": {"physical": [{"type": "GPU", "memory_growth": True}]}}, "memory growth on"),
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
def test_single_facts(groups: dict[str, Any], fact: str) -> None:
    job, details = facts_of(environment(**{**NOTHING, **groups}))
    assert [*job, *details] == [fact]


def test_what_hosts_agree_on_is_said_once_and_the_rest_with_their_names() -> None:
    first = environment("a", cluster={"role": "worker", "index": 0}, batch={"global": 64})
    second = environment("b", cluster={"role": "worker", "index": 1}, batch={"global": 64})
    third = environment("c", cluster={"role": "worker", "index": 2}, batch={"global": 32})
    job, details = facts_of(first, second, third, unknown=("d",))
    assert job[:3] == ["MirroredStrategy on 2 replicas", "batch 64 on a and b", "batch 32 on c"]
    assert details[1:4] == ["worker 0 on a", "worker 1 on b", "worker 2 on c"]
    assert details[-1] == "no sidecar of d"


def test_what_only_one_host_knows_is_not_said_of_all() -> None:
    job, _ = facts_of(environment("a"), environment("b", batch=None))
    assert "batch 64 (32 per replica) on a" in job


def test_many_different_values_are_cut() -> None:
    job, _ = facts_of(*(environment(f"h{n}", batch={"global": n}) for n in range(1, 9)))
    assert job[1:5] == [
        "batch 1 on h1",
        "batch 2 on h2",
        "batch 3 on h3",
        "5 other values on other hosts",
    ]


def test_long_texts_and_many_variables_are_cut() -> None:
    variables = {f"NCCL_{n}": "v" * 1000 for n in range(9)}
    host = environment(command={"script": ["x" * 1000]}, variables=variables)
    job, details = facts_of(host)
    assert max(map(len, [*job, *details])) <= LONGEST_FACT
    assert details[-1] == "5 more environment variables"


@pytest.mark.parametrize("width", [40, 80])
def test_the_section_prints(width: int) -> None:
    section = environment_section(view_of(), Environment((environment(),), ("b",)))
    assert section is not None
    lines = lines_of(section, width)
    assert lines[0] == "Environment"
    assert lines[1].startswith("train.py --name 'a b'")
    assert "no sidecar of b" in markdown_of(section)
