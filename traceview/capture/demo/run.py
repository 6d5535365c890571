"""How is the demo run captured? Like any other script, and its sidecar says what was done to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from traceview.capture.demo.injection import INJECTED, Illness, InjectionListener
from traceview.capture.recording import Settings
from traceview.capture.script import Script
from traceview.capture.session import ScriptCapture, capture_script
from traceview.errors import UsageError

_SCRIPT: Final = Path(__file__).with_name("training.py")
_STEPS_AFTER: Final = 2
"""The edge step behind the window, and one more."""
_EXCLUDED: Final = {
    (Illness.launch, Illness.retrace): "without a tf.function there is nothing to trace",
    (Illness.launch, Illness.one_gpu): "without a strategy no step is found among single ops",
    (Illness.one_gpu, Illness.straggler): "a device alone is not late",
}


def capture_demo(
    settings: Settings,
    *,
    say: Callable[[str], None],
    devices: int | None = None,
    illnesses: Iterable[Illness] = (),
) -> ScriptCapture:
    """Train a small model on the GPUs there are, or on logical CPU devices, and record `settings.window`.

    `devices`: how many, by default all GPUs, or 2 logical devices. `illnesses`: what is done to the run; what
    each one cost is in the group `demo` of the sidecar. Raises `UsageError` where TensorFlow is missing or
    illnesses exclude each other, else what `capture_script` raises.
    """
    chosen = list(dict.fromkeys(illnesses))
    for pair, reason in _EXCLUDED.items():
        if set(pair) <= set(chosen):
            names = " and ".join(illness.value for illness in pair)
            raise UsageError(f"--illness {names}: not together: {reason}")
    if find_spec("tensorflow") is None:
        raise UsageError(
            "the demo trains with TensorFlow, which is not installed here",
            hint="pip install tensorflow-cpu, or tensorflow[and-cuda] for GPUs",
        )
    # On a machine without GPU TensorFlow writes a page about libraries it does not find.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    INJECTED.clear()
    arguments = [f"--steps={settings.window.last + _STEPS_AFTER}"]
    if devices is not None:
        arguments.append(f"--devices={devices}")
    arguments += [f"--illness={illness.value}" for illness in chosen]
    return capture_script(
        Script(str(_SCRIPT), arguments),
        settings,
        say=say,
        listeners=[InjectionListener(chosen)],
    )
