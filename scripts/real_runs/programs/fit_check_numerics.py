"""Keras `fit` of a convolutional network on two devices; slow: every op is checked for NaN."""

from __future__ import annotations

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, SIZE = 32, 32

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy()
images = tf.random.stateless_normal([BATCH * 16, SIZE, SIZE, 3], seed=[1, 2])
labels = tf.random.stateless_uniform([BATCH * 16], seed=[3, 4], maxval=10, dtype=tf.int64)


def train(is_slow: bool, clock: StepClock) -> None:
    if is_slow:
        tf.debugging.enable_check_numerics()
    else:
        tf.debugging.disable_check_numerics()
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).repeat()
    dataset = dataset.batch(BATCH, drop_remainder=True).prefetch(4)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Input([SIZE, SIZE, 3])])
        for filters in (16, 16, 32, 32):
            model.add(tf.keras.layers.Conv2D(filters, 3, padding="same"))
            model.add(tf.keras.layers.BatchNormalization())
            model.add(tf.keras.layers.ReLU())
        model.add(tf.keras.layers.GlobalAveragePooling2D())
        model.add(tf.keras.layers.Dense(10))
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer="adam", loss=loss)
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
