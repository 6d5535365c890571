"""JAX as the framework of a capture, and what the sidecar says of what such a script runs on and compiles."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from traceview.capture.jax.profiler import JaxProfiler
from traceview.capture.jax.steps import JaxSteps
from traceview.capture.record.framework import Framework
from traceview.capture.record.settings import Settings
from traceview.capture.sidecar.environment import EnvironmentListener
from traceview.capture.sidecar.file import Sidecar, WindowListener, answers
from traceview.capture.steps.hooks import Place
from traceview.capture.window.step_window import StepWindow


class JaxEnvironment(EnvironmentListener):
    """Devices, processes, and functions with their arguments, beside the command, versions and links."""

    def __init__(self, steps: JaxSteps) -> None:
        self._steps = steps

    def opening(self, sidecar: Sidecar) -> None:
        """Note all that does not change."""
        super().opening(sidecar)
        jax = sys.modules["jax"]
        described = answers({
            "backend": jax.default_backend,
            "process_count": jax.process_count,
            "devices": lambda: [_device(device) for device in jax.local_devices()],
        })  # fmt: skip
        sidecar.add("jax", described)

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """Note the functions, which may have been compiled in the window."""
        super().closed(sidecar, trace)
        functions = [
            {
                "name": function.name,
                "is_step": function.is_step,
                "calls": function.calls,
                "computes_gradients": function.computes_gradients,
                "arguments": function.arguments,
            }
            for function in self._steps.callees
            if function.calls and not function.is_mark
        ]
        sidecar.add("jax", {"functions": functions})


def _device(device: Any) -> dict[str, Any]:
    return {"id": device.id, "platform": device.platform, "kind": device.device_kind}


def _watch(
    window: StepWindow,
    settings: Settings,
    places: Sequence[Place] | None,
    _say: Callable[[str], None],
) -> tuple[JaxSteps, Any, Sequence[WindowListener]]:
    """What sees the steps, and describes devices, mesh and functions. Programs of JAX hold their lines.

    Where `places` are given, the program itself says which its steps are.
    """
    steps = JaxSteps(window, settings.step_functions, are_marked=places is not None)
    return steps, steps.hooks, (JaxEnvironment(steps), steps.hooks)


JAX: Final = Framework(("jax", "jaxlib", "flax", "optax", "keras", "numpy"), JaxProfiler, _watch)
"""0.4.30 to 0.11, with flax, optax, or Keras 3."""
