"""Checks that `capture --check` reports what would spoil a capture in a script, without running it."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from traceview.base.errors import UsageError
from traceview.capture.check.check import Check
from traceview.capture.check.checks_script import check_scripts, read_scripts
from traceview.capture.check.script_reading import MOST_BYTES, read_script

GOOD = """
    import tensorflow as tf
    strategy = tf.distribute.MirroredStrategy()
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        optimizer = tf.keras.optimizers.SGD(tf.keras.optimizers.schedules.CosineDecay(0.1, 9))

    @tf.function
    def train_step(batch):
        for layer in model.layers:
            layer(batch)
        strategy.run(print, (batch,))
"""


def checks_of(tmp_path: Path, source: str, *, visible: int = 2) -> list[Check]:
    path = tmp_path / "train.py"
    path.write_text(dedent(source), encoding="utf-8")
    readings, unreadable = read_scripts([path])
    return [*unreadable, *check_scripts(readings, visible_count=visible)]


def test_a_script_without_trouble(tmp_path: Path) -> None:
    (check,) = checks_of(tmp_path, GOOD)
    assert (check.name, check.status) == ("script", "ok")


@pytest.mark.parametrize(
    ("addition", "name", "part"),
    [
        ("tf.profiler.experimental.start('logs')", "script-profiler", "tf.profiler.experimental"),
        (
            "from tensorflow.profiler.experimental import Profile as P\nP('logs')",
            "script-profiler",
            "tf.profiler.experimental.Profile",
        ),
        ("tf.summary.trace_on(profiler=True)", "script-profiler", "trace_on"),
        ("tf.keras.callbacks.TensorBoard(profile_batch=(5, 9))", "script-tensorboard", "(5, 9)"),
        (
            "from keras.callbacks import TensorBoard\nTensorBoard(profile_batch=args.batch)",
            "script-tensorboard",
            "computed",
        ),
        ("tf.distribute.MirroredStrategy(['GPU:0'])", "script-devices", "1 of 2 visible"),
        ("tf.distribute.OneDeviceStrategy('/gpu:0')", "script-devices", "one device"),
        ("weight = tf.Variable(1.0)", "script-scope", "train.py:14 tf.Variable"),
        (
            "def build():\n  return tf.keras.Model()\nmodel = build()",
            "script-scope",
            "train.py:16 build() → tf.keras.Model",
        ),
        (
            "class Net(tf.keras.Model):\n  pass\nnet = Net()",
            "script-scope",
            "train.py:16 Net",
        ),
    ],
)
def test_what_is_found(tmp_path: Path, addition: str, name: str, part: str) -> None:
    (check,) = checks_of(tmp_path, dedent(GOOD) + "\n" + addition)
    assert (check.name, check.status) == (name, "warning")
    assert part in check.detail
    assert check.fix


@pytest.mark.parametrize(
    "addition",
    [
        "tf.keras.callbacks.TensorBoard('logs')",
        "tf.keras.callbacks.TensorBoard('logs', profile_batch=0)",
        "tf.distribute.MirroredStrategy(devices=['GPU:0', '/device:GPU:1'])",
        "tf.distribute.MirroredStrategy(devices=args.devices)",
        "import re\nre.compile('x')",
        "start()",
        "model.compile(steps_per_execution=1, run_eagerly=False)",
        "def build():\n  return tf.keras.Model()\nwith strategy.scope():\n  model = build()",
        "stack.enter_context(strategy.scope())\nmodel = tf.keras.Model()",
        "@tf.function\ndef search(x):\n  for i in tf.range(9):\n    x = x + i\n  return x",
        "tf.summary.trace_on(graph=True)",
        "tf.config.run_functions_eagerly(False)",
    ],
)
def test_what_is_no_trouble(tmp_path: Path, addition: str) -> None:
    (check,) = checks_of(tmp_path, dedent(GOOD) + "\n" + addition)
    assert check.status == "ok", check


def test_a_device_that_is_not_there_fails(tmp_path: Path) -> None:
    source = "import tensorflow as tf\ntf.distribute.MirroredStrategy(['GPU:0', 'GPU:7'])"
    (check,) = checks_of(tmp_path, source)
    assert check.status == "failed"
    assert "GPU 7 is not among the 2 visible" in check.detail
    (check,) = checks_of(tmp_path, source, visible=0)
    assert check.status == "warning"
    assert "no GPU is visible here" in check.detail


def test_several_gpus_and_no_strategy(tmp_path: Path) -> None:
    checks = checks_of(tmp_path, "import tensorflow as tf\ntf.zeros(1)")
    assert [check.name for check in checks] == ["script", "script-strategy"]
    assert "first of 2 GPUs" in checks[1].detail
    assert len(checks_of(tmp_path, "import tensorflow as tf", visible=1)) == 1
    assert len(checks_of(tmp_path, "import os")) == 1


def test_what_it_sets_is_read(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '1'\n", encoding="utf-8")
    assert read_script(path).environment == {"CUDA_VISIBLE_DEVICES": "1"}


def test_nothing_is_run(tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    checks_of(tmp_path, f"open({str(trace)!r}, 'w')\nraise SystemExit(3)")
    assert not trace.exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"def f(:\n", "train.py:1: "),
        (b"x = '\0'", "null bytes"),
        (b"# coding: no-such\n", "unknown encoding"),
        (b"(" * 5000, "train.py"),
        (b"-" * 200_000 + b"1", "train.py"),
        (b" " * (MOST_BYTES + 1), "too many"),
    ],
    ids=["syntax", "null", "coding", "parentheses", "deep", "long"],
)
def test_what_cannot_be_read(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(content)
    with pytest.raises(UsageError) as raised:
        read_script(path)
    assert reason in raised.value.message
    readings, (check,) = read_scripts([path])
    assert (readings, check.status) == ([], "failed")


def test_a_folder_is_its_main(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="script not found:"):
        read_script(tmp_path)
    (tmp_path / "__main__.py").write_text("import keras", encoding="utf-8")
    assert read_script(tmp_path).imports_tensorflow
