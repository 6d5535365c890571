"""The lists of words that redaction keeps are those that the code writes, and no others."""

from __future__ import annotations

from scripts.public_words import PATH, as_file, collected
from traceview.report.redaction import library_words, op_types, public_words

RENEW = "renew the list and read its difference: python -m scripts.public_words"


def test_the_words_of_reports_are_listed() -> None:
    words = set(collected())
    assert sorted(words - public_words()) == [], RENEW
    assert sorted(public_words() - words) == [], RENEW
    assert PATH.read_text(encoding="utf-8") == as_file(collected()), RENEW


def test_names_that_users_choose_are_not_listed() -> None:
    for words in (public_words(), library_words()):
        assert words.isdisjoint(
            ("acme", "gandalf", "mallory", "zebra", "jupyter", "admin", "apikey")
        )


def test_docstrings_and_patterns_are_not_listed() -> None:
    assert "declarative" not in public_words()
    assert [word for word in public_words() if "\\" in word or "?" in word] == []


def test_the_ops_are_those_of_tensorflow() -> None:
    assert len(op_types()) == 1910
    assert {"MatMul", "CollectiveReduceV2", "ParallelMapDatasetV2"} <= op_types()
