"""Which process of which cluster is this? TF_CONFIG says so, where anything does.

TensorFlow documents it under `tf.distribute.cluster_resolver.TFConfigClusterResolver`: lists of addresses by role,
the same in all processes, and the role and index of the one that reads it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_OUTSIDE: Final = "evaluator"
"""Evaluates checkpoints by itself, at steps of its own."""
_SERVER: Final = "ps"
"""Where there are parameter servers, the chief alone makes steps; workers do what it sends them."""
_WORKER: Final = "worker"
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9]")
_LONGEST_ROLE: Final = 40


@dataclass(frozen=True)
class Task:
    """One process of a cluster."""

    role: str
    index: int

    def __str__(self) -> str:
        return f"{self.role} {self.index}"

    @property
    def label(self) -> str:
        """What tells its files from those of the others: `w1` for worker 1, `chief0`."""
        role = "w" if self.role == _WORKER else _NOT_IN_NAMES.sub("-", self.role[:_LONGEST_ROLE])
        return f"{role}{self.index}"


@dataclass(frozen=True)
class Place:
    """The place of this process. `cluster`: all addresses, in one text that is the same in every process.

    `partners`: the tasks that make the same steps at the same time, this one among them; empty if there are
    no others.
    """

    task: Task
    cluster: str
    partners: tuple[Task, ...]


def place_of(environment: Mapping[str, str]) -> Place | None:
    """What TF_CONFIG says; None where it is not set, names one process alone, or cannot be understood.

    In the last case TensorFlow refuses it too.
    """
    try:
        config = json.loads(environment.get("TF_CONFIG", ""))
        cluster, task = config["cluster"], config["task"]
        own = Task(str(task["type"]), int(task["index"]))
        tasks = [
            Task(str(role), index)
            for role, addresses in sorted(cluster.items())
            for index in _indices(addresses)
        ]
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None
    if own.index < 0 or not {own, *tasks} - {own}:
        return None
    partners = tuple(one for one in tasks if one.role != _OUTSIDE)
    stands_alone = own not in partners or len(partners) < 2 or _SERVER in cluster
    return Place(own, json.dumps(cluster, sort_keys=True), () if stands_alone else partners)


def _indices(addresses: Any) -> list[int]:
    # A cluster that leaves tasks out is an object, with the index as key.
    return (
        [int(key) for key in addresses] if isinstance(addresses, dict) else [*range(len(addresses))]
    )
