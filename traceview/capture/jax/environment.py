"""Adds to the sidecar what a script with JAX runs on, and the functions that it compiled."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceview.capture.sidecar.environment import EnvironmentListener
from traceview.capture.sidecar.file import Sidecar, answers

if TYPE_CHECKING:
    from traceview.capture.jax.steps import JaxSteps


class JaxEnvironment(EnvironmentListener):
    """Devices, processes, and functions with their arguments, beside the command, versions and links."""

    def __init__(self, steps: JaxSteps) -> None:
        self._steps = steps

    def opening(self, sidecar: Sidecar) -> None:
        """Note all that does not change."""
        super().opening(sidecar)
        sidecar.add("jax", describe(sys.modules["jax"]))

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


def describe(jax: Any) -> dict[str, Any]:
    """The devices of this process, and how many processes there are."""
    return answers({
        "backend": jax.default_backend,
        "process_count": jax.process_count,
        "devices": lambda: [_device(device) for device in jax.local_devices()],
    })  # fmt: skip


def _device(device: Any) -> dict[str, Any]:
    return {"id": device.id, "platform": device.platform, "kind": device.device_kind}
