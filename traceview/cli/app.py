"""Lists the commands, in the order in which the help shows them, and imports those that are needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, Final

import typer

from traceview.cli.errors import Command, CommandGroup
from traceview.version import VERSION

PANELS: Final = {
    "capture": "Record a run",
    "doctor": "Record a run",
    "analyze": "See what is wrong",
    "report": "See what is wrong",
    "open": "See what is wrong",
    "runs": "See what is wrong",
    "steps": "Look closer",
    "gaps": "Look closer",
    "input": "Look closer",
    "transfers": "Look closer",
    "collectives": "Look closer",
    "devices": "Look closer",
    "balance": "Look closer",
    "ops": "Look closer",
    "render": "Share it",
    "export": "Share it",
    "crosscheck": "Share it",
    "explain": "Look up",
    "schema": "Look up",
    "version": "Look up",
}
"""Commands in the order in which users need them, each the name of its module here, with their panels of the help."""


class _Commands(Mapping[str, Any]):
    """The commands by name. Reading one imports its module: a start of one command pays for no other."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            panel = PANELS[name]
            module = import_module(f"traceview.cli.{name}")
            # A trailing underscore keeps a name of Python free.
            function = getattr(module, name, None) or getattr(module, f"{name}_")
            settings = getattr(module, "CONTEXT_SETTINGS", None)
            alone = typer.Typer(add_completion=False, rich_markup_mode=None)
            alone.command(name, cls=Command, rich_help_panel=panel, context_settings=settings)(
                function
            )
            self._made[name] = typer.main.get_command(alone)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(PANELS)

    def __len__(self) -> int:
        return len(PANELS)


class _Group(CommandGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "commands": _Commands()})


app = typer.Typer(
    cls=_Group,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"traceview {VERSION}")
        raise typer.Exit


@app.callback()
def traceview(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", is_eager=True, callback=_show_version
        ),
    ] = False,
) -> None:
    """Show how busy each GPU of a TensorFlow profile is, and what idle GPUs wait for.

    LOGDIR is the log directory of the profiler or of the TensorBoard callback, a run in it, or a single .xplane.pb
    file.

    Example: traceview analyze logs/
    """
