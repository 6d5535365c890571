"""The oracle: docs/method.md recomputed the slow and obvious way, sharing no code with traceview."""

from tests.oracle.answer import run_answer

__all__ = ["run_answer"]
