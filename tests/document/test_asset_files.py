"""Tests how the scripts and style sheets of a page are put together."""

from __future__ import annotations

import re

import pytest

from traceview.document.html.printer import (
    SCRIPTS,
    STYLES,
    asset,
    bar_colours,
    colours,
    script,
)
from traceview.document.vocabulary import COLOURS


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_two_parts_of_a_script_give_the_same_name(name: str) -> None:
    # JavaScript would take the later of two functions without a word.
    given = re.findall(r"^(?:async )?(?:function|const|let) (\w+)", script(name), re.MULTILINE)
    assert len(given) == len(set(given))


def test_every_colour_that_is_used_is_defined() -> None:
    scripts = list(map(script, SCRIPTS))
    sheets = [bar_colours(), *map(asset, STYLES)]
    used = set(re.findall(r"var\(--tv-([\w-]+)\)", "".join((*sheets, *scripts))))
    assert used
    assert used <= set(COLOURS)
    assert (
        colours().count("--tv-compute:") == 3
    )  # on light, and on dark by the system or the reader
