"""Test `traceview capture` with every supported version of TensorFlow and JAX.

    python scripts/versions.py [VERSION …]      for example 2.15.1 or jax-0.4.30; by default all versions

Needs the package registry, and Python 3.11 for the oldest versions. Each version gets an environment with the Python that runs
this, below ``--into`` (1.5 GB each), which is kept unless ``--remove`` is given. The tests that need TensorFlow and the
measurement of the hooks run in it, about ten minutes for a version on two cores; with JAX (0.5 GB) those that need it, four
minutes. The exit code is 1 if something failed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEGACY_KERAS = {
    "2.15.1": "2.15.1",
    "2.16.2": "2.16.0",
    "2.17.1": "2.17.0",
    "2.18.1": "2.18.0",
    "2.19.1": "2.19.0",
    "2.20.0": "2.20.1",
    "2.21.0": "2.21.0",
}
"""TensorFlow and the tf_keras that goes with it."""
JAX = ("jax-0.4.30", "jax-0.6.2", "jax-0.8.2", "jax-0.10.2")
JAX_TESTS = ("-m", "jax", "tests/capture/test_jax.py")
TESTS = ("-m", "tensorflow", "tests/capture", "tests/test_tensorflow.py")


def environment(version: str, into: Path) -> Path:
    """The Python of an environment with this TensorFlow or JAX, which is created if it does not exist."""
    python = into / version / "bin" / "python"
    pip: list[str | Path] = [python, "-m", "pip", "install", "--quiet"]
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", into / version], check=True)
        # With --group.
        subprocess.run([*pip, "pip>=25.1"], check=True)
    if version in JAX:
        number = version.removeprefix("jax-")
        packages = [f"jax=={number}", f"jaxlib=={number}"]
    else:
        legacy = f"tf_keras=={LEGACY_KERAS[version]}"
        packages = [f"tensorflow-cpu=={version}", legacy, "tensorboard"]
    subprocess.run([*pip, "--group", "test", "--editable", ROOT, *packages], check=True, cwd=ROOT)
    return python


def passes(python: Path, *command: str) -> bool:
    variables = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(
        [python, *command], cwd=ROOT, env={**os.environ, **variables}, check=False
    )
    return done.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("versions", nargs="*", metavar="VERSION", default=[*LEGACY_KERAS, *JAX])
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "versions")
    parser.add_argument(
        "--remove", action="store_true", help="remove each environment after its tests"
    )
    options = parser.parse_args()
    known = [*LEGACY_KERAS, *JAX]
    unknown = [version for version in options.versions if version not in known]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
    results = {}
    for version in options.versions:
        print(version if version in JAX else f"TensorFlow {version}", flush=True)
        python = environment(version, options.into)
        tests = passes(python, "-m", "pytest", "-q", *(JAX_TESTS if version in JAX else TESTS))
        hooks = version in JAX or passes(python, "scripts/capture_cost.py", "hooks")
        results[version] = tests and hooks
        if options.remove:
            shutil.rmtree(options.into / version)
    for version, is_good in results.items():
        print(f"{version:10} {'ok' if is_good else 'FAILED'}")
    sys.exit(not all(results.values()))


if __name__ == "__main__":
    main()
