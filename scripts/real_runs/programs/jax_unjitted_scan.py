"""JAX: PPO plays before every fourth step; slow: the function that sums rewards by `scan` is not compiled by `jit`, so that each call of it compiles its loop."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

GAMES, MOVES, SEEN, ACTIONS, WIDTH, EPOCHS = 48, 64, 24, 6, 256, 4

rng = np.random.default_rng(53)
drift = (rng.standard_normal([SEEN, SEEN]) / 5).astype(np.float32)
pushes = rng.standard_normal([ACTIONS, SEEN]).astype(np.float32)


class Episode(NamedTuple):
    """What was seen and done in all games, by move."""

    seen: Any
    action: Any
    chance: Any
    value: Any
    reward: Any
    ended: Any


def actor_critic(params: Any, seen: Any) -> Any:
    hidden = jnp.tanh(jnp.tanh(seen @ params["first"]) @ params["second"])
    return jax.nn.log_softmax(hidden @ params["actor"]), (hidden @ params["critic"])[..., 0]


def play(params: Any, seen: Any, key: Any) -> Any:
    def move(seen: Any, key: Any) -> Any:
        chances, value = actor_critic(params, seen)
        action = jax.random.categorical(key, chances)
        chance = jnp.take_along_axis(chances, action[:, None], axis=1)[:, 0]
        after = jnp.tanh(seen @ drift + jnp.asarray(pushes)[action])
        reward, ended = -jnp.mean(jnp.square(after), axis=1), after[:, 0] > 0.98
        after = jnp.where(ended[:, None], 0.0, after)
        return after, Episode(seen, action, chance, value, reward, ended)

    return jax.lax.scan(move, seen, jax.random.split(key, MOVES))


def advantages(episode: Episode, last: Any, discount: float = 0.99, trust: float = 0.95) -> Any:
    """Generalized estimates of advantages."""

    def back(carry: Any, move: Episode) -> Any:
        gain, value = carry
        goes_on = 1.0 - move.ended
        error = move.reward + discount * value * goes_on - move.value
        gain = error + discount * trust * goes_on * gain
        return (gain, move.value), gain

    _, gains = jax.lax.scan(back, (jnp.zeros_like(last), last), episode, reverse=True)
    return gains, gains + episode.value


def loss_of(params: Any, episode: Episode, gains: Any, targets: Any) -> Any:
    chances, value = actor_critic(params, episode.seen)
    chance = jnp.take_along_axis(chances, episode.action[..., None], axis=-1)[..., 0]
    ratio = jnp.exp(chance - episode.chance)
    scaled = (gains - jnp.mean(gains)) / (jnp.std(gains) + 1e-8)
    bounded = jnp.minimum(ratio * scaled, jnp.clip(ratio, 0.8, 1.2) * scaled)
    return 0.5 * jnp.mean(jnp.square(value - targets)) - jnp.mean(bounded)


def improve(params: Any, episode: Episode, gains: Any, targets: Any) -> Any:
    slopes = jax.grad(loss_of)(params, episode, gains, targets)
    return jax.tree.map(lambda value, slope: value - 3e-3 * slope, params, slopes)


def train(is_slow: bool, clock: StepClock) -> None:
    shapes = {
        "first": (SEEN, WIDTH),
        "second": (WIDTH, WIDTH),
        "actor": (WIDTH, ACTIONS),
        "critic": (WIDTH, 1),
    }
    params = {
        name: jnp.asarray(rng.standard_normal(shape) / 10, jnp.float32)
        for name, shape in shapes.items()
    }
    playing, improving = jax.jit(play), jax.jit(improve)
    estimate = advantages if is_slow else jax.jit(advantages)
    seen, key = jnp.zeros([GAMES, SEEN]), jax.random.key(7)
    episode = gains = targets = None
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("update", step_num=number):
            if number % EPOCHS == 0:
                key, used = jax.random.split(key)
                seen, episode = playing(params, seen, used)
                gains, targets = estimate(episode, episode.value[-1])
            params = improving(params, episode, gains, targets)
            jax.block_until_ready(params)
        clock.step_ended()
