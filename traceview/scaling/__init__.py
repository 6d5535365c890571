"""Puts runs on 1, 2, 4, 8 devices beside each other: step time, examples per second, efficiency, and what grows."""

from traceview.scaling.result import Efficiency, GrowingState, ScaledRuns, scaled_runs

__all__ = ["Efficiency", "GrowingState", "ScaledRuns", "scaled_runs"]
