"""A writer of short sequences learns from the words before; slow: the saved model that rates what it writes is loaded again for each rating."""

from __future__ import annotations

import tempfile
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, LENGTH, WORDS, WIDTH, UNITS, APART = 48, 16, 500, 64, 128, 6
"""`APART`: steps between two ratings."""

tf.config.threading.set_intra_op_parallelism_threads(1)
texts = tf.random.stateless_uniform([BATCH * 4, LENGTH + 1], [3, 9], 0, WORDS, tf.int32)


class Judge(tf.Module):  # type: ignore[misc]  # TensorFlow has no types here
    """Says how good a text is."""

    def __init__(self) -> None:
        super().__init__()
        self.table = tf.Variable(numbers(WORDS, WIDTH))
        self.weights = [tf.Variable(numbers(WIDTH, WIDTH) * 0.1) for _ in range(3)]

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def rate(self, words: Any) -> Any:
        states = tf.gather(self.table, words)
        for weight in self.weights:
            states = states + tf.nn.relu(states @ weight)
        return tf.reduce_mean(states, axis=[1, 2])


folder = tempfile.mkdtemp()
tf.saved_model.save(Judge(), folder)


def train(is_slow: bool, clock: StepClock) -> None:
    writer = tf.keras.Sequential(
        [
            tf.keras.layers.Embedding(WORDS, WIDTH),
            tf.keras.layers.GRU(UNITS, return_sequences=True, unroll=True),
            tf.keras.layers.Dense(WORDS),
        ]
    )
    writer.build([None, LENGTH])
    optimizer = tf.keras.optimizers.SGD(1e-2)
    optimizer.build(writer.trainable_variables)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(words: Any) -> Any:
        with tf.GradientTape() as tape:
            scores = writer(words[:, :-1])
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(words[:, 1:], scores)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, writer.trainable_variables)
        optimizer.apply_gradients(zip(gradients, writer.trainable_variables, strict=True))
        return tf.argmax(scores, axis=-1, output_type=tf.int32)

    judge = tf.saved_model.load(folder)

    def rating(written: Any) -> Any:
        rater = tf.saved_model.load(folder) if is_slow else judge
        return rater.rate(written)

    dataset = tf.data.Dataset.from_tensor_slices(texts).batch(BATCH).cache().repeat().prefetch(2)
    ratings = []
    for number, batch in enumerate(dataset.take(STEPS)):
        written = train_step(batch)
        if number % APART == 0:
            ratings.append(rating(written))
        clock.step_ended()
