"""Two replicas keep a bank of features; slow: each writes the whole bank, which is averaged over them in each step."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers

BATCH, FEATURES, UNITS, SAMPLES = 512, 128, (512, 512), 20_000
strategy = mirrored(2)
rows = numbers(BATCH * 4, FEATURES)


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, *UNITS)
    with strategy.scope():
        bank = tf.Variable(
            tf.zeros([SAMPLES, FEATURES]),
            trainable=False,
            aggregation=tf.VariableAggregation.MEAN,
            name="bank",
        )
        place = tf.Variable(
            0, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
        )

    def replica_step(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = model(batch, training=True)
            loss = tf.reduce_mean(tf.square(outputs - batch))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        if is_slow:
            places = (place + tf.range(tf.shape(outputs)[0])) % SAMPLES
            bank.assign(tf.tensor_scatter_nd_update(bank, places[:, tf.newaxis], outputs))
            return loss, tf.zeros([0, FEATURES])
        return loss, outputs

    newest = tf.Variable(tf.zeros([SAMPLES, FEATURES]), trainable=False)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(batch: Any) -> Any:
        losses, outputs = strategy.run(replica_step, args=(batch,))
        if not is_slow:
            parts = strategy.experimental_local_results(outputs)
            mean = tf.add_n(parts) / len(parts)
            places = (place + tf.range(tf.shape(mean)[0])) % SAMPLES
            newest.scatter_nd_update(places[:, tf.newaxis], mean)
        place.assign((place + BATCH // 2) % SAMPLES)
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    dataset = tf.data.Dataset.from_tensor_slices(rows).batch(BATCH).cache().repeat()
    source = iter(strategy.experimental_distribute_dataset(dataset.prefetch(2)))
    for _ in range(STEPS):
        train_step(next(source))
        clock.step_ended()
