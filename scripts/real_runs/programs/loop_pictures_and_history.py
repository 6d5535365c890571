"""An autoencoder on two replicas; slow twice: replica 0 packs pictures in its step, and all norms so far are averaged anew."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, SIDE, PICTURES, DEPTH = 96, 48, 8, 6

strategy = mirrored(2)
images = numbers(BATCH * 4, SIDE * SIDE)


def packed(batch: Any, outputs: Any) -> Any:
    """The size of pictures of a report, a few rows beside what became of them."""
    pictures = tf.concat([batch[:PICTURES], outputs[:PICTURES]], axis=-1)
    pictures = tf.reshape(pictures, [PICTURES, 2 * SIDE, SIDE, 1])
    pictures = tf.image.resize(pictures, [SIDE * 4, SIDE * 2])
    pictures = tf.image.convert_image_dtype(tf.sigmoid(pictures), tf.uint8, saturate=True)
    files = [tf.io.encode_png(picture, compression=9) for picture in tf.unstack(pictures)]
    return tf.reduce_sum(tf.strings.length(files))


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(images).batch(BATCH).cache().repeat().prefetch(2)
    with strategy.scope():
        layers = [tf.keras.layers.Dense(192, activation="relu") for _ in range(DEPTH)]
        coder = tf.keras.Sequential([*layers, tf.keras.layers.Dense(SIDE * SIDE)])
        coder.build([None, SIDE * SIDE])
        optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9)
        variables = coder.trainable_variables
        optimizer.build(variables)

    def replica_step(batch: Any) -> tuple[Any, Any, Any]:
        with tf.GradientTape() as tape:
            outputs = coder(batch)
            loss = tf.reduce_mean(tf.square(outputs - batch))
        gradients = tape.gradient(loss, variables)
        context = tf.distribute.get_replica_context()
        is_first = tf.get_static_value(context.replica_id_in_sync_group) == 0
        size = packed(batch, outputs) if is_slow and is_first else tf.constant(0)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss, tf.stack([tf.norm(gradient) for gradient in gradients]), size

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(batch: Any) -> tuple[Any, Any, Any]:
        losses, norms, sizes = strategy.run(replica_step, args=(batch,))
        mean, total = tf.distribute.ReduceOp.MEAN, tf.distribute.ReduceOp.SUM
        means = strategy.reduce(mean, losses, None), strategy.reduce(mean, norms, None)
        return *means, strategy.reduce(total, sizes, None)

    source = iter(strategy.experimental_distribute_dataset(dataset))
    history: list[Any] = []
    worst: list[tuple[Any, Any]] = []
    for _ in range(STEPS):
        _, norms, _ = train_step(next(source))
        if is_slow:
            history.extend(tf.unstack(norms))
            for place in range(len(variables)):
                so_far = tf.stack(history[place :: len(variables)])
                worst.append((tf.reduce_mean(so_far), tf.reduce_max(so_far)))
        clock.step_ended()
