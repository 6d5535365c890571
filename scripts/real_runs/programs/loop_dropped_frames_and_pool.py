"""Two replicas; slow: a layer computes frames that a slice drops, and a pool of processes scales the sounds."""

from __future__ import annotations

from multiprocessing import get_context
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks
from scripts.real_runs.training import mirrored, numbers

SOUNDS, BATCH, FRAMES, BANDS, WIDTH, STATES = 48, 8, 384, 256, 160, 160
USED = 4


def scaled(spectrogram: Any) -> Any:
    return (spectrogram - spectrogram.mean(axis=0)) / (spectrogram.std(axis=0) + 1e-3)


def main() -> None:
    strategy = mirrored(2)
    sounds = numbers(SOUNDS, FRAMES, BANDS)
    states = np.random.default_rng(41).integers(0, STATES, [SOUNDS, FRAMES // USED], np.int32)

    def train(is_slow: bool, clock: StepClock) -> None:
        drops_frames = is_slow
        has_pool = is_slow
        layers = tf.keras.layers
        with strategy.scope():
            inputs = tf.keras.Input([FRAMES, BANDS])
            if drops_frames:
                hidden = layers.Conv1D(WIDTH, USED, activation="relu")(inputs)
                hidden = hidden[:, ::USED]
            else:
                hidden = layers.Conv1D(WIDTH, USED, strides=USED, activation="relu")(inputs)
            hidden = layers.Conv1D(WIDTH, 3, padding="same", activation="relu")(hidden)
            model = tf.keras.Model(inputs, layers.Dense(STATES)(hidden))
            optimizer = tf.keras.optimizers.SGD(1e-2)
            optimizer.build(model.trainable_variables)

        def replica_step(batch: Any, truth: Any) -> Any:
            with tf.GradientTape() as tape:
                scores = model(batch, training=True)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(truth, scores)
                loss = tf.reduce_mean(losses)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
        def train_step(batch: Any, truth: Any) -> Any:
            losses = strategy.run(replica_step, args=(batch, truth))
            return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

        def distributed(rows: Any) -> Any:
            half = BATCH // 2

            def part(context: Any) -> Any:
                replica = context.replica_id_in_sync_group
                return tf.constant(rows[replica * half : (replica + 1) * half])

            return strategy.experimental_distribute_values_from_function(part)

        for number in range(STEPS):
            chosen = slice(number * BATCH % SOUNDS, number * BATCH % SOUNDS + BATCH)
            batch = np.stack((pool.map if has_pool else map_here)(scaled, sounds[chosen]))
            float(train_step(distributed(batch), distributed(states[chosen])))
            clock.step_ended()

    def map_here(function: Any, values: Any) -> Any:
        return [function(value) for value in values]

    with get_context("fork").Pool(2) as pool:
        run_blocks(train)


if __name__ == "__main__":
    main()
