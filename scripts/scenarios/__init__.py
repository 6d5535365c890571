"""Which traces with a known answer are there? `SCENARIOS` maps a name to what builds it."""

from __future__ import annotations

from scripts.scenarios import devices, peers, plain, steps
from scripts.scenarios.model import Builder, Scenario

SCENARIOS: dict[str, Builder] = {**peers.CASES, **plain.CASES, **devices.CASES, **steps.CASES}

__all__ = ["SCENARIOS", "Scenario"]
