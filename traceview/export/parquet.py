"""Writes a table as Parquet, as pandas does, so that it reads the exact types; light to import, for commands do so at their start."""

from __future__ import annotations

from importlib.util import find_spec
from io import BytesIO

from msgspec.structs import replace

from traceview.base.errors import UsageError
from traceview.trace.device.table import Table


def check_pyarrow(what: str) -> None:
    """Raise `UsageError` if Parquet, which `what` needs, cannot be written."""
    if find_spec("pyarrow") is None:
        raise UsageError(f"{what} needs pyarrow", hint="pip install 'traceview[parquet]'")


def written(table: Table) -> bytes:
    """The content of a Parquet file."""
    from traceview.trace.device.table import frame_of

    # A category without labels would have no type in the file.
    columns = (
        replace(column, labels=column.labels or ("",) if column.kind == "category" else ())
        for column in table.columns
    )
    content = BytesIO()
    frame_of(replace(table, columns=tuple(columns))).to_parquet(content, engine="pyarrow")
    return content.getvalue()
