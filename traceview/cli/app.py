"""Lists the commands, in the order in which the help shows them, and imports those that are needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, Final

import typer

from traceview.cli.errors import Command, CommandGroup
from traceview.version import VERSION

_PANELS: Final = {
    "Record a run": "capture doctor",
    "See what is wrong": "analyze report open runs watch",
    "Look closer": "steps gaps input transfers collectives devices balance ops",
    "Before and after": "compare gate baseline history",
    "Share it": "render export crosscheck",
    "Look up": "explain schema version",
}
"""Commands in the order in which users need them, each the name of its module here."""

_PANEL_OF: Final = {name: panel for panel, names in _PANELS.items() for name in names.split()}


class _Commands(Mapping[str, Any]):
    """The commands by name. Reading one imports its module: a start of one command pays for no other."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            panel = _PANEL_OF[name]
            module = import_module(f"traceview.cli.{name}")
            if hasattr(module, "COMMANDS"):
                self._made[name] = _group_of(module, name, panel)
                return self._made[name]
            # A trailing underscore keeps a name of Python free.
            function = getattr(module, name, None) or getattr(module, f"{name}_")
            settings = getattr(module, "CONTEXT_SETTINGS", None)
            alone = typer.Typer(add_completion=False, rich_markup_mode=None)
            alone.command(name, cls=Command, rich_help_panel=panel, context_settings=settings)(
                function
            )
            made = typer.main.get_command(alone)
            for parameter in made.params:
                if parameter.name in getattr(module, "PAIRS", ()):
                    parameter.nargs = 2
            self._made[name] = made
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_PANEL_OF)

    def __len__(self) -> int:
        return len(_PANEL_OF)


def _group_of(module: Any, name: str, panel: str) -> Any:
    """A command that has commands of its own, by their names in `COMMANDS` of its module."""
    inner = typer.Typer(
        name=name,
        help=module.HELP,
        add_completion=False,
        rich_markup_mode=None,
    )
    inner.callback()(lambda: None)
    for of, function in module.COMMANDS.items():
        inner.command(of, cls=Command)(function)
    # Typer sets it on the commands that it makes, and types none of them so.
    made: Any = typer.main.get_command(inner)
    made.rich_help_panel = panel
    return made


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
    file; also in a store, such as gs://bucket/logs.

    Example: traceview analyze logs/
    """
