"""A loop on one device that trains on a rollout of its model; slow: each state of it is appended to a tensor by `tf.concat`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FEATURES, LENGTH = 96, 192, 128

tf.config.threading.set_intra_op_parallelism_threads(1)
start = tf.random.stateless_normal([BATCH, FEATURES], seed=[1, 2])


def rollout_in_tensor(move: Any, state: Any) -> Any:
    states = tf.zeros([BATCH, 0, FEATURES])
    for _ in tf.range(LENGTH):
        tf.autograph.experimental.set_loop_options(
            shape_invariants=[(states, tf.TensorShape([BATCH, None, FEATURES]))]
        )
        state = move(state)
        states = tf.concat([states, state[:, None]], axis=1)
    return states


def rollout_in_array(move: Any, state: Any) -> Any:
    states = tf.TensorArray(tf.float32, LENGTH)
    for place in tf.range(LENGTH):
        state = move(state)
        states = states.write(place, state)
    return tf.transpose(states.stack(), [1, 0, 2])


def train(is_slow: bool, clock: StepClock) -> None:
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(256, activation="tanh"), tf.keras.layers.Dense(FEATURES)]
    )
    model.build([BATCH, FEATURES])
    optimizer = tf.keras.optimizers.SGD(0.01)
    rollout = rollout_in_tensor if is_slow else rollout_in_array

    def train_step(state: Any) -> Any:
        states = tf.ensure_shape(rollout(model, state), [BATCH, LENGTH, FEATURES])
        rows = tf.reshape(states[:, ::16], [-1, FEATURES])
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(rows, training=True) - rows))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    compiled_step = tf.function(train_step)
    for _ in range(STEPS):
        compiled_step(start)
        clock.step_ended()
