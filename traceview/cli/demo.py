"""Which options go with `traceview capture --demo`?"""

from __future__ import annotations

from typing import Final

import typer

from traceview.errors import UsageError

_DEMO_ONLY: Final = ("devices", "illness")
_WITHOUT_DEMO: Final = ("script", "module", "step_function", "serve")
"""They are about a script of the user's."""


def check_demo(context: typer.Context, *, is_demo: bool) -> None:
    """Raise `UsageError` for arguments that do not go together: the built-in run, or a script."""
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE":
            continue
        if not is_demo and name in _DEMO_ONLY:
            raise UsageError(f"--{name} is about the built-in run", hint="--demo runs it")
        if is_demo and name in _WITHOUT_DEMO:
            shown = parameter.opts[-1] if parameter.param_type_name == "option" else "SCRIPT"
            raise UsageError(
                f"{shown} and --demo do not go together",
                hint="--demo is a run of traceview's own; to record a script, leave it out",
            )
