"""A loop on a GPU; slow: the step gets the number of the epoch, of six steps, as a Python number, which traces it anew."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.gpu_training import WIDTH, model_of, run_steps, sized
from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers, squared_error

EPOCH = 6
rows = numbers(sized(2048, 16), WIDTH)


def train(is_slow: bool, clock: StepClock) -> None:
    model, _ = model_of(WIDTH, 4)

    def step_once(batch: Any, epoch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = squared_error(model, batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
            variable.assign_sub(1e-3 / (1 + epoch) * gradient)
        return loss

    step, constant = tf.function(step_once), tf.constant(rows)
    epochs = [tf.constant(float(epoch)) for epoch in range(STEPS // EPOCH)]

    def train_step(number: int) -> Any:
        epoch = number // EPOCH
        return step(constant, epoch if is_slow else epochs[epoch])

    run_steps(clock, train_step)
