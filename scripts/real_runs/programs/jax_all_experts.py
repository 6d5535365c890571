"""JAX: a model of experts, each for some of the words; slow: every expert computes all words, and a mask takes the result of one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, LENGTH, WIDTH, HIDDEN, EXPERTS, WORDS = 8, 96, 128, 96, 8, 1000
ROOM = 2 * BATCH * LENGTH // EXPERTS
"""How many words an expert takes; more pass by."""

rng = np.random.default_rng(79)


def attended(layer: Any, rows: Any) -> Any:
    queries, keys, values = jnp.split(rows @ layer["qkv"], 3, axis=-1)
    scores = jnp.einsum("bqw,bkw->bqk", queries, keys) / WIDTH**0.5
    scores = jnp.where(jnp.tril(jnp.ones([LENGTH, LENGTH], bool)), scores, -1e9)
    return rows + jnp.einsum("bqk,bkw->bqw", jax.nn.softmax(scores), values) @ layer["out"]


def experts(layer: Any, rows: Any) -> Any:
    """What each expert makes of its rows."""
    return jax.nn.gelu(rows @ layer["up"]) @ layer["down"]


def of_all_words(layer: Any, rows: Any, chosen: Any) -> Any:
    made = experts(layer, jnp.broadcast_to(rows, [EXPERTS, *rows.shape]))
    return jnp.einsum("ewd,we->wd", made, jax.nn.one_hot(chosen, EXPERTS))


def of_own_words(layer: Any, rows: Any, chosen: Any) -> Any:
    order = jnp.argsort(chosen)
    sorted_experts = chosen[order]
    place = jnp.arange(len(order)) - jnp.searchsorted(sorted_experts, sorted_experts)
    sent = jnp.zeros([EXPERTS, ROOM, WIDTH])
    sent = sent.at[sorted_experts, place].set(rows[order], mode="drop")
    made = experts(layer, sent)
    back = made.at[sorted_experts, place].get(mode="fill", fill_value=0.0)
    return jnp.zeros_like(rows).at[order].set(back)


def train(is_slow: bool, clock: StepClock) -> None:
    mixed = of_all_words if is_slow else of_own_words

    def loss_of(params: Any, words: Any) -> Any:
        rows = params["words"][words]
        for layer in params["layers"]:
            rows = attended(layer, rows)
            flat = rows.reshape(-1, WIDTH)
            gates = jax.nn.softmax(flat @ layer["router"])
            best = jnp.argmax(gates, axis=1)
            made = mixed(layer, flat, best) * jnp.max(gates, axis=1, keepdims=True)
            rows = rows + made.reshape(rows.shape)
        logits = jax.nn.log_softmax(rows[:, :-1] @ params["words"].T)
        return -jnp.mean(jnp.take_along_axis(logits, words[:, 1:, None], axis=2))

    def update(params: Any, words: Any) -> Any:
        loss, slopes = jax.value_and_grad(loss_of)(params, words)
        return jax.tree.map(lambda value, slope: value - 1e-2 * slope, params, slopes), loss

    def made(*shape: int) -> Any:
        return jnp.asarray(rng.standard_normal(shape) / np.sqrt(shape[-2]), jnp.float32)

    layers = [
        {
            "qkv": made(WIDTH, 3 * WIDTH),
            "out": made(WIDTH, WIDTH),
            "router": made(WIDTH, EXPERTS),
            "up": made(EXPERTS, WIDTH, HIDDEN),
            "down": made(EXPERTS, HIDDEN, WIDTH),
        }
        for _ in range(1)
    ]
    params = {"words": made(WORDS, WIDTH), "layers": layers}
    step = jax.jit(update, donate_argnums=0)
    texts = rng.integers(0, WORDS, [4, BATCH, LENGTH], np.int32)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            params, loss = step(params, texts[number % 4])
            jax.block_until_ready(loss)
        clock.step_ended()
