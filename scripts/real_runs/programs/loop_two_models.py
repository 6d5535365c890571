"""A loop on one device that trains two models in turn, each by a function of its own: nothing slows it down."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FEATURES = 256, 256

tf.config.threading.set_intra_op_parallelism_threads(1)
features = tf.random.stateless_normal([BATCH, FEATURES], seed=[1, 2])


def made(outputs: int) -> Any:
    layers = [tf.keras.layers.Dense(768, activation="relu"), tf.keras.layers.Dense(outputs)]
    model = tf.keras.Sequential(layers)
    model.build([BATCH, FEATURES])
    return model, tf.keras.optimizers.SGD(0.001)


def step_of(model: Any, optimizer: Any, loss_of: Any) -> Any:
    def train_step(rows: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(rows)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return tf.function(train_step)


def train(_is_slow: bool, clock: StepClock) -> None:
    maker, maker_optimizer = made(FEATURES)
    judge, judge_optimizer = made(1)
    judge_step = step_of(
        judge, judge_optimizer, lambda rows: tf.reduce_mean(judge(maker(rows)) - judge(rows))
    )
    maker_step = step_of(
        maker, maker_optimizer, lambda rows: -tf.reduce_mean(tf.tanh(judge(maker(rows))))
    )
    for _ in range(STEPS):
        judge_step(features)
        maker_step(features)
        clock.step_ended()
