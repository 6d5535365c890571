"""Writes a table as Parquet by pyarrow, straight from its arrays, so that pandas reads its exact types."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from typing import Any

from traceview.document.sanitize import encodable
from traceview.trace.device.table import Column, Table


def written(table: Table) -> bytes:
    """The content of a Parquet file."""
    import pyarrow as pa
    from pyarrow import parquet

    arrays = [_array(pa, column) for column in table.columns]
    names = [column.name for column in table.columns]
    content = pa.Table.from_arrays(arrays, names=names)
    content = content.replace_schema_metadata({"pandas": json.dumps(_for_pandas(table))})
    buffer = BytesIO()
    parquet.write_table(content, buffer)
    return buffer.getvalue()


def _array(pa: Any, column: Column) -> Any:
    missing = column.missing
    if column.kind == "text":
        texts = [None if text is None else encodable(text) for text in column.values]
        return pa.array(texts, type=pa.string())
    if column.kind == "category":
        codes = pa.array(column.values.astype("int32"), mask=column.values < 0)
        labels = pa.array(list(map(encodable, column.labels)), type=pa.string())
        return pa.DictionaryArray.from_arrays(codes, labels)
    if column.kind == "float":
        return pa.array(column.values, from_pandas=True)
    return pa.array(column.values, mask=missing)


_PANDAS_TYPES: dict[str, Callable[[Column], tuple[str, str]]] = {
    "int": lambda column: ("int64", "int64" if column.missing is None else "Int64"),
    "bool": lambda column: ("bool", "bool" if column.missing is None else "boolean"),
    "float": lambda _: ("float64", "float64"),
    "category": lambda _: ("categorical", "int32"),
    "text": lambda _: ("unicode", "string"),
}
"""What pandas calls the type, and the type of its values."""


def _for_pandas(table: Table) -> dict[str, Any]:
    """What pandas keeps in a file (pandas.pydata.org, "Storing pandas DataFrame objects in Apache Parquet format").

    Without it whole numbers with a missing one among them become floats.
    """
    columns = []
    for column in table.columns:
        pandas_type, numpy_type = _PANDAS_TYPES[column.kind](column)
        is_category = column.kind == "category"
        columns.append(
            {
                "name": column.name,
                "field_name": column.name,
                "pandas_type": pandas_type,
                "numpy_type": numpy_type,
                "metadata": {"num_categories": len(column.labels), "ordered": False}
                if is_category
                else None,
            }
        )
    index = {"kind": "range", "name": None, "start": 0, "stop": table.count, "step": 1}
    return {
        "index_columns": [index],
        "column_indexes": [],
        "columns": columns,
        "creator": {"library": "traceview", "version": "1"},
        "pandas_version": "2.0.0",
    }
