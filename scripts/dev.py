"""Set up, try, test and check traceview with nothing but Python 3.10 or newer.

    python3 scripts/dev.py demo [-- ARGS]   capture a short training run and report on it; ARGS go to
                                            traceview capture --demo, such as --slowdown input
    python3 scripts/dev.py demo --recorded  report on a recorded run instead, without TensorFlow
    python3 scripts/dev.py test [-- ARGS]   the tests, without TensorFlow; ARGS go to pytest
    python3 scripts/dev.py lint             ruff and mypy
    python3 scripts/dev.py check [-- ARGS]  all that CI runs; ARGS go to the pytest of its last stage
    python3 scripts/dev.py bench [-- ARGS]  scripts/bench.py

Environments are made on first use in .venv (and .venv-tensorflow), and made anew when what they were made from
has changed. This file parses on older Pythons, so that they can say what is missing.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if sys.version_info < (3, 10):
    sys.exit(
        "traceview needs Python 3.10 or newer; this is Python {}.{} ({}).".format(
            *sys.version_info[:2], sys.executable
        )
    )

ROOT = Path(__file__).resolve().parent.parent
FIXTURE = ROOT / "fixtures" / "slow-input-2"
PACKAGE = ROOT / "traceview"
EXTENSIONS = (
    PACKAGE / "base" / "sweeps.pyx",
    PACKAGE / "xplane" / "decode.pyx",
    PACKAGE / "capture" / "process" / "native.c",
    PACKAGE / "capture" / "sampling" / "stacks.c",
    PACKAGE / "capture" / "sampling" / "thread_clocks.c",
)
STARTUP = "traceview.pth"
# An install is made from these; everything else is picked up by the editable install as it changes.
INSTALL_INPUTS = (
    ROOT / "pyproject.toml",
    ROOT / "setup.py",
    ROOT / STARTUP,
    PACKAGE / "base" / "places.pxd",
    *EXTENSIONS,
)
BUILT_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NO_TENSORFLOW_FROM = (3, 14)  # TensorFlow 2.21 has wheels for Python 3.10 to 3.13


class StageError(Exception):
    """A stage could not be done; says why, and with which code to exit."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Name a stage on stderr as it starts, and say how it ended and in how many seconds."""
    say(f"[dev] {name} …")
    started = time.perf_counter()
    outcome = "failed"
    try:
        yield
        outcome = "done"
    finally:
        say(f"[dev] {name}: {outcome} in {time.perf_counter() - started:.1f} s")


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    output: int | None = None,
    wanted: int = 0,
) -> None:
    """Run a command; another exit code than the `wanted` one raises with it. `output`: where that goes, by default where ours does."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
    )
    try:
        code = process.wait()
    except KeyboardInterrupt:
        # It reaches the command as well, which may have something to save and to report.
        process.wait()
        raise
    if code != wanted:
        said = f"`{' '.join(map(str, command))}` ended with exit code {code}, not {wanted}"
        # Ended by a signal: the code that a shell gives.
        raise StageError(said, (code if code >= 0 else 128 - code) or 1)


def output_of(command: Sequence[str | Path], *, cwd: Path) -> str:
    """What a command writes to stdout."""
    done = subprocess.run(
        command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False
    )
    if done.returncode:
        raise StageError(f"`{' '.join(map(str, command))}` ended with exit code {done.returncode}")
    return done.stdout.decode()


class Environment:
    """A virtual environment with traceview in it, editable, and the tools of some dependency groups.

    A stamp inside says what it was made from: the interpreter, the files of the install, the groups.
    Ready means that the stamp fits, which costs no process to see.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stamp_path = path / "traceview-stamp.json"

    def program(self, name: str) -> Path:
        if os.name == "nt":
            return self.path / "Scripts" / f"{name}.exe"
        return self.path / "bin" / name

    @property
    def python(self) -> Path:
        return self.program("python")

    def create(self) -> None:
        """Make the bare environment, replacing what is there."""
        for module in ("venv", "ensurepip"):
            if importlib.util.find_spec(module) is None:
                raise StageError(
                    f"This Python ({sys.executable}) lacks the module {module}, which makes environments."
                    " On Debian and Ubuntu: apt install python{}.{}-venv."
                    " Otherwise start this file with another Python.".format(*sys.version_info[:2]),
                    2,
                )
        # The interpreter itself, not that of an environment we may run in and are about to replace.
        run([Path(sys.executable).resolve(), "-m", "venv", "--clear", self.path])

    def install(self, *arguments: str | Path, **where: Any) -> None:
        """Run `pip install`, which is silent unless it fails."""
        run([self.python, "-m", "pip", "install", "-qq", *arguments], **where)

    def ready(self, *groups: str, announce: str = "") -> None:
        """Make or mend the environment, unless its stamp says that it holds what is wanted.

        `announce` is said before something large is installed.
        """
        stamp = self._stamp()
        interpreter = f"{sys.version} {Path(sys.base_prefix).resolve()} {self.path}"
        install = hashlib.sha256(b"\0".join(map(_content, INSTALL_INPUTS))).hexdigest()
        exists = stamp.get("interpreter") == interpreter
        installed = exists and stamp["install"] == install
        held = set(stamp["groups"]) if exists else set()
        if installed and held.issuperset(groups):
            return
        if announce:
            say(f"[dev] {announce}")
        with stage(f"environment {self.path.name}"):
            if not exists:
                self.create()
            self.stamp_path.unlink(missing_ok=True)
            held |= set(groups)
            wanted: list[str | Path] = [f"--group={group}" for group in sorted(held)]
            if not installed:
                for source in EXTENSIONS:  # what is built would outlive a build without a compiler
                    source.with_suffix(BUILT_SUFFIX).unlink(missing_ok=True)
                wanted += ["--editable", "."]
            if held:
                self.install("pip>=25.1")  # for groups; Python 3.10 to 3.13 bring an older one
            self.install(*wanted)
            stamp = {"interpreter": interpreter, "install": install, "groups": sorted(held)}
            self.stamp_path.write_text(json.dumps(stamp), encoding="utf-8")

    def _stamp(self) -> dict[str, Any]:
        try:
            stamp: dict[str, Any] = json.loads(self.stamp_path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return stamp if self.python.exists() else {}


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


MAIN = Environment(ROOT / ".venv")
WITH_TENSORFLOW = Environment(ROOT / ".venv-tensorflow")


def ready_with_tensorflow(group: str, announce: str = "") -> None:
    if sys.version_info >= NO_TENSORFLOW_FROM:
        raise StageError(
            "TensorFlow 2.21 has no wheel for this Python: start this file with 3.10 to 3.13"
        )
    WITH_TENSORFLOW.ready(group, announce=announce)


def demo(arguments: list[str]) -> None:
    try:
        ready_with_tensorflow(
            "tensorflow",
            "TensorFlow for CPUs is installed into .venv-tensorflow, once: about 400 MB to load,"
            " 1.6 GB on disk. `dev.py demo --recorded` does without.",
        )
    except StageError as error:
        say(f"[dev] {error}")
        say("[dev] a recorded run is shown instead")
        demo_recorded()
        return
    program = WITH_TENSORFLOW.program("traceview")
    run([program, "capture", "--demo", *arguments])
    say(f"[dev] a script of your own: {program} capture --analyze train.py")


def demo_recorded() -> None:
    MAIN.ready("scripts")  # who has seen this generates traces next
    program = MAIN.program("traceview")
    run([program, "analyze", FIXTURE])
    say(f"[dev] a trace of your own: {program} analyze LOGDIR")


def test(arguments: list[str]) -> None:
    MAIN.ready("test")
    run([MAIN.python, "-m", "pytest", "-n", "auto", *arguments])


def lint(_: list[str]) -> None:
    MAIN.ready("browser", "lint", "test")  # mypy reads tests/browser too
    run([MAIN.program("ruff"), "format", "--check", "."])
    run([MAIN.program("ruff"), "check", "."])
    run([MAIN.python, "-m", "mypy"])


def bench(arguments: list[str]) -> None:
    MAIN.ready("scripts")
    run([MAIN.python, "-m", "scripts.bench", *arguments])


def check(arguments: list[str]) -> None:
    """Every stage runs, whatever became of those before it; the tests come last, and so does their summary."""
    stages: list[tuple[str, Callable[[], None]]] = [
        ("lint", lambda: lint([])),
        ("wheel", check_wheels),
        ("tests with TensorFlow", test_with_tensorflow),
        ("tests in a browser", test_in_browser),
        ("tests of the dependencies, of stores, of a cluster and beside XProf", test_others),
        ("tests in Perfetto's trace processor", test_in_trace_processor),
        ("tests", lambda: test(arguments)),
    ]
    MAIN.ready("browser", "lint", "package", "test")
    failures: list[tuple[str, StageError]] = []
    for name, action in stages:
        try:
            with stage(name):
                action()
        except StageError as error:
            say(f"[dev] {name}: {error}")
            failures.append((name, error))
    if failures:
        names = ", ".join(name for name, _ in failures)
        raise StageError(
            f"{len(failures)} of {len(stages)} stages failed: {names}", failures[0][1].code
        )


def test_others() -> None:
    """Tests that a plain run leaves out, for they load more than it needs."""
    MAIN.ready("cloud", "cluster", "test", "xprof")
    run([MAIN.python, "-m", "pytest", "-m", "cloud or cluster or network or xprof"])


def test_in_trace_processor() -> None:
    """What Perfetto's own reader makes of exported traces."""
    missing = [name for name in ("node", "npm") if shutil.which(name) is None]
    if missing:
        raise StageError(
            f"{' and '.join(missing)} not on the PATH: the trace processor comes from npm and runs in node."
            " On Debian: apt-get install nodejs npm."
        )
    MAIN.ready("test")
    run([MAIN.python, "-m", "pytest", "-m", "trace_processor"])


def chromium() -> str | None:
    """A Chromium, or a Chrome, on the PATH."""
    return next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)


