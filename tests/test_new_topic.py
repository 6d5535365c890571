"""The topic that docs/architecture.md adds appears everywhere, by one module and three lines in the registry."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TRACE = ROOT / "fixtures" / "custom-loop-2"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the topic of the page in it."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(
        ROOT / "traceview", folder / "traceview", ignore=shutil.ignore_patterns("__pycache__")
    )
    module, registry_lines = BLOCK.findall(
        (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    )
    import_line, meaning_line, field_line = filter(None, registry_lines.splitlines())
    path, _, code = module.partition("\n")
    (folder / path.removeprefix("# ")).write_text(code, encoding="utf-8")
    registry = folder / "traceview" / "analysis" / "registry.py"
    text = registry.read_text(encoding="utf-8")
    for place, line in (
        ("from traceview.analysis.gpu_time.idle import ANALYSIS", import_line),
        ("        idle: ", meaning_line),
        ("    idle: Annotated[", field_line),
    ):
        assert text.count(place) == 1
        text = text.replace(place, f"{line}\n{place}")
    registry.write_text(text, encoding="utf-8")
    return folder


def traceview(checkout: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "traceview", *arguments],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def python(checkout: Path, code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": f"{checkout}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_in_the_terminal(checkout: Path) -> None:
    assert "First kernels" in traceview(checkout, "analyze", "--full", str(TRACE))


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_it_is_in_every_document(checkout: Path, form: str) -> None:
    assert "First kernels" in traceview(checkout, "report", str(TRACE), "--format", form, "-o", "-")


def test_it_is_in_the_json_and_in_the_schema(checkout: Path) -> None:
    report = json.loads(traceview(checkout, "analyze", str(TRACE), "--format", "json"))
    rows = report["results"]["first_kernels"]["devices"]
    assert [row["device"] for row in rows] == ["replica:0", "replica:1"]
    definitions = json.loads(traceview(checkout, "explain", "--schema", "report"))["$defs"]
    described = definitions["DeviceStart"]["properties"]["wait_ps"]
    assert described["description"].startswith("Time before the first kernel")


def test_its_finding_has_its_words(checkout: Path) -> None:
    findings = json.loads(traceview(checkout, "analyze", str(TRACE), "--format", "json"))[
        "findings"
    ]
    (made,) = [finding for finding in findings if finding["code"] == "late-first-kernel"]
    assert made["title"].startswith("Both replicas wait ")
    assert made["loss"]["states"] == ["host_ops", "launch", "python"]
    text = traceview(checkout, "analyze", "--full", str(TRACE))
    assert made["title"] in text
    assert "before the first kernel: " in text


def test_its_rule_is_explained(checkout: Path) -> None:
    text = traceview(checkout, "explain", "late-first-kernel")
    assert "Reported from: 5.0% of the GPU time" in text
    assert "Launch earlier" in text


def test_it_is_in_the_generated_pages(checkout: Path) -> None:
    pages = python(
        checkout,
        "from scripts.docs import PAGES; print(PAGES['metrics.md'](), PAGES['findings.md']())",
    )
    assert "first_kernels" in pages
    assert "late-first-kernel" in pages


def test_its_names_are_redacted(checkout: Path) -> None:
    kernels = {
        row["kernel"]
        for redact in ([], ["--redact"])
        for row in json.loads(
            traceview(checkout, "analyze", str(TRACE), "--format", "json", *redact)
        )["results"]["first_kernels"]["devices"]
    }
    # On the CPU kernels are called as types of ops are.
    assert any(kernel.startswith(("kernel_", "type_", "op_")) for kernel in kernels), kernels
