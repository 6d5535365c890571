"""A deep residual network; slow: weights and moments are passed to each call of the step and returned, in nested dicts."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, UNITS, BLOCKS = 96, 128, 40

tf.config.threading.set_intra_op_parallelism_threads(1)
rows = tf.constant(numbers(BATCH, UNITS))


def weights_of_block(seed: int) -> dict[str, Any]:
    zeros = tf.zeros([UNITS])
    return {
        "norm": {"scale": tf.ones([UNITS]), "offset": zeros},
        "dense": {"kernel": tf.constant(numbers(UNITS, UNITS, seed=seed) * 0.05), "bias": zeros},
    }


def moved(weights: Any, states: Any) -> Any:
    """The output of the network."""
    for block in weights.values():
        mean, variance = tf.nn.moments(states, axes=[-1], keepdims=True)
        normal = (states - mean) * tf.math.rsqrt(variance + 1e-5)
        normal = normal * block["norm"]["scale"] + block["norm"]["offset"]
        states += tf.nn.relu(normal @ block["dense"]["kernel"] + block["dense"]["bias"])
    return states


def updated(state: Any, batch: Any) -> tuple[Any, Any]:
    """The state after a step of gradient descent with momentum, and the loss."""
    weights, moments = state["weights"], state["moments"]
    flat = tf.nest.flatten(weights)
    with tf.GradientTape() as tape:
        tape.watch(flat)
        loss = tf.reduce_mean(tf.square(moved(weights, batch) - batch))
    gradients = tf.nest.pack_sequence_as(weights, tape.gradient(loss, flat))
    moments = tf.nest.map_structure(lambda old, new: 0.9 * old + new, moments, gradients)
    weights = tf.nest.map_structure(lambda old, moment: old - 1e-4 * moment, weights, moments)
    return {"weights": weights, "moments": moments}, loss


def train(is_slow: bool, clock: StepClock) -> None:
    weights = {f"block {number}": weights_of_block(number) for number in range(BLOCKS)}
    state: Any = {"weights": weights, "moments": tf.nest.map_structure(tf.zeros_like, weights)}
    held = tf.nest.map_structure(tf.Variable, state)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def step_of_arguments(state: Any, batch: Any) -> tuple[Any, Any]:
        return updated(state, batch)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def step_of_variables(batch: Any) -> Any:
        read = tf.nest.map_structure(lambda variable: variable.read_value(), held)
        new, loss = updated(read, batch)
        tf.nest.map_structure(lambda variable, value: variable.assign(value), held, new)
        return loss

    for _ in range(STEPS):
        if is_slow:
            state, _loss = step_of_arguments(state, rows)
        else:
            step_of_variables(rows)
        clock.step_ended()
