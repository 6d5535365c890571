"""Writes docs/commands.md: the commands, their options and their exit codes, from Typer and the errors.

Options that many commands share are explained once, in the table above the commands.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from typing import Any

import typer
import typer.main
from typer.core import TyperArgument, TyperOption

from scripts.docs.words import first_paragraph, words
from traceview.base import errors
from traceview.cli.app import INTERRUPTED, app, command_called
from traceview.cli.commands.capture import FAILED_CHECK
from traceview.cli.commands.show import WITHOUT_TRACE
from traceview.document.vocabulary import STATES
from traceview.report.tables import TABLES

_HEAD = """\
# Commands

Reports go to standard output, everything else to standard error. Files are written whole or not at all, and replaced only
with `--force`. `traceview COMMAND --help` prints the same as this page (`python -m scripts.docs` makes it).
"""
_EXAMPLE = "Example: "
_FEWEST = 2
"""An option that so many commands have with the same help is explained once."""


def page() -> str:
    """The whole page: shared options, a part for each command, and the exit codes."""
    commands = {name: command_called(name) for name in typer.main.get_group(app).commands}
    counts = Counter(
        option for command in commands.values() for option in _options(command).values()
    )
    shared = {
        option: text
        for (option, text), count in counts.items()
        if count >= _FEWEST and option.startswith("`-")
    }
    blocks = [_HEAD, "## Options of many commands", _listed(dict(sorted(shared.items())))]
    for name, command in commands.items():
        blocks += _of_command(name, command, shared)
    blocks += ["## Exit codes", _exit_codes()]
    return "\n\n".join(block.strip() for block in blocks if block) + "\n"


def _listed(options: dict[str, str]) -> str:
    return "\n".join(f"- {option}: {text}" for option, text in options.items())


def _of_command(name: str, command: Any, shared: dict[str, str]) -> Iterator[str]:
    """The part of a command."""
    paragraphs, example = [], ""
    for paragraph in _paragraphs(command.help):
        if paragraph.startswith(_EXAMPLE):
            example = paragraph.removeprefix(_EXAMPLE)
        else:
            paragraphs.append(words(paragraph))
    yield f"## traceview {name}"
    yield " ".join(paragraphs)
    yield f"```sh\n{example}\n```"
    options = _options(command)
    yield _listed(dict(each for each in options.values() if each not in shared.items()))
    also = [_code(name) for name, each in options.items() if each in shared.items()]
    if also:
        yield f"Also: {', '.join(also)}"
    if name == "show":
        yield "What can be shown, with what `--state` takes and the column that `--min` bounds:"
        yield _tables()


def _tables() -> str:
    """What can be shown, and what some options mean there."""
    lines = []
    for name, kind in TABLES.items():
        known = "all" if kind.states == tuple(STATES) else ", ".join(map(_code, kind.states))
        states = f"; states {known}" if kind.states else ""
        length = f"; length `{kind.length}`" if kind.length else ""
        lines.append(f"- `{name}`: {words(kind.summary)}{states}{length}")
    lines += [f"- `{name}`: {words(summary)}" for name, summary in WITHOUT_TRACE.items()]
    return "\n".join(lines)


def _code(text: str) -> str:
    return f"`{text}`"


def _paragraphs(text: str | None) -> list[str]:
    return [" ".join(part.split()) for part in inspect.cleandoc(text or "").split("\n\n")]


def _options(command: Any) -> dict[str, tuple[str, str]]:
    """By the name that says most how an option is written, and what it means."""
    context = typer.Context(command)
    return {
        _longest(parameter, context): (_name(parameter, context), _help(parameter))
        for parameter in command.params
        if not getattr(parameter, "hidden", False)
    }


def _longest(parameter: Any, context: typer.Context) -> str:
    """The name that says most."""
    if isinstance(parameter, TyperArgument):
        return str(parameter.make_metavar(context).strip("{}"))
    return str(max(parameter.opts, key=len))


def _name(parameter: Any, context: typer.Context) -> str:
    metavar = parameter.make_metavar(context).strip("{}")
    if isinstance(parameter, TyperArgument):
        return _code(metavar)
    # The long name first: it says more.
    names = sorted(parameter.opts, key=lambda name: -len(name)) + parameter.secondary_opts
    if parameter.is_flag:
        return ", ".join(map(_code, names))
    return ", ".join(map(_code, (*names[:-1], f"{names[-1]} {metavar.strip('<>')}")))


def _help(parameter: Any) -> str:
    meaning = words(parameter.help or "")
    if not isinstance(parameter, TyperOption):
        return meaning
    if parameter.show_default and parameter.default is not None and not parameter.is_flag:
        default = getattr(parameter.default, "value", parameter.default)
        meaning += f" By default {_code(str(default))}."
    return meaning


def _exit_codes() -> str:
    """Those of the errors, of Python's own, and of commands whose answer is a code."""
    meanings = {
        0: "Fine.",
        errors.TraceviewError.exit_code: "A bug of traceview: the lines above say where.",
        FAILED_CHECK: "`traceview capture --check` found what would fail.",
        INTERRUPTED: "Interrupted by Ctrl-C.",
    }
    for kind in vars(errors).values():
        if inspect.isclass(kind) and issubclass(kind, errors.TraceviewError):
            meanings.setdefault(kind.exit_code, first_paragraph(kind.__doc__))
    # The gate's own verdicts, which are no errors: docs/runs.md, "In CI".
    meanings[9] += " Of `traceview gate`: no verdict."
    meanings[10] = "`traceview gate`: a condition fails."
    codes = sorted(meanings)
    return "\n".join(f"- {number}: {meanings[number]}" for number in codes)
