from __future__ import annotations

import pytest

from traceview.capture.record.trace_summary import DEFAULT_OPTIONS, describe_options

OTHERS = {**DEFAULT_OPTIONS, "python_tracer_level": 1}


@pytest.mark.parametrize(
    ("version", "recorded", "is_ignored", "why"),
    [
        ("2.15.1", None, False, "TensorFlow 2.15 takes options, and records none in the trace"),
        ("2.20.0", None, True, "TensorFlow 2.20 ignores options, and records none in the trace"),
        ("2.21.0rc1", DEFAULT_OPTIONS, True, None),
        ("2.22.0", DEFAULT_OPTIONS, False, None),
        ("2.22.0", OTHERS, True, None),
        ("2.22.0", None, False, "the trace does not say"),
        ("", None, False, "the trace does not say"),
    ],
)
def test_options(
    version: str, recorded: dict[str, int] | None, is_ignored: bool, why: str | None
) -> None:
    group = describe_options(version, recorded)
    assert group["asked"] == DEFAULT_OPTIONS
    assert (group["in_force"], group["is_ignored"]) == (recorded, is_ignored)
    assert group.get("missing", {}).get("in_force") == why
