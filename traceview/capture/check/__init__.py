"""Checks before a run what would go wrong in a capture, and changes nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from traceview.base.errors import CaptureError
from traceview.capture.check.check import Check, Subject
from traceview.capture.check.frameworks import check_framework, check_profile, chosen
from traceview.capture.check.gpus import check_gpus
from traceview.capture.check.scripts import read_scripts
from traceview.capture.check.trial import try_profile
from traceview.capture.record.destination import Destination

COMFORTABLE_BYTES: Final = 1 << 30
"""Room for several captures: a trace at the tracer's limits has about 100 MB."""

__all__ = ["Check", "examine"]


def examine(
    scripts: Sequence[Path] = (), *, out: Path = Path("logs"), asks_tensorflow: bool = True
) -> list[Check]:
    """Run every check.

    `asks_tensorflow`: import the framework of the scripts in another process and record a profile there (4 to 15 s). Scripts
    are read and never run. A problem is a failed check, never an error.
    """
    reading = read_scripts(scripts)
    framework, installed = chosen(reading.imports)
    trial = try_profile(framework, os.environ) if asks_tensorflow and installed else None
    return [
        check_framework(framework, installed, trial, is_needed=framework in reading.imports),
        check_gpus(framework, trial, os.environ),
        check_profile(framework, trial),
        check_output(out),
        *reading.checks,
    ]


def check_output(out: Path) -> Check:
    """Whether a capture could be written to `out`. What the check creates is removed again."""
    subject = Subject("output")
    destination = Destination(out)
    try:
        destination.prepare()
        free = shutil.disk_usage(destination.out).free
    except CaptureError as error:
        return subject.failed(error.message, error.hint or "choose another --out")
    finally:
        destination.clean()
    detail = f"{out} can be written, {free / 1e9:.1f} GB free"
    if free < COMFORTABLE_BYTES:
        return subject.warning(detail, "free some space: a trace may need more than 100 MB")
    return subject.ok(detail)
