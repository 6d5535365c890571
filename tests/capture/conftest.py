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

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Captured:
    """What one run of `traceview capture` left."""

    code: int
    out: str
    err: str
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

    def events(self) -> list[tuple[str, dict[str, int]]]:
        """Names and stats of all events of the trace, as a fake TensorFlow writes it, in time order."""
        from scripts.xspace import XSpace

        (path,) = self.run.glob("*.xplane.pb")
        (plane,) = XSpace.FromString(path.read_bytes()).planes
        (line,) = plane.lines
        return [
            (
                plane.event_metadata[event.metadata_id].name.decode(),
                {
                    plane.stat_metadata[stat.metadata_id].name.decode(): stat.int64_value
                    for stat in event.stats
                },
            )
            for event in sorted(line.events, key=lambda event: event.offset_ps)
        ]

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


def run_process(
    folder: Path,
    *command: str | Path,
    environment: Mapping[str, str] | None = None,
    code: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder to its end, by default with the real TensorFlow. `code`: the exit code that is expected."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=dict(QUIET() if environment is None else environment),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert code in (None, done.returncode), done.stderr[-3000:]
    return done


def run_python(
    folder: Path,
    *command: str | Path,
    environment: Mapping[str, str] | None = None,
    code: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """The same with the Python that runs the tests."""
    return run_process(folder, sys.executable, *command, environment=environment, code=code)


@contextmanager
def started(
    folder: Path, *command: str, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """The same, which runs in the block and is killed after it."""
    with subprocess.Popen(
        [sys.executable, *command],
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


def run_together(
    folder: Path,
    commands: Sequence[Sequence[str]],
    environments: Sequence[Mapping[str, str]],
    apart_s: float = 0.0,
) -> list[subprocess.CompletedProcess[str]]:
    """The same of several that run at the same time, each begun a while after the one before."""
    with ExitStack() as stack:
        processes: list[subprocess.Popen[str]] = []
        for command, environment in zip(commands, environments, strict=True):
            time.sleep(apart_s if processes else 0)
            process = started(folder, *command, environment=environment)
            processes.append(stack.enter_context(process))
        texts = [process.communicate(timeout=300) for process in processes]
    return [
        subprocess.CompletedProcess(process.args, process.returncode, *text)
        for process, text in zip(processes, texts, strict=True)
    ]


def run_command(folder: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> Captured:
    done = run_python(folder, *CAPTURE, *arguments, environment=environment)
    return Captured(done.returncode, done.stdout, done.stderr, folder / "logs")


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
        (tmp_path / "train.py").write_text(script, encoding="utf-8")
        return run_command(
            tmp_path,
            [*options, "train.py", *arguments],
            environment_with(fake, **(environment or {})),
        )

    return run
