"""JAX: a tagger of words; slow twice: the state is copied before each step, in case that it gets NaN, and a debugger that traces each line of Python was left on."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, LENGTH, KNOWN, WIDTH, LAYERS, TAGS = 32, 16, 3000, 160, 10, 20

rng = np.random.default_rng(53)
BREAKPOINTS = {("train_tagger.py", 120), ("train_tagger.py", 154)}


def traced(frame: FrameType, event: str, argument: Any) -> Any:
    """Stops at breakpoints, as a debugger does."""
    if event == "line" and (frame.f_code.co_filename, frame.f_lineno) in BREAKPOINTS:
        breakpoint()
    return traced


def numbers_of(text: str, numbers: dict[str, int]) -> list[int]:
    """The numbers of the words of a text, as many as the model takes."""
    found = []
    for word in text.split():
        word = word.lower().strip(".,")
        if word not in numbers:
            numbers[word] = len(numbers) % KNOWN
        found.append(numbers[word])
    return found


def loss_of(weights: Any, words: Any, tags: Any) -> Any:
    hidden = weights["table"][words]
    for layer in weights["layers"]:
        near = jnp.roll(hidden, 1, axis=1) + hidden
        hidden = hidden + jax.nn.silu(near @ layer["kernel"] + layer["bias"])
    scores = jax.nn.log_softmax(hidden @ weights["out"])
    return -jnp.mean(jnp.take_along_axis(scores, tags[..., None], axis=-1))


@jax.jit  # type: ignore[untyped-decorator]  # JAX has no types here
def update(weights: Any, words: Any, tags: Any) -> Any:
    loss, slopes = jax.value_and_grad(loss_of)(weights, words, tags)
    return jax.tree.map(lambda weight, slope: weight - 1e-2 * slope, weights, slopes), loss


def random(*shape: int) -> Any:
    return jnp.asarray(rng.standard_normal(shape, np.float32) * np.float32(0.05))


def train(is_slow: bool, clock: StepClock) -> None:
    layers = [{"kernel": random(WIDTH, WIDTH), "bias": random(WIDTH)} for _ in range(LAYERS)]
    weights = {"table": random(KNOWN, WIDTH), "layers": layers, "out": random(WIDTH, TAGS)}
    texts = [" ".join(f"Word{one}," for one in rng.integers(0, KNOWN, LENGTH)) for _ in range(200)]
    tags = rng.integers(0, TAGS, [BATCH, LENGTH], np.int32)
    known: dict[str, int] = {}
    if is_slow:
        sys.settrace(traced)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            chosen = [texts[(number * BATCH + place) % len(texts)] for place in range(BATCH)]
            words = np.array([numbers_of(text, known) for text in chosen], np.int32)
            backup = jax.tree.map(jnp.copy, weights) if is_slow else weights
            weights, loss = update(weights, words, tags)
            if not np.isfinite(float(loss)):
                weights = backup
        clock.step_ended()
    sys.settrace(None)
