"""What makes a training run slow, one function each?

Every function does to the run what people do to theirs by mistake, and says to `INJECTED` how long the devices
waited for it. Where real work would take its place (decoding images, a request to a logging service), the host
sleeps: that takes the same time on every machine, and leaves the cores to the devices.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import tensorflow as tf

from traceview.capture.demo.injection import INJECTED, Illness

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
    """`input`: batches take long to prepare, one after the other, and none is prepared ahead.

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
    """The batches of `slow_input` for each replica, fetched one after the other when they are asked for.

    Three buffers have to be switched off, which hide much of a slow input: `experimental_distribute_dataset` adds
    one, fetching to the device another, and tf.data a third at the end of the pipeline.
    """
    switches = tf.data.Options()
    switches.experimental_optimization.inject_prefetch = False
    unbuffered = dataset.with_options(switches)
    options = tf.distribute.InputOptions(
        experimental_fetch_to_device=False,
        experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA,
    )
    return strategy.distribute_datasets_from_function(lambda _: unbuffered, options)


def watched_input(batches: Iterator[Any]) -> Iterator[Any]:
    """The same batches; what was injected is the time that asking for one blocked."""
    while True:
        with INJECTED.measured(Illness.input):
            batch = next(batches)
        yield batch


def extra_work() -> Any:
    """`straggler`: the last replica has more to compute in every step, and all others wait for it.

    Returns a number so small that adding it to the loss changes nothing, so that no optimizer removes the work.
    """
    context = tf.distribute.get_replica_context()
    if tf.get_static_value(context.replica_id_in_sync_group) != context.num_replicas_in_sync - 1:
        return 0.0
    return _rounds()


def cost_of_extra_work(device: str) -> Callable[[Any], None]:
    """What was injected by `extra_work`: in each step the least time it takes on a device that does nothing else."""
    alone = tf.function(_rounds)
    times = []
    with tf.device(device):
        for _ in range(6):
            begun = time.perf_counter_ns()
            float(alone())
            times.append(time.perf_counter_ns() - begun)
    # The first call builds the graph, and the shortest was disturbed least.
    least_ns = min(times[1:])

    def add(_loss: Any) -> None:
        INJECTED.add(Illness.straggler, least_ns)

    return add


def _rounds() -> Any:
    work = tf.random.uniform([EXTRA_SIZE, EXTRA_SIZE])
    for _ in range(EXTRA_ROUNDS):
        work = tf.tanh(work @ work)
    return 1e-30 * tf.reduce_sum(work)


def metric_on_host() -> Callable[[Any], None]:
    """`sync`: after every step a metric is computed on the host from its loss, and its value is read.

    Only with asynchronous execution does reading wait, on CPUs as on GPUs: `training` switches it on. The devices
    have finished the step by the time the metric begins, and get the next one only after the read, so that
    what was injected is the time of the metric alone.
    """

    def metric(loss: Any) -> Any:
        with INJECTED.measured(Illness.sync):
            time.sleep(METRIC_SECONDS)
        return loss

    def read(loss: Any) -> None:
        float(tf.py_function(metric, [loss], tf.float32))

    return read


def tiny_ops(value: Any) -> Any:
    """`launch`: hundreds of ops on a single number, which without a `tf.function` are launched one by one."""
    with INJECTED.measured(Illness.launch):
        for _ in range(TINY_OPS):
            value = value + 0.0
    return value


def traced_again(train_step: TrainStep) -> TrainStep:
    """`retrace`: the learning rate is a Python number, and each new value needs a new graph.

    What was injected is the time of a call that traces less that of the call before, which did not.
    """
    number = 0
    usual_ns = 0

    def step(batch: Any, _learning_rate: Any) -> Any:
        nonlocal number, usual_ns
        is_new, decay = number % RETRACED_EVERY == 0, number // RETRACED_EVERY
        begun = time.perf_counter_ns()
        loss = train_step(batch, 0.1 * 0.99**decay)
        took = time.perf_counter_ns() - begun
        if is_new:
            INJECTED.add(Illness.retrace, took - usual_ns)
        else:
            usual_ns = took
        number += 1
        return loss

    return step


def checkpoint_writer(model: Any, path: str) -> Callable[[Any], None]:
    """`checkpoint`: model and statistics of 40 MB are written after every step, and training waits."""
    checkpoint = tf.train.Checkpoint(
        model=model, statistics=tf.Variable(tf.random.uniform([CHECKPOINT_FLOATS]))
    )

    def write(_loss: Any) -> None:
        with INJECTED.measured(Illness.checkpoint):
            checkpoint.write(path)

    return write


def slow_callback(_loss: Any) -> None:
    """`callback`: after every step Python does something else, such as sending metrics to a service."""
    with INJECTED.measured(Illness.callback):
        time.sleep(CALLBACK_SECONDS)
