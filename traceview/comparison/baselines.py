"""Keeps baselines: a folder of saved reports under a name, a capture a file, small enough to be committed."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from traceview.base.errors import ComparisonError, TraceNotFoundError, UsageError
from traceview.base.text import did_you_mean
from traceview.comparison.sides import step_time_ps
from traceview.document import numbers
from traceview.document.json_text import encoded
from traceview.report.model import Report, why_absent
from traceview.report.saved import load_report

DEFAULT_FOLDER: Final = Path(".traceview") / "baselines"
"""Where baselines are unless another folder is named: below the working directory, as other tools keep theirs."""

FILES: Final = tuple(f"{number}.json.gz" for number in range(1, 100))
"""The files of a baseline, in the order of its captures."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}", re.ASCII)


def checked_name(name: str) -> str:
    """The name; raises `UsageError` for one that could name a folder elsewhere, or none at all."""
    if _NAME.fullmatch(name):
        return name
    hint = "letters, digits, and . _ + - after the first: main, v1.2, 4-gpus"
    raise UsageError(f"{name!r} cannot name a baseline", hint=hint)


def file_content(report: Report) -> bytes:
    """A capture as a file of a baseline, the same for the same report.

    Raises `ComparisonError` where there are no steps to compare with.
    """
    if step_time_ps(report) is None:
        steps = report.results.steps
        reason = why_absent(report, "steps") if steps is None else "no step is used"
        raise ComparisonError(f"the run has no step times to compare with: {reason}")
    # Nothing is compared of a timeline, which is most of a report that has one.
    small = replace(report, results=replace(report.results, lanes=None))
    return gzip.compress(encoded(small), mtime=0)


def baseline_called(folder: Path, name: str) -> tuple[Report, ...]:
    """The captures of the baseline of this name.

    Raises `TraceNotFoundError` if there is none, with the names that are near, and `TraceFormatError` if a file of it is
    damaged.
    """
    own = folder / checked_name(name)
    paths = [own / file for file in FILES if (own / file).is_file()]
    if paths:
        return tuple(map(load_report, paths))
    known = sorted(path.parent.name for path in folder.glob(f"*/{FILES[0]}"))
    hint = "traceview gate LOGDIR --save NAME makes one"
    if known:
        hint = did_you_mean(name, known, f"there is {numbers.beginning(known)}")
    raise TraceNotFoundError(f"no baseline is called {name} in {folder}", hint=hint)
