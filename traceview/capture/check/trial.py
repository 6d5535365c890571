"""Records a profile of one product on each device in another process, and says what came of it.

Whether CUPTI loads, whether the driver permits profiles and whether another tool is in the way need not be guessed then.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from traceview.base.errors import TraceFormatError
from traceview.capture.process.saying import VARIABLE

TIMEOUT_SECONDS: Final = 120.0
"""Importing TensorFlow takes up to ten seconds, from a cold network file system several times as long."""
_MARK: Final = "traceview-trial:"
_START: Final = f"""
import json, sys
sys.path[:] = [path for path in sys.path if path]
def tell(version, gpus):
    print("\\n{_MARK}" + json.dumps([version, gpus]), flush=True)
"""
_PROGRAMS: Final = {
    "tensorflow": """
import tensorflow as tf
tell(tf.__version__, len(tf.config.list_physical_devices("GPU")))
tf.profiler.experimental.start(sys.argv[1])
for device in tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU"):
    with tf.device(device.name):
        tf.matmul(tf.ones((64, 64)), tf.ones((64, 64))).numpy()
tf.profiler.experimental.stop()
""",
    "jax": """
import jax
devices = jax.local_devices()
tell(jax.__version__, sum(device.platform in ("cuda", "gpu", "rocm") for device in devices))
jax.profiler.start_trace(sys.argv[1])
for device in devices:
    matrix = jax.device_put(jax.numpy.ones((64, 64)), device)
    (matrix @ matrix).block_until_ready()
jax.profiler.stop_trace()
""",
}
_ENVIRONMENT: Final = {
    # Only its log says why it sees no GPU, or records none.
    "TF_CPP_MIN_LOG_LEVEL": "0",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}
_REASONS: Final = re.compile(
    r"cannot dlopen|could not load dynamic|could not find cuda drivers|failed call to cuInit|cupti[^\n]{0,200}(?:fail|error|could not)"
    r"|insufficient.privileges",
    re.I,
)
"""Lines of the log that say why no GPU is seen or recorded (tsl/platform, stream_executor/cuda, profiler/backends/gpu)."""
_MOST_REASONS: Final = 3


@dataclass(frozen=True)
class Trial:
    """What the process answered.

    `version`: empty where the import failed. `gpus`: how many the framework sees; `recorded_gpus`: how many have events in
    the trace. `has_events`: whether it has any. `reason`: why something is missing, as far as the log says.
    """

    version: str = ""
    gpus: int = 0
    recorded_gpus: int = 0
    has_events: bool = False
    reason: str = ""


def try_profile(
    framework: str,
    environment: Mapping[str, str],
    *,
    program: Sequence[str] | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Trial:
    """Import `framework` in another process with `environment`, and profile it there; never raises."""
    program = program or (sys.executable, "-c", _START + _PROGRAMS[framework])
    variables = {**environment, **_ENVIRONMENT}
    variables.pop(VARIABLE, None)
    with tempfile.TemporaryDirectory(prefix="traceview-check-") as folder:
        try:
            done = subprocess.run(
                [*program, folder],
                env=variables,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                encoding="utf-8",
                errors="replace",
                timeout=timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Trial(
                reason=f"importing it and one profile took longer than {timeout_seconds:g} s"
            )
        except OSError as error:
            return Trial(reason=f"no process could be started for it: {error}")
        return _answer(done.stdout, done.stderr.splitlines(), done.returncode, Path(folder))


def _answer(out: str, lines: Sequence[str], code: int, folder: Path) -> Trial:
    # Without the time and the source of a line.
    reasons = dict.fromkeys(
        line.partition("] ")[2] or line for line in lines if _REASONS.search(line)
    )
    reason = "; ".join(list(reasons)[:_MOST_REASONS])
    if code:
        ending = f"it ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"
        reason = reason or (lines[-1] if lines and code > 0 else ending)
    answers = [line.removeprefix(_MARK) for line in out.splitlines() if line.startswith(_MARK)]
    if not answers:
        return Trial(reason=reason or "it gave no answer")
    version, gpus = json.loads(answers[0])
    has_events, recorded_gpus = _recorded(folder)
    return Trial(str(version), int(gpus), recorded_gpus, has_events, reason)


def _recorded(folder: Path) -> tuple[bool, int]:
    """Whether there is a trace with events, and how many GPUs have some."""
    from traceview.xplane.planes import PlaneKind
    from traceview.xplane.read import read_file

    for path in folder.rglob("*.xplane.pb"):
        try:
            planes = [plane for plane in read_file(path).planes if plane.event_count]
        except TraceFormatError:
            continue
        return bool(planes), sum(plane.kind is PlaneKind.GPU for plane in planes)
    return False, 0
