"""Which commands are there, what do they take, and with which code do they end? As Typer and the errors say it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer
import typer.main
from typer.core import TyperArgument, TyperGroup, TyperOption

from scripts.docs.words import first_paragraph, words
from traceview import errors
from traceview.cli.app import app
from traceview.cli.doctor import FAILED_CHECK
from traceview.cli.errors import INTERRUPTED
from traceview.render.markdown.blocks import Column, table
from traceview.render.markdown.inline import code

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
            [
                Column("command", [f"[`{name}`](#traceview-{name})" for name in commands]),
                Column("", [words(_paragraphs(command.help)[0]) for command in commands.values()]),
            ]
        ),
    ]
    for name, command in commands.items():
        blocks += _of_command(name, command)
    blocks += ["## Exit codes", _exit_codes()]
    return "\n\n".join(block.strip() for block in blocks if block) + "\n"


def _of_command(name: str, command: Any) -> Iterator[str]:
    said, example = [], ""
    for paragraph in _paragraphs(command.help):
        if paragraph.startswith(_EXAMPLE):
            example = paragraph.removeprefix(_EXAMPLE)
        else:
            said.append(words(paragraph))
    context = typer.Context(command, info_name=f"traceview {name}")
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"## traceview {name}"
    yield "\n\n".join(said)
    yield f"```sh\n{example}\n```"
    yield f"Usage: `traceview {name} {usage}`"
    shown = [one for one in command.params if not getattr(one, "hidden", False)]
    yield table(
        [
            Column("argument or option", [_name(one, context) for one in shown]),
            Column("", [_help(one, context) for one in shown]),
        ]
    )


def _paragraphs(text: str | None) -> list[str]:
    return [" ".join(part.split()) for part in inspect.cleandoc(text or "").split("\n\n")]


def _name(parameter: Any, context: typer.Context) -> str:
    metavar = parameter.make_metavar(context).strip("{}")
    if isinstance(parameter, TyperArgument):
        return code(metavar)
    # The long name first: it says more.
    names = sorted(parameter.opts, key=lambda one: -len(one)) + parameter.secondary_opts
    told = ", ".join(map(code, names))
    if parameter.is_flag:
        return told
    choices = metavar.strip("<>").split("|")
    return f"{told} {' or '.join(map(code, choices))}"


def _help(parameter: Any, context: typer.Context) -> str:
    meaning = words(parameter.help or "")
    if not isinstance(parameter, TyperOption):
        return meaning
    extra = parameter.get_help_extra(context) if hasattr(parameter, "get_help_extra") else {}
    told = []
    if parameter.show_default and parameter.default is not None and not parameter.is_flag:
        default = getattr(parameter.default, "value", parameter.default)
        told.append(f"By default {code(str(default))}.")
    if extra.get("range"):
        told.append(f"Range: {code(str(extra['range']))}.")
    return " ".join([meaning, *told])


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
    return table(
        [
            Column("code", [str(one) for one in codes], right=True),
            Column("", [meanings[one] for one in codes]),
        ]
    )
