"""Advice does in TensorFlow 2.21 what it says: each is tried in a real program under MirroredStrategy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from traceview.analysis.registry import RULES

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.tensorflow
def test_advice_works_in_tensorflow() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.advice_in_tensorflow"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "xla_around_run": "InvalidArgumentError",
        "xla_inside_run": "works",
        "xla_in_keras_compile": "InvalidArgumentError",
        "gradients_in_mixed_precision": ["float32"],
        "variables_saved_in_background": "works",
        "keras_model_saved_in_background": "ValueError",
        "sgd": ["ResourceScatterSub"],
        "adam": ["UnsortedSegmentSum"],
        "summaries_now_and_then": "works",
    }


@pytest.mark.parametrize("code", ["collective-exposed", "collective-wait", "reduction-off-gpu"])
def test_mixed_precision_is_no_advice_for_gradients(code: str) -> None:
    """Gradients of float32 variables are float32 in mixed precision, so that no fewer bytes are exchanged."""
    assert "mixed" not in RULES[code].advice


@pytest.mark.parametrize("code", sorted(RULES))
def test_xla_is_advised_only_inside_of_the_strategy(code: str) -> None:
    advice = RULES[code].advice
    assert "jit_compile" not in advice or "inside strategy.run" in advice
