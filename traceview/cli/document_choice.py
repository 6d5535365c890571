"""Chooses the document that is asked for: by its name, or by the ending of the file."""

from __future__ import annotations

from traceview.errors import UsageError
from traceview.location import Location
from traceview.report.formats import DOCUMENTS, DocumentFormat


def document_called(name: str) -> DocumentFormat:
    """The document of this name; raises `UsageError` if there is none."""
    from difflib import get_close_matches

    by_name = {document.name: document for document in DOCUMENTS}
    if name.lower() in by_name:
        return by_name[name.lower()]
    near = get_close_matches(name.lower(), by_name, n=1)
    hint = f"did you mean {near[0]}?" if near else f"formats: {', '.join(by_name)}"
    raise UsageError(f"--format {name}: no such format", hint=hint)


def chosen_document(name: str | None, path: Location | None) -> DocumentFormat | None:
    """The document of `--format`, else of the ending of `path`; None where neither names one."""
    if name is not None:
        return document_called(name)
    suffix = "" if path is None or path.is_dir() else path.suffix.lower()
    return next((document for document in DOCUMENTS if document.suffix == suffix), None)
