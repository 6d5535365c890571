"""The generated traces hold what their truths say, as far as that shows without traceview."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from scripts.scenarios import SCENARIOS

ROOT = Path(__file__).resolve().parent.parent


def test_command_line_writes_and_lists(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "scripts.scenarios"]
    written = subprocess.run(
        [*command, "A", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert Path(written.stdout.strip()).exists()
    listed = subprocess.run(
        [*command, "--list"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert len(listed.stdout.splitlines()) == len(SCENARIOS)
