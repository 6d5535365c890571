"""Tries what advice says, and what traceview relies on, in real programs on two CPU devices under MirroredStrategy.

Run by `tests/test_tensorflow.py`, in one process: importing TensorFlow takes seconds.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

CPU = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(CPU, [tf.config.LogicalDeviceConfiguration()] * 2)
STRATEGY = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
FEATURES, LABELS = tf.ones([4, 4]), tf.zeros([4, 3])


def model_and_optimizer() -> tuple[Any, Any]:
    with STRATEGY.scope():
        model = tf.keras.Sequential([tf.keras.Input([4]), tf.keras.layers.Dense(3)])
        optimizer = tf.keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
    return model, optimizer


def gradients_of(model: Any, features: Any, labels: Any) -> Any:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(features) - labels))
    return tape.gradient(loss, model.trainable_variables)


def train_with(gradients: Callable[..., Any], model: Any, optimizer: Any, **options: Any) -> None:
    def step(features: Any, labels: Any) -> None:
        found = gradients(model, features, labels)
        optimizer.apply_gradients(zip(found, model.trainable_variables, strict=True))

    def run(features: Any, labels: Any) -> None:
        STRATEGY.run(step, args=(features, labels))

    train: Any = tf.function(run, **options)
    before = model.trainable_variables[0].numpy().copy()
    train(FEATURES, LABELS)
    assert (model.trainable_variables[0].numpy() != before).any()


def xla_around_run() -> None:
    train_with(gradients_of, *model_and_optimizer(), jit_compile=True)


def xla_inside_run() -> None:
    model, optimizer = model_and_optimizer()
    compiled = tf.function(lambda x, y: gradients_of(model, x, y), jit_compile=True)
    train_with(lambda _, x, y: compiled(x, y), model, optimizer)


def xla_in_keras_compile() -> None:
    model, optimizer = model_and_optimizer()
    with STRATEGY.scope():
        model.compile(optimizer, "mse", jit_compile=True)
    model.fit(tf.data.Dataset.from_tensors((FEATURES, LABELS)).repeat(4), verbose=0)


def gradients_in_mixed_precision() -> list[str]:
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    types: set[str] = set()

    def noted(model: Any, features: Any, labels: Any) -> Any:
        found = gradients_of(model, features, tf.cast(labels, tf.bfloat16))
        types.update(gradient.dtype.name for gradient in found)
        return found

    try:
        train_with(noted, *model_and_optimizer())
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")
    return sorted(types)


def saved_in_background(make: Callable[[], Any]) -> None:
    with STRATEGY.scope():
        checkpoint = tf.train.Checkpoint(saved=make())
    options = tf.train.CheckpointOptions(enable_async=True)
    manager = tf.train.CheckpointManager(checkpoint, tempfile.mkdtemp(), max_to_keep=2)
    for _ in range(2):
        manager.save(options=options)
    checkpoint.sync()
    assert list(Path(manager.directory).glob("*.index"))


def graph_of_embedding(make: Callable[[float], Any]) -> Any:
    """The graph of a step that trains an embedding."""
    with STRATEGY.scope():
        model = tf.keras.Sequential(
            [tf.keras.Input([2], dtype="int32"), tf.keras.layers.Embedding(50, 3)]
        )
        optimizer = make(0.1)
        optimizer.build(model.trainable_variables)

    def step(ids: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(model(ids)))
        found = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(found, model.trainable_variables, strict=True))

    def run(ids: Any) -> None:
        STRATEGY.run(step, args=(ids,))

    return tf.function(run).get_concrete_function(tf.constant([[1, 2]])).graph.as_graph_def()


def sparse_updates(make: Callable[[float], Any]) -> list[str]:
    """Types of ops that add up the rows of a table, or update single rows."""
    graph = graph_of_embedding(make)
    types = {node.op for function in graph.library.function for node in function.node_def}
    types |= {node.op for node in graph.node}
    return sorted(name for name in types if name in ("ResourceScatterSub", "UnsortedSegmentSum"))


def scopes_of_sparse_gradients() -> dict[str, str]:
    """The device on which the gradients are gathered, by the scope in which that is done."""
    nodes = graph_of_embedding(tf.keras.optimizers.SGD).node
    return {
        node.name.rpartition("/")[2]: node.device.rpartition("/device:")[2]
        for node in nodes
        if node.op in ("If", "StatelessIf")
    }


def shards_of_one_worker() -> list[str]:
    """By policy whether it changes what the replicas of one worker get; no advice where it changes nothing."""

    def elements(policy: Any) -> list[Any]:
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = policy
        dataset = tf.data.Dataset.range(8).batch(4).with_options(options)
        batches = STRATEGY.experimental_distribute_dataset(dataset)
        return [[part.numpy().tolist() for part in batch.values] for batch in batches]

    policies = tf.data.experimental.AutoShardPolicy
    usual = elements(policies.AUTO)
    return [policy.name for policy in (policies.OFF, policies.DATA) if elements(policy) != usual]


def prefetched_to_device() -> None:
    """In a dataset that a strategy then distributes."""
    to_device = tf.data.experimental.prefetch_to_device("CPU:1")
    dataset = tf.data.Dataset.range(8).batch(4).apply(to_device)
    assert list(STRATEGY.experimental_distribute_dataset(dataset))


def fetch_to_device_by_default() -> str:
    return str(tf.distribute.InputOptions().experimental_fetch_to_device)


def summaries_now_and_then() -> None:
    model, _ = model_and_optimizer()
    writer = tf.summary.create_file_writer(tempfile.mkdtemp())

    def run(features: Any, labels: Any, number: Any) -> None:
        def step(features: Any, labels: Any) -> None:
            with writer.as_default(step=number), tf.summary.record_if(number % 100 == 0):
                tf.summary.histogram("gradient", gradients_of(model, features, labels)[0])

        STRATEGY.run(step, args=(features, labels))

    train: Any = tf.function(run)
    for number in range(2):
        train(FEATURES, LABELS, tf.constant(number, tf.int64))


def batch_of(key: int) -> list[int]:
    return [key] * 4


def batches_from_processes() -> None:
    def batches() -> Any:
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            yield from pool.imap(batch_of, range(8))

    spec = tf.TensorSpec([4], tf.int64)
    dataset = tf.data.Dataset.from_generator(batches, output_signature=spec)
    assert [int(batch[0]) for batch in dataset.prefetch(tf.data.AUTOTUNE)] == list(range(8))


ATTEMPTS: dict[str, Callable[[], Any]] = {
    "xla_around_run": xla_around_run,
    "xla_inside_run": xla_inside_run,
    "xla_in_keras_compile": xla_in_keras_compile,
    "gradients_in_mixed_precision": gradients_in_mixed_precision,
    "variables_saved_in_background": lambda: saved_in_background(lambda: tf.Variable([1.0, 2.0])),
    "keras_model_saved_in_background": lambda: saved_in_background(
        lambda: model_and_optimizer()[0]
    ),
    "sgd": lambda: sparse_updates(tf.keras.optimizers.SGD),
    "adam": lambda: sparse_updates(tf.keras.optimizers.Adam),
    "summaries_now_and_then": summaries_now_and_then,
    "batches_from_processes": batches_from_processes,
    "shards_of_one_worker": shards_of_one_worker,
    "prefetched_to_device": prefetched_to_device,
    "fetch_to_device_by_default": fetch_to_device_by_default,
    "scopes_of_sparse_gradients": scopes_of_sparse_gradients,
}


def outcome(attempt: Callable[[], Any]) -> Any:
    try:
        return attempt() or "works"
    except Exception as error:  # what fails, and how, is the answer
        return type(error).__name__


if __name__ == "__main__":
    sys.stdout.write(json.dumps({name: outcome(each) for name, each in ATTEMPTS.items()}))
