"""traceview installs beside every TensorFlow whose traces it reads, without changing the versions that TensorFlow pins.

A resolver answers from the registry's metadata; no wheel is downloaded.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import requires

import pytest
import uv
from packaging.requirements import Requirement

pytestmark = pytest.mark.network

# TensorFlow and a Python it has wheels for: the newest, and for the ends of the range also the oldest.
PAIRS = (
    *(("2.15", "3.10"), ("2.15", "3.11"), ("2.16", "3.12"), ("2.17", "3.12"), ("2.18", "3.12")),
    *(("2.19", "3.12"), ("2.20", "3.13"), ("2.21", "3.10"), ("2.21", "3.13")),
)
STATED = [Requirement(line) for line in requires("traceview") or []]
OWN = [requirement for requirement in STATED if requirement.marker is None]
"""What `pip install traceview` asks for, without extras."""


def resolve(asked: list[str], python: str, *options: str) -> dict[str, str]:
    """The newest versions that go together on a Python, from wheels alone."""
    # --python spares uv the search for an interpreter of the version.
    command = [uv.find_uv_bin(), "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
    command += [f"--python={sys.executable}", f"--python-version={python}"]
    command += ["--python-platform=linux", "--only-binary=:all:", *options, "-"]
    done = subprocess.run(
        command, input="\n".join(asked), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = (line.split(";")[0].strip() for line in done.stdout.splitlines())
    return dict(line.split("==") for line in lines)


@pytest.mark.parametrize(
    ("others", "python", "options"),
    [
        *((f"tensorflow=={tensorflow}.*", python, "") for tensorflow, python in PAIRS),
        ("", "3.10", ""),
        ("", "3.14", ""),
        ("", "3.10", "--resolution=lowest-direct"),
    ],
)
def test_traceview_installs(others: str, python: str, options: str) -> None:
    versions = resolve([*others.split(), *map(str, OWN)], python, *options.split())
    assert {"msgspec", "numpy"} <= versions.keys()
    assert others.split("==")[0] in ("", *versions)
    for requirement in OWN:
        assert requirement.specifier.contains(versions[requirement.name]), requirement
