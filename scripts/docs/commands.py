"""Writes docs/commands.md: the commands, their options and their exit codes, from Typer and the errors."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer
import typer.main
from typer.core import TyperArgument, TyperGroup, TyperOption

from scripts.docs.words import first_paragraph, table, words
from traceview import errors
from traceview.cli.app import app
from traceview.cli.doctor import FAILED_CHECK
from traceview.cli.errors import INTERRUPTED
from traceview.document.markdown import code

_HEAD = """\
# Commands

Reports go to standard output, everything else to standard error. Files are written whole or not at all, and never over
an existing one without `--force`. This page is made from the commands; `python -m scripts.docs` renews it.
"""
_EXAMPLE = "Example: "


def page() -> str:
    """The whole page: a list, a part for each command, and the exit codes."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    commands = group.commands
    blocks = [
        _HEAD,
        table(
            ("command", ""),
            (
                (f"[`{name}`](#traceview-{name})", words(_paragraphs(command.help)[0]))
                for name, command in commands.items()
            ),
        ),
    ]
    for name, command in commands.items():
        blocks += _of_command(name, command)
    blocks += ["## Exit codes", _exit_codes()]
    return "\n\n".join(block.strip() for block in blocks if block) + "\n"


def _of_command(name: str, command: Any) -> Iterator[str]:
    """The part of a command, and of those that it has of its own."""
    if isinstance(command, TyperGroup):
        paragraphs = [part for part in _paragraphs(command.help) if not part.startswith(_EXAMPLE)]
        yield f"## traceview {name}"
        yield "\n\n".join(map(words, paragraphs))
        for inner, of in command.commands.items():
            yield from _of_single_command(f"{name} {inner}", of, heading="###")
        return
    yield from _of_single_command(name, command)


def _of_single_command(name: str, command: Any, heading: str = "##") -> Iterator[str]:
    paragraphs, example = [], ""
    for paragraph in _paragraphs(command.help):
        if paragraph.startswith(_EXAMPLE):
            example = paragraph.removeprefix(_EXAMPLE)
        else:
            paragraphs.append(words(paragraph))
    context = typer.Context(command, info_name=f"traceview {name}")
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"{heading} traceview {name}"
    yield "\n\n".join(paragraphs)
    yield f"```sh\n{example}\n```"
    yield f"Usage: `traceview {name} {usage}`"
    rows = [
        (_name(parameter, context), _help(parameter, context))
        for parameter in command.params
        if not getattr(parameter, "hidden", False)
    ]
    if rows:
        yield table(("argument or option", ""), rows)


def _paragraphs(text: str | None) -> list[str]:
    return [" ".join(part.split()) for part in inspect.cleandoc(text or "").split("\n\n")]


def _name(parameter: Any, context: typer.Context) -> str:
    metavar = parameter.make_metavar(context).strip("{}")
    if isinstance(parameter, TyperArgument):
        return code(metavar)
    # The long name first: it says more.
    names = sorted(parameter.opts, key=lambda name: -len(name)) + parameter.secondary_opts
    option = ", ".join(map(code, names))
    if parameter.is_flag:
        return option
    choices = metavar.strip("<>").split("|")
    return f"{option} {' or '.join(map(code, choices))}"


def _help(parameter: Any, context: typer.Context) -> str:
    meaning = words(parameter.help or "")
    if not isinstance(parameter, TyperOption):
        return meaning
    extra = parameter.get_help_extra(context) if hasattr(parameter, "get_help_extra") else {}
    remarks = []
    if parameter.show_default and parameter.default is not None and not parameter.is_flag:
        default = getattr(parameter.default, "value", parameter.default)
        remarks.append(f"By default {code(str(default))}.")
    if extra.get("range"):
        remarks.append(f"Range: {code(str(extra['range']))}.")
    return " ".join([meaning, *remarks])


def _exit_codes() -> str:
    """Those of the errors, of Python's own, and of commands whose answer is a code."""
    meanings = {
        0: "Fine.",
        errors.TraceviewError.exit_code: "A bug of traceview: the lines above say where.",
        FAILED_CHECK: "`traceview doctor` found what would fail.",
        INTERRUPTED: "Interrupted by Ctrl-C.",
    }
    for kind in vars(errors).values():
        if inspect.isclass(kind) and issubclass(kind, errors.TraceviewError):
            meanings.setdefault(kind.exit_code, first_paragraph(kind.__doc__))
    codes = sorted(meanings)
    return table(("code", ""), ((str(number), meanings[number]) for number in codes), right=True)