def test_in_browser() -> None:
    """The HTML page as it is opened, drawn and used."""
    if chromium() is None:
        raise StageError(
            f"no browser on the PATH is called {', '.join(CHROMIUM_NAMES)}."
            " On Debian: apt-get install chromium; elsewhere install Chrome or Chromium."
        )
    MAIN.ready("browser", "test")
    run([MAIN.python, "-m", "pytest", "-m", "browser"])


def test_with_tensorflow() -> None:
    ready_with_tensorflow("test-tensorflow")
    # Alone: it would bring the GPU build of TensorFlow beside the CPU one.
    WITH_TENSORFLOW.install("--no-deps", "tf_keras==2.21.*")
    # What a file shares, most of all captures, is made once.
    shared = ("-n", "auto", "--dist", "loadfile")
    run([WITH_TENSORFLOW.python, "-m", "pytest", "-m", "tensorflow or jax", *shared])


def build_distributions(folder: Path) -> None:
    """Build the source distribution, and the wheel from it, which shows that the former is complete."""
    MAIN.ready("package")
    shutil.rmtree(folder, ignore_errors=True)
    run([MAIN.python, "-m", "build", "--quiet", "--outdir", folder, ROOT])


def check_wheels() -> None:
    """Use traceview from its wheel, outside the checkout; then from a build that found no compiler."""
    with tempfile.TemporaryDirectory(prefix="traceview-") as name:
        folder = Path(name).resolve()
        with stage("wheel: build"):
            build_distributions(folder / "dist")
        (wheel_path,) = folder.glob("dist/*.whl")
        (sdist_path,) = folder.glob("dist/*.tar.gz")
        check_contents(wheel_path)
        shutil.copytree(FIXTURE, folder / "logdir")
        damaged = folder / "damaged" / "plugins" / "profile" / "run" / "host.xplane.pb"
        damaged.parent.mkdir(parents=True)
        damaged.write_bytes(b"\xff" * 64)
        environment = Environment(folder / "venv")
        with stage("wheel: install and use"):
            environment.create()
            environment.install(wheel_path, cwd=folder)
            compiled = report_of_installed(environment, folder, compiled=True)
            if not [*environment.path.rglob(STARTUP)]:
                raise StageError(f"{STARTUP} was not installed")
        with stage("wheel: without a compiler"):
            no_compiler = {"CC": str(shutil.which("false"))}
            environment.install(
                "--force-reinstall", "--no-deps", sdist_path, cwd=folder, env=no_compiler
            )
            pure = report_of_installed(environment, folder, compiled=False)
        with stage("wheel: uninstall"):
            run([environment.python, "-m", "pip", "uninstall", "-qq", "--yes", "traceview"])
            if [*environment.path.rglob(STARTUP)]:
                raise StageError(f"{STARTUP} was left behind")
        if compiled != pure:
            raise StageError("the compiled and the reference decoder lead to different reports")


