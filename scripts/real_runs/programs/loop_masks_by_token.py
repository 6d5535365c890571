"""Two replicas learn masked words; slow: the masks are chosen token by token in Python, not with arrays."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored

BATCH, LENGTH, WORDS, WIDTH, MASK, SPECIAL = 128, 128, 1500, 32, 3, 10
strategy = mirrored(2)
texts = np.random.default_rng(1).integers(0, WORDS, [BATCH * 8, LENGTH]).astype(np.int32)


def masked_words(rows: Any) -> tuple[Any, Any]:
    """BERT's rule: of 15 % of the words, 80 % are hidden, 10 % replaced, 10 % kept."""
    inputs, weights = rows.copy(), np.zeros(rows.shape, np.float32)
    for row in range(rows.shape[0]):
        for place in range(rows.shape[1]):
            if rows[row, place] < SPECIAL or random.random() >= 0.15:
                continue
            weights[row, place] = 1.0
            draw = random.random()
            if draw < 0.8:
                inputs[row, place] = MASK
            elif draw < 0.9:
                inputs[row, place] = random.randrange(SPECIAL, WORDS)
    return inputs, weights


generator = np.random.default_rng(2)


def masked_arrays(rows: Any) -> tuple[Any, Any]:
    chosen = (generator.random(rows.shape) < 0.15) & (rows >= SPECIAL)
    draw = generator.random(rows.shape)
    inputs = np.where(chosen & (draw < 0.8), MASK, rows)
    other = generator.integers(SPECIAL, WORDS, rows.shape)
    inputs = np.where(chosen & (draw >= 0.8) & (draw < 0.9), other, inputs).astype(np.int32)
    return inputs, chosen.astype(np.float32)


def train(is_slow: bool, clock: StepClock) -> None:
    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Embedding(WORDS, WIDTH),
                tf.keras.layers.Conv1D(WIDTH, 5, padding="same", activation="relu"),
                tf.keras.layers.Dense(64),
            ]
        )
        model.build([None, LENGTH])
        optimizer = tf.keras.optimizers.SGD(1e-3)
        optimizer.build(model.trainable_variables)

    def replica_step(inputs: Any, labels: Any, weights: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = model(inputs, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels % 64, logits)
            loss = tf.reduce_sum(losses * weights) / (tf.reduce_sum(weights) + 1.0)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function  # type: ignore[untyped-decorator]
    def train_step(inputs: Any, labels: Any, weights: Any) -> Any:
        losses = strategy.run(replica_step, args=(inputs, labels, weights))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    def part(array: Any) -> Any:
        half = BATCH // 2
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(
                array[
                    context.replica_id_in_sync_group * half : (context.replica_id_in_sync_group + 1)
                    * half
                ]
            )
        )

    for number in range(STEPS):
        rows = texts[number % 8 * BATCH : (number % 8 + 1) * BATCH]
        inputs, weights = masked_words(rows) if is_slow else masked_arrays(rows)
        train_step(part(inputs), part(rows), part(weights))
        clock.step_ended()
