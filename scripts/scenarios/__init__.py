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
from scripts.scenarios.model import Builder, Scenario

SCENARIOS: dict[str, Builder] = {
    **peers.CASES,
    **plain.CASES,
    **devices.CASES,
    **steps.CASES,
    **idle.CASES,
    **copies.CASES,
    **collectives.CASES,
    **balance.CASES,
    **gradients.CASES,
    **hosts.CASES,
    **input_pipelines.CASES,
    **step_ops.CASES,
    **headlines.CASES,
    **dependencies.CASES,
    **memory.CASES,
    **efficiency.CASES,
}

__all__ = ["SCENARIOS", "Scenario"]