def check_contents(wheel_path: Path) -> None:
    """The wheel has what the package needs at run time, and nothing of the build."""
    names = set(zipfile.ZipFile(wheel_path).namelist())
    needed = {"traceview/py.typed", STARTUP}
    needed |= {f"traceview/report/{path.name}" for path in (PACKAGE / "report").glob("*.txt")}
    for folder in ("document/html/assets", "document/html/templates"):
        paths = [path for path in (PACKAGE / folder).rglob("*") if path.is_file()]
        needed |= {path.relative_to(PACKAGE.parent).as_posix() for path in paths}
    missing = needed - names
    stray = {name for name in names if name.endswith((".pyx", ".pxd", ".c")) or "/build/" in name}
    stray |= {name for name in names if name.startswith(("tests/", "scripts/"))}
    if missing or stray:
        raise StageError(f"the wheel lacks {sorted(missing)} and should not have {sorted(stray)}")


LOOK_AROUND = """
import importlib.util, json, sys, traceview
print(json.dumps({
    "compiled": all(importlib.util.find_spec(f"traceview.{name}") for name in ("base.sweeps", "xplane.decode")),
    "path": traceview.__file__,
    "heavy": sorted({"jinja2", "pandas", "tensorflow"} & set(sys.modules)),
}))
"""


