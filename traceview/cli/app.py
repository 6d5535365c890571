"""Lists the commands, in the order in which the help shows them, and imports those that are needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, Final

import typer

from traceview.base.version import VERSION
from traceview.cli.errors import Command, CommandGroup

_PANELS: Final = {
    "Record a run": "capture",
    "See what is wrong": "analyze report show watch",
    "Before and after": "compare gate history",
    "Other programs": "export",
    "Look up": "explain",
}
"""Commands in the order in which users need them, each the name of its module in `commands`."""

_PANEL_OF: Final = {name: panel for panel, names in _PANELS.items() for name in names.split()}


class _Commands(Mapping[str, Any]):
    """The commands by name. Reading one imports its module: a start of one command pays for no other."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            panel = _PANEL_OF[name]
            module = import_module(f"traceview.cli.commands.{name}")
            function = getattr(module, name)
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


class _Group(CommandGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "commands": _Commands()})


app = typer.Typer(
    cls=_Group,
    add_completion=True,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


_DEPENDENCIES: Final = ("numpy", "pandas", "msgspec", "typer", "rich", "jinja2")


def _show_version(value: bool) -> None:
    """Print the versions that a bug report should name."""
    if not value:
        return
    import platform
    from importlib.metadata import version

    from traceview.cli.output import Target
    from traceview.xplane.read import DECODER

    is_compiled = DECODER.__name__.endswith(".decode")
    rows = {
        "traceview": VERSION,
        "python": platform.python_version(),
        **{name: version(name) for name in _DEPENDENCIES},
        "decoder": "compiled" if is_compiled else "reference: slower; reinstall with a C compiler",
    }
    Target(None).write("".join(f"{name:<10}{value}\n" for name, value in rows.items()))
    raise typer.Exit


@app.callback()
def traceview(
    context: typer.Context,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the versions of traceview and its dependencies.",
            is_eager=True,
            callback=_show_version,
        ),
    ] = False,
    timings: Annotated[
        bool, typer.Option("--timings", help="Say on standard error where the time went.")
    ] = False,
) -> None:
    """Show how busy each GPU of a TensorFlow profile is, and what idle GPUs wait for.

    LOGDIR is the log directory of the profiler or of the TensorBoard callback, a run in it, or a single .xplane.pb
    file; also in a store, such as gs://bucket/logs.

    Example: traceview analyze logs/
    """
    if timings:
        context.with_resource(import_module("traceview.cli.timings").said())
