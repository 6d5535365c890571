"""How are several devices named in little room?"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby


def bare(key: str) -> str:
    """The name of a device without its host."""
    return key.rpartition("/")[2]


def joined(keys: Iterable[str]) -> str:
    """`GPU:0, 2, 5–7`: names that differ in their number only, the numbers in a row joined.

    With several hosts `a/GPU:0, 1; b/GPU:0`.
    """
    groups = [
        f"{prefix}:{_spans([key.rpartition(':')[2] for key in same])}"
        for prefix, same in groupby(keys, key=lambda key: key.rpartition(":")[0])
    ]
    return "; ".join(groups)


def _spans(numbers: list[str]) -> str:
    runs: list[list[str]] = []
    for number in numbers:
        follows = runs and number.isdecimal() and runs[-1][-1].isdecimal()
        if follows and int(number) == int(runs[-1][-1]) + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(run) for run in runs)
