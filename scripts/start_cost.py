"""Measure what `traceview capture` adds to the start of a script, and what closing its window takes.

    python scripts/start_cost.py [--rounds 5]

Needs an environment with TensorFlow and traceview. A script that trains a small Keras model is run with a capture and
without one, in turn. Processor time of the main thread is compared, because other programs on the machine take the cores as
they like: up to the first step, and in the step that the window closes in.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

SCRIPT = """
import json, time
import tensorflow as tf
marks = []
class Marks(tf.keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        marks.append(time.thread_time())
layers = [tf.keras.layers.Input((64,)), *(tf.keras.layers.Dense(64, activation="relu") for _ in range(8))]
model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(1)])
model.compile("adam", "mse")
data = tf.data.Dataset.from_tensors((tf.ones([32, 64]), tf.ones([32, 1]))).repeat(60)
model.fit(data, callbacks=[Marks()], verbose=0)
steps = [after - before for before, after in zip(marks, marks[1:])]
print(json.dumps([marks[0], steps[30]]))
"""
CAPTURE = ("-m", "traceview", "capture", "--steps", "20:30")


def measured(folder: Path, *options: str) -> tuple[float, float]:
    """Seconds of processor time up to the first step, and of step 30."""
    done = subprocess.run(
        [sys.executable, *options, "train.py"],
        cwd=folder,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        check=True,
    )
    first, closing = json.loads(done.stdout.splitlines()[-1])
    return first, closing


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    alone, captured = [], []
    with TemporaryDirectory() as name:
        (Path(name) / "train.py").write_text(SCRIPT, encoding="utf-8")
        for _ in range(options.rounds):
            alone.append(measured(Path(name)))
            captured.append(measured(Path(name), *CAPTURE))
    for place, what in enumerate(("start to first step", "step that closes")):
        before, after = ([round_[place] for round_ in rounds] for rounds in (alone, captured))
        print(
            f"{what}: {median(before):.3f} s ({min(before):.3f} to {max(before):.3f}) alone, "
            f"{median(after):.3f} s ({min(after):.3f} to {max(after):.3f}) captured"
        )


if __name__ == "__main__":
    main()
