"""A long Keras training with the real TensorFlow is recorded again and again, in bounded room."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import traceview
from tests.capture.conftest import run_python
from tests.capture.recorded_markers import markers_of

pytestmark = pytest.mark.tensorflow

FIT = """
import os, warnings
import numpy as np
import tensorflow as tf
import traceview

warnings.simplefilter("error", traceview.CaptureWarning)

class Watch(tf.keras.callbacks.Callback):
    most = 0
    def on_train_batch_end(self, batch, logs=None):
        runs = "logs/plugins/profile"
        Watch.most = max(Watch.most, len(os.listdir(runs)) if os.path.isdir(runs) else 0)

def fit(batches, every, **compiled):
    data = tf.data.Dataset.from_tensor_slices((np.ones((8 * batches, 4), "f4"), np.ones((8 * batches, 1), "f4"))).batch(8)
    model = tf.keras.Sequential([tf.keras.Input([4]), tf.keras.layers.Dense(4), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse", **compiled)
    callback = traceview.keras_callback("logs", range(10, 13), every=every, keep=2, nvml=False, python=False)
    model.fit(data, epochs=3, verbose=0, callbacks=[callback, Watch()])

fit(30, 20)  # of the window 90:93 only the step before it comes
print(Watch.most, flush=True)
warnings.simplefilter("ignore", traceview.CaptureWarning)  # calls of 4 steps are no windows of 3
fit(32, 24, steps_per_execution=4)
"""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The log directory of two trainings, of 90 steps and of 96 in calls of 4, and what they printed."""
    folder = tmp_path_factory.mktemp("recurring")
    (folder / "train.py").write_text(FIT, encoding="utf-8")
    done = run_python(folder, "train.py", code=0)
    return folder / "logs", done.stdout


def runs_of(logs: Path) -> list[Path]:
    """The runs in the order in which they were recorded; a name becomes free again when its run is removed."""
    runs = (logs / "plugins" / "profile").iterdir()
    return sorted(runs, key=lambda run: int(sidecar_of(run)["clock"]["started"]["wall_ns"]))


def sidecar_of(run: Path) -> dict[str, Any]:
    (path,) = run.glob("*.traceview.json")
    sidecar: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return sidecar


def test_there_are_never_more_runs_than_are_kept(logs: tuple[Path, str]) -> None:
    folder, printed = logs
    assert printed.split() == ["2"]
    assert len(runs_of(folder)) == 2
    # Nothing is left of the windows that were to come.
    assert [path.name for path in folder.iterdir()] == ["plugins"]


def test_the_last_windows_are_kept_and_can_be_read(logs: tuple[Path, str]) -> None:
    windows = [sidecar_of(run)["window"] for run in runs_of(logs[0])]
    assert [window["asked"] for window in windows] == [[58, 61], [82, 85]]
    assert [window["is_whole"] for window in windows] == [True, True]
    for run in runs_of(logs[0]):
        (trace,) = run.glob("*.xplane.pb")
        assert markers_of(trace)
        assert traceview.analyze(run).results.steps is not None
        assert sidecar_of(run)["recurring"] == {"every": 24, "keep": 2}
