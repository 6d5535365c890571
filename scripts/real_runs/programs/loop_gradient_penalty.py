"""A discriminator learns to tell pictures from made ones; slow: its gradient is penalized in each step, not in each eighth."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, SIDE, FILTERS, NOISE, APART = 32, 32, (24, 48, 64), 64, 8

tf.config.threading.set_intra_op_parallelism_threads(1)
pictures = numbers(BATCH * 4, SIDE, SIDE, 3)


def discriminator() -> Any:
    layers = [
        tf.keras.layers.Conv2D(filters, 4, 2, padding="same", activation="softplus")
        for filters in FILTERS
    ]
    network = tf.keras.Sequential([*layers, tf.keras.layers.Flatten(), tf.keras.layers.Dense(1)])
    network.build([None, SIDE, SIDE, 3])
    return network


def generator() -> Any:
    network = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(8 * 8 * 32, activation="relu"),
            tf.keras.layers.Reshape([8, 8, 32]),
            tf.keras.layers.Conv2DTranspose(24, 4, 2, padding="same", activation="relu"),
            tf.keras.layers.Conv2DTranspose(3, 4, 2, padding="same", activation="tanh"),
        ]
    )
    network.build([None, NOISE])
    return network


def train(is_slow: bool, clock: StepClock) -> None:
    critic, maker = discriminator(), generator()
    optimizer = tf.keras.optimizers.Adam(1e-4, beta_1=0.0)
    optimizer.build(critic.trainable_variables)

    def roughness(real: Any) -> Any:
        """How steep the critic is where the pictures are."""
        with tf.GradientTape() as tape:
            tape.watch(real)
            score = tf.reduce_sum(critic(real))
        slope = tape.gradient(score, real)
        return tf.reduce_mean(tf.reduce_sum(tf.square(slope), axis=[1, 2, 3]))

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(real: Any, is_penalized: bool) -> Any:
        made = maker(tf.random.normal([BATCH, NOISE]))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.softplus(critic(made)) + tf.nn.softplus(-critic(real)))
            if is_penalized:
                loss += 5.0 * roughness(real)
        gradients = tape.gradient(loss, critic.trainable_variables)
        optimizer.apply_gradients(zip(gradients, critic.trainable_variables, strict=True))
        return loss

    dataset = tf.data.Dataset.from_tensor_slices(pictures).batch(BATCH).cache().repeat()
    source = iter(dataset.prefetch(2))
    for number in range(STEPS):
        train_step(next(source), is_slow or number % APART == 0)
        clock.step_ended()
