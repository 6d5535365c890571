"""Reads from TF_CONFIG or a launcher which process of which cluster this is, and warns of a crash at the end of its profile.

TF_CONFIG (`tf.distribute.cluster_resolver.TFConfigClusterResolver`) has lists of addresses by role, the same in all processes,
and the role and index of the process that reads it. What a launcher starts may just as well be independent trainings, which
share a run only where `--run` names it.

A worker among several can crash when its profile stops: `TraceMeRecorder::Consume` frees what an activity that ends in another
thread than it began in, such as `CollectiveExecutor::CompleteParams`, has left in a `std::vector` that has grown since
(TensorFlow 2.19 to 2.21 for Linux). With jemalloc the freed memory still holds what it did.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_EVALUATOR: Final = "evaluator"
"""Evaluates checkpoints by itself, at steps of its own."""
_SERVER: Final = "ps"
"""Where there are parameter servers, only the chief runs steps; workers do what it sends them."""
_SHORT: Final = {"worker": "w", "rank": "r", "process": "p"}
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9]")
_LONGEST_ROLE: Final = 40
"""Of the name of a file, which may have 255 bytes with the name of the host; real roles have ten letters at most."""
STOP_RISK: Final = (
    "TensorFlow can crash a worker when its profile ends (seen with 2.19 to 2.21, see docs/capture.md): save a "
    "checkpoint before the window, or preload jemalloc"
)


@dataclass(frozen=True)
class Task:
    """One process of a cluster."""

    role: str
    index: int

    def __str__(self) -> str:
        return f"{self.role} {self.index}"

    @property
    def label(self) -> str:
        """Distinguishes its files from those of the other tasks: `w1` for worker 1, `r1` for rank 1, `chief0`."""
        role = _SHORT.get(self.role) or _NOT_IN_NAMES.sub("-", self.role[:_LONGEST_ROLE])
        return f"{role}{self.index}"


@dataclass(frozen=True)
class Place:
    """The place of this process. `cluster`: all addresses, as a text that is the same in every process.

    `partners`: the tasks that run the same steps at the same time, this one among them; empty if it is alone. `sizes`: the
    number of tasks of each role, where they belong together.
    """

    task: Task
    cluster: str
    partners: tuple[Task, ...]
    sizes: Mapping[str, int]

    def as_json(self) -> dict[str, Any]:
        """The group `cluster` of the sidecar, without addresses."""
        sizes = {"sizes": self.sizes} if self.sizes else {}
        return {"role": self.task.role, "index": self.task.index, **sizes}


def place_of(environment: Mapping[str, str]) -> Place | None:
    """The place that TF_CONFIG gives; None where it is not set, names one process alone, or is invalid."""
    try:
        config = json.loads(environment.get("TF_CONFIG", ""))
        cluster, task = config["cluster"], config["task"]
        own = Task(str(task["type"]), int(task["index"]))
        # A cluster that leaves tasks out is an object, with the index as key.
        indices = {
            str(role): [
                *map(int, addresses if isinstance(addresses, dict) else range(len(addresses)))
            ]
            for role, addresses in sorted(cluster.items())
        }
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None
    tasks = [Task(role, index) for role, numbers in indices.items() for index in numbers]
    if own.index < 0 or not {own, *tasks} - {own}:
        return None
    partners = tuple(task for task in tasks if task.role != _EVALUATOR)
    is_alone = own not in partners or len(partners) < 2 or _SERVER in cluster
    sizes = {role: len(numbers) for role, numbers in indices.items()}
    return Place(own, json.dumps(cluster, sort_keys=True), () if is_alone else partners, sizes)


def may_crash(environment: Mapping[str, str]) -> bool:
    """Whether TF_CONFIG names several workers, and jemalloc is not preloaded: see `STOP_RISK`."""
    place = place_of(environment)
    return bool(place and place.partners) and "jemalloc" not in environment.get("LD_PRELOAD", "")


ROLE: Final = "rank"
PROCESS: Final = "process"
_VARIABLES: Final = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    # Not SLURM_NTASKS, which sbatch sets in its own script too.
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("RANK", "WORLD_SIZE"),
)
"""Rank and number of ranks by launcher: the closest to the script first, because srun may start mpirun."""
_RANK: Final = re.compile(r"\d{1,6}", re.ASCII)
"""No cluster has a million ranks."""


def rank_of(environment: Mapping[str, str]) -> tuple[int, int] | None:
    """The rank of this process, counted from 0, and the number of ranks; None if it is alone."""
    for names in _VARIABLES:
        texts = [environment.get(name, "") for name in names]
        if all(map(_RANK.fullmatch, texts)):
            number, count = map(int, texts)
            if max(number, 1) < count:
                return number, count
    return None


def own_place(environment: Mapping[str, str]) -> Place | None:
    """The place of this process in the cluster of JAX or TF_CONFIG, else among the ranks of its launcher."""
    # The processes of `jax.distributed` run the same programs at the same time.
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    count = getattr(state, "num_processes", None) or 1
    if state is not None and state.client is not None and count > 1:
        partners = tuple(Task(PROCESS, number) for number in range(count))
        job = f"{count} processes of {state.coordinator_address}"
        return Place(partners[state.process_id], job, partners, {PROCESS: count})
    place, rank = place_of(environment), rank_of(environment)
    if place is not None or rank is None:
        return place
    return Place(Task(ROLE, rank[0]), "", (), {})
