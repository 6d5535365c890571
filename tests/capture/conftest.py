"""Runs `traceview capture` for the tests: in another process, with a fake TensorFlow or the real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.capture import fake_tensorflow
from tests.capture.recorded_markers import markers_of
from tests.command import Done

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Captured(Done):
    """What a process left in its folder: what it printed, and what it captured."""

    logdir: Path

    @property
    def runs(self) -> list[Path]:
        return sorted((self.logdir / "plugins" / "profile").glob("*"))

    @property
    def run(self) -> Path:
        """The one run; of several the one that the last line names."""
        return self.runs[0] if len(self.runs) == 1 else Path(self.err.splitlines()[-1])

    @property
    def said(self) -> list[str]:
        """Lines of traceview without the number of the process."""
        lines = [line for line in self.err.splitlines() if line.startswith("traceview")]
        return [line.partition(": ")[2] for line in lines]

    @property
    def sidecar(self) -> dict[str, Any]:
        (path,) = self.run.glob("*.traceview.json")
        sidecar: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return sidecar

    @property
    def window(self) -> dict[str, Any]:
        window: dict[str, Any] = self.sidecar["window"]
        return window

    def numbers(self) -> list[int]:
        return markers_of(self.run)


Capture = Callable[..., Captured]
"""Writes a script and captures it with options, `arguments` of the script, and variables as `environment`."""


def environment_with(*folders: Path, **variables: str) -> dict[str, str]:
    paths = os.pathsep.join(map(str, (ROOT, *folders)))
    # Byte code of one test's fake must not be taken for that of another.
    return {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", **variables}


QUIET: Final = partial(environment_with, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
"""The environment of scripts with the real TensorFlow."""


def line_of(program: str, text: str) -> int:
    """The number of the only line of a program that holds this text."""
    (number,) = (n for n, line in enumerate(program.splitlines(), start=1) if text in line)
    return number


TWO_REPLICAS: Final = """
import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
"""
CAPTURE: Final = ("-m", "traceview", "capture")


@contextmanager
def started(
    folder: Path, *command: str | Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Run a command in a folder in the block, by default with the real TensorFlow, and kill it after that."""
    with subprocess.Popen(
        command,
        cwd=folder,
        env=dict(QUIET() if environment is None else environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def run_process(
    folder: Path,
    *command: str | Path,
    environment: Mapping[str, str] | None = None,
    script: str = "",
    code: int | None = None,
    timeout_s: float = 300,
) -> Captured:
    """The same to its end. `script`: what `train.py` holds. `code`: the exit code that is expected."""
    if script:
        (folder / "train.py").write_text(script, encoding="utf-8")
    with started(folder, *command, environment=environment) as process:
        out, err = process.communicate(timeout=timeout_s)
    assert code in (None, process.returncode), err[-3000:]
    return Captured(process.returncode, out, err, folder / "logs")


def run_python(folder: Path, *command: str | Path, **options: Any) -> Captured:
    """The same with the Python that runs the tests."""
    return run_process(folder, sys.executable, *command, **options)


def run_together(
    folder: Path,
    commands: Sequence[Sequence[str]],
    environments: Sequence[Mapping[str, str]],
    apart_s: float = 0.0,
) -> list[Captured]:
    """The same of several that run at the same time, each begun a while after the one before."""
    with ExitStack() as stack:
        processes: list[subprocess.Popen[str]] = []
        for command, environment in zip(commands, environments, strict=True):
            time.sleep(apart_s if processes else 0)
            process = started(folder, sys.executable, *command, environment=environment)
            processes.append(stack.enter_context(process))
        texts = [process.communicate(timeout=300) for process in processes]
    return [
        Captured(process.returncode, *text, folder / "logs")
        for process, text in zip(processes, texts, strict=True)
    ]


@pytest.fixture(scope="session")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fake")
    fake_tensorflow.write(folder)
    return folder


@pytest.fixture
def capture(tmp_path: Path, fake: Path) -> Capture:
    def run(
        script: str,
        *options: str,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Captured:
        variables = environment_with(fake, **(environment or {}))
        command = (*CAPTURE, *options, "train.py", *arguments)
        return run_python(tmp_path, *command, script=script, environment=variables)

    return run
