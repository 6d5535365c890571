"""Sections on the capture and the job: clocks, problems, overhead, and what hosts agree on."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.analysis.sections import sentences_of, view_of
from tests.reports import environment
from traceview.analysis.machine.capture import Capture, HostCapture, capture_section
from traceview.analysis.machine.environment import LONGEST_FACT, job_details, job_facts
from traceview.analysis.measures.device_report import Environment, HostEnvironment

# Hosts and the capture


NOISE: Final = (
    "What recording costs is within noise: the time from call to call of the step varies by"
)


@pytest.mark.parametrize(
    ("ratio", "spread", "sentence"),
    [
        (
            0.11,
            0.1,
            "Recorded steps are 11.0% longer than those before, which no profiler recorded.",
        ),
        (0.1, 0.1, f"{NOISE} 10.0%."),
        (-0.2, None, f"{NOISE} 20.0%."),
    ],
)
def test_overhead_is_said_where_it_exceeds_how_much_steps_vary(
    ratio: float, spread: float | None, sentence: str
) -> None:
    recorded = environment("a", overhead={"ratio": ratio, "spread_ratio": spread})
    results = {"environment": Environment((recorded,), ())}
    host = HostCapture(host="a", profile_start_ns=0, dropped_event_count=0, overhead_ratio=ratio)
    capture = Capture("ok", (), (host,))
    assert sentences_of(capture_section(view_of(results=results, is_brief=True), capture)) == [
        sentence
    ]


# The job

NOTHING: dict[str, Any] = dict.fromkeys(
    ("command", "versions", "strategy", "batch", "training", "precision", "variables")
)


def job_of(*hosts: HostEnvironment, unknown: tuple[str, ...] = ()) -> list[str]:
    recorded = Environment(hosts, unknown)
    return [*job_facts(recorded), *job_details(recorded)]


def strategy(**fields: Any) -> dict[str, Any]:
    return {"strategy": {"class": "MirroredStrategy", "found_by": "input", **fields}}


@pytest.mark.parametrize(
    ("groups", "facts"),
    [
        ({"strategy": {"missing": {"class": "no strategy"}}}, ["no strategy"]),
        (
            strategy(found_by="memory", replicas=2),
            ["MirroredStrategy in the script, not used by the step"],
        ),
        (
            strategy(replicas=2, **{"class": "CollectiveAllReduceStrategy"}),
            ["MultiWorkerMirroredStrategy on 2 replicas"],
        ),
        ({"command": {"script": ["/home/me/runs/train.py", "--lr=1"]}}, ["train.py --lr=1"]),
        ({"batch": {"global": 4096, "per_replica": 1024}}, ["batch 4,096 (1,024 per replica)"]),
        (strategy(), ["MirroredStrategy"]),
        ({"training": {"parameters": 641}}, ["641 parameters"]),
        ({"training": {"parameters": 999_400}}, ["999 k parameters"]),
        ({"training": {"parameters": 999_950}}, ["1.00 M parameters"]),
        ({"precision": {"policy": {"a": "f32", "b": "f16"}}}, ["a f32, b f16"]),
        ({"xla": {"auto_jit": "1"}}, ["XLA auto-clustering on (1)"]),
    ],
)
def test_single_facts(groups: dict[str, Any], facts: list[str]) -> None:
    assert job_of(environment(**{**NOTHING, **groups})) == facts


def test_what_hosts_agree_on_is_said_once_and_the_rest_with_their_names() -> None:
    tasks = [{"role": "worker", "index": number} for number in range(3)]
    hosts = [
        environment(name, cluster=task, batch={"global": batch})
        for name, task, batch in zip("abc", tasks, (64, 64, 32), strict=True)
    ]
    facts = job_of(*hosts, unknown=("d",))
    assert facts[:3] == ["MirroredStrategy on 2 replicas", "batch 64 on a and b", "batch 32 on c"]
    assert facts[-1] == "no sidecar of d"
    only_one = job_of(environment("a"), environment("b", batch=None))
    assert "batch 64 (32 per replica) on a" in only_one
    many = job_of(*(environment(f"h{n}", batch={"global": n}) for n in range(1, 9)))
    assert "5 other values on other hosts" in many


def test_long_texts_and_many_variables_are_cut() -> None:
    variables = {f"NCCL_{n}": "v" * 1000 for n in range(9)}
    facts = job_of(environment(command={"script": ["x" * 1000]}, variables=variables))
    assert max(map(len, facts)) <= LONGEST_FACT
    assert facts[-1] == "5 more environment variables"
