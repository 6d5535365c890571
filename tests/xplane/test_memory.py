"""The analysis of a trace needs less than twice the memory of its file, on top of what Python and its libraries take."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.bench_trace import Shape, write_trace
from traceview.xplane import decode_reference
from traceview.xplane.message import DECODER

ROOT = Path(__file__).resolve().parents[2]
MB = 10**6
STEPS = 13  # about 31 MB

# The peak of this process, and not of the one that started it, which `getrusage` would count in.
_ANALYSE = """
import sys, traceview
report = traceview.analyze(sys.argv[1])
assert report.source.files[0].event_count > 300_000
with open("/proc/self/status") as status:
    (peak,) = (line.split()[1] for line in status if line.startswith("VmHWM:"))
print(int(peak) * 1024)
"""


@pytest.mark.skipif(
    DECODER is decode_reference or not sys.platform.startswith("linux"),
    reason="measures the compiled decoder, from /proc",
)
def test_peak_memory_of_an_analysis(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "plugins" / "profile" / "run" / "a.xplane.pb", Shape(steps=STEPS))
    size = path.stat().st_size
    assert 25 * MB < size < 40 * MB
    done = subprocess.run(
        [sys.executable, "-c", _ANALYSE, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    peak = int(done.stdout)
    # Beside the trace: Python and its libraries, 47 MB with a small trace, and what threads hold at the same moment: 138 to 139 MB were measured.
    assert size < peak <= 2 * size + 80 * MB
