"""Spectra and their sources; slow: each epoch of six steps makes its data set anew, whose functions are traced again, not once with `repeat`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, BINS, KINDS, EPOCH = 64, 256, 12, 6

tf.config.threading.set_intra_op_parallelism_threads(1)
spectra = numbers(BATCH * EPOCH, BINS)
sources = tf.random.stateless_uniform([BATCH * EPOCH], [4, 4], 0, KINDS, tf.int32).numpy()


def noisy(rows: Any, kinds: Any) -> tuple[Any, Any]:
    return rows + tf.random.normal(tf.shape(rows), stddev=0.05), kinds


def shifted(rows: Any, kinds: Any) -> tuple[Any, Any]:
    return tf.roll(rows, tf.random.uniform([], -4, 5, tf.int32), axis=1), kinds


def masked(rows: Any, kinds: Any) -> tuple[Any, Any]:
    start = tf.random.uniform([], 0, BINS - 16, tf.int32)
    places = tf.range(BINS)
    return tf.where((places >= start) & (places < start + 16), 0.0, rows), kinds


def normalized(rows: Any, kinds: Any) -> tuple[Any, Any]:
    mean, variance = tf.nn.moments(rows, [1], keepdims=True)
    return (rows - mean) / tf.sqrt(variance + 1e-6), kinds


def epoch_of(epochs: int) -> Any:
    dataset = tf.data.Dataset.from_tensor_slices((spectra, sources))
    dataset = dataset.shuffle(len(spectra)).repeat(epochs).batch(BATCH)
    for change in (noisy, shifted, masked, normalized):
        dataset = dataset.map(change, num_parallel_calls=2)
    return dataset.prefetch(2)


def batches(is_slow: bool) -> Iterator[Any]:
    if is_slow:
        for _ in range(STEPS // EPOCH):
            yield from epoch_of(1)
    else:
        yield from epoch_of(STEPS // EPOCH)


def train(is_slow: bool, clock: StepClock) -> None:
    layers = [tf.keras.Input([BINS]), tf.keras.layers.Reshape([BINS, 1])]
    layers += [tf.keras.layers.Conv1D(count, 7, 2, "same", activation="gelu") for count in (24, 48)]
    layers += [tf.keras.layers.Flatten(), tf.keras.layers.Dense(KINDS)]
    model = tf.keras.Sequential(layers)
    optimizer = tf.keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(rows: Any, kinds: Any) -> Any:
        with tf.GradientTape() as tape:
            scores = model(rows, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(kinds, scores))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    for rows, kinds in batches(is_slow):
        train_step(rows, kinds)
        clock.step_ended()
