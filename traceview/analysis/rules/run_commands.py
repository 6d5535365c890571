"""Writes commands about a run: for a page, and in place of `traceview show gaps LOGDIR` in advice."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from traceview.base.text import shell_path, shell_word
from traceview.document.phrase import Phrase, Token

_OF_LOGDIR: Final = re.compile(r"traceview ((?:show )?[a-z]+) LOGDIR\b")


class RunCommands(Struct, frozen=True):
    """The commands about `run` in `logdir`. `is_only`: the log directory has no other run, so that none is chosen."""

    logdir: str
    run: str
    is_only: bool

    def command(self, name: str) -> str:
        """`traceview show gaps logs --run 2026_11_22_07_10_02`."""
        return f"traceview {name} {shell_path(self.logdir)}{self._choice}"

    def filled(self, advice: Phrase) -> Phrase:
        """Advice whose commands read this run."""
        rest = f" {shell_path(self.logdir)}{self._choice}"
        return tuple(
            token
            if token.kind == "name"
            else Token(
                _OF_LOGDIR.sub(lambda match: f"traceview {match[1]}{rest}", token.text), token.kind
            )
            for token in advice
        )

    @property
    def _choice(self) -> str:
        return "" if self.is_only else f" --run {shell_word(self.run.rpartition('/')[2])}"
