"""Captures the demo run like any other script; its sidecar says how it was slowed down."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from traceview.base.errors import UsageError
from traceview.capture.demo.injection import INJECTED, InjectionListener, Slowdown
from traceview.capture.launch.script_capture import ScriptCapture, capture_script
from traceview.capture.process.script import Script
from traceview.capture.record.capture import Settings

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


def capture_demo(
    settings: Settings,
    *,
    say: Callable[[str], None],
    devices: int | None = None,
    slowdowns: Iterable[Slowdown] = (),
    before_death: Callable[[ScriptCapture], None] = lambda _: None,
) -> ScriptCapture:
    """Train a small model on the GPUs, or without GPUs on logical CPU devices, and record `settings.steps`.

    `devices`: how many, by default all GPUs, or 2 logical devices. `slowdowns`: how to slow the run down; the group
    `demo` of the sidecar says what each one cost. Raises `UsageError` where TensorFlow is missing or slowdowns exclude
    each other, otherwise what `capture_script` raises, which also calls `before_death`.
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
    INJECTED.clear()
    arguments = [f"--steps={settings.steps.last + _STEPS_AFTER}"]
    if devices is not None:
        arguments.append(f"--devices={devices}")
    arguments += [f"--slowdown={slowdown.value}" for slowdown in chosen]
    return capture_script(
        Script(str(_SCRIPT), arguments),
        settings,
        say=say,
        listeners=[InjectionListener(chosen)],
        before_death=before_death,
    )
