"""Train a small classifier on several devices, well or slowed down: a script as anybody could have written it.

    python training.py --devices 2 --slowdown input --slowdown callback

A custom loop on MirroredStrategy: variables are created in its scope, batches come from its distributed dataset, and a
step is one `tf.function`. Without `--slowdown` only the small size of the model keeps the devices waiting. The data is
random, and nothing is written. Names of traceview appear only where the run is slowed down.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import tensorflow as tf

from traceview.demo import slowdowns
from traceview.demo.run import Slowdown

FEATURES: Final = 256
UNITS: Final = 512
CLASSES: Final = 10
BATCH_PER_REPLICA: Final = 64
LOGICAL_DEVICES: Final = 2


def parsed_options() -> argparse.Namespace:
    """The options of the script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--slowdown", type=Slowdown, action="append", default=[])
    return parser.parse_args()


def choose_devices(count: int | None) -> list[str]:
    """The first `count` GPUs, or all of them; without GPUs, that many logical devices on the CPU."""
    gpus = tf.config.list_physical_devices("GPU")[:count]
    if gpus:
        return [f"/gpu:{number}" for number in range(len(gpus))]
    (cpu,) = tf.config.list_physical_devices("CPU")
    wanted = [tf.config.LogicalDeviceConfiguration()] * (count or LOGICAL_DEVICES)
    if len(tf.config.get_logical_device_configuration(cpu) or ()) != len(wanted):
        tf.config.set_logical_device_configuration(cpu, wanted)
    return [f"/cpu:{number}" for number in range(len(wanted))]


def make_dataset(batch_size: int) -> Any:
    """Endless batches of random features and labels, all in memory after the first round."""
    features = tf.random.stateless_normal([1024, FEATURES], seed=[1, 2])
    labels = tf.random.stateless_uniform([1024], seed=[3, 4], maxval=CLASSES, dtype=tf.int64)
    dataset = tf.data.Dataset.from_tensor_slices((features, labels))
    return dataset.batch(batch_size, drop_remainder=True).cache().shuffle(64).repeat()


def make_batches(strategy: Any, chosen: set[Slowdown]) -> Iterator[Any]:
    """Batches for all replicas of the strategy; without a strategy, for one device."""
    replicas = 1 if strategy is None else strategy.num_replicas_in_sync
    if Slowdown.input in chosen:
        dataset = slowdowns.slow_input(make_dataset(BATCH_PER_REPLICA), replicas)
        if strategy is not None:
            dataset = slowdowns.distributed_unbuffered(strategy, dataset)
        return iter(dataset)
    dataset = make_dataset(BATCH_PER_REPLICA * replicas).prefetch(tf.data.AUTOTUNE)
    if strategy is not None:
        dataset = strategy.experimental_distribute_dataset(dataset)
    return iter(dataset)


def make_model() -> Any:
    """Four dense layers."""
    return tf.keras.Sequential(
        [
            tf.keras.layers.Input((FEATURES,)),
            tf.keras.layers.Dense(UNITS, activation="relu"),
            tf.keras.layers.Dense(UNITS, activation="relu"),
            tf.keras.layers.Dense(UNITS, activation="relu"),
            tf.keras.layers.Dense(CLASSES),
        ]
    )


def actions_after_step(
    chosen: set[Slowdown], model: Any, folder: Path
) -> list[Callable[[Any], None]]:
    """Functions to call after each step with its loss."""
    actions: list[Callable[[Any], None]] = []
    if Slowdown.sync in chosen:
        actions.append(slowdowns.metric_on_host())
    if Slowdown.checkpoint in chosen:
        actions.append(slowdowns.checkpoint_writer(model, str(folder / "checkpoint")))
    if Slowdown.callback in chosen:
        actions.append(slowdowns.slow_callback)
    return actions


def train(options: argparse.Namespace, folder: Path) -> None:
    """Train for `options.steps` steps."""
    chosen = set(options.slowdown)
    devices = choose_devices(options.devices)
    strategy = tf.distribute.MirroredStrategy(devices)
    tf.config.experimental.set_synchronous_execution(Slowdown.sync not in chosen)

    # The mistake that leaves all devices but one without work: a strategy that nothing uses.
    is_distributed = Slowdown.one_gpu not in chosen
    with strategy.scope() if is_distributed else tf.device(devices[0]):
        model = make_model()
        optimizer = tf.keras.optimizers.SGD(learning_rate=1.0)
        optimizer.build(model.trainable_variables)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def replica_step(features: Any, labels: Any, learning_rate: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(loss_of(labels, model(features, training=True)))
        gradients = tape.gradient(loss, model.trainable_variables)
        if Slowdown.straggler in chosen:
            extra = slowdowns.extra_work()
            gradients = [gradient + extra for gradient in gradients]
        if Slowdown.launch in chosen:
            loss = slowdowns.tiny_ops(loss)
        scaled = [learning_rate * gradient for gradient in gradients]
        optimizer.apply_gradients(zip(scaled, model.trainable_variables, strict=True))
        return loss

    def train_step(batch: Any, learning_rate: Any) -> Any:
        losses = strategy.run(replica_step, args=(*batch, learning_rate))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    def train_step_on_one(batch: Any, learning_rate: Any) -> Any:
        features, labels = batch
        return replica_step(features, labels, learning_rate)

    step = train_step if is_distributed else train_step_on_one
    if Slowdown.launch not in chosen:
        step = tf.function(step)
    if Slowdown.retrace in chosen:
        step = slowdowns.traced_again(step)
    batches = make_batches(strategy if is_distributed else None, chosen)
    after_step = actions_after_step(chosen, model, folder)

    # A tensor: a new value needs no new graph.
    learning_rate = tf.constant(0.1)
    for _ in range(options.steps):
        loss = step(next(batches), learning_rate)
        for action in after_step:
            action(loss)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="traceview-demo-") as name:
        train(parsed_options(), Path(name))
