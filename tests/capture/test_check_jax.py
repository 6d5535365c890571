"""`--check` knows what a script with JAX needs."""

from __future__ import annotations

from pathlib import Path

from traceview.capture.check.checks_jax import check_jax, check_jax_gpus
from traceview.capture.check.checks_script import check_scripts
from traceview.capture.check.script_reading import read_script


def test_jax_is_needed_by_a_script_that_imports_it() -> None:
    assert check_jax({}, is_needed=True).status == "failed"
    assert check_jax({}, is_needed=False).status == "not applicable"
    assert check_jax({"jax": "0.4.30", "jaxlib": "0.4.30"}, is_needed=True).status == "ok"
    assert check_jax({"jax": "0.10.2"}, is_needed=True).status == "ok"
    assert check_jax({"jax": "0.11.0"}, is_needed=True).status == "warning"


def test_gpus_need_a_plugin() -> None:
    packages = {"jax": "0.10.2", "jaxlib": "0.10.2"}
    assert check_jax_gpus(packages, has_gpus=True).status == "failed"
    assert check_jax_gpus({**packages, "jax-cuda12-plugin": "0.10.2"}, has_gpus=True).status == "ok"
    assert check_jax_gpus(packages, has_gpus=False).status == "not applicable"


def test_a_script_with_jax_that_profiles_itself_is_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("import jax\nwith jax.profiler.trace('logs'): pass\n", encoding="utf-8")
    reading = read_script(path)
    assert (reading.imports_jax, reading.imports_tensorflow) == (True, False)
    (check,) = check_scripts([reading], visible_count=2)
    assert (check.name, check.status) == ("script-profiler", "warning")
    assert "jax.profiler.trace" in check.detail
