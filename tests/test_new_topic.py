"""The topic that docs/architecture.md adds appears everywhere, by one module, four lines in the registry and one for its table."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

from tests.capture.conftest import ROOT, run_python

TRACE = str(ROOT / "fixtures" / "custom-loop-2")
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
CODE = """
import io, json, sys
from contextlib import redirect_stdout
from scripts.docs import PAGES
from traceview.cli.app import app

def said(*words):
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with redirect_stdout(out):
        try:
            app(words, prog_name="traceview")
        except SystemExit as done:
            assert not done.code, words
    out.flush()
    return out.buffer.getvalue().decode()

trace = sys.argv[1]
print(json.dumps({
    "terminal": said("analyze", "--full", trace),
    "markdown": said("report", trace, "--format", "markdown", "-o", "-"),
    "html": said("report", trace, "--format", "html", "-o", "-"),
    "json": said("analyze", trace, "--format", "json"),
    "redacted": said("analyze", trace, "--format", "json", "--redact"),
    "schema": said("explain", "--schema", "report"),
    "table": said("show", "starts", trace, "--format", "json", "--sort", "wait_ps"),
    "rule": said("explain", "late-first-kernel"),
    "pages": PAGES["metrics.md"]() + PAGES["findings.md"](),
}))
"""


def checkout(folder: Path) -> Path:
    """A copy of the package with the topic of the page in it."""
    shutil.copytree(
        ROOT / "traceview", folder / "traceview", ignore=shutil.ignore_patterns("__pycache__")
    )
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    module, registry_lines, table_line = BLOCK.findall(page)
    *import_lines, meaning_line, field_line = filter(None, registry_lines.splitlines())
    path, _, code = module.partition("\n")
    (folder / path.removeprefix("# ")).write_text(code, encoding="utf-8")
    for name, place, line in (
        ("analysis/registry.py", "from traceview.analysis.gpu_time.idle import ANALYSIS", "\n".join(import_lines)),
        ("analysis/registry.py", "        idle: ", meaning_line),
        ("analysis/registry.py", "    idle: Annotated[", field_line),
        ("report/tables.py", '    "balance": ', table_line.rstrip()),
    ):  # fmt: skip
        file = folder / "traceview" / name
        text = file.read_text(encoding="utf-8")
        assert text.count(place) == 1
        file.write_text(text.replace(place, f"{line}\n{place}"), encoding="utf-8")
    return folder


def test_it_is_everywhere(tmp_path: Path) -> None:
    path = {"PYTHONPATH": f"{checkout(tmp_path)}{os.pathsep}{ROOT}"}
    done = run_python(tmp_path, "-c", CODE, TRACE, environment={**os.environ, **path}, code=0)
    said = json.loads(done.out)
    for form in ("terminal", "markdown", "html"):
        assert "First kernels" in said[form], form
    report = json.loads(said["json"])
    rows = report["results"]["first_kernels"]["devices"]
    assert [row["device"] for row in rows] == ["replica:0", "replica:1"]
    assert sorted(json.loads(said["table"])["rows"], key=str) == sorted(rows, key=str)
    described = json.loads(said["schema"])["$defs"]["DeviceStart"]["properties"]["wait_ps"]
    assert described["description"].startswith("Time before the first kernel")
    (made,) = [row for row in report["findings"] if row["code"] == "late-first-kernel"]
    assert made["title"].startswith("Both replicas wait ")
    assert made["title"] in said["terminal"]
    assert "before the first kernel: " in said["terminal"]
    assert "Reported from: 5% of the GPU time" in said["rule"]
    assert "first_kernels" in said["pages"]
    assert "late-first-kernel" in said["pages"]
    # On the CPU kernels are called as types of ops are.
    redacted = json.loads(said["redacted"])["results"]["first_kernels"]["devices"]
    assert all(row["kernel"].startswith(("kernel_", "type_", "op_")) for row in redacted)
