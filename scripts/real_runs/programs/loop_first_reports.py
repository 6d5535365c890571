"""Embeddings are learnt on two replicas; slow: the first one also looks up a gallery in each step, for a number printed rarely."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

FEATURES, UNITS, WIDTH, BATCH, GALLERY, REPORT = 256, 768, 128, 128, 80_000, 24

strategy = mirrored(2)
rows, views = numbers(BATCH * 4, FEATURES), numbers(BATCH * 4, FEATURES, seed=2)
gallery = numbers(GALLERY, WIDTH, seed=3)
owners = tf.constant(numbers(GALLERY, 50, seed=4).argmax(1).astype("int32"))


def encoder_of() -> tuple[Any, Any, Any]:
    with strategy.scope():
        layers = [tf.keras.layers.Dense(UNITS, activation="relu") for _ in range(3)]
        encoder = tf.keras.Sequential([*layers, tf.keras.layers.Dense(WIDTH)])
        encoder.build([None, FEATURES])
        optimizer = tf.keras.optimizers.SGD(1e-3)
        optimizer.build(encoder.trainable_variables)
        bank = tf.Variable(tf.math.l2_normalize(gallery, axis=1), trainable=False)
    return encoder, optimizer, bank


def train(is_slow: bool, clock: StepClock) -> None:
    encoder, optimizer, bank = encoder_of()

    def hits(queries: Any) -> Any:
        """How many of the nearest in the gallery are of one owner."""
        likeness = tf.matmul(queries, bank, transpose_b=True)
        _, nearest = tf.math.top_k(likeness, 10)
        found = tf.gather(owners, nearest)
        return tf.reduce_mean(tf.cast(found == found[:, :1], tf.float32))

    def replica_step(anchors: Any, others: Any, is_reported: bool) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            left = tf.math.l2_normalize(encoder(anchors), axis=1)
            right = tf.math.l2_normalize(encoder(others), axis=1)
            logits = tf.matmul(left, right, transpose_b=True) / 0.1
            answers = tf.range(tf.shape(logits)[0])
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=answers, logits=logits)
            )
        gradients = tape.gradient(loss, encoder.trainable_variables)
        optimizer.apply_gradients(zip(gradients, encoder.trainable_variables, strict=True))
        score = tf.zeros([])
        if is_reported:
            # One replica is enough for a report.
            is_first = tf.distribute.get_replica_context().replica_id_in_sync_group == 0
            score = tf.cond(is_first, lambda: hits(left), lambda: tf.zeros([]))
        return loss, score

    @tf.function  # type: ignore[untyped-decorator]
    def train_step(batch: Any, is_reported: bool) -> Any:
        losses, scores = strategy.run(replica_step, args=(*batch, is_reported))
        return (
            strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None),
            strategy.reduce(tf.distribute.ReduceOp.SUM, scores, axis=None),
        )

    dataset = tf.data.Dataset.from_tensor_slices((rows, views))
    dataset = dataset.batch(BATCH, drop_remainder=True).cache().repeat().prefetch(2)
    source = iter(strategy.experimental_distribute_dataset(dataset))
    for number in range(STEPS):
        is_printed = number % REPORT == 0
        loss, score = train_step(next(source), is_slow or is_printed)
        if is_printed:
            print(f"step {number}: loss {float(loss):.3f}, hits {float(score):.3f}")
        clock.step_ended()
