"""In which order does the help list the commands? In panels, by what one wants to do next."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from typer.core import TyperGroup

_WHOLE = 1000
"""More than any summary has characters: none is cut."""


class PanelGroup(TyperGroup):
    """Commands that name their panel, as `rich_help_panel`; those of one panel come one after another."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """A list for each panel, with the summaries of all in one column."""
        width = max(map(len, self.commands), default=0)
        named = [(name, self.commands[name]) for name in self.list_commands(ctx)]
        for panel, commands in groupby(named, lambda pair: getattr(pair[1], "rich_help_panel", "")):
            with formatter.section(panel):
                formatter.write_dl(
                    [
                        (name.ljust(width), command.get_short_help_str(_WHOLE))
                        for name, command in commands
                    ]
                )
