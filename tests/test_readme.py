"""The README shows current outputs, and its links lead to files that exist."""

from __future__ import annotations

import re

from scripts.readme import README, ROOT, current


def test_every_command_and_program_gives_the_output_shown() -> None:
    text = README.read_text(encoding="utf-8")
    assert text.count("```console\n$ traceview") >= 2
    assert text.count("```python") >= 1
    assert current(text) == text


def test_every_file_it_links_to_is_there() -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", README.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
