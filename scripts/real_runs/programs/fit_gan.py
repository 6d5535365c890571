"""Keras trains a GAN on two replicas in a step of its own with two optimizers, and a callback looks at losses: nothing slows it down."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, FEATURES, NOISE = 256, 256, 32

strategy = mirrored(2)
rows = numbers(BATCH * 4, FEATURES)


def network(outputs: int) -> Any:
    hidden = [tf.keras.layers.Dense(512, activation="leaky_relu") for _ in range(2)]
    return tf.keras.Sequential([*hidden, tf.keras.layers.Dense(outputs)])


class Gan(tf.keras.Model):  # type: ignore[misc]  # Keras has no types here
    """A network that makes rows, and one that tells them from real ones."""

    def __init__(self) -> None:
        super().__init__()
        self.generator, self.critic = network(FEATURES), network(1)
        self.generator.build([None, NOISE])
        self.critic.build([None, FEATURES])
        self.of_generator = tf.keras.optimizers.Adam(1e-4)
        self.of_critic = tf.keras.optimizers.Adam(1e-4)
        self.of_generator.build(self.generator.trainable_variables)
        self.of_critic.build(self.critic.trainable_variables)
        self.built = True

    def train_step(self, real: Any) -> Any:
        noise = tf.random.normal([BATCH // strategy.num_replicas_in_sync, NOISE])
        with tf.GradientTape() as generating, tf.GradientTape() as judging:
            made = self.generator(noise, training=True)
            score_of_real, score_of_made = self.critic(real), self.critic(made)
            loss = tf.reduce_mean(tf.nn.softplus(-score_of_made))
            critic_loss = tf.reduce_mean(
                tf.nn.softplus(score_of_made) + tf.nn.softplus(-score_of_real)
            )
        for optimizer, tape, target, model in (
            (self.of_generator, generating, loss, self.generator),
            (self.of_critic, judging, critic_loss, self.critic),
        ):
            weights = model.trainable_variables
            optimizer.apply(tape.gradient(target, weights), weights)
        return {"loss": loss, "critic_loss": critic_loss}


class Balance(tf.keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types here
    """Ends a training in which the critic has won."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if logs["critic_loss"] < 1e-6:
            self.model.stop_training = True


def train(_is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(rows).cache().shuffle(BATCH * 4).repeat()
    dataset = dataset.batch(BATCH, drop_remainder=True).prefetch(2)
    with strategy.scope():
        model = Gan()
        model.compile()
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[Balance(), ended])
