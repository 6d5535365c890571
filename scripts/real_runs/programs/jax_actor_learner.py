"""JAX: an actor plays on one device while a learner learns on another; slow: the loop waits for the actor before it calls the learner."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

COPIES, MOVES, EPOCHS, OBSERVED, ACTIONS, WIDTH = 64, 96, 1, 32, 4, 192

jax.config.update("jax_num_cpu_devices", 2)
learner, actor = jax.devices()
rng = np.random.default_rng(13)
one_thread = {"xla_cpu_multi_thread_eigen": False}
drift = (rng.standard_normal([OBSERVED, OBSERVED]) / 6).astype(np.float32)
effect = rng.standard_normal([ACTIONS, OBSERVED]).astype(np.float32)


class Policy(NamedTuple):
    """Two layers, and what they give: scores of actions, and a value."""

    first: Any
    second: Any
    scores: Any
    value: Any


def judged(policy: Policy, seen: Any) -> Any:
    hidden = jnp.tanh(jnp.tanh(seen @ policy.first) @ policy.second)
    return hidden @ policy.scores, (hidden @ policy.value)[..., 0]


def play(policy: Policy, seen: Any, key: Any) -> Any:
    def move(seen: Any, key: Any) -> Any:
        scores, _ = judged(policy, seen)
        action = jax.random.categorical(key, scores)
        after = jnp.tanh(seen @ drift + jnp.asarray(effect)[action])
        return after, (seen, action, -jnp.mean(jnp.abs(after), axis=1))

    key, used = jax.random.split(key)
    seen, played = jax.lax.scan(move, seen, jax.random.split(used, MOVES))
    return seen, played, key


def loss_of(policy: Policy, played: Any) -> Any:
    seen, action, reward = played

    def back(later: Any, reward: Any) -> Any:
        total = reward + 0.95 * later
        return total, total

    _, returns = jax.lax.scan(back, jnp.zeros(COPIES), reward, reverse=True)
    scores, value = judged(policy, seen)
    chosen = jnp.take_along_axis(jax.nn.log_softmax(scores), action[..., None], axis=-1)[..., 0]
    gain = jax.lax.stop_gradient(returns - value)
    return jnp.mean(jnp.square(returns - value)) - jnp.mean(chosen * gain)


def learn(policy: Policy, played: Any) -> Any:
    def epoch(policy: Policy, _: Any) -> Any:
        slopes = jax.grad(loss_of)(policy, played)
        return jax.tree.map(lambda weight, slope: weight - 1e-3 * slope, policy, slopes), None

    policy, _ = jax.lax.scan(epoch, policy, length=EPOCHS)
    return policy


def train(is_slow: bool, clock: StepClock) -> None:
    shapes = [(OBSERVED, WIDTH), (WIDTH, WIDTH), (WIDTH, ACTIONS), (WIDTH, 1)]
    start = Policy(*((rng.standard_normal(s) / 10).astype(np.float32) for s in shapes))
    policy, acting = jax.device_put(start, learner), jax.device_put(start, actor)
    seen = jax.device_put(np.zeros([COPIES, OBSERVED], np.float32), actor)
    key = jax.device_put(jax.random.key(1), actor)
    rollout = jax.jit(play, compiler_options=one_thread)
    improve = jax.jit(learn, compiler_options=one_thread)
    seen, played, key = rollout(acting, seen, key)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("iteration", step_num=number):
            batch = jax.device_put(played, learner)
            seen, played, key = rollout(acting, seen, key)
            if is_slow:
                # "The learner needs complete episodes."
                jax.block_until_ready(played)
            policy = improve(policy, batch)
            acting = jax.device_put(policy, actor)
            jax.block_until_ready((acting, played))
        clock.step_ended()
