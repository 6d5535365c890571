"""Checks in real captures the reason why one device computes all gradients, on two CPU devices."""

from __future__ import annotations

from typing import Final

import pytest

import traceview
from tests.capture.conftest import Captured
from tests.capture.in_process import Script, captured_scripts

pytestmark = pytest.mark.tensorflow

SCRIPT: Final = """
import sys
import tensorflow as tf

kind = sys.argv[1]
(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
devices = ["/cpu:0"] if kind == "one_replica" else ["/cpu:0", "/cpu:1"]
strategy = tf.distribute.MirroredStrategy(devices)
size = 128
features, labels = tf.random.normal([1024, 256]), tf.random.normal([1024, 10])
dataset = tf.data.Dataset.from_tensor_slices((features, labels)).repeat()
dataset = dataset.batch(size, drop_remainder=True)
outside = kind in ("unused_strategy", "outside_scope")
with strategy.scope():
    held = None if outside else [tf.Variable(tf.random.normal(s)) for s in ([256, 512], [512, 10])]
first, second = held or [tf.Variable(tf.random.normal(s)) for s in ([256, 512], [512, 10])]

def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((tf.nn.relu(x @ first) @ second - y) ** 2) / size
    for variable, gradient in zip((first, second), tape.gradient(loss, [first, second])):
        if not outside:
            gradient = tf.distribute.get_replica_context().all_reduce("sum", gradient)
        variable.assign_sub(1e-6 * gradient, read_value=False)
    return loss

def pinned(x, y):
    with tf.device("/cpu:1"):
        return step(x, y)

if kind == "unused_strategy":
    alone = tf.function(step)
    for x, y in dataset.take(12):
        alone(x, y)
else:
    body = pinned if kind == "pinned_ops" else step
    @tf.function
    def train(x, y):
        return strategy.run(body, args=(x, y))
    rows = iter(strategy.experimental_distribute_dataset(dataset))
    for _ in range(12):
        train(*next(rows))
"""


REASONS: Final[dict[str, list[str] | None]] = {
    "unused_strategy": ["unused_strategy", "outside_scope"],
    "one_replica": ["one_replica"],
    "pinned_ops": ["replicas_together"],
    "healthy": None,
    # Both replicas compute, and take turns at the variables that they share.
    "outside_scope": None,
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Captured]:
    scripts = {kind: Script(SCRIPT, "5:9", arguments=(kind,)) for kind in REASONS}
    return captured_scripts(tmp_path_factory.mktemp("reasons"), scripts, is_forked=True)


@pytest.mark.parametrize("kind", REASONS)
def test_the_reason_is_in_the_capture(kind: str, runs: dict[str, Captured]) -> None:
    report, reasons = traceview.analyze(runs[kind].run), REASONS[kind]
    codes = {finding.code: finding.severity for finding in report.findings}
    if reasons is None:
        assert "single-gpu-gradients" not in codes
    else:
        assert codes["single-gpu-gradients"] == "critical"
        (found,) = (f for f in report.findings if f.code == "single-gpu-gradients")
        assert list(found.sentences[3:]) == reasons
