"""The line that Python runs at every start costs nothing without the variable, and never breaks a start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.capture.conftest import ROOT, Captured, run_process
from traceview.capture.process.saying import VARIABLE

LINE = (ROOT / "traceview.pth").read_text(encoding="utf-8")


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A bare environment with the line in it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (packages,) = tmp_path.glob("venv/lib/python*/site-packages")
    (packages / "traceview.pth").write_text(LINE, encoding="utf-8")
    return tmp_path / "venv" / "bin" / "python"


def run(python: Path, code: str, **variables: str) -> Captured:
    inherited = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", VARIABLE}}
    return run_process(ROOT, python, "-c", code, environment={**inherited, **variables})


LOOK = "import sys; print(sorted(name for name in sys.modules if name.startswith('traceview')))"


def test_with_the_variable_only_what_waits_for_tensorflow_is_imported(python: Path) -> None:
    done = run(python, LOOK, PYTHONPATH=str(ROOT), **{VARIABLE: "--steps 1:2"})
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("'traceview.capture.process.saying']\n")
    assert "traceview.capture.record" not in done.out
    done = run(python, LOOK, PYTHONPATH=str(ROOT))
    assert (done.code, done.out, done.err) == (0, "[]\n", "")


def test_without_the_package_python_starts_and_says_so(python: Path) -> None:
    done = run(python, "print(1)", **{VARIABLE: "--steps 1:2"})
    assert (done.code, done.out) == (0, "1\n")
    # In an environment, some versions of Python run the line twice.
    assert set(done.err.splitlines()) == {
        "traceview: nothing is captured: ModuleNotFoundError(\"No module named 'traceview'\")"
    }


@pytest.mark.parametrize("is_installed", [True, False])
def test_only_a_site_folder_has_the_line(python: Path, tmp_path: Path, is_installed: bool) -> None:
    """Not PYTHONPATH, as of `pip install --target`, nor the working directory: there Python reads no `.pth` files."""
    if not is_installed:
        next(tmp_path.glob("venv/lib/python*/site-packages/traceview.pth")).unlink()
    code = f"""if True:
        import sys
        from traceview.base.errors import CaptureError
        from traceview.capture.launch.command import become
        from traceview.capture.record.settings import Settings
        try:
            become([sys.executable, "-c", "print('trained')"], Settings.read("--steps 1:2 --output {tmp_path}"))
        except CaptureError as error:
            print("is not installed" in str(error))
    """
    done = run(python, code, PYTHONPATH=str(ROOT))
    assert done.out == ("trained\n" if is_installed else "True\n")
