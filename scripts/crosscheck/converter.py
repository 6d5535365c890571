"""The process that asks XProf: it converts a run and writes its pages as JSON into a file.

    python -m scripts.crosscheck.converter PAGES.json FILE.xplane.pb…

XProf prints without end and may crash, hence the process of its own.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from traceview.export import xprof

PAGES: Final = ("overview_page", "input_pipeline_analyzer", "framework_op_stats", "kernel_stats")


def pages(files: list[str]) -> dict[str, Any]:
    """Each of `PAGES` as XProf's web page gets it; None for an empty page."""
    convert: Any = import_module(f"{xprof.module()}.convert.raw_to_tool_data")
    contents = {}
    for page in PAGES:
        content = convert.xspace_to_tool_data(files, page, {})[0]
        contents[page] = json.loads(content) if content else None
    return contents


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(pages(sys.argv[2:])), encoding="utf-8")
