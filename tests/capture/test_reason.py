"""Why something is missing: short, and without credentials."""

from __future__ import annotations

from traceview.capture.sidecar.file import reason_of


def test_a_reason_names_the_error_without_credentials() -> None:
    error = ConnectionError("https://me:hunter2@registry.example refused")
    assert reason_of(error) == "ConnectionError: https://***@registry.example refused"


def test_a_reason_keeps_the_start_of_a_long_message() -> None:
    reason = reason_of(ValueError("shapes differ. " + "More of it. " * 100))
    assert reason.startswith("ValueError: shapes differ. More")
    assert len(reason) == 200
