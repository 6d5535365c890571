"""Traceview runs beside TensorFlow in one process, reads right what it records today, and its advice does what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import traceview
from tests.capture.conftest import ROOT, run_python
from tests.oracle import run_answer
from tests.test_every_run import same_report

pytestmark = pytest.mark.tensorflow

BESIDE = """
import {}
import {}
from tensorflow.tsl.profiler.protobuf import xplane_pb2

report = traceview.analyze("fixtures/custom-loop-2")
space = xplane_pb2.XSpace()
space.ParseFromString(next(__import__("pathlib").Path("fixtures/custom-loop-2").rglob("*.pb")).read_bytes())
assert sum(len(line.events) for plane in space.planes for line in plane.lines) == 2934
print(report.verdict.headline)
"""


@pytest.mark.parametrize("first", ["traceview", "tensorflow"])
def test_beside_tensorflow_in_either_order(first: str) -> None:
    names = sorted(["tensorflow", "traceview"], key=first.__ne__)
    said = run_python(ROOT, "-c", BESIDE.format(*names), code=0).out
    assert said == "Dispatch takes 2.05 of 2.96 ms (69%), as in any step of so many ops.\n"


@pytest.mark.parametrize(
    ("name", "method", "steps"), [("custom-loop-2", "marker", 6), ("no-markers-4", "function", 4)]
)
def test_a_run_recorded_now(name: str, method: str, steps: int, tmp_path: Path) -> None:
    run_python(ROOT, "scripts/record.py", "--into", tmp_path, name, code=0)
    logdir = tmp_path / name
    report = traceview.analyze(logdir, top=None)
    assert report.results.steps is not None
    assert (report.results.steps.method, report.results.steps.count) == (method, steps)
    assert report.results.device_time is not None
    replicas = [row.device for row in report.results.device_time.devices]
    assert replicas == [f"replica:{k}" for k in range(int(name[-1]))]
    same_report(report, run_answer(sorted(logdir.rglob("*.xplane.pb"))))


# Advice, and graphs as traceview takes them to be, tried in real programs


def test_advice_works_in_tensorflow() -> None:
    done = run_python(ROOT, "-m", "tests.advice_in_tensorflow", code=0)
    assert json.loads(done.out.splitlines()[-1]) == {
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
