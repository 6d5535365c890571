"""A classifier of spoken words; slow: each epoch of six steps begins by going through the data set to count its batches."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, SAMPLES, BANDS, CLASSES, EPOCH_STEPS, FILTERS = 16, 4000, 32, 12, 6, 96

tf.config.threading.set_intra_op_parallelism_threads(1)
# A third of the sounds is silence, which is left out.
loudness = tf.constant([1.0, 1.0, 0.0] * (BATCH * EPOCH_STEPS // 2))
sounds = tf.constant(numbers(BATCH * EPOCH_STEPS * 3 // 2, SAMPLES)) * loudness[:, None]
words = tf.random.stateless_uniform([sounds.shape[0]], [2, 8], 0, CLASSES, tf.int32)
mel = tf.signal.linear_to_mel_weight_matrix(BANDS, 129, 8000, 80.0, 3800.0)


def is_spoken(sound: Any, _word: Any) -> Any:
    return tf.reduce_max(tf.abs(sound)) > 0.01


def with_bands(batch: Any, truth: Any) -> Any:
    """Sounds, shifted in time, as energies of bands."""
    batch = tf.roll(batch, tf.random.uniform([], -400, 400, tf.int32), axis=1)
    spectrum = tf.abs(tf.signal.stft(batch, 256, 80, 256))
    return tf.math.log(tf.tensordot(spectrum, mel, 1) + 1e-5), truth


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((sounds, words)).filter(is_spoken)
    dataset = dataset.shuffle(32).batch(BATCH, drop_remainder=True).map(with_bands)
    layers = [tf.keras.layers.Conv1D(FILTERS, 5, padding="same", activation="relu") for _ in "123"]
    pool = tf.keras.layers.GlobalAveragePooling1D()
    model = tf.keras.Sequential([*layers, pool, tf.keras.layers.Dense(CLASSES)])
    model.build([None, None, BANDS])
    optimizer = tf.keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(batch: Any, truth: Any, rate: Any) -> Any:
        with tf.GradientTape() as tape:
            scores = model(batch, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(truth, scores)
            loss = tf.reduce_mean(losses) * rate
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    source = iter(dataset.repeat().prefetch(4))
    epoch_steps = sum(1 for _ in dataset)
    for epoch in range(STEPS // EPOCH_STEPS):
        if is_slow:
            epoch_steps = sum(1 for _ in dataset)
        rate = tf.constant(0.9**epoch)
        for _ in range(epoch_steps):
            train_step(*next(source), rate)
            clock.step_ended()
