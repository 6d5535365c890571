"""Every package imports only those below it, and a start stays light."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "traceview"
FIXTURE = ROOT / "fixtures" / "custom-loop-2"

# Top-level modules and packages, lowest first: each may import those of the rows above its own.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("base",),
    ("store",),
    ("xplane", "graphs"),
    ("trace",),
    ("ledger",),
    ("document",),
    ("analysis",),
    ("report",),
    ("comparison",),
    ("export", "watch", "demo"),
    ("api",),
    ("cli",),
)
LEVELS = {name: level for level, names in enumerate(LAYERS) for name in names}
# Stands beside the analysis, which does without it; only the facade may import it.
CAPTURE = "capture"
CAPTURE_MAY_IMPORT = {"base", "xplane", "graphs"}
# The rooms inside of a package, lowest first; "" is what stands beside them.
ROOMS = {
    CAPTURE: (
        "process",
        "sidecar",
        "window",
        "sampling",
        "steps",
        "record",
        "jax",
        "hang",
        "launch",
        "check",
        "",
    ),
    "analysis": ("rules", "facts", "measures", "gpu_time", "workload", "exchange", "machine", ""),
    "trace": ("sidecar", "", "device", "strategy", "host", "reading"),
}
# The public names may come from anywhere; what uses them stands above everything.
FACADE = ("__init__", "__main__", "cli")


@dataclass(frozen=True)
class Import:
    file: str
    line: int
    module: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py")) + sorted(PACKAGE.rglob("*.pyi"))


def imports_of(path: Path) -> Iterator[Import]:
    """Every import of a file, also inside functions; `from a import b` counts as `a.b` where that is a module."""
    file = path.relative_to(PACKAGE).as_posix()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(file, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: imports here are absolute"
            for alias in node.names:
                if alias.name == "__version__":
                    continue  # a constant of the facade, which is there before any of its modules
                module = f"{node.module}.{alias.name}"
                yield Import(file, node.lineno, module if is_module(module) else str(node.module))


def is_module(name: str) -> bool:
    """Whether a dotted name is a module of ours."""
    top, _, rest = name.partition(".")
    if top != "traceview" or not rest:
        return False
    path = PACKAGE.joinpath(*rest.split("."))
    return path.is_dir() or any(path.parent.glob(f"{path.name}.*"))


@cache
def all_imports() -> tuple[Import, ...]:
    return tuple(found for path in sources() for found in imports_of(path))


def part_of(name: str) -> str:
    """The top-level module or package that a path (a/b.py) or a module (traceview.a.b) belongs to."""
    if name.endswith((".py", ".pyi")):
        return name.split("/")[0].split(".")[0]
    _, _, rest = name.partition(".")
    return rest.split(".")[0] or "__init__"


def module_of(file: str) -> str:
    """The dotted name of a module by its path in the package."""
    parts = Path(file).with_suffix("").parts
    return ".".join(("traceview", *(part for part in parts if part != "__init__")))


def allowed_to(importer: str) -> set[str]:
    if importer == CAPTURE:
        return CAPTURE_MAY_IMPORT
    return {name for name, level in LEVELS.items() if level < LEVELS[importer]}


def test_a_package_imports_only_those_before_it() -> None:
    wrong = []
    for found in all_imports():
        importer = part_of(found.file)
        if not is_within(found.module, "traceview") or importer in FACADE:
            continue
        imported = part_of(found.module)
        if imported == importer and "/" in found.file:
            rooms = ROOMS.get(importer, ("",))
            path = found.module.removeprefix("traceview.").replace(".", "/")
            here, there = (rooms.index(room_in(importer, each)) for each in (found.file, path))
            if there <= here:
                continue
        if imported not in allowed_to(importer):
            wrong.append(str(found))
    assert wrong == []


def room_in(package: str, path: str) -> str:
    """The room of a module by its path in the package."""
    name = path.removeprefix(f"{package}/").split("/")[0]
    return name if name in ROOMS.get(package, ()) else ""


def test_no_imports_go_in_a_circle() -> None:
    """Counting those inside functions and for types, too."""
    graph: dict[str, set[str]] = {}
    for found in all_imports():
        importer = module_of(found.file)
        if is_within(found.module, "traceview") and found.module != importer:
            graph.setdefault(importer, set()).add(found.module)
    circle: list[str] = []
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = error.args[1]
    assert circle == []


HEAVY = {"distributed", "fsspec", "jinja2", "pandas", "pyarrow", "tensorflow"}
START = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
try:
    from traceview.cli import main; main()
finally:
    print(*sys.modules, sep="\\n", file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["analyze", str(FIXTURE)],
        ["show", "balance", str(FIXTURE)],
        ["gate", str(FIXTURE), "--require", "busy_ratio >= 0"],
    ],
)
def test_a_start_is_light(arguments: list[str], tmp_path: Path) -> None:
    """Where there is a TensorFlow, too: trying to import it would show."""
    (tmp_path / "tensorflow.py").write_text("", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", START, *arguments],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    modules = set(done.stderr.split())
    assert "traceview" in modules
    assert not {*HEAVY, "google.protobuf", "traceview.store.remote"} & modules
