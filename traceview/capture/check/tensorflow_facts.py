"""Finds out which TensorFlow a script would import, and whether it sees the GPUs.

The package metadata says what is installed. Only TensorFlow itself knows which GPUs it sees: another process imports it
(4 to 10 s), and prints the answer as JSON.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

TIMEOUT_SECONDS: Final = 120.0
"""Importing TensorFlow takes up to ten seconds, from a cold network file system several times as long."""
_NAMES: Final = (
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-gpu",
    "tensorflow-intel",
    "tensorflow-macos",
    "tensorflow-rocm",
    "tf-nightly",
    "tf-nightly-cpu",
    "intel-tensorflow",
)
_MARK: Final = "traceview-tensorflow:"
_PROBE: Final = f"""
import sys
sys.path[:] = [path for path in sys.path if path]
import json
import tensorflow as tf
answer = {{"version": tf.__version__, "is_cuda_build": bool(tf.test.is_built_with_cuda())}}
try:
    answer["build"] = {{key: str(value) for key, value in tf.sysconfig.get_build_info().items()}}
except Exception:
    pass
try:
    answer["gpus"] = [device.name for device in tf.config.list_physical_devices("GPU")]
except Exception as error:
    answer["error"] = str(error)[:500]
print("\\n{_MARK}" + json.dumps(answer), flush=True)
"""
_REASONS: Final = re.compile(
    r"cannot dlopen|could not load dynamic|could not find cuda drivers|failed call to cuInit", re.I
)
"""Lines of TensorFlow's log that say why it sees no GPU (tsl/platform, stream_executor/cuda)."""


@dataclass(frozen=True)
class Installed:
    """TensorFlow by its package metadata. `packages`: name and version of each package that provides it.

    `build`: the constants of its build_info.py, such as the versions of CUDA and cuDNN it was compiled for.
    """

    packages: tuple[tuple[str, str], ...] = ()
    build: Mapping[str, Any] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """The version; empty without TensorFlow."""
        return self.packages[0][1] if self.packages else ""

    @property
    def is_cpu_package(self) -> bool:
        """Whether it is the package without GPU support."""
        return bool(self.packages) and all(name.endswith("-cpu") for name, _ in self.packages)


@dataclass(frozen=True)
class Imported:
    """What TensorFlow answered in another process, or with `error` why it did not."""

    version: str = ""
    is_cuda_build: bool = False
    cuda: str = ""
    gpus: tuple[str, ...] = ()
    error: str = ""
    log: tuple[str, ...] = ()


def read_installed(path: Sequence[str] | None = None) -> Installed:
    """Find TensorFlow's packages on `path`, by default `sys.path`, without importing anything."""
    folders = sys.path if path is None else path
    packages: dict[str, str] = {}
    build: dict[str, Any] = {}
    for name in _NAMES:
        for distribution in distributions(name=name, path=list(folders)):
            packages.setdefault(name, str(distribution.version))
            break
    for folder in folders:
        file = Path(folder or ".", "tensorflow", "python", "platform", "build_info.py")
        if file.is_file():
            build = _build_info(file)
            break
    return Installed(tuple(packages.items()), build)


def _build_info(path: Path) -> dict[str, Any]:
    """The literal pairs in `build_info = collections.OrderedDict([...])`."""
    try:
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                return {str(key): value for key, value in ast.literal_eval(node.value.args[0])}
    except (OSError, SyntaxError, ValueError, TypeError, IndexError):
        pass
    return {}


def import_tensorflow(
    environment: Mapping[str, str],
    *,
    program: Sequence[str] = (sys.executable, "-c", _PROBE),
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Imported:
    """Import TensorFlow in another process with `environment` and ask it for its GPUs; never raises."""
    # Only its log says why it sees no GPU.
    variables = {**environment, "TF_CPP_MIN_LOG_LEVEL": "0"}
    try:
        done = subprocess.run(
            program,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Imported(error=f"importing it took longer than {timeout_seconds:.0f} s")
    except (OSError, ValueError) as error:
        return Imported(error=f"no process could be started for it: {error}")
    stderr = done.stderr.decode("utf-8", "replace").splitlines()
    log = tuple(dict.fromkeys(_message(line) for line in stderr if _REASONS.search(line)))
    answers = [
        line.removeprefix(_MARK)
        for line in done.stdout.decode("utf-8", "replace").splitlines()
        if line.startswith(_MARK)
    ]
    if not answers:
        last = stderr[-1] if stderr else ""
        return Imported(error=last or f"the process ended with {_ending(done.returncode)}", log=log)
    return _parse_answer(answers[-1], log)


def _parse_answer(text: str, log: tuple[str, ...]) -> Imported:
    try:
        answer = json.loads(text)
        return Imported(
            version=str(answer["version"]),
            is_cuda_build=bool(answer["is_cuda_build"]),
            cuda=str(answer.get("build", {}).get("cuda_version", "")),
            gpus=tuple(str(name) for name in answer.get("gpus", ())),
            error=str(answer.get("error", "")),
            log=log,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Imported(error=f"its answer was invalid: {error}", log=log)


def _message(line: str) -> str:
    """A log line without its time and source."""
    return line.partition("] ")[2] or line


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 and os.name == "posix" else f"exit code {code}"
