"""A loop on a GPU; slow twice: Python counts confusions from lists after each step, and labels are copied as rows of 0 and 1."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.gpu_training import model_of, run_steps, sized
from scripts.real_runs.step_clock import StepClock
from scripts.real_runs.training import numbers

BATCH, FEATURES, CLASSES = sized(32_768, 32), sized(2048, 64), sized(256, 8)
rows = numbers(BATCH, FEATURES)
labels = np.random.default_rng(2).integers(0, CLASSES, BATCH)
one_hot = np.eye(CLASSES, dtype=np.float32)[labels]
names = [f"class {number}" for number in range(CLASSES)]


class Confusions:
    """Counts which class was taken for which, and keeps a row of each case, in Python."""

    def __init__(self) -> None:
        self.counts = Counter[str]()
        self.examples: dict[str, int] = {}
        self.labels = labels.tolist()

    def add(self, guesses: Any) -> None:
        pairs = zip(self.labels, guesses.numpy().tolist(), strict=True)
        for row, (label, guess) in enumerate(pairs):
            case = f"{names[label]} taken for {names[guess]}"
            self.counts[case] += 1
            self.examples.setdefault(case, row)


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = model_of(FEATURES, 4)
    classes = tf.keras.layers.Dense(CLASSES)
    classes.build([None, FEATURES])
    variables = [*model.trainable_variables, *classes.trainable_variables]
    optimizer.build(variables)
    confusions, counts = Confusions(), tf.Variable(tf.zeros([CLASSES, CLASSES]))

    def losses_of(scores: Any, truth: Any) -> Any:
        if is_slow:
            return tf.nn.softmax_cross_entropy_with_logits(truth, scores)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(truth, scores)

    def step_once(batch: Any, truth: Any) -> Any:
        with tf.GradientTape() as tape:
            scores = classes(tf.tanh(model(batch)))
            loss = tf.reduce_mean(losses_of(scores, truth))
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        guesses = tf.argmax(scores, axis=1)
        if not is_slow:
            counts.scatter_nd_add(tf.stack([truth, guesses], axis=1), tf.ones([BATCH]))
        return loss, guesses

    step, batch, labels_on_gpu = tf.function(step_once), tf.constant(rows), tf.constant(labels)

    def train_step(_: int) -> Any:
        loss, guesses = step(batch, one_hot if is_slow else labels_on_gpu)
        if is_slow:
            confusions.add(guesses)
        return loss

    run_steps(clock, train_step)
