"""A recognizer of speech; slow twice: a beam search counts errors in each step, and every fourth goes back to saved weights."""

from __future__ import annotations

import tempfile
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, FRAMES, BANDS, UNITS, LETTERS, WRITTEN, BEAMS, PATIENCE = 12, 48, 40, 192, 24, 12, 6, 4

tf.config.threading.set_intra_op_parallelism_threads(1)
sounds = tf.constant(numbers(BATCH, FRAMES, BANDS))
texts = tf.random.stateless_uniform([BATCH, WRITTEN], [2, 3], 1, LETTERS, tf.int32)
lengths = tf.fill([BATCH], FRAMES)
spoken = tf.transpose(tf.repeat(texts, FRAMES // WRITTEN, axis=1))


class Recognizer(tf.keras.Model):  # type: ignore[misc]  # TensorFlow has no types here
    """Scores of letters for each frame: convolutions over time and dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = [
            tf.keras.layers.Conv1D(UNITS, 5, padding="same", activation="relu"),
            tf.keras.layers.Conv1D(UNITS, 5, padding="same", activation="relu"),
            tf.keras.layers.Dense(LETTERS + 1),
        ]

    def call(self, batch: Any) -> Any:
        for layer in self.parts:
            batch = layer(batch)
        return batch


def train(is_slow: bool, clock: StepClock) -> None:
    model = Recognizer()
    model(sounds)
    optimizer = tf.keras.optimizers.Adam(1e-4)
    optimizer.build(model.trainable_variables)

    def letter_errors(scores: Any) -> Any:
        """The mean edit distance of what is read out of the scores."""
        if is_slow:
            (best,), _ = tf.nn.ctc_beam_search_decoder(scores, lengths, beam_width=BEAMS)
        else:
            (best,), _ = tf.nn.ctc_greedy_decoder(scores, lengths)
        right = tf.sparse.from_dense(tf.cast(texts, tf.int64))
        return tf.reduce_mean(tf.edit_distance(best, right))

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step() -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            scores = tf.transpose(model(sounds), [1, 0, 2])
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(spoken, scores)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss, letter_errors(scores)

    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    with tempfile.TemporaryDirectory() as folder:
        good = checkpoint.write(f"{folder}/good")
        bad_steps = 0
        for _ in range(STEPS):
            _, errors = train_step()
            bad_steps += bool(errors > 0.0)
            if is_slow and bad_steps == PATIENCE:
                checkpoint.read(good).assert_consumed()
                bad_steps = 0
            clock.step_ended()
