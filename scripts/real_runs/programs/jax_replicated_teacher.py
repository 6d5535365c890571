"""JAX: a student learns from a teacher over a mesh of four CPU devices; slow: each device computes the teacher for the whole batch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, BATCH, INPUTS, CLASSES = 4, 512, 128, 64

jax.config.update("jax_num_cpu_devices", DEVICES)
mesh = Mesh(np.array(jax.devices()), ("batch",))
rng = np.random.default_rng(5)


def perceptron(width: int, layers: int) -> list[dict[str, Any]]:
    sizes = [INPUTS, *[width] * layers, CLASSES]
    return [
        {
            "kernel": (rng.standard_normal([inputs, outputs]) / np.sqrt(inputs)).astype(np.float32),
            "bias": np.zeros(outputs, np.float32),
        }
        for inputs, outputs in pairwise(sizes)
    ]


def logits_of(layers: Any, rows: Any) -> Any:
    hidden = rows
    for layer in layers[:-1]:
        hidden = jax.nn.relu(hidden @ layer["kernel"] + layer["bias"])
    return hidden @ layers[-1]["kernel"] + layers[-1]["bias"]


def soft_labels(teacher: Any, rows: Any) -> Any:
    return jax.nn.softmax(logits_of(teacher, rows) / 4)


def distance(student: Any, rows: Any, labels: Any) -> Any:
    return -jnp.mean(jnp.sum(labels * jax.nn.log_softmax(logits_of(student, rows)), axis=1))


def student_step(student: Any, rows: Any, labels: Any) -> Any:
    loss, gradients = jax.value_and_grad(distance)(student, rows, labels)
    return jax.tree.map(lambda value, slope: value - 1e-2 * slope, student, gradients), loss


def train(is_slow: bool, clock: StepClock) -> None:
    by_row = NamedSharding(mesh, PartitionSpec("batch"))
    everywhere = NamedSharding(mesh, PartitionSpec())
    teacher = jax.device_put(perceptron(640, 3), everywhere)
    student = jax.device_put(perceptron(384, 3), everywhere)
    label, learn = jax.jit(soft_labels), jax.jit(student_step)
    images = rng.standard_normal([STEPS, BATCH, INPUTS]).astype(np.float32)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("distill", step_num=number):
            rows = jax.device_put(images[number], by_row)
            labels = label(teacher, images[number] if is_slow else rows)
            student, loss = learn(student, rows, labels)
            loss.block_until_ready()
        clock.step_ended()
