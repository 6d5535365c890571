"""Lists the commands, imports those that are needed, and turns their errors into a line and an exit code."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer
from typer.core import TyperCommand, TyperGroup

from traceview.base.errors import TraceFormatError, TraceviewError, UsageError
from traceview.base.version import VERSION
from traceview.capture.process.saying import VARIABLE
from traceview.cli.output import Target, abandon_stdout, say, warn
from traceview.document.sanitize import sanitize
from traceview.store.address import without_credentials

_PANELS: Final = {
    "Record a run": "capture",
    "See what is wrong": "analyze report show watch",
    "Before and after": "compare gate history",
    "Other programs": "export",
    "Look up": "explain",
}
"""Commands in the order in which users need them."""
_MODULES: Final = {"analyze": "report", "explain": "show", "gate": "compare", "history": "compare"}
"""By command the module in `commands`, where that has another name."""


@cache
def command_called(name: str) -> Any:
    """A command by its name. Imports its module: a start of one command pays for no other."""
    module = import_module(f"traceview.cli.commands.{_MODULES.get(name, name)}")
    settings = getattr(module, "CONTEXT_SETTINGS", None)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, cls=_Command, context_settings=settings)(getattr(module, name))
    made = typer.main.get_command(alone)
    for parameter in made.params:
        if parameter.name in getattr(module, "PAIRS", ()):
            parameter.nargs = 2
    return made


INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
"""Exit code that a shell reports of a program that SIGPIPE ended, as `head` ends most programs whose output it reads."""

_OF_PARSING: Final = cast("type[Exception]", typer.BadParameter.__mro__[1])
"""Typer's usage errors, without naming the click that each version of Typer brings along."""

_LASTING: Final = ("capture", "watch")
"""Commands that run a script of the user, or until the user ends them."""

_UNCUT: Final = 1000
"""More characters than any summary of a command has."""


class _Command(TyperCommand):
    """A command whose usage names its arguments as the help below does."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command, unless it may run a script with a numpy without threads for linear algebra, and with one heap.

        No command needs these threads, and starting them takes as long as importing numpy.
        """
        if self.name != "capture":
            # What other commands start is no training.
            os.environ.pop(VARIABLE, None)
        if self.name in _LASTING:
            gc.enable()
        else:
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
            from traceview.base.sweeping import SWEEPS

            SWEEPS.share_one_heap()
        return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`LOGDIR` for Typer's `{LOGDIR}`."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]


class _Group(TyperGroup):
    """The commands, each imported when it is asked for; the help lists them by panel."""

    def __init__(self, **settings: Any) -> None:
        names: Any = dict.fromkeys(name for names in _PANELS.values() for name in names.split())
        super().__init__(**{**settings, "commands": names})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command; None where there is none of this name."""
        return command_called(cmd_name) if cmd_name in self.commands else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names; raises `UsageError` that says which one is meant by a path or a table."""
        name = args[0]
        if name not in self.commands and not name.startswith("-"):
            from traceview.base.text import did_you_mean, shell_word
            from traceview.report.tables import TABLES

            if name in TABLES:
                hint = f"traceview show {name} LOGDIR"
            elif Path(name).exists() or "/" in name:
                hint = f"traceview analyze {shell_word(name)}"
            else:
                hint = did_you_mean(name, self.commands, "see traceview --help")
            raise UsageError(f"no such command {name!r}", hint=hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """A list for each panel, with the summaries of all commands in one column."""
        width = max(map(len, self.commands))
        for panel, names in _PANELS.items():
            with formatter.section(panel):
                formatter.write_dl(
                    [
                        (name.ljust(width), command_called(name).get_short_help_str(_UNCUT))
                        for name in names.split()
                    ]
                )

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Parse the options before the command; without any arguments show the help."""
        has_arguments = bool(args)
        try:
            return super().make_context(info_name, args, parent, **extra)
        except _OF_PARSING as error:
            if not has_arguments:
                raise
            raise _refused(error) from None

    def invoke(self, ctx: Any) -> Any:
        """Run the command; every error in it ends in a line and an exit code."""
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()
        except (typer.Exit, typer.Abort):
            raise
        except _OF_PARSING as error:
            raise _refused(error) from None
        except TraceviewError as error:
            raise _shown(error) from None
        except KeyboardInterrupt:
            # A script that was recorded may have written anything, and a watch its lines and metrics.
            may_write = ctx.invoked_subcommand in ("capture", "watch")
            say("interrupted" + ("" if may_write else "; nothing was written"))
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            abandon_stdout()
            raise typer.Exit(PIPE_CLOSED) from None
        except MemoryError:
            say("error: not enough memory for this trace")
            warn("hint: record fewer steps")
            raise typer.Exit(TraceFormatError.exit_code) from None
        except Exception:
            traceback.print_exc()
            say(f"this is a bug in traceview {VERSION}; please report it with the lines above")
            raise typer.Exit(1) from None
        return result


def _shown(error: TraceviewError) -> typer.Exit:
    say(f"error: {without_credentials(error.message)}")
    if error.hint:
        warn(f"hint: {sanitize(without_credentials(error.hint))}")
    return typer.Exit(error.exit_code)


def _refused(error: Any) -> typer.Exit:
    """The message of the parser on one line."""
    text = without_credentials(error.format_message()).rstrip(".")
    command = error.ctx.command_path if error.ctx else "traceview"
    return _shown(UsageError(text[:1].lower() + text[1:], hint=f"see {command} --help"))


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

    from traceview.xplane.message import DECODER

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
    show_version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the versions of traceview and its dependencies.",
            is_eager=True,
            callback=_show_version,
        ),
    ] = False,
) -> None:
    """Show how busy each GPU of a TensorFlow or JAX job is, and what idle GPUs wait for.

    LOGDIR is the log directory of the profiler or of the TensorBoard callback, a run in it, or a single .xplane.pb
    file; also in a store, such as gs://bucket/logs.

    Example: traceview analyze logs/
    """
