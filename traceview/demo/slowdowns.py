"""Slows a training run down, one function for each way.

Each function makes a common mistake. In place of real work (decoding images, a request to a logging service) the host
sleeps: that takes the same time on every machine, and leaves the cores to the devices.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any, Final

import tensorflow as tf

DECODE_SECONDS: Final = 0.04
METRIC_SECONDS: Final = 0.03
CALLBACK_SECONDS: Final = 0.03
CHECKPOINT_FLOATS: Final = 10_000_000
TINY_OPS: Final = 150
EXTRA_ROUNDS: Final = 40
EXTRA_SIZE: Final = 256
RETRACED_EVERY: Final = 2

TrainStep = Callable[..., Any]


def slow_input(dataset: Any, replicas: int) -> Any:
    """`input`: each batch takes long to prepare, and none is prepared ahead.

    `dataset` has one batch per replica; together they take `DECODE_SECONDS`.
    """

    def decode(features: Any) -> Any:
        time.sleep(DECODE_SECONDS / replicas)
        return features

    def prepare(features: Any, labels: Any) -> tuple[Any, Any]:
        decoded = tf.numpy_function(decode, [features], features.dtype)
        return tf.ensure_shape(decoded, features.shape), labels

    return dataset.map(prepare)


def distributed_unbuffered(strategy: Any, dataset: Any) -> Any:
    """Distribute the batches of `slow_input`, fetching each only when its replica needs it.

    Three buffers that would hide much of a slow input are switched off: `experimental_distribute_dataset` adds one,
    fetching to the device another, and tf.data a third at the end of the pipeline.
    """
    switches = tf.data.Options()
    switches.experimental_optimization.inject_prefetch = False
    unbuffered = dataset.with_options(switches)
    options = tf.distribute.InputOptions(
        experimental_fetch_to_device=False,
        experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA,
    )
    return strategy.distribute_datasets_from_function(lambda _: unbuffered, options)


def extra_work() -> Any:
    """`straggler`: the last replica has more to compute in every step, and all others wait for it.

    Returns a number too small to change what it is added to; using it keeps the work from being optimized away.
    """
    context = tf.distribute.get_replica_context()
    if tf.get_static_value(context.replica_id_in_sync_group) != context.num_replicas_in_sync - 1:
        return 0.0
    return _rounds()


def _rounds() -> Any:
    work = tf.random.uniform([EXTRA_SIZE, EXTRA_SIZE])
    for _ in range(EXTRA_ROUNDS):
        work = tf.tanh(work @ work)
    return 1e-30 * tf.reduce_sum(work)


def metric_on_host() -> Callable[[Any], None]:
    """`sync`: after every step the host computes a metric from the loss and reads its value.

    Reading waits only with asynchronous execution, on CPUs as on GPUs, so `training` switches it on. The devices have
    finished the step when the metric begins, and get the next one only after the read.
    """

    def metric(loss: Any) -> Any:
        time.sleep(METRIC_SECONDS)
        return loss

    def read(loss: Any) -> None:
        # TensorFlow 2.21 leaves executors in reference cycles at the end of data, and an executor that is finalized
        # waits for its ops. In the thread of `metric` that would be a wait for `metric` itself.
        gc.disable()
        try:
            float(tf.py_function(metric, [loss], tf.float32))
        finally:
            gc.enable()

    return read


def tiny_ops(value: Any) -> Any:
    """`launch`: hundreds of ops on a single number, which are launched one by one without a `tf.function`."""
    for _ in range(TINY_OPS):
        value = value + 0.0
    return value


def traced_again(train_step: TrainStep) -> TrainStep:
    """`retrace`: the learning rate is a Python number, and each new value traces a new graph."""
    number = 0

    def step(batch: Any, _learning_rate: Any) -> Any:
        nonlocal number
        decay = number // RETRACED_EVERY
        number += 1
        return train_step(batch, 0.1 * 0.99**decay)

    return step


def checkpoint_writer(model: Any, path: str) -> Callable[[Any], None]:
    """`checkpoint`: a checkpoint of 40 MB is written after every step, and training waits."""
    checkpoint = tf.train.Checkpoint(
        model=model, statistics=tf.Variable(tf.random.uniform([CHECKPOINT_FLOATS]))
    )

    def write(_loss: Any) -> None:
        checkpoint.write(path)

    return write


def slow_callback(_loss: Any) -> None:
    """`callback`: after every step Python does something else, such as sending metrics to a service."""
    time.sleep(CALLBACK_SECONDS)
