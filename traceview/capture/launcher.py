"""Reads from the environment which rank a launcher such as horovodrun, mpirun or srun gave this process.

Ranks of Horovod make their steps together, so they share a run as the workers of a TF_CONFIG do. What another launcher
starts may just as well be independent trainings, which share a run only where `--run` names it.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from traceview.capture.cluster import Place, Task, place_of

ROLE: Final = "rank"
_HOROVOD: Final = "horovod"
_VARIABLES: Final = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    # Not SLURM_NTASKS, which sbatch sets in its own script too.
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("RANK", "WORLD_SIZE"),
)
"""Rank and number of ranks by launcher: the closest to the script first, because srun may start mpirun."""

_JOBS: Final = (
    ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"),
    ("PMIX_NAMESPACE",),
    ("OMPI_MCA_ess_base_jobid",),
    ("SLURM_JOB_ID", "SLURM_STEP_ID"),
)
"""What is the same in all ranks of a job, and different in another job."""

_MOST_RANKS: Final = 1_000_000
"""More than any cluster has."""


@dataclass(frozen=True)
class Rank:
    """One of `size` processes, counted from 0. `are_together`: all ranks make their steps together."""

    number: int
    size: int
    are_together: bool


def rank_of(environment: Mapping[str, str], modules: Collection[str] | None = None) -> Rank | None:
    """The rank of this process; None if it is alone. `modules`: those imported, by default by this process."""
    is_horovod = "HOROVOD_RANK" in environment or _HOROVOD in (
        sys.modules if modules is None else modules
    )
    for rank, size in _VARIABLES:
        number, count = _count(environment.get(rank)), _count(environment.get(size))
        if number is not None and count is not None and max(number, 1) < count:
            return Rank(number, count, is_horovod)
    return None


def own_place(environment: Mapping[str, str]) -> Place | None:
    """The place of this process in the cluster of TF_CONFIG, else among the ranks of its launcher."""
    place = place_of(environment)
    rank = rank_of(environment)
    if place is not None or rank is None:
        return place
    job = next((values for names in _JOBS if all(values := _values(environment, names))), None)
    partners = tuple(Task(ROLE, number) for number in range(rank.size))
    return Place(
        Task(ROLE, rank.number),
        f"{rank.size} ranks of {job}",
        partners if rank.are_together and job is not None else (),
    )


def _values(environment: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(environment.get(name, "") for name in names)


def _count(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdecimal()):
        return None
    return int(text) if len(text) < len(str(_MOST_RANKS)) else None
