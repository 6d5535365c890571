"""JAX: patches of images of an archive over a mesh of four CPU devices; slow: the archive is indexed for each batch, which reads its array anew."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, IMAGES, SIZE, PATCH, WIDTH, BATCH = 4, 8000, 32, 8, 256, 96

jax.config.update("jax_num_cpu_devices", DEVICES)
mesh = Mesh(np.array(jax.devices()), ("data",))
by_row = NamedSharding(mesh, PartitionSpec("data"))
everywhere = NamedSharding(mesh, PartitionSpec())
rng = np.random.default_rng(19)


def write_archive(path: Path) -> None:
    images = rng.integers(0, 256, [IMAGES, SIZE, SIZE, 3], np.uint8)
    np.savez(path, images=images, labels=rng.integers(0, 10, IMAGES))


def batches(archive: Mapping[str, Any]) -> Iterator[Any]:
    order = rng.permutation(IMAGES)
    for start in range(0, IMAGES - BATCH, BATCH):
        places = np.sort(order[start : start + BATCH])
        images = archive["images"][places]
        yield images.astype(np.float32) / 255, archive["labels"][places]


def epochs(archive: Mapping[str, Any]) -> Iterator[Any]:
    while True:
        yield from batches(archive)


def logits_of(model: Any, images: Any) -> Any:
    count = SIZE // PATCH
    tiles = images.reshape(-1, count, PATCH, count, PATCH, 3).swapaxes(2, 3)
    hidden = tiles.reshape(images.shape[0], count * count, -1) @ model["embed"]
    for mix, change in model["layers"]:
        hidden = hidden + jnp.swapaxes(jax.nn.gelu(jnp.swapaxes(hidden, 1, 2) @ mix), 1, 2)
        hidden = hidden + jax.nn.gelu(hidden @ change)
    return hidden.mean(axis=1) @ model["head"]


def loss_of(model: Any, images: Any, labels: Any) -> Any:
    scores = jax.nn.log_softmax(logits_of(model, images))
    return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], axis=1))


def update(model: Any, images: Any, labels: Any) -> Any:
    loss, slopes = jax.value_and_grad(loss_of)(model, images, labels)
    return jax.tree.map(lambda value, slope: value - 1e-2 * slope, model, slopes), loss


def new_model() -> Any:
    def made(*shape: int) -> Any:
        return (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    tiles = (SIZE // PATCH) ** 2
    layers = [(made(tiles, tiles), made(WIDTH, WIDTH)) for _ in range(4)]
    return {"embed": made(PATCH * PATCH * 3, WIDTH), "layers": layers, "head": made(WIDTH, 10)}


def train(is_slow: bool, clock: StepClock) -> None:
    model, losses = jax.device_put(new_model(), everywhere), []
    step = jax.jit(update, donate_argnums=0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "images.npz"
        write_archive(path)
        with np.load(path) as archive:
            source = epochs(archive if is_slow else dict(archive))
            for number in range(STEPS):
                with jax.profiler.StepTraceAnnotation("train", step_num=number):
                    images, labels = jax.device_put(next(source), by_row)
                    model, loss = step(model, images, labels)
                    losses.append(float(loss))
                clock.step_ended()
