"""Adds to the sidecar what a script with JAX runs on, and the functions that it compiled."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceview.capture.sidecar.environment import describe_command, listed_variables
from traceview.capture.sidecar.file import Facts, Sidecar, WindowListener

if TYPE_CHECKING:
    from traceview.capture.jax.steps import JaxSteps


class JaxEnvironment(WindowListener):
    """Devices, processes, mesh, and functions with their arguments."""

    def __init__(self, steps: JaxSteps) -> None:
        self._steps = steps

    def opening(self, sidecar: Sidecar) -> None:
        """What does not change."""
        with sidecar.timed("environment"):
            jax: Any = sys.modules["jax"]
            sidecar.add("command", describe_command())
            sidecar.add("variables", listed_variables(os.environ))
            sidecar.add("jax", describe(jax))

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """The functions, which may have been compiled in the window."""
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
        remarks = list(self._steps.remarks())
        if remarks:
            sidecar.add("notes", {"steps": remarks})


def describe(jax: Any) -> dict[str, Any]:
    """The devices of this process, and how many processes there are."""
    facts = Facts()
    facts.ask("backend", jax.default_backend)
    facts.ask("process_index", jax.process_index)
    facts.ask("process_count", jax.process_count)
    facts.ask("device_count", jax.device_count)
    facts.ask(
        "devices",
        lambda: [
            {"id": device.id, "platform": device.platform, "kind": device.device_kind}
            for device in jax.local_devices()
        ],
    )
    facts.ask("enable_x64", lambda: bool(jax.config.jax_enable_x64))
    facts.ask("matmul_precision", lambda: str(jax.config.jax_default_matmul_precision or "default"))
    return facts.as_group()
