"""Advice does in TensorFlow 2.21 what it says, and graphs look as traceview takes them to: tried in real programs."""

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
        # Of one worker every policy gives the same batches.
        "shards_of_one_worker": "works",
        "prefetched_to_device": "FailedPreconditionError",
        "fetch_to_device_by_default": "True",
        "scopes_of_sparse_gradients": {
            "cond": "CPU:0",
            "cond_1": "CPU:1",
        },
    }


def advice_of(code: str) -> str:
    """Everything that a rule advises in TensorFlow."""
    rule = RULES[code]
    others = (" ".join(texts) for key, texts in rule.actions.items() if key != "jax")
    return " ".join((rule.action, rule.advice, *others))


@pytest.mark.parametrize("code", ["collective-exposed", "reduction-off-gpu"])
def test_mixed_precision_is_no_advice_for_gradients(code: str) -> None:
    """Gradients of float32 variables are float32 in mixed precision, so that no fewer bytes are exchanged."""
    assert "mixed" not in advice_of(code)


@pytest.mark.parametrize("code", sorted(RULES))
def test_xla_is_advised_only_inside_of_the_strategy(code: str) -> None:
    advice = advice_of(code)
    assert "jit_compile" not in advice or "inside `strategy.run`" in advice


@pytest.mark.parametrize("code", sorted(RULES))
def test_prefetching_to_a_device_is_advised_only_without_a_strategy(code: str) -> None:
    """A strategy fetches to its devices by default, and cannot distribute a dataset that does so itself."""
    advice = advice_of(code)
    assert "prefetch_to_device" not in advice or "on one GPU, use" in advice
    assert "experimental_fetch_to_device=True" not in advice
