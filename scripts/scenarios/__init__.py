"""Which traces with a known answer are there? `SCENARIOS` maps a name to what builds it."""

from __future__ import annotations

from scripts.scenarios import (
    balance,
    collectives,
    copies,
    dependencies,
    devices,
    efficiency,
    gradients,
    headlines,
    hosts,
    idle,
    input_pipelines,
    memory,
    peers,
    plain,
    step_ops,
    steps,
)
from scripts.scenarios.model import Builder, Scenario, builders

SCENARIOS: dict[str, Builder] = dict(peers.CASES)
for _module in (
    plain,
    devices,
    steps,
    idle,
    copies,
    collectives,
    balance,
    gradients,
    hosts,
    input_pipelines,
    step_ops,
    headlines,
    dependencies,
    memory,
    efficiency,
):
    SCENARIOS |= builders(_module)

__all__ = ["SCENARIOS", "Scenario"]
