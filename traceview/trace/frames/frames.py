"""Gives the tables of a trace as pandas DataFrames, for notebooks; nothing else imports pandas.

Text columns that are not categories have the type `string`, so that they are text when empty, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from traceview.base.text import encodable
from traceview.trace.device.table import Column, Table, category


def records_frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """One row per record that was made a dictionary, with its keys as columns."""
    return pd.DataFrame(list(rows))


def frame_of(rows: Table) -> pd.DataFrame:
    """A table as a DataFrame: whole numbers and flags of which some may be missing have pandas' types for that."""
    return pd.DataFrame({column.name: _series(column) for column in rows.columns})


def _series(column: Column) -> Any:
    values, missing = column.values, column.missing
    if column.kind == "category":
        known = category(column.name, values, list(map(encodable, column.labels)))
        labels = pd.Index(known.labels, dtype=object)
        return pd.Categorical.from_codes(known.values, categories=labels)
    if column.kind == "text":
        # Left to itself pandas makes numbers of an empty column.
        texts = [None if text is None else encodable(text) for text in values]
        return pd.array(texts, dtype="string")
    if column.kind == "int" and missing is not None:
        return pd.arrays.IntegerArray(values.copy(), missing.copy())
    if column.kind == "bool" and missing is not None:
        return pd.arrays.BooleanArray(values.copy(), missing.copy())
    return values
