"""Tests that everything a report classifies has a name, a letter and a colour."""

from __future__ import annotations

import pytest

from traceview.document.vocabulary import (
    PARTS,
    STATES,
    look_of,
    thread_name,
    thread_words,
)


def test_looks_can_be_told_apart() -> None:
    for looks in (STATES, PARTS):
        letters = [look.letter for look in looks.values()]
        assert all(letters)
        assert len(set(letters)) == len(letters)


def test_a_key_of_a_later_version_is_its_own_name() -> None:
    assert look_of(STATES, "gravity").words == "gravity"


@pytest.mark.parametrize(
    ("name", "words", "cell"),
    [
        ("traceview", "Python thread", "Python thread"),
        ("python3.11", "Python thread", "Python thread"),
        ("tf_Compute/17", "thread tf_Compute/17", "tf_Compute/17"),
        ("traceview_worker", "thread traceview_worker", "traceview_worker"),
    ],
)
def test_a_thread_that_bears_the_name_of_the_program_is_one_of_python(
    name: str, words: str, cell: str
) -> None:
    assert thread_words(name) == words
    assert thread_name(name) == cell
