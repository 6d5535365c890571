"""Every package imports only those below it, a start stays light, and the bootstrap tells an old Python what it needs."""

from __future__ import annotations

import ast
import os
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.capture.conftest import ROOT, run_python

PACKAGE = ROOT / "traceview"
FIXTURE = ROOT / "fixtures" / "custom-loop-2"

# Top-level modules and packages, lowest first: each may import those of the rows above its own.
LAYERS: tuple[tuple[str, ...], ...] = (
    *(
        ("base",),
        ("store",),
        ("xplane", "graphs"),
        ("trace",),
        ("ledger",),
        ("document",),
        ("analysis",),
    ),
    *(("report",), ("comparison",), ("export", "watch", "demo"), ("api",), ("cli",)),
)
LEVELS = {name: level for level, names in enumerate(LAYERS) for name in names}
# Stands beside the analysis, which does without it; only the facade may import it.
CAPTURE = "capture"
CAPTURE_MAY_IMPORT = {"base", "xplane", "graphs"}
# The rooms inside of a package, lowest first; "" is what stands beside them.
ROOMS = {
    CAPTURE: (
        *("process", "sidecar", "window", "sampling", "steps", "jax", "record", "hang", "launch"),
        *("check", ""),
    ),
    "analysis": ("rules", "facts", "measures", "gpu_time", "workload", "exchange", "machine", ""),
    "trace": ("sidecar", "", "device", "strategy", "host", "reading"),
}
# The public names may come from anywhere; what uses them stands above everything.
FACADE = ("", "__main__", "cli")


def sources() -> dict[Path, str]:
    """The dotted name of each module below the package; that of the package itself is empty."""
    files = sorted(path for path in PACKAGE.rglob("*.py*") if path.suffix in (".py", ".pyi"))
    parts = {path: path.relative_to(PACKAGE).with_suffix("").parts for path in files}
    return {
        path: ".".join(name for name in names if name != "__init__")
        for path, names in parts.items()
    }


@cache
def imports() -> tuple[tuple[str, str], ...]:
    """Which module imports which, also inside of functions and for types."""
    modules = sources()
    known, found = set(modules.values()), []
    for path, importer in modules.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                # The version is a constant of the facade, which is there before any of its modules.
                aliases = (alias.name for alias in node.names if alias.name != "__version__")
                names = [f"{node.module}.{alias}" for alias in aliases]
            for top, _, name in (each.partition(".") for each in names):
                while name not in known:
                    name = name.rpartition(".")[0]
                if top == "traceview" and name != importer:
                    found.append((importer, name))
    return tuple(found)


def room_level(module: str) -> int:
    """The place of a module's room among those of its package."""
    package, _, inner = module.partition(".")
    rooms, room = ROOMS.get(package, ("",)), inner.partition(".")[0]
    return rooms.index(room if room in rooms else "")


def may_import(importer: str, imported: str) -> bool:
    package, other = (module.partition(".")[0] for module in (importer, imported))
    if package in FACADE:
        return True
    if package == other:
        return room_level(imported) <= room_level(importer)
    if package == CAPTURE:
        return other in CAPTURE_MAY_IMPORT
    return LEVELS.get(other, len(LEVELS)) < LEVELS[package]


def test_a_package_imports_only_those_before_it() -> None:
    assert len(imports()) > 1000
    assert [pair for pair in imports() if not may_import(*pair)] == []


def test_no_imports_go_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for importer, imported in imports():
        graph.setdefault(importer, set()).add(imported)
    TopologicalSorter(graph).prepare()


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
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = run_python(tmp_path, "-c", START, *arguments, environment=environment, code=0)
    modules = set(done.err.split())
    assert "traceview" in modules
    assert not {*HEAVY, "google.protobuf", "traceview.store.remote"} & modules


# The bootstrap


def test_it_parses_on_an_old_python() -> None:
    text = (ROOT / "scripts" / "dev.py").read_text(encoding="utf-8")
    tree = ast.parse(text, feature_version=(3, 7))
    # The first thing done after imports that an old Python has as well.
    guard = next(
        node for node in tree.body[1:] if not isinstance(node, (ast.Import, ast.ImportFrom))
    )
    assert isinstance(guard, ast.If)
    assert "sys.version_info < (3, 10)" in ast.unparse(guard.test)
    futures = [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
    assert futures == [], "an old Python does not parse `from __future__ import annotations`"
