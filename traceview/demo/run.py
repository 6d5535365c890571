"""Makes the command of the demo run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from traceview.base.errors import UsageError


class Slowdown(str, Enum):
    """The ways to slow the demo run down; the module `slowdowns` implements them."""

    input = "input"
    straggler = "straggler"
    sync = "sync"
    launch = "launch"
    retrace = "retrace"
    checkpoint = "checkpoint"
    callback = "callback"
    one_gpu = "one-gpu"


_SCRIPT: Final = Path(__file__).with_name("training.py")
_STEPS_AFTER: Final = 2
"""The edge step after the window, and one more."""
_EXCLUDED: Final = {
    (Slowdown.launch, Slowdown.retrace): "without a tf.function nothing is traced",
    (
        Slowdown.launch,
        Slowdown.one_gpu,
    ): "without a strategy, single ops are not recognized as a step",
    (Slowdown.one_gpu, Slowdown.straggler): "a single device cannot be a straggler",
}


def demo_command(last: int, devices: int | None, slowdowns: Iterable[Slowdown]) -> list[str]:
    """The command that trains a small model on the GPUs, or without GPUs on logical CPU devices.

    It runs past step `last`. `devices`: how many, by default all GPUs, or 2 logical devices. `slowdowns`:
    how to slow it down. Raises `UsageError` where TensorFlow is missing or slowdowns exclude each other.
    """
    chosen = list(dict.fromkeys(slowdowns))
    for pair, reason in _EXCLUDED.items():
        if set(pair) <= set(chosen):
            names = " and ".join(slowdown.value for slowdown in pair)
            raise UsageError(f"--slowdown {names} cannot be combined: {reason}")
    if find_spec("tensorflow") is None:
        raise UsageError(
            "--demo needs TensorFlow, which is not installed",
            hint="pip install tensorflow-cpu, or tensorflow[and-cuda] for GPUs",
        )
    # On a machine without GPU, TensorFlow prints a page about libraries it does not find.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Otherwise it logs on stderr, whatever the level, that oneDNN is on.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    command = [sys.executable, str(_SCRIPT), f"--steps={last + _STEPS_AFTER}"]
    if devices is not None:
        command.append(f"--devices={devices}")
    return [*command, *(f"--slowdown={slowdown.value}" for slowdown in chosen)]
