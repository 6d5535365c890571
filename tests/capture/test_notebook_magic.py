"""%%traceview runs a cell as IPython does, captures its steps, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.capture.conftest import environment_with, run_python
from tests.capture.fake_tensorflow import SCRIPT_START

DRIVER = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
before = "IPython" in sys.modules
shell.run_line_magic("load_ext", "traceview")
shell.run_cell(open("setup.py").read())
result = shell.run_cell(open("cell.txt").read())
print("result", result.result, "error", type(result.error_in_exec).__name__)
method = sys.modules["tensorflow"].Function.__call__
print("left", method.__code__.co_filename.count("traceview"), len([f for f in sys.meta_path if "traceview" in type(f).__module__]))
"""


@pytest.fixture
def run(tmp_path: Path, fake: Path) -> Callable[[str], str]:
    """Runs a cell, and gives all that is said."""

    def run_cell(cell: str) -> str:
        for name, text in (("setup.py", SCRIPT_START), ("cell.txt", cell), ("driver.py", DRIVER)):
            (tmp_path / name).write_text(text, encoding="utf-8")
        variables = environment_with(fake, IPYTHONDIR=str(tmp_path / "ipython"))
        done = run_python(tmp_path, "driver.py", environment=variables, code=0)
        assert "left 0 0\n" in done.out
        return done.out + done.err

    return run_cell


def runs(folder: Path) -> list[Path]:
    return list((folder / "logs" / "plugins" / "profile").glob("*"))


LOOP = "for batch in batches(30): train_step(batch)\n"


def test_a_cell_is_captured_and_its_report_shown(run: Callable[[str], str], tmp_path: Path) -> None:
    out = run(f"%%traceview --steps 10:15 --output logs\n{LOOP}6 * 7")
    (folder,) = runs(tmp_path)
    assert f"traceview: the trace is in logs/plugins/profile/{folder.name}\n" in out
    assert f"run {folder.name} · window" in out
    assert "result 42 error NoneType" in out


def test_magics_names_and_functions_of_the_cell_are_those_of_the_notebook(
    run: Callable[[str], str], tmp_path: Path
) -> None:
    cell = """%%traceview --steps 3:5
import inspect
def mine(): return 1
%time kept = 5
assert "return 1" in inspect.getsource(mine)
for batch in batches(9): train_step(batch)
kept;"""
    out = run(cell)
    assert "Wall time" in out
    assert "result None error NoneType" in out
    assert len(runs(tmp_path)) == 1


def test_an_error_is_that_of_the_cell_and_the_trace_is_kept(
    run: Callable[[str], str], tmp_path: Path
) -> None:
    out = run(
        "%%traceview\nfor n in range(30):\n    train_step(n)\n    if n == 12: raise KeyError('mine')"
    )
    assert "error KeyError" in out
    assert out.count("Traceback (most recent call last)") == 1
    assert "traceview/capture" not in out
    assert len(runs(tmp_path)) == 1


def test_a_wrong_option_is_said_and_the_cell_does_not_run(
    run: Callable[[str], str],
) -> None:
    out = run("%%traceview --step 3:5\nprint('it ' 'ran')")
    assert "UsageError: unrecognized arguments: --step 3:5\nhint: %%traceview --steps" in out
    assert "it ran" not in out
    assert "Traceback" not in out
