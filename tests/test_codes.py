"""Numbers of columns compare with arrays as plain integers do."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import traceview
from traceview.base.codes import Code


class _Kind(Code):
    NONE = 0
    FIRST = 1


COLUMN = np.array([0, 1, 2], dtype=np.uint8)


def test_a_code_compares_and_adds_as_its_number() -> None:
    assert (COLUMN == _Kind.FIRST).tolist() == [False, True, False]
    assert (COLUMN <= _Kind.FIRST).tolist() == [True, True, False]
    assert (COLUMN + _Kind.FIRST).tolist() == [1, 2, 3]
    assert np.where(COLUMN == 0, _Kind.FIRST, COLUMN).tolist() == [1, 1, 2]
    assert np.array(list(_Kind), dtype=np.uint8).tolist() == [0, 1]


def test_every_list_of_numbers_is_one_of_codes() -> None:
    package = Path(traceview.__file__).parent
    others = [path.name for path in package.rglob("*.py") if "IntEnum" in path.read_text()]
    assert others == ["codes.py"]
