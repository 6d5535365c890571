"""Attention without a softmax; slow: it multiplies queries with keys first, and each colour is compared with each pixel."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

PICTURES, BATCH, SIDE, PATCH, WIDTH, HEADS, KINDS, LAYERS = 24, 4, 96, 6, 64, 4, 12, 2
TOKENS, DEPTH = (SIDE // PATCH) ** 2, WIDTH // HEADS

rng = np.random.default_rng(11)
palette = rng.choice(2**24, KINDS, replace=False).astype(np.uint32)
colours = np.stack([palette >> 16, palette >> 8 & 255, palette & 255], axis=-1).astype(np.uint8)
kinds = rng.integers(0, KINDS, [PICTURES, SIDE // 8, SIDE // 8]).repeat(8, 1).repeat(8, 2)
masks = colours[kinds]
pictures = (masks + rng.integers(0, 40, masks.shape)).astype(np.float32) / 255
kind_of = np.zeros(2**24, np.uint8)
kind_of[palette] = np.arange(KINDS)


def kinds_by_colour(batch: Any) -> Any:
    found = np.zeros(batch.shape[:3], np.int32)
    for kind, colour in enumerate(colours):
        found[(batch == colour).all(axis=-1)] = kind
    return found


def kinds_by_table(batch: Any) -> Any:
    red, green, blue = np.moveaxis(batch.astype(np.uint32), -1, 0)
    return kind_of[red << 16 | green << 8 | blue].astype(np.int32)


def patched(batch: Any) -> Any:
    count = SIDE // PATCH
    parts = batch.reshape(len(batch), count, PATCH, count, PATCH, -1)
    return parts.transpose(0, 1, 3, 2, 4, 5).reshape(len(batch), TOKENS, -1)


def attention_by_scores(queries: Any, keys: Any, values: Any) -> Any:
    scores = jnp.einsum("bnhd,bmhd->bhnm", queries, keys)
    return jnp.einsum("bhnm,bmhd->bnhd", scores, values)


def attention_by_summary(queries: Any, keys: Any, values: Any) -> Any:
    summary = jnp.einsum("bmhd,bmhe->bhde", keys, values)
    return jnp.einsum("bnhd,bhde->bnhe", queries, summary)


def step_of(attention: Any) -> Any:
    def loss_of(weights: Any, batch: Any, truth: Any) -> Any:
        hidden = patched(batch) @ weights["enter"]
        for layer in weights["layers"]:
            parts = (hidden @ layer["mixed"]).reshape(len(batch), TOKENS, 3, HEADS, DEPTH)
            queries, keys, values = jnp.moveaxis(parts, 2, 0)
            seen = attention(jax.nn.elu(queries) + 1, (jax.nn.elu(keys) + 1) / TOKENS, values)
            hidden = hidden + seen.reshape(hidden.shape)
            hidden = hidden + jax.nn.gelu(hidden @ layer["wide"]) @ layer["narrow"]
        scores = (hidden @ weights["leave"]).reshape(len(batch), TOKENS, PATCH**2, KINDS)
        right = jnp.take_along_axis(jax.nn.log_softmax(scores), patched(truth)[..., None], -1)
        return -jnp.mean(right)

    @jax.jit  # type: ignore[untyped-decorator]  # JAX has no types here
    def train_step(weights: Any, batch: Any, truth: Any) -> Any:
        loss, slopes = jax.value_and_grad(loss_of)(weights, batch, truth)
        return jax.tree.map(lambda weight, slope: weight - 1e-2 * slope, weights, slopes), loss

    return train_step


def matrix(rows: int, columns: int) -> Any:
    return rng.standard_normal([rows, columns], np.float32) / np.sqrt(rows) / 2


def train(is_slow: bool, clock: StepClock) -> None:
    weights: Any = {
        "enter": matrix(PATCH**2 * 3, WIDTH),
        "layers": [
            {
                "mixed": matrix(WIDTH, 3 * WIDTH),
                "wide": matrix(WIDTH, 2 * WIDTH),
                "narrow": matrix(2 * WIDTH, WIDTH),
            }
            for _ in range(LAYERS)
        ],
        "leave": matrix(WIDTH, PATCH**2 * KINDS),
    }
    weights = jax.tree.map(jnp.asarray, weights)
    has_scores, has_colours = is_slow, is_slow
    train_step = step_of(attention_by_scores if has_scores else attention_by_summary)
    kinds_of = kinds_by_colour if has_colours else kinds_by_table
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            start = number * BATCH % PICTURES
            truth = kinds_of(masks[start : start + BATCH])
            weights, loss = train_step(weights, pictures[start : start + BATCH], truth)
            jax.block_until_ready(loss)
        clock.step_ended()
