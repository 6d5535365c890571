"""Asks XProf about a run: on a copy, in a process of its own, which prints without end and may crash."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from scripts.crosscheck.answer import Answer, parse
from traceview.base.errors import ViewerError
from traceview.export.viewers import check_installed, copied_run, environment, last_words
from traceview.trace.reading.locate import RunFiles

PAGES: Final = ("overview_page", "input_pipeline_analyzer", "framework_op_stats", "kernel_stats")


def pages(files: list[str]) -> dict[str, Any]:
    """Each of `PAGES` as XProf's web page gets it; None for an empty page."""
    convert: Any = import_module("xprof.convert.raw_to_tool_data")
    contents = {}
    for page in PAGES:
        content = convert.xspace_to_tool_data(files, page, {})[0]
        contents[page] = json.loads(content) if content else None
    return contents


@dataclass(frozen=True)
class Asked:
    """XProf's answer, and which version gave it."""

    version: str
    answer: Answer


def installed_version() -> str:
    """The version of XProf; raises `UsageError` where it is not installed."""
    check_installed("xprof")
    try:
        return version("xprof")
    except PackageNotFoundError:
        return "of an unknown version"


def ask(run: RunFiles) -> Asked:
    """XProf's answer for a run.

    Raises `UsageError` where it is not installed, `ViewerError` with its last words if it fails.
    """
    known = installed_version()
    with copied_run(run) as copy:
        pages, log = copy.scratch / "pages.json", copy.scratch / "log.txt"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "scripts.crosscheck.xprof", pages, *copy.files],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=copy.scratch,
                env=environment(copy.scratch),
            )
        try:
            code = process.wait()
        finally:
            # The wait may have been interrupted.
            process.kill()
            process.wait()
        if code:
            raise ViewerError(f"XProf {known} ended with {code}: {last_words(log)}")
        try:
            return Asked(known, parse(json.loads(pages.read_text(encoding="utf-8"))))
        except (AttributeError, KeyError, OSError, OverflowError, TypeError, ValueError) as error:
            raise ViewerError(
                f"XProf {known} gave pages of an unknown form: {type(error).__name__}: {error}"
            ) from error


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(pages(sys.argv[2:])), encoding="utf-8")
