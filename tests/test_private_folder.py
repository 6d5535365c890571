"""Output is written where nobody else can put a file or a link, and nothing is left of it after a signal."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from traceview.cli.output import Target, write_folder


def test_what_is_written_has_the_usual_permissions(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_folder(tmp_path / "report", {"report.md": [b"text"]})
        Target(tmp_path / "ops.csv").write(b"a,b\n")
    finally:
        os.umask(before)
    modes = [
        stat.S_IMODE((tmp_path / name).stat().st_mode)
        for name in ("report", "report/report.md", "ops.csv")
    ]
    assert modes == [0o755, 0o644, 0o644]


WRITES = """
import time
from pathlib import Path
from traceview.cli.output import Target

def wait():
    yield b"some"
    yield b"more"
    print("writing", flush=True)
    time.sleep(60)
    yield b"text"

Target(Path("ops.csv")).write_parts(wait())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITES],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        assert len(list(tmp_path.iterdir())) == 1
        begun_s = time.monotonic()
        process.send_signal(number)
        assert process.wait(30) != 0
        assert time.monotonic() - begun_s < 30
    assert list(tmp_path.iterdir()) == []
