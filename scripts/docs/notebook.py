"""Runs the notebook docs/example.ipynb: its cells, and the outputs that they give now."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
PATH = ROOT / "docs" / "example.ipynb"


def can_run() -> bool:
    """Whether the packages that run notebooks are installed."""
    return all(map(find_spec, ("ipykernel", "nbclient", "nbformat")))


def executed() -> str:
    """The text of the notebook with current outputs."""
    from nbclient import NotebookClient

    # Without types.
    nbformat: Any = import_module("nbformat")
    notebook = nbformat.read(PATH, as_version=4)
    NotebookClient(
        notebook,
        kernel_name="python3",
        resources={"metadata": {"path": str(ROOT)}},
        record_timing=False,
    ).execute()
    # What is recorded of the interpreter changes with it.
    notebook.metadata.language_info = {"name": "python"}
    return f"{nbformat.writes(notebook)}\n"
