"""Advice does in TensorFlow 2.21 what it says, and graphs look as traceview takes them to: tried in real programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
        "batches_from_processes": "works",
        # Of one worker every policy gives the same batches.
        "shards_of_one_worker": "works",
        "prefetched_to_device": "FailedPreconditionError",
        "fetch_to_device_by_default": "True",
        "scopes_of_sparse_gradients": {"cond": "CPU:0", "cond_1": "CPU:1"},
    }
