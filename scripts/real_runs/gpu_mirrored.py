"""Holds what programs of `MirroredStrategy` on one GPU share: replicas on parts of it, which exchange by copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import tensorflow as tf

from scripts.real_runs.gpu_training import GPUS, model_of, sized
from scripts.real_runs.training import squared_error

REPLICAS: Final = 2
FEATURES: Final = sized(2048, 64)
_MEMORY_MB: Final = 16_000


def summing_on(device: str | None) -> Any:
    """A strategy that sums gradients on this device, or on the first replica's."""
    return tf.distribute.MirroredStrategy(
        cross_device_ops=tf.distribute.ReductionToOneDevice(device)
    )


def _strategy() -> Any:
    part = tf.config.LogicalDeviceConfiguration(_MEMORY_MB if GPUS else None)
    physical = GPUS or tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(physical[0], [part] * REPLICAS)
    return summing_on(None)


strategy = _strategy()


def step_of_replicas(
    loss_of: Callable[[Any, Any], Any] = squared_error,
    layers: int = 12,
    strategy: Any = strategy,
    *,
    in_graph: bool = True,
) -> Callable[[Any], Any]:
    """A step of all replicas, which returns the loss; compiled if it is `in_graph`. `loss_of`: of the model and a replica's batch."""
    with strategy.scope():
        model, optimizer = model_of(FEATURES, layers)
        variables = model.trainable_variables
        optimizer.build(variables)

    def replica_step(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(model, batch)
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    def train_step(batch: Any) -> Any:
        losses = strategy.run(replica_step, args=(batch,))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    step: Callable[[Any], Any] = tf.function(train_step) if in_graph else train_step
    return step


def kept_on_replicas(rows_of: Callable[[int], Any]) -> Any:
    """A batch whose parts lie on their devices already. `rows_of`: the rows of the replica of this number."""

    def part(context: Any) -> Any:
        number = context.replica_id_in_sync_group
        with tf.device(strategy.extended.worker_devices[number]):
            return tf.identity(rows_of(number))

    return strategy.experimental_distribute_values_from_function(part)
