"""The README shows current outputs."""

from __future__ import annotations

from scripts.readme import README, current


def test_every_command_gives_the_output_shown() -> None:
    text = README.read_text(encoding="utf-8")
    assert text.count("```console\n$ traceview") >= 1
    assert current(text) == text