def report_of_installed(environment: Environment, folder: Path, *, compiled: bool) -> Any:
    """The JSON report of the installed traceview, which is looked at from several sides on the way."""
    seen = json.loads(output_of([environment.python, "-c", LOOK_AROUND], cwd=folder))
    if seen["compiled"] is not compiled:
        raise StageError(
            "the decoder was not compiled: a C compiler and Python's headers are needed here"
            if compiled
            else "the decoder was compiled, with a compiler that always fails"
        )
    if not Path(seen["path"]).resolve().is_relative_to(environment.path):
        raise StageError(f"traceview was imported from {seen['path']}, not from the wheel")
    if seen["heavy"]:
        raise StageError(f"`import traceview` imports {', '.join(seen['heavy'])}")
    program = environment.program("traceview")
    for arguments, wanted in (
        (["--version"], 0),
        (["analyze", "logdir"], 0),
        (["report", "logdir", "-o", "report.html", "--force"], 0),
        (["analyze"], 2),
        (["analyze", "no-such-logdir"], 3),
        (["analyze", "damaged"], 4),
    ):
        run([program, *arguments], cwd=folder, output=subprocess.DEVNULL, wanted=wanted)
    return json.loads(output_of([program, "analyze", "--format", "json", "logdir"], cwd=folder))


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "demo": demo,
    "test": test,
    "lint": lint,
    "check": check,
    "bench": bench,
}


def main(arguments: list[str]) -> int:
    split = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="dev.py COMMAND [--recorded] [-- ARGS]",
    )
    parser.add_argument("command", metavar="COMMAND", choices=COMMANDS)
    parser.add_argument("--recorded", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments[:split])
    command: str = options.command
    passed_on = arguments[split + 1 :]
    if options.recorded and (command != "demo" or passed_on):
        parser.error("--recorded is an option of demo, and takes no arguments after --")
    if passed_on and command == "lint":
        parser.error("lint takes no arguments after --")
    started = time.perf_counter()
    try:
        if options.recorded:
            demo_recorded()
        else:
            COMMANDS[command](passed_on)
    except StageError as error:
        say(f"[dev] {command}: {error}")
        return error.code
    except KeyboardInterrupt:
        say(f"[dev] {command}: interrupted")
        return 130
    say(f"[dev] {command}: done in {time.perf_counter() - started:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
