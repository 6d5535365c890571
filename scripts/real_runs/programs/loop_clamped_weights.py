"""A Wasserstein critic on two replicas; slow: its weights are clamped in NumPy after each step."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

FEATURES, UNITS, BATCH, LIMIT = 512, 768, 128, 0.05

strategy = mirrored(2)
real_rows, made_rows = numbers(BATCH * 4, FEATURES), numbers(BATCH * 4, FEATURES, seed=2)


def critic_of() -> tuple[Any, Any]:
    with strategy.scope():
        layers = [tf.keras.layers.Dense(UNITS, activation="relu") for _ in range(3)]
        critic = tf.keras.Sequential([*layers, tf.keras.layers.Dense(1)])
        critic.build([None, FEATURES])
        optimizer = tf.keras.optimizers.RMSprop(5e-5)
        optimizer.build(critic.trainable_variables)
    return critic, optimizer


def clamp(critic: Any) -> None:
    """Keep the critic smooth."""
    critic.set_weights([np.clip(weight, -LIMIT, LIMIT) for weight in critic.get_weights()])


def train(is_slow: bool, clock: StepClock) -> None:
    critic, optimizer = critic_of()

    def replica_step(real: Any, made: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(critic(made)) - tf.reduce_mean(critic(real))
        gradients = tape.gradient(loss, critic.trainable_variables)
        optimizer.apply_gradients(zip(gradients, critic.trainable_variables, strict=True))
        return loss

    @tf.function  # type: ignore[untyped-decorator]
    def train_step(batch: Any) -> Any:
        losses = strategy.run(replica_step, args=batch)
        if not is_slow:
            for variable in critic.trainable_variables:
                variable.assign(tf.clip_by_value(variable, -LIMIT, LIMIT))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    dataset = tf.data.Dataset.from_tensor_slices((real_rows, made_rows))
    dataset = dataset.batch(BATCH, drop_remainder=True).cache().repeat().prefetch(2)
    source = iter(strategy.experimental_distribute_dataset(dataset))
    for _ in range(STEPS):
        train_step(next(source))
        if is_slow:
            clamp(critic)
        clock.step_ended()
