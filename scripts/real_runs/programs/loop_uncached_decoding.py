"""A captioner learns from sentences that it samples; slow: each word of a sentence runs the decoder over all words before it again."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, LENGTH, WIDTH, WORDS, LAYERS = 32, 12, 160, 600, 2

tf.config.threading.set_intra_op_parallelism_threads(1)
photographs = tf.constant(numbers(BATCH * 4, WIDTH))
captions = tf.random.stateless_uniform([BATCH * 4, LENGTH], [5, 1], 1, WORDS, tf.int32)


class Layer(tf.Module):  # type: ignore[misc]  # TensorFlow has no types here
    """Causal attention and two dense layers; returns keys and values, too, and takes those of earlier words."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        shapes = {"qkv": (WIDTH, 3 * WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
        for name, shape in shapes.items():
            setattr(self, name, tf.Variable(0.04 * numbers(*shape, seed=seed), name=name))

    def __call__(self, rows: Any, past: Any = None) -> tuple[Any, Any]:
        queries, keys, values = tf.split(tf.tensordot(rows, self.qkv, 1), 3, axis=-1)
        if past is not None:
            keys = tf.concat([past[0], keys], axis=1)
            values = tf.concat([past[1], values], axis=1)
        scores = tf.matmul(queries, keys, transpose_b=True) / WIDTH**0.5
        if past is None:
            count = rows.shape[1]
            scores += -1e9 * (1 - tf.linalg.band_part(tf.ones([count, count]), -1, 0))
        rows += tf.matmul(tf.nn.softmax(scores), values)
        rows += tf.tensordot(tf.nn.relu(tf.tensordot(rows, self.up, 1)), self.down, 1)
        return rows, (keys, values)


class Decoder(tf.Module):  # type: ignore[misc]  # TensorFlow has no types here
    """Foretells the next word from a photograph and the words so far."""

    def __init__(self) -> None:
        super().__init__()
        self.words = tf.Variable(0.1 * numbers(WORDS, WIDTH, seed=3))
        self.places = tf.Variable(0.1 * numbers(LENGTH, WIDTH, seed=4))
        self.layers = [Layer(seed) for seed in range(LAYERS)]

    def __call__(self, image: Any, words: Any, pasts: Any = None, start: int = 0) -> Any:
        places = self.places[start : start + words.shape[1]]
        rows = tf.gather(self.words, words) + places + image[:, None]
        kept = []
        for layer, past in zip(self.layers, pasts or [None] * LAYERS, strict=True):
            rows, both = layer(rows, past)
            kept.append(both)
        return tf.tensordot(rows, self.words, [[2], [1]]), kept


def sampled(decoder: Decoder, image: Any, is_slow: bool) -> Any:
    """A sentence for each photograph, with the word that begins all of them."""
    words = tf.zeros([BATCH, 1], tf.int32)
    newest, pasts = words, None
    for place in range(LENGTH - 1):
        if is_slow:
            logits, _ = decoder(image, words)
        else:
            logits, pasts = decoder(image, newest, pasts, place)
        newest = tf.random.categorical(logits[:, -1], 1, dtype=tf.int32)
        words = tf.concat([words, newest], axis=1)
    return words


def train(is_slow: bool, clock: StepClock) -> None:
    decoder = Decoder()
    variables = decoder.trainable_variables
    optimizer = tf.keras.optimizers.Adam(1e-4)
    optimizer.build(variables)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(image: Any, truth: Any) -> Any:
        words = sampled(decoder, image, is_slow)
        hits = tf.reduce_any(words[:, 1:, None] == truth[:, None, :], axis=2)
        reward = tf.reduce_mean(tf.cast(hits, tf.float32), axis=1)
        with tf.GradientTape() as tape:
            logits, _ = decoder(image, words[:, :-1])
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(words[:, 1:], logits)
            loss = tf.reduce_mean((reward - tf.reduce_mean(reward))[:, None] * losses)
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return tf.reduce_mean(reward)

    dataset = tf.data.Dataset.from_tensor_slices((photographs, captions)).batch(BATCH, True)
    source = iter(dataset.cache().repeat().prefetch(2))
    for _ in range(STEPS):
        train_step(*next(source))
        clock.step_ended()
