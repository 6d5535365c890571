"""Four replicas learn vectors of views; slow twice: each batch is mixed anew over the replicas, which gather all its views, and each measurement is kept in a dictionary of another process."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import MutableMapping
from typing import Any

BATCH, SIDE, CHANNELS, MEASURED, DECAY = 48, 32, 32, 36, 0.9
"""`BATCH`: of all replicas."""


def noted(state: MutableMapping[str, float], loss: float) -> None:
    """Keep moving averages of what a step measured."""
    for number in range(MEASURED):
        name = f"view_{number}/loss"
        state[name] = state.get(name, 0.0) * DECAY + loss / (number + 1) * (1 - DECAY)


def main() -> None:
    import tensorflow as tf

    from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks
    from scripts.real_runs.training import mirrored, numbers, step_of

    strategy = mirrored(4)
    views = numbers(BATCH * 4, SIDE, SIDE, 6)
    shared = multiprocessing.get_context("spawn").Manager().dict()

    def mixed(batch: Any) -> Any:
        """As many views as a replica has, of all replicas, so that no statistics tell which belong together."""
        context = tf.distribute.get_replica_context()
        part = tf.ensure_shape(batch, [BATCH // context.num_replicas_in_sync, SIDE, SIDE, 6])
        all_views = context.all_gather(part, axis=0)
        order = tf.random.experimental.stateless_shuffle(tf.range(BATCH), [3, 5])
        mine = tf.reshape(order, [context.num_replicas_in_sync, -1])
        return tf.gather(all_views, mine[context.replica_id_in_sync_group])

    def train(is_slow: bool, clock: StepClock) -> None:
        with strategy.scope():
            layers = [
                tf.keras.layers.Conv2D(CHANNELS * count, 3, 2, activation="relu")
                for count in (1, 2, 4)
            ]
            pooled = tf.keras.layers.GlobalAveragePooling2D()
            encoder = tf.keras.Sequential([*layers, pooled, tf.keras.layers.Dense(64)])
            encoder.build([None, SIDE, SIDE, 3])
            optimizer = tf.keras.optimizers.SGD(0.01)
            optimizer.build(encoder.trainable_variables)

        def loss_of(encoder: Any, batch: Any) -> Any:
            if is_slow:
                batch = mixed(batch)
            left, right = (
                tf.math.l2_normalize(encoder(half, training=True), axis=1)
                for half in tf.split(batch, 2, axis=3)
            )
            scores = tf.matmul(left, right, transpose_b=True) / 0.2
            places = tf.range(tf.shape(scores)[0])
            return tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=places, logits=scores)
            )

        train_step = step_of(strategy, encoder, optimizer, loss_of)
        dataset = tf.data.Dataset.from_tensor_slices(views).batch(BATCH).cache().repeat()
        source = iter(strategy.experimental_distribute_dataset(dataset.prefetch(2)))
        state: MutableMapping[str, float] = shared if is_slow else {}
        for _ in range(STEPS):
            noted(state, float(train_step(next(source))))
            clock.step_ended()

    # The first run of a process takes longer, and the first that is recorded, too.
    with tf.profiler.experimental.Profile(tempfile.mkdtemp()):
        train(False, StepClock())
    run_blocks(train)


if __name__ == "__main__":
    main()
