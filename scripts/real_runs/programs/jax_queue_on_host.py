"""Views are told from a queue of earlier ones on two devices; slow: the queue lives in NumPy and is sent in each step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

jax.config.update("jax_num_cpu_devices", 2)
# Imported here, as it asks JAX for its devices.
from scripts.real_runs.jax_training import numbers, run_steps  # noqa: E402
from scripts.real_runs.step_clock import StepClock  # noqa: E402

FEATURES, WIDTH, QUEUE, BATCH = 256, 128, 65_536, 40

mesh = Mesh(np.array(jax.devices()), ("data",))
split, whole = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
batches = [jax.device_put(numbers(BATCH, FEATURES, seed=seed), split) for seed in range(4)]


def encoded(weights: Any, rows: Any) -> Any:
    hidden = jnp.tanh(rows @ weights[0])
    hidden = jnp.tanh(hidden @ weights[1])
    outputs = hidden @ weights[2]
    return outputs / jnp.linalg.norm(outputs, axis=1, keepdims=True)


def loss_of(weights: Any, averages: Any, rows: Any, queue: Any) -> tuple[Any, Any]:
    queries = encoded(weights, rows)
    keys = jax.lax.stop_gradient(encoded(averages, rows + 0.1))
    positive = jnp.sum(queries * keys, axis=1, keepdims=True)
    logits = jnp.concatenate([positive, queries @ queue.T], axis=1) / 0.07
    return jnp.mean(jax.nn.logsumexp(logits, axis=1) - logits[:, 0]), keys


def update(weights: Any, averages: Any, rows: Any, queue: Any) -> tuple[Any, Any, Any]:
    gradients, keys = jax.grad(loss_of, has_aux=True)(weights, averages, rows, queue)
    weights = [w - 1e-3 * g for w, g in zip(weights, gradients, strict=True)]
    averages = [0.999 * a + 0.001 * w for a, w in zip(averages, weights, strict=True)]
    return weights, averages, keys


def added(queue: Any, keys: Any, place: Any) -> Any:
    """The queue with new keys in place of its oldest."""
    keys = jax.lax.with_sharding_constraint(keys, whole)
    return jax.lax.dynamic_update_slice(queue, keys, (place, 0))


compiled = jax.jit(update)
add = jax.jit(added, donate_argnums=(0,))


def train(is_slow: bool, clock: StepClock) -> None:
    shapes = [(FEATURES, 512), (512, 512), (512, WIDTH)]
    weights = [jax.device_put(numbers(*s) / np.sqrt(np.float32(s[0])), whole) for s in shapes]
    state: dict[str, Any] = {"weights": weights, "averages": list(weights)}
    first = numbers(QUEUE, WIDTH)
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    state["queue"] = first if is_slow else jax.device_put(first, whole)

    def on_host(number: int) -> Any:
        queue = jax.device_put(state["queue"], whole)
        state["weights"], state["averages"], keys = compiled(
            state["weights"], state["averages"], batches[number % 4], queue
        )
        state["queue"] = np.concatenate([np.asarray(keys), state["queue"][:-BATCH]])
        return state["weights"]

    def on_device(number: int) -> Any:
        state["weights"], state["averages"], keys = compiled(
            state["weights"], state["averages"], batches[number % 4], state["queue"]
        )
        state["queue"] = add(state["queue"], keys, number * BATCH % QUEUE)
        return state["weights"]

    run_steps(clock, on_host if is_slow else on_device)
