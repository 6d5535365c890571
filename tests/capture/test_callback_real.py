"""What a callback of Keras `fit` finds out about the input, with real TensorFlow: all of it was made before."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.capture.conftest import environment_with

pytestmark = pytest.mark.tensorflow

FITS = """
import gc, json, types, warnings
import numpy as np
import tensorflow as tf
import tf_keras
import traceview
from tensorflow.python.data.ops import dataset_ops

warnings.simplefilter("error", traceview.CaptureWarning)
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
two = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])

def dataset():
    return tf.data.Dataset.from_tensor_slices((np.ones((240, 4), "f4"), np.ones((240, 1), "f4"))).batch(8)

def generator():
    for number in range(60):
        yield np.ones((12, 4), "f4"), np.ones((12, 1), "f4")

def rows(keras):
    class Rows(getattr(keras.utils, "PyDataset", keras.utils.Sequence)):
        def __len__(self): return 30
        def __getitem__(self, number): return np.ones((10, 4), "f4"), np.ones((10, 1), "f4")
    return Rows()

for name, keras in {"keras": tf.keras, "tf_keras": tf_keras}.items():
    for source, data in {"dataset": dataset(), "generator": generator(), "rows": rows(keras)}.items():
        with two.scope():
            model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        callback = traceview.keras_callback("logs", range(10, 13), nvml=False, python=False, keras=keras)
        model.fit(data, verbose=0, steps_per_epoch=24, callbacks=[callback],
                  validation_data=dataset().unbatch().batch(6), validation_steps=2)
        function = model.train_function
        while function is not None:
            assert "traceview" not in function.__module__, function
            function = getattr(function, "__wrapped__", None)
        print(json.dumps([f"{name}, {source}", str(callback.session.run)]), flush=True)
for state in gc.get_objects():
    if isinstance(state, dataset_ops.DatasetV2._GeneratorState):
        held = [state._generator, *state._iterators.values()]
        assert not any(type(thing).__module__.startswith("traceview") for thing in held), held
        assert "traceview" not in state._generator.__module__, held
"""


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The batch sizes in the sidecar of each `fit`."""
    folder = tmp_path_factory.mktemp("fits")
    done = subprocess.run(
        [sys.executable, "-c", FITS],
        cwd=folder,
        env=environment_with(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1"),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = {}
    for line in done.stdout.splitlines():
        if line.startswith("["):
            name, run = json.loads(line)
            (path,) = (folder / Path(run)).glob("*.traceview.json")
            found[name] = json.loads(path.read_text("utf-8"))["batch"]
    return found


@pytest.mark.parametrize("keras", ["keras", "tf_keras"])
@pytest.mark.parametrize(
    ("source", "batch"),
    [
        ("dataset", {"global": 8, "per_replica": 4, "found_by": "dataset"}),
        ("generator", {"global": 12, "per_replica": 6, "found_by": "generator"}),
        ("rows", {"global": 10, "per_replica": 5, "found_by": "generator"}),
    ],
)
def test_the_batch_size_of_a_fit_that_made_its_input_before(
    keras: str, source: str, batch: dict[str, Any], batches: dict[str, Any]
) -> None:
    assert batches[f"{keras}, {source}"] == batch
