"""Which document is asked for: by its name, or by the ending of the file?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from traceview.errors import UsageError
from traceview.render.formats import DOCUMENTS, DocumentFormat

if TYPE_CHECKING:
    from traceview.report.model import Report


def document_called(name: str) -> DocumentFormat:
    """The document of a name; raises `UsageError` for one that there is not."""
    from difflib import get_close_matches

    found = {one.name: one for one in DOCUMENTS}
    if name.lower() in found:
        return found[name.lower()]
    near = get_close_matches(name.lower(), found, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(found)}"
    raise UsageError(f"--format {name}: no such format", hint=hint)


def chosen_document(name: str | None, path: Path | None) -> DocumentFormat | None:
    """The document of `--format`, else of the ending of `path`; None where neither names one."""
    if name is not None:
        return document_called(name)
    suffix = "" if path is None or path.is_dir() else path.suffix.lower()
    return next((one for one in DOCUMENTS if one.suffix == suffix), None)


def content_of(document: DocumentFormat, report: Report) -> bytes:
    """The bytes of its file."""
    content = document.render(report)
    return content.encode() if isinstance(content, str) else content
