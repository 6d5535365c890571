"""A budget in a real `fit`: windows are judged as they are saved, and the analysis is imported only then."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.capture.conftest import environment_with

pytestmark = pytest.mark.tensorflow

FIT = """
import json, sys, time, warnings
import numpy as np
import tensorflow as tf
import traceview

class Watch(tf.keras.callbacks.Callback):
    imported_at = None
    def on_train_batch_end(self, batch, logs=None):
        if Watch.imported_at is None and "traceview.comparison.gate" in sys.modules:
            Watch.imported_at = batch

def fit(**options):
    data = tf.data.Dataset.from_tensor_slices((np.ones((320, 4), "f4"), np.ones((320, 1), "f4"))).batch(8)
    model = tf.keras.Sequential([tf.keras.Input([4]), tf.keras.layers.Dense(4), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    callback = traceview.keras_callback("logs", range(10, 13), nvml=False, python=False, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        raised = None
        try:
            history = model.fit(data, epochs=1, verbose=0, callbacks=[callback, Watch()])
        except traceview.BudgetError as error:
            raised = str(error)
    said = [str(row.message) for row in caught if issubclass(row.category, traceview.CaptureWarning)]
    return {"said": said, "raised": raised, "imported_at": Watch.imported_at}

print(json.dumps([
    fit(budget=["step_time_ms <= 0.001"]),
    fit(budget=["step_time_ms <= 60000"]),
    fit(budget=["step_time_ms <= 0.001"], every=15),
    fit(budget="budget.toml", over_budget="raise"),
    fit(budget=["step_tme <= 1"], over_budget="raise"),
]), flush=True)
"""


@pytest.fixture(scope="module")
def fits(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each training left: its warnings, its error, and at which batch the gate was imported first."""
    folder = tmp_path_factory.mktemp("budget")
    (folder / "train.py").write_text(FIT, encoding="utf-8")
    (folder / "budget.toml").write_text('require = ["step_time_ms <= 0.001"]\n')
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=folder,
        env=environment_with(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1"),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return results


def over(said: list[str]) -> list[str]:
    return [text for text in said if text.startswith("Gate failed: the condition fails.")]


def test_the_gate_is_imported_when_the_window_has_closed(fits: list[dict[str, Any]]) -> None:
    assert 12 <= fits[0]["imported_at"] <= 14


def test_a_window_over_its_budget_is_a_warning(fits: list[dict[str, Any]]) -> None:
    assert len(over(fits[0]["said"])) == 1
    assert fits[0]["raised"] is None
    assert over(fits[1]["said"]) == []


def test_each_window_is_judged_once(fits: list[dict[str, Any]]) -> None:
    assert len(over(fits[2]["said"])) == 2


def test_or_an_error_that_ends_the_training(fits: list[dict[str, Any]]) -> None:
    assert fits[3]["raised"].startswith("Gate failed: the condition fails.")
    assert over(fits[3]["said"]) == []


def test_a_misspelt_key_ends_nothing(fits: list[dict[str, Any]]) -> None:
    assert fits[4]["raised"] is None
    assert any(
        "the window was not judged: condition 'step_tme <= 1'" in text for text in fits[4]["said"]
    )
