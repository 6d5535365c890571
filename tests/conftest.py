"""Where do the recorded traces lie, and which tests can run here?"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.command import Command, Done

# How long an example takes is an affair of the machine, which may be busy.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

ROOT = Path(__file__).resolve().parent.parent
SHARED_TRACES = os.environ.get("TRACEVIEW_SHARED_TRACES")


def shared_traces_folder() -> Path:
    return Path(SHARED_TRACES) if SHARED_TRACES else ROOT.parent / "shared" / "traces"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write what is rendered now as tests/golden"
    )


def pytest_configure(config: pytest.Config) -> None:
    if SHARED_TRACES and not shared_traces_folder().is_dir():
        raise pytest.UsageError(f"TRACEVIEW_SHARED_TRACES is not a folder: {SHARED_TRACES}")
    # A shell that starts the tests in the background has them ignore SIGINT, and with them every
    # command that they start and interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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


@pytest.fixture
def loop(fixtures: Path) -> str:
    """A run of two replicas with steps 3 to 8."""
    return str(fixtures / "custom-loop-2")


@pytest.fixture
def slow(fixtures: Path) -> str:
    """Two replicas that wait for input: 65.4 ms in the mean step."""
    return str(fixtures / "slow-input-2")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with the file of that name in tests/golden, or writes it with --update-golden."""

    def compare(name: str, text: str) -> None:
        path = ROOT / "tests" / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        assert text == path.read_text(encoding="utf-8"), "if this is right: pytest --update-golden"

    return compare


@pytest.fixture
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """No width and no colour from the shell that runs the tests."""
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Command:
    """Runs a command line in this process."""

    def run(*arguments: str) -> Done:
        from traceview.cli.app import app

        code = 0
        try:
            app(list(arguments), prog_name="traceview")
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else 0 if exit_.code is None else 1
        out, err = capfd.readouterr()
        return Done(code, out, err)

    return run
