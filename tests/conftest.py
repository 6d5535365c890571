"""Where do the recorded traces lie, and which tests can run here?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED_TRACES = os.environ.get("TRACEVIEW_SHARED_TRACES")


def shared_traces_folder() -> Path:
    return Path(SHARED_TRACES) if SHARED_TRACES else ROOT.parent / "shared" / "traces"


def pytest_configure(config: pytest.Config) -> None:
    if SHARED_TRACES and not shared_traces_folder().is_dir():
        raise pytest.UsageError(f"TRACEVIEW_SHARED_TRACES is not a folder: {SHARED_TRACES}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if shared_traces_folder().is_dir():
        return
    shared = [item for item in items if item.get_closest_marker("shared")]
    if shared:
        items[:] = [item for item in items if item not in shared]
        config.hook.pytest_deselected(items=shared)


def pytest_report_header() -> str:
    folder = shared_traces_folder()
    if folder.is_dir():
        return f"real traces: {folder}"
    return f"real traces: none, tests marked shared are deselected (no folder {folder})"


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """The folder of real GPU traces; for tests marked `shared`."""
    return shared_traces_folder()


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """The folder of traces recorded for the tests."""
    return ROOT / "fixtures"
